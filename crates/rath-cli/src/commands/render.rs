//! `rath render`: show the request of a model call.

use rath::Session;
use rath::chunk::Chunk;
use rath::provider::{Anthropic, Gemini, OpenAi, Provider, Request};
use rath::record::{Record, Step};

use crate::output::{self, CommandResult, Failure};
use crate::sessions::{LoadedSession, SessionArg};

/// Show the request that a model was sent, or would be sent
#[derive(clap::Args)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    session: SessionArg,
    /// The step, as for `show`: the answer whose request is shown (default: the newest answer); with --to, the last
    /// step of the request (default: head)
    step: Option<String>,
    /// The model that would be asked: openai:NAME, anthropic:NAME or gemini:NAME
    #[arg(long, value_name = "MODEL", value_parser = RenderTarget::parse)]
    to: Option<RenderTarget>,
    /// In place of the request, list what is kept, rewritten and dropped, part by part
    #[arg(long)]
    report: bool,
}

/// A model that a request is rendered for, which needs no key.
#[derive(Clone)]
struct RenderTarget(Provider);

impl RenderTarget {
    fn parse(uri: &str) -> Result<Self, String> {
        match uri.split_once(':') {
            Some(("openai", model)) if !model.is_empty() => Ok(RenderTarget(OpenAi::new(model).into())),
            Some(("anthropic", model)) if !model.is_empty() => Ok(RenderTarget(Anthropic::new(model).into())),
            Some(("gemini", model)) if !model.is_empty() => Ok(RenderTarget(Gemini::new(model).into())),
            _ => Err("wanted `openai:NAME`, `anthropic:NAME` or `gemini:NAME`".to_owned()),
        }
    }
}

pub(crate) async fn run(args: &RenderArgs) -> CommandResult {
    let loaded = args.session.read().await?;
    let exit = loaded.warn();
    let step = match (&args.step, &args.to) {
        (Some(step), _) => loaded.find_step(step)?,
        (None, Some(_)) => loaded.find_step("head")?,
        (None, None) => newest_answer(&loaded)?,
    };
    let request = match &args.to {
        None => {
            let typed = args.step.as_ref().map(|step| format!(" {}", output::quote(step))).unwrap_or_default();
            loaded.sent_request(step, &typed)?
        }
        Some(RenderTarget(provider)) => {
            let session = Session::resume(Record::at(step.clone()));
            let request = provider.request(&session)?;
            output::message!("{}\n{}", request.report, provider.forecast(&session)?);
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

/// Finds the newest answer that came from a model; one that is kept aside only if there is no other.
pub(super) fn newest_answer(loaded: &LoadedSession) -> Result<&Step, Failure> {
    let has_request = |step: &&Step| matches!(step.chunk(), Chunk::Assistant(answer) if answer.request.is_some());
    let read = loaded.session.as_record().newest_first().find(has_request);
    read.or_else(|| loaded.lineage.walk().into_iter().rev().find(has_request)).ok_or_else(|| {
        let message = format!("no answer in {} came from a model", loaded.name());
        Failure::new(message, loaded.render_hint(""))
    })
}
