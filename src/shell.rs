//! `cpuwarden completions` and `cpuwarden man`: generated from the command line itself.

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::cli::Cli;
use crate::exit::Failure;
use crate::output;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "cpuwarden", &mut script);
    output::show(&String::from_utf8_lossy(&script));
}

/// Prints the man page of the program, or of one of its subcommands.
///
/// # Errors
/// There is no such subcommand.
pub(crate) fn man(subcommand: Option<&str>) -> Result<(), Failure> {
    let mut program = Cli::command();
    program.build();
    let command = match subcommand {
        None => program,
        Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
            Failure::config(format!("man: no subcommand {name:?}; see cpuwarden --help"))
        })?,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).context("cannot write the man page")?;
    output::show(&String::from_utf8_lossy(&page));
    Ok(())
}
