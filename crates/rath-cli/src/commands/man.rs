//! `rath man`: the manual pages.

use std::fs;
use std::path::PathBuf;

use clap_mangen::Man;

use crate::output::{self, CommandResult, Exit, Failure};

/// Write the manual pages to a directory, one for each command
///
/// `man -l DIR/rath.1` shows a page. The pages of a directory `man1` of MANPATH
/// are found by their names: `man rath-run`.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ManArgs {
    /// The directory, which is created if it does not exist
    directory: PathBuf,
}

pub(crate) fn run(args: &ManArgs, command: clap::Command) -> CommandResult {
    let cannot_write = |error: std::io::Error| {
        let message = format!("cannot write manual pages to {}: {error}", output::path(&args.directory));
        Failure::new(message, "name a directory that you can write to")
    };
    fs::create_dir_all(&args.directory).map_err(cannot_write)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut rest = vec![command];
    let mut pages = 0;
    while let Some(command) = rest.pop() {
        rest.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        // No date: the same program writes the same pages.
        Man::new(command).generate_to(&args.directory).map_err(cannot_write)?;
        pages += 1;
    }
    output::message!("wrote {pages} pages to {}", output::path(&args.directory));
    Ok(Exit::Success)
}
