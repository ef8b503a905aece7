//! `rath completions`: the script with which a shell completes command lines.

use clap::ValueEnum;
use clap_complete::{Generator, Shell};

use crate::output::{self, CommandResult, Exit};

/// Print the script with which a shell completes rath's commands
///
/// bash: source <(rath completions bash)
/// zsh:  source <(rath completions zsh)
/// fish: rath completions fish | source
///
/// The line works once; in ~/.bashrc, ~/.zshrc (after `compinit`) or
/// ~/.config/fish/config.fish it works in every shell.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: KnownShell,
}

/// The shells that a script can be printed for.
#[derive(Clone, Copy, ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

pub(crate) fn run(args: &CompletionsArgs, mut command: clap::Command) -> CommandResult {
    let shell = match args.shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    command.set_bin_name("rath");
    command.build();
    let mut script = Vec::new();
    shell.try_generate(&command, &mut script)?;
    output::data(|out| out.write_all(&script))?;
    Ok(Exit::Success)
}
