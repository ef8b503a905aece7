//! `rath render`: a session as a provider sees it.

use rath::chunk::Chunk;
use rath::provider::{Anthropic, OpenAi, Provider, Request};
use rath::record::{Record, Step};
use rath::{ErrorKind, Session};

use super::show;
use crate::output::{self, Done, Failure};
use crate::sessions::{Named, SessionArg};

/// Show the request that a model was sent, or would be
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
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
    let named = args.session.read()?;
    let exit = named.warn();
    let step = match (&args.step, &args.to) {
        (Some(step), _) => show::find(&named, step)?,
        (None, Some(_)) => show::find(&named, "head")?,
        (None, None) => newest_answer(&named)?,
    };
    let request = match &args.to {
        None => as_sent(&named, step, &args.step.as_ref().map(|step| format!(" {step}")).unwrap_or_default())?,
        Some(Model(provider)) => {
            let session = Session::resume(Record::at(step.clone()));
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
    Ok(exit)
}

fn write_request(out: &mut dyn std::io::Write, request: &Request) -> std::io::Result<()> {
    out.write_all(request.body())?;
    out.write_all(b"\n")
}

/// The request that an answer came of. `typed` is how the step was named, after a space.
pub(crate) fn as_sent(named: &Named, step: &Step, typed: &str) -> Result<Request, Failure> {
    let session = Session::resume(Record::at(step.clone()));
    session.request(step.id()).map_err(|error| {
        // A step that is no answer can still be rendered, for a model that is named.
        let hint = (error.kind() == ErrorKind::Request).then(|| with_to(named, typed));
        let failure = Failure::from(error);
        hint.into_iter().fold(failure, Failure::hint)
    })
}

/// The newest answer that a provider gave.
fn newest_answer(named: &Named) -> Result<&Step, Failure> {
    let given = |step: &&Step| matches!(step.chunk(), Chunk::Assistant(answer) if answer.request.is_some());
    named.lineage.walk().into_iter().rev().find(given).ok_or_else(|| {
        let what = format!("no answer in {} was given by a provider", named.name());
        Failure::told(what, with_to(named, ""))
    })
}

fn with_to(named: &Named, typed: &str) -> String {
    let command = named.command("render", &format!("{typed} --to openai:MODEL"));
    format!("{command} shows what a model would be sent")
}
