//! `rath render`: a session as a provider sees it.

use std::path::PathBuf;

use rath::provider::{Provider, Request};
use rath::record::Record;
use rath::record::draw::printable;
use rath::{Session, provider};

use super::show;
use crate::output::{self, Done, Failure};

/// Show the request that a model was sent, or would be
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A session file
    file: PathBuf,
    /// The step, as for `show`: an answer, whose request is shown; with --to, any step to go on from
    #[arg(default_value = "head")]
    step: String,
    /// The model that would be asked: `openai:MODEL` or `anthropic:MODEL`
    #[arg(long, value_name = "MODEL")]
    to: Option<String>,
    /// Print what is kept, rewritten and dropped, part by part, in place of the request
    #[arg(long)]
    report: bool,
}

pub(crate) fn run(args: &Args) -> Done {
    let opened = Session::open(&args.file)?;
    let status = output::warn(&args.file, &opened.report);
    let step = show::find(&opened.lineage, &args.step, &args.file)?;
    let session = Session::resume(Record::at(step.clone()));
    let request = match &args.to {
        None => session.request(step.id()).map_err(|error| hint_to(error, args))?,
        Some(model) => {
            let provider = provider(model)?;
            let request = provider.request(&session)?;
            anstream::eprintln!("{}\n{}", request.report, provider.forecast(&session)?);
            request
        }
    };
    if args.report {
        output::text(|out| {
            let mut parts = request.report.parts.iter();
            parts.try_for_each(|(step, part, fate)| {
                writeln!(out, "{} {:<9} {}", output::short(step), fate.name(), part.name())
            })
        })?;
    } else {
        output::data(|out| write_request(out, &request))?;
    }
    Ok(status)
}

fn write_request(out: &mut dyn std::io::Write, request: &Request) -> std::io::Result<()> {
    out.write_all(&request.bytes)?;
    out.write_all(b"\n")
}

/// A provider that only renders: no key is needed.
fn provider(uri: &str) -> Result<Provider, Failure> {
    match uri.split_once(':') {
        Some(("openai", model)) if !model.is_empty() => Ok(provider::OpenAi::new(model).into()),
        Some(("anthropic", model)) if !model.is_empty() => Ok(provider::Anthropic::new(model).into()),
        _ => Err(Failure::Told(
            format!("wanted a model to render for, found `{}`", printable(uri)),
            "write `openai:MODEL` or `anthropic:MODEL`".to_owned(),
        )),
    }
}

/// A step that is no answer can still be rendered, for a model that is named.
fn hint_to(error: rath::Error, args: &Args) -> Failure {
    match error.kind() {
        rath::ErrorKind::Request => Failure::Told(
            error.to_string().lines().next().unwrap_or_default().to_owned(),
            format!(
                "`rath render {} {} --to openai:MODEL` shows what a model would be sent",
                args.file.display(),
                args.step
            ),
        ),
        _ => error.into(),
    }
}
