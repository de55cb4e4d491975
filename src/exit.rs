//! Exit of the process after a wrong command line.

use std::error::Error as _;

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use console::{nearest, stderr};

use crate::config::OptionSources;

pub(crate) use console::Failure;

/// Commands that a first user tries.
const FIRST: [&str; 4] = ["demo", "run", "top", "advise"];

/// Commands that the image's program does not have.
const ELSEWHERE: [&str; 5] = ["demo", "top", "replay", "completions", "man"];

/// A wrong command line or environment variable of `command`: clap's message, the name that was
/// probably meant, and a pointer to the help.
pub(crate) fn usage(error: &clap::Error, command: &Command, sources: &OptionSources) -> Failure {
    let program = stderr::program();
    let subcommand = subcommand(command).map_or(String::new(), |name| name + " ");
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if subcommand.is_empty() => {
            let known = |name: &&str| command.find_subcommand(name).is_some();
            let first: Vec<&str> = FIRST.into_iter().filter(known).collect();
            format!("no command; try {}", first.join(", "))
        }
        _ => message(error),
    };
    if let Some(name) = left_out(error, command) {
        return Failure::config(format!(
            "{name} is not part of the image; use kubectl cpuwarden, or a program with all features \
             (cargo build --release)"
        ));
    }
    sources.locate(Failure::config(format!(
        "{message}{}; see {program} {subcommand}--help",
        meant(error, command)
    )))
}

/// The command that this program was built without; the plugin never had it.
fn left_out(error: &clap::Error, command: &Command) -> Option<&'static str> {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidSubcommand) else {
        return None;
    };
    ELSEWHERE.into_iter().find(|name| name == given && command.get_name() == "cpuwarden")
}

/// The flag, command or value that was probably meant, as part of a sentence. A hidden one is only
/// named for a typing mistake, because the help of the command does not have it.
fn meant(error: &clap::Error, command: &Command) -> String {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(name) => Some(name.as_str()),
        ContextValue::Strings(names) => names.first().map(String::as_str),
        _ => None,
    };
    let suggested = if let Some(given) = text(ContextKind::InvalidSubcommand) {
        let known = command.get_subcommands().filter(|known| !known.is_hide_set());
        nearest(given, known.map(Command::get_name).chain(["help"]))
            .or(text(ContextKind::SuggestedSubcommand))
            .map(str::to_owned)
    } else if let Some(suggested) = text(ContextKind::SuggestedArg) {
        let of = subcommand(command).and_then(|name| command.find_subcommand(name));
        let flags = |is_hidden| {
            let args = of.unwrap_or(command).get_arguments();
            args.filter(move |arg| arg.is_hide_set() == is_hidden).filter_map(|arg| arg.get_long())
        };
        let given = text(ContextKind::InvalidArg).unwrap_or_default().trim_start_matches('-');
        let is_shown = flags(false).any(|flag| Some(flag) == suggested.strip_prefix("--"));
        let near = nearest(given, flags(false)).or_else(|| nearest(given, flags(true)));
        near.map(|flag| format!("--{flag}")).or(is_shown.then(|| suggested.to_owned()))
    } else {
        text(ContextKind::SuggestedValue).map(str::to_owned)
    };
    suggested.map_or(String::new(), |name| format!("; did you mean {name}?"))
}

/// clap's message without its usage text. If it is about the value of an option, it begins with the
/// flag.
pub(crate) fn message(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or(&text).trim_start_matches("error: ").trim_end();
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        _ => "",
    };
    let (option, value) = (context(ContextKind::InvalidArg), context(ContextKind::InvalidValue));
    let flag = option.split([' ', '[', '=']).next().unwrap_or_default();
    let reason = error.source().map(ToString::to_string).unwrap_or_default();
    match text.split_once(&format!(" for '{option}'")) {
        Some(_) if flag.starts_with("--") && !value.is_empty() && reason.contains(value) => {
            format!("{flag}: {reason}")
        }
        Some((before, after)) if flag.starts_with("--") => format!("{flag}: {before}{after}"),
        _ => text.to_owned(),
    }
}

/// The subcommand of this command line.
fn subcommand(command: &Command) -> Option<String> {
    let first = std::env::args().skip(1).find(|arg| !arg.starts_with('-'))?;
    command.find_subcommand(&first).map(|_| first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_the_image_lacks_is_answered_with_where_it_is() {
        let refused = |name| {
            let image = Command::new(name).subcommand(Command::new("topology"));
            let error = image.clone().try_get_matches_from([name, "top"]).unwrap_err();
            usage(&error, &image, &OptionSources::here(None)).to_string()
        };
        let message = refused("cpuwarden");
        assert!(
            message.starts_with("top is not part of the image; use kubectl cpuwarden"),
            "{message}"
        );
        assert!(refused("other").contains("did you mean topology?"));
    }
}
