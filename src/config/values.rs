//! Checks values without looking at this machine. Each error has the option, the value and the
//! remedy.

use std::path::Path;

use clap::{Args as _, Command};
use console::nearest;
use serde_json::Value;

use super::Options;
use super::sources::{flag, keys};
use crate::exit::{self, Failure};

/// Options that accept an empty text, which means none.
const MAY_BE_EMPTY: &[&str] =
    &["reservedCpus", "cpusetOwnerNamespaces", "metricsEnable", "metricsDisable", "podLabels"];
/// Maximum length of a node name (RFC 1123).
const NODE_NAME: usize = 253;

/// Checks each value by itself: its text, and its range with the parser of its flag.
pub(super) fn check_each(options: &Options) -> Result<(), Failure> {
    let given = serde_json::to_value(options).map_err(|error| {
        Failure::config(format!("an option is not UTF-8: {error}; rename the file or directory"))
    })?;
    let mut args = Vec::new();
    for (key, value) in given.as_object().into_iter().flatten() {
        let flag = flag(key);
        let text = match value {
            Value::String(text) => check_text(key, text).map(|()| text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            // JSON has neither NaN nor infinity.
            Value::Null => Err("is not a finite number; correct it".to_owned()),
            _ => continue,
        };
        let text = text.map_err(|why| Failure::config(format!("{flag}: {why}")))?;
        args.push(format!("{flag}={text}"));
    }
    let command = Options::augment_args(Command::new("options")).no_binary_name(true);
    let matches = command.try_get_matches_from(args);
    matches.map_err(|error| Failure::config(exit::message(&error)))?;
    Ok(())
}

fn check_text(key: &str, text: &str) -> Result<(), String> {
    if text.trim().is_empty() && !MAY_BE_EMPTY.contains(&key) {
        return Err("is empty; set a value or remove it".to_owned());
    }
    if let Some((_, rest)) = text.split_once("$(").or_else(|| text.split_once("${")) {
        let name = rest.split([')', '}']).next().unwrap_or_default();
        return Err(format!(
            "{text:?} has an unexpanded variable; define {name} in the container's env, before the entry that uses it"
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{text:?} contains a control character; remove it"));
    }
    Ok(())
}

/// Checks names, and options that depend on each other.
pub(super) fn check_values(options: &Options) -> Result<(), Failure> {
    check_names(options).map_err(Failure::config)?;
    let tick = options.sample_interval;
    if let Some(walk) = options.reconcile_interval.filter(|walk| *walk < tick) {
        return Err(Failure::config(format!(
            "--reconcile-interval: {walk} is shorter than --sample-interval ({tick}); raise it"
        )));
    }
    if options.metrics_auth && options.tls_cert.is_none() {
        return Err(Failure::config(
            "--metrics-auth needs --tls-cert and --tls-key, so that tokens are not sent in clear text".to_owned()
        ));
    }
    Ok(())
}

fn check_names(options: &Options) -> Result<(), String> {
    if let Some(kubepods) = &options.kubepods
        && kubepods.trim_matches('/').split('/').any(|part| matches!(part, "" | "." | ".."))
    {
        return Err(format!(
            "--kubepods: {kubepods:?} is not a path below the cgroup hierarchy, e.g. kubepods.slice"
        ));
    }
    let is_name = |name: &str| {
        let is_part = |char: char| {
            char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '.')
        };
        name.len() <= NODE_NAME && name.chars().all(is_part)
    };
    if let Some(host) = options.allowed_hosts().iter().find(|host| !is_host(host)) {
        return Err(format!(
            "--allowed-hosts: {host:?} is not a host name: expected names without scheme and port, e.g. cpu.example.com"
        ));
    }
    match &options.node_name {
        Some(name) if !is_name(name) => Err(format!(
            "--node-name: {name:?} is not a node name: expected a DNS name in lower case, e.g. node-1"
        )),
        _ => Ok(()),
    }
}

impl Options {
    /// The names of `--allowed-hosts`, in lower case.
    pub(crate) fn allowed_hosts(&self) -> Vec<String> {
        let names = self.allowed_hosts.as_deref().map(|names| names.split(','));
        names.into_iter().flatten().map(|name| name.trim().to_ascii_lowercase()).collect()
    }
}

/// Whether this is a host name in lower case, without a port.
fn is_host(name: &str) -> bool {
    let is_part = |char: char| {
        char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '.' | '_')
    };
    !name.is_empty() && name.chars().all(is_part)
}

/// An error in the file, with its position in the format of a compiler message.
pub(super) fn file_error(path: &Path, text: &str, error: &serde_saphyr::Error) -> Failure {
    let printed = error.without_snippet().to_string();
    let message = printed.split(" at line ").next().unwrap_or(&printed);
    let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message);
    let message = &unknown_key(message).unwrap_or_else(|| in_words(message));
    let Some(line) = error.location().and_then(|place| usize::try_from(place.line()).ok()) else {
        return Failure::config(format!("{}: {message}; correct the file", path.display()));
    };
    let place = format!("{}:{line}", path.display());
    let value = text
        .lines()
        .nth(line.saturating_sub(1))
        .filter(|line| !line.trim_start().starts_with('{'))
        .and_then(|line| Some(line.split_once(':')?.1.trim()));
    let message = match value {
        // The library does not repeat a value of another type.
        Some(value) if message.starts_with("expected ") && !message.contains(value) => {
            let several = match message == ONE_VALUE && value.starts_with('[') {
                true => "; separate several by commas",
                false => "",
            };
            format!("{message}: {value}{several}")
        }
        Some(value) if message.contains(SYNTAX) && value.starts_with(NEEDS_QUOTES) => {
            format!("{message}; put the value in quotes: {value:?}")
        }
        _ => message.to_owned(),
    };
    match keys(text).into_iter().find(|(_, at)| *at == line) {
        Some((key, _)) if !message.starts_with(&key) && !message.starts_with("unknown field") => {
            Failure::config(format!("{place}: {key}: {message}; correct the file"))
        }
        _ => Failure::config(format!("{place}: {message}; correct the file")),
    }
}

