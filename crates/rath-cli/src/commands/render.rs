//! `rath render`: show the request of a model call.

use rath::Session;
use rath::chunk::Chunk;
use rath::provider::{Anthropic, Gemini, OpenAi, Provider, Request};
use rath::record::{Record, Step};

use crate::output::{self, CommandResult, Failure};
use crate::sessions::{LoadedSession, StepArg};

/// Show the request that a model was sent, or would be sent
///
/// The step is the answer whose request is shown, or else the newest answer; with --to, the last step of the request.
#[derive(clap::Args)]
pub(crate) struct RenderArgs {
    #[command(flatten)]
    step: StepArg,
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
    let named = args.step.read().await?;
    let loaded = &named.loaded;
    let exit = loaded.warn();
    let step = match (&named.step, &args.to) {
        (Some(step), _) => step,
        (None, Some(_)) => loaded.find_step("head")?,
        (None, None) => newest_answer(loaded)?,
    };
    let request = match &args.to {
        None => loaded.sent_request(step, &named.typed)?,
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
