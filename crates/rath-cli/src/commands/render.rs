//! `rath render`: a session as a provider sees it.

use std::path::PathBuf;

use rath::chunk::Chunk;
use rath::provider::{Anthropic, OpenAi, Provider, Request};
use rath::record::lineage::Lineage;
use rath::record::{Record, Step};
use rath::{ErrorKind, Session};

use super::show;
use crate::output::{self, Done, Failure};

/// Show the request that a model was sent, or would be
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A session file
    file: PathBuf,
    /// The step, as for `show`: the answer whose request is shown (the newest, if none is named); with --to, the step to go
    /// on from (`head`, if none is named)
    step: Option<String>,
    /// The model that would be asked
    #[arg(long, value_name = "openai:MODEL | anthropic:MODEL", value_parser = Model::parse)]
    to: Option<Model>,
    /// Print what is kept, rewritten and dropped, part by part, in place of the request
    #[arg(long)]
    report: bool,
}

/// A model to render for: no key is needed.
#[derive(Clone)]
struct Model(Provider);

impl Model {
    fn parse(uri: &str) -> Result<Self, String> {
        match uri.split_once(':') {
            Some(("openai", model)) if !model.is_empty() => Ok(Model(OpenAi::new(model).into())),
            Some(("anthropic", model)) if !model.is_empty() => Ok(Model(Anthropic::new(model).into())),
            _ => Err("wanted `openai:MODEL` or `anthropic:MODEL`".to_owned()),
        }
    }
}

pub(crate) fn run(args: &Args) -> Done {
    let opened = Session::open(&args.file)?;
    let status = output::warn(&args.file, &opened.report);
    let step = match (&args.step, &args.to) {
        (Some(step), _) => show::find(&opened.lineage, step, &args.file)?,
        (None, Some(_)) => show::find(&opened.lineage, "head", &args.file)?,
        (None, None) => newest_answer(&opened.lineage, args)?,
    };
    let session = Session::resume(Record::at(step.clone()));
    let request = match &args.to {
        None => session.request(step.id()).map_err(|error| hint_to(error, args))?,
        Some(Model(provider)) => {
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

/// The newest answer that a provider gave.
fn newest_answer<'a>(lineage: &'a Lineage, args: &Args) -> Result<&'a Step, Failure> {
    let given = |step: &&Step| matches!(step.chunk(), Chunk::Assistant(answer) if answer.request.is_some());
    lineage.walk().into_iter().rev().find(given).ok_or_else(|| {
        let what = format!("no answer in {} was given by a provider", args.file.display());
        Failure::Told(what, with_to(args))
    })
}

/// A step that is no answer can still be rendered, for a model that is named.
fn hint_to(error: rath::Error, args: &Args) -> Failure {
    match error.kind() {
        ErrorKind::Request => {
            Failure::Told(error.to_string().lines().next().unwrap_or_default().to_owned(), with_to(args))
        }
        _ => error.into(),
    }
}

fn with_to(args: &Args) -> String {
    let step = args.step.as_ref().map(|step| format!(" {step}")).unwrap_or_default();
    format!("`rath render {}{step} --to openai:MODEL` shows what a model would be sent", args.file.display())
}