/// The message about a top-level key that does not exist, with the key that is probably meant; `None`
/// for another message.
fn unknown_key(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown field `")?;
    let (key, known) = rest.split_once('`')?;
    let known = known.split("expected one of ").nth(1)?;
    let known: Vec<&str> = known.split(", ").map(|key| key.trim_matches('`')).collect();
    // Objects in the file have few fields: the message lists them.
    if !known.contains(&"sampleInterval") {
        return None;
    }
    let hint = match nearest(&key.replace(['-', '_'], ""), known) {
        _ if key == "config" => {
            "the file has the keys of the chart's `config` at its top level".to_owned()
        }
        Some(key) => format!("did you mean `{key}`?"),
        None => "cpuwarden run --help lists the flags, and each is a key in camelCase".to_owned(),
    };
    Some(format!("unknown field `{key}`; {hint}"))
}

/// Part of the library's messages about a place where the text is no YAML.
const SYNTAX: &str = "did not find expected";
/// Characters with a meaning of their own at the start of a value.
const NEEDS_QUOTES: [char; 9] = ['[', '{', '*', '&', '!', '|', '>', '%', '@'];

/// Words for a list or a map in the place of a value.
const ONE_VALUE: &str = "expected a single value";

/// The library's messages in its own terms, by their beginnings, and words for them.
const WORDS: [(&str, &str); 9] = [
    ("multiple YAML documents", "more than one YAML document; keep one, without the line ---"),
    ("cannot deserialize null", "null is not a text"),
    ("cannot deserialize tagged scalar", "the value has a YAML tag; remove it"),
    ("!!binary scalar", "the value of !!binary is not text"),
    ("expected mapping start", "expected keys with values, such as `name: web`"),
    ("expected sequence start", "expected a list"),
    ("expected string scalar", ONE_VALUE),
    ("non-finite float", "expected a finite number"),
    ("unexpected character: `\\u{", "a control character; remove it"),
];

/// The library's message with words for its types.
fn in_words(message: &str) -> String {
    if let Some((_, words)) = WORDS.iter().find(|(start, _)| message.starts_with(start)) {
        return (*words).to_owned();
    }
    if let Some((value, known)) = message
        .strip_prefix("unknown variant ")
        .and_then(|rest| rest.split_once(", expected one of "))
    {
        return format!("{value} is not one of {}", known.replace('`', ""));
    }
    let Some(kind) = message.strip_prefix("invalid ") else { return message.to_owned() };
    match kind.split(' ').next().unwrap_or_default().trim_end_matches(':') {
        "u64" | "u32" | "u16" | "usize" | "u8" | "i64" | "i32" => {
            "expected a whole number".to_owned()
        }
        "f64" | "f32" | "floating" => "expected a number".to_owned(),
        "bool" | "boolean" => "expected true or false".to_owned(),
        _ => message.to_owned(),
    }
}
