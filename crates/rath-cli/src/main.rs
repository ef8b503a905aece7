//! The `rath` program.

mod agent;
mod commands;
mod json;
mod output;
mod sessions;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{
    bisect, blame, check, checkout, cost, demo, diff, export, forget, fork, gc, import, log, ls, merge, render, replay,
    restore, resume, review, run, salvage, show, verify,
};
use crate::output::EXIT_CODES;

/// Run agents, and read, check and export their sessions.
// Help is wrapped at 80 columns on every terminal, so that it looks the same everywhere.
#[derive(Parser)]
#[command(name = "rath", version, after_help = EXIT_CODES, term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::RunArgs),
    Resume(resume::ResumeArgs),
    Review(review::ReviewArgs),
    Demo(demo::DemoArgs),
    Ls(ls::LsArgs),
    Log(log::LogArgs),
    Show(show::ShowArgs),
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
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Resume(args) => resume::run(&args),
        Command::Review(args) => review::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Ls(args) => ls::run(&args),
        Command::Log(args) => log::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Render(args) => render::run(&args),
        Command::Cost(args) => cost::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Fork(args) => fork::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Diff(args) => diff::run(&args),
        Command::Checkout(args) => checkout::run(&args),
        Command::Restore(args) => restore::run(&args),
        Command::Blame(args) => blame::run(&args),
        Command::Bisect(args) => bisect::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Salvage(args) => salvage::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Forget(args) => forget::run(&args),
        Command::Gc(args) => gc::run(&args),
    };
    let exit = result.unwrap_or_else(|failure| {
        output::error(&failure);
        failure.exit
    });
    exit.into()
}
