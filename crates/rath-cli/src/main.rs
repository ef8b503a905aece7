//! The `rath` program.

mod agent;
mod asking;
mod budgets;
mod cards;
mod changed_files;
mod commands;
mod configuration;
mod escape;
mod events;
mod explanation;
mod hidden;
mod hints;
mod json;
mod keys;
mod mcp_servers;
mod memories;
mod models;
mod output;
mod project_context;
mod prompts;
mod retention;
mod sandboxes;
mod scripts;
mod search;
mod sessions;
#[cfg(unix)]
mod signals;
#[cfg(not(unix))]
#[path = "signals_unsupported.rs"]
mod signals;
mod strictness;
mod styled;
mod talk;
#[cfg_attr(not(feature = "otel"), path = "telemetry_unsupported.rs")]
mod telemetry;
mod terminal;
mod unrecorded;
mod unwritten;
mod usage;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    adopt, bisect, blame, check, checkout, completions, config, cost, demo, diff, doctor, explain, export, forget,
    fork, gc, import, log, ls, man, mcp, memory, merge, render, replay, restore, resume, review, run, salvage, show,
    status, verify,
};
use crate::output::{CommandResult, EXIT_CODES, Failure};
use crate::sandboxes::RemoveSandboxes;
use crate::telemetry::Telemetry;

/// Run agents, and read, check and export their sessions
///
/// Without a command, `rath` opens a conversation in a terminal: with the newest session here, or with a new one.
// Help is wrapped at 80 columns on every terminal, so that it looks the same everywhere.
#[derive(Parser)]
#[command(name = "rath", version, after_help = EXIT_CODES, term_width = 80, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    talk: talk::TalkArgs,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Resume(resume::ResumeArgs),
    Review(review::ReviewArgs),
    Adopt(adopt::AdoptArgs),
    Demo(demo::DemoArgs),
    Ls(ls::LsArgs),
    Status(status::StatusArgs),
    Log(log::LogArgs),
    Show(show::ShowArgs),
    Explain(explain::ExplainArgs),
    Render(render::RenderArgs),
    Cost(cost::CostArgs),
    Replay(replay::ReplayArgs),
    Fork(fork::ForkArgs),
    Merge(merge::MergeArgs),
    Diff(diff::DiffArgs),
    Checkout(checkout::CheckoutArgs),
    Restore(restore::RestoreArgs),
    Blame(blame::BlameArgs),
    Bisect(bisect::BisectArgs),
    Check(check::CheckArgs),
    Verify(verify::VerifyArgs),
    Salvage(salvage::SalvageArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Forget(forget::ForgetArgs),
    Gc(gc::GcArgs),
    Memory(memory::MemoryArgs),
    Mcp(mcp::McpArgs),
    Config(config::ConfigArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    rath::sandbox::hide_environment();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let words: Vec<_> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
            return output::usage(&error, &Cli::command(), words.iter().map(String::as_str)).into();
        }
    };
    let telemetry = if asks_models(&cli) { Telemetry::start() } else { None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = runtime.map_err(Failure::from).and_then(|runtime| runtime.block_on(run(cli)));
    let exit = result.unwrap_or_else(|failure| {
        output::error(&failure);
        failure.exit
    });
    telemetry.into_iter().for_each(Telemetry::finish);
    exit.into()
}

/// Returns true if the command lets agents work, which is what is traced.
fn asks_models(cli: &Cli) -> bool {
    matches!(cli.command, None | Some(Command::Run(_) | Command::Resume(_) | Command::Demo(_)))
}

/// Runs a command, then closes the stores and the sandboxes that it opened: all rights to write are released before the program ends.
async fn run(cli: Cli) -> CommandResult {
    let remove = match cli.command {
        None | Some(Command::Run(_) | Command::Resume(_)) => RemoveSandboxes::OfSessions,
        _ => RemoveSandboxes::OwnOnly,
    };
    let work = sessions::closing_stores(Box::pin(async move {
        match cli.command {
            Some(command) => run_command(command).await,
            None => talk::run(&cli.talk).await,
        }
    }));
    sandboxes::closing_sandboxes(remove, work).await
}

/// Runs a command of the program within a conversation.
async fn run_words<'a>(words: impl Iterator<Item = &'a str> + Clone) -> Result<(), Failure> {
    match Cli::try_parse_from(std::iter::once("rath").chain(words.clone())) {
        Ok(Cli { command: Some(command), .. }) => Box::pin(run_command(command)).await.map(drop),
        Ok(_) => Ok(()),
        Err(error) => {
            output::usage(&error, &Cli::command(), words);
            Ok(())
        }
    }
}

async fn run_command(command: Command) -> CommandResult {
    match command {
        Command::Run(args) => run::run(&args).await,
        Command::Resume(args) => resume::run(&args).await,
        Command::Review(args) => review::run(&args).await,
        Command::Adopt(args) => adopt::run(&args).await,
        Command::Demo(args) => demo::run(&args).await,
        Command::Ls(args) => ls::run(&args).await,
        Command::Status(args) => status::run(&args).await,
        Command::Log(args) => log::run(&args).await,
        Command::Show(args) => show::run(&args).await,
        Command::Explain(args) => explain::run(&args).await,
        Command::Render(args) => render::run(&args).await,
        Command::Cost(args) => cost::run(&args).await,
        Command::Replay(args) => replay::run(&args).await,
        Command::Fork(args) => fork::run(&args).await,
        Command::Merge(args) => merge::run(&args).await,
        Command::Diff(args) => diff::run(&args).await,
        Command::Checkout(args) => checkout::run(&args).await,
        Command::Restore(args) => restore::run(&args).await,
        Command::Blame(args) => blame::run(&args).await,
        Command::Bisect(args) => bisect::run(&args).await,
        Command::Check(args) => check::run(&args).await,
        Command::Verify(args) => verify::run(&args).await,
        Command::Salvage(args) => salvage::run(&args).await,
        Command::Export(args) => export::run(&args).await,
        Command::Import(args) => import::run(&args).await,
        Command::Forget(args) => forget::run(&args).await,
        Command::Gc(args) => gc::run(&args).await,
        Command::Memory(args) => memory::run(&args).await,
        Command::Mcp(args) => mcp::run(&args).await,
        Command::Config(args) => config::run(&args),
        Command::Doctor(args) => doctor::run(&args).await,
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    }
}
