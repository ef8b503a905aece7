//! `rath explain`: answer questions about a step from the record.

use rath::provider::Prices;

use crate::explanation::{explain, explain_newest_turn};
use crate::output::pager::PagerArg;
use crate::output::{self, CommandResult};
use crate::sessions::{NamedStep, StepArg};

/// Explain a turn or a step: what the model saw, where tools ran, what changed, and what it cost
///
/// Without a step it is the newest turn: its newest answer, and the changes of all its calls. The answers come from the record
/// alone; no model is asked. They are as of the step: for an answer of a model they say what it was sent, which files its calls
/// changed, which notes of a memory it saw, which steps a summary stood for, which routes were chosen, and which checks cover the
/// files.
#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    step: StepArg,
    #[command(flatten)]
    pager: PagerArg,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &ExplainArgs) -> CommandResult {
    let NamedStep { loaded, step, .. } = args.step.read().await?;
    let exit = loaded.warn();
    let (lineage, prices) = (&loaded.lineage, Prices::list());
    let explanation = match &step {
        Some(step) => explain(step, lineage, &prices),
        None => match explain_newest_turn(lineage, &prices) {
            Some(explanation) => explanation,
            None => explain(loaded.find_step("head")?, lineage, &prices),
        },
    };
    match args.json {
        true => output::data(|out| output::json_line(out, &explanation))?,
        false => args.pager.text(|out| explanation.print(out))?,
    }
    Ok(exit)
}
