//! `cpuwarden reference`: prints the reference of metrics or options for `deploy/docs`, from their
//! source tables.

use std::fmt::Write as _;

use clap::{Arg, Args as _, ValueEnum};

use crate::cli::RunArgs;
use crate::config::camel_case;

/// Page of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Page {
    /// Every metric
    Metrics,
    /// Every option of run
    Configuration,
}

/// Renders the reference as Markdown.
pub(crate) fn reference(page: Page) -> String {
    match page {
        Page::Metrics => metrics::catalogue::reference(),
        Page::Configuration => configuration(),
    }
}

/// Renders one section per heading of `run --help`, with one row per option.
fn configuration() -> String {
    let command = RunArgs::augment_args(clap::Command::new("run"));
    let mut text = String::new();
    let mut section = None;
    for option in command.get_arguments().filter(|option| option.get_help_heading().is_some()) {
        let heading = option.get_help_heading();
        if section != heading {
            let gap = if section.is_none() { "" } else { "\n" };
            let _ = write!(text, "{gap}## {}\n\n", heading.unwrap_or_default());
            text.push_str("| flag | variable | key | meaning |\n|---|---|---|---|\n");
            section = heading;
        }
        row(&mut text, option);
    }
    text
}

fn row(text: &mut String, option: &Arg) {
    let flag = option.get_long().unwrap_or_default();
    let variable = option.get_env().unwrap_or_default().to_string_lossy();
    let values: Vec<_> = option
        .get_possible_values()
        .iter()
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    // A boolean flag needs no list of values.
    let values = if values.len() > 2 { format!(": {}", values.join(", ")) } else { String::new() };
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    let _ =
        writeln!(text, "| `--{flag}` | `{variable}` | `{}` | {help}{values} |", camel_case(flag));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Options;

    #[test]
    fn every_key_of_the_file_is_in_the_reference_of_configuration() {
        let text = configuration();
        for line in text.lines().filter(|line| line.starts_with("| `--")) {
            let key = line.split('`').nth(5).unwrap();
            let error =
                serde_saphyr::from_str::<Options>(&format!("{key}: []\n")).unwrap_err().to_string();
            assert!(!error.contains("unknown field"), "{line}: {error}");
        }
        assert!(
            text.contains(
                "| `--sample-interval` | `CPUWARDEN_SAMPLE_INTERVAL` | `sampleInterval` | "
            ),
            "{text}"
        );
    }
}
