//! The `rath` program.

mod commands;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{cost, demo, export, log, render, run, show, verify};
use crate::output::Status;

/// Run agents, and read, check and export what they did.
#[derive(Parser)]
#[command(name = "rath", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Demo(demo::Args),
    Log(log::Args),
    Show(show::Args),
    Render(render::Args),
    Cost(cost::Args),
    Verify(verify::Args),
    Export(export::Args),
}

const EXIT_CODES: &str =
    "Exit codes: 0 fine, 1 failed, 2 wrong use, 3 damage was found (verify: or the file is not closed)";

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Run(args) => run::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Log(args) => log::run(&args),
        Command::Show(args) => show::run(&args),
        Command::Render(args) => render::run(&args),
        Command::Cost(args) => cost::run(&args),
        Command::Verify(args) => verify::run(&args),
        Command::Export(args) => export::run(&args),
    };
    match done {
        Ok(Status::Fine) => ExitCode::SUCCESS,
        Ok(Status::Damaged) => ExitCode::from(3),
        Err(error) => {
            output::error(&error);
            ExitCode::FAILURE
        }
    }
}
