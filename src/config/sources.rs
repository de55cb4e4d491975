//! Source of each option: a flag, an environment variable, or a line of the file. Errors name that
//! source.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// Options given, with their sources. An option without a source is named by its flag.
#[derive(Debug, Default)]
pub(crate) struct OptionSources {
    /// Flags on the command line, without their values.
    flags: Vec<String>,
    /// Environment variables that are set.
    variables: Vec<String>,
    file: Option<(PathBuf, BTreeMap<String, usize>)>,
}

impl OptionSources {
    /// Options given to this process; `file` is the configuration file with its text.
    pub(crate) fn here(file: Option<(&Path, &str)>) -> Self {
        let args = std::env::args_os().skip(1).filter_map(|arg| arg.into_string().ok());
        let flags = args
            .filter_map(|arg| Some(format!("--{}", arg.strip_prefix("--")?.split('=').next()?)))
            .collect();
        let variables =
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
        Self { flags, variables, file: file.map(|(path, text)| (path.to_owned(), keys(text))) }
    }

    /// Adds the source of the option with which the failure's text begins.
    pub(crate) fn locate(&self, failure: Failure) -> Failure {
        failure.map(|text| self.located(text))
    }

    fn located(&self, text: String) -> String {
        let is_part = |char: char| char.is_ascii_alphanumeric() || char == '-';
        let end = text.find(|char| !is_part(char)).unwrap_or(text.len());
        let (name, rest) = text.split_at(end);
        match self.place(name) {
            Some(place) => format!("{place}{rest}"),
            None => text,
        }
    }

    /// Source of an option unless given by its flag. For an option that exists only in the file,
    /// `name` is the key.
    fn place(&self, name: &str) -> Option<String> {
        let flag = name.strip_prefix("--");
        if self.flags.iter().any(|given| given == name) {
            return None;
        }
        if let Some(variable) =
            flag.map(variable).filter(|variable| self.variables.contains(variable))
        {
            return Some(variable);
        }
        let (path, lines) = self.file.as_ref()?;
        let key = flag.map_or_else(|| name.to_owned(), camel_case);
        let line = lines.get(&key)?;
        Some(format!("{}:{line}: {key}", path.display()))
    }
}

/// The top-level keys of a YAML text with their line numbers.
pub(super) fn keys(text: &str) -> BTreeMap<String, usize> {
    let lines = text.lines().enumerate();
    let keys = lines.filter_map(|(at, line)| {
        let key = line.split_once(':')?.0.trim_end().trim_matches(['"', '\'']);
        let is_key = !key.is_empty() && key.chars().all(|char| char.is_ascii_alphanumeric());
        is_key.then(|| (key.to_owned(), at + 1))
    });
    keys.collect()
}

/// Environment variable of an option: `sample-interval` becomes `CPUWARDEN_SAMPLE_INTERVAL`.
pub(super) fn variable(flag: &str) -> String {
    format!("CPUWARDEN_{}", flag.replace('-', "_").to_uppercase())
}

/// Key of an option in the file: `sample-interval` becomes `sampleInterval`.
pub(crate) fn camel_case(flag: &str) -> String {
    let mut words = flag.split('-');
    let mut name = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut chars = word.chars();
        name.extend(chars.next().map(|first| first.to_ascii_uppercase()));
        name.push_str(chars.as_str());
    }
    name
}

/// Flag of a key in the file: `sampleInterval` becomes `--sample-interval`.
pub(super) fn flag(key: &str) -> String {
    let mut flag = String::from("--");
    for char in key.chars() {
        if char.is_ascii_uppercase() {
            flag.push('-');
        }
        flag.push(char.to_ascii_lowercase());
    }
    flag
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> OptionSources {
        let file =
            "# the agent\nlisten: 127.0.0.1:1\n\nsampleInterval: 1ms\nprofiles:\n  - name: web\n";
        OptionSources {
            flags: vec!["--listen".to_owned()],
            variables: vec!["CPUWARDEN_MAX_SERIES".to_owned(), "CPUWARDEN_LISTEN".to_owned()],
            file: Some(("/etc/c.yaml".into(), keys(file))),
        }
    }

    #[test]
    fn an_error_names_the_source_that_takes_precedence() {
        let cases = [
            ("--listen: in use", "--listen: in use"),
            ("--max-series: 0 is too few", "CPUWARDEN_MAX_SERIES: 0 is too few"),
            ("--sample-interval: too short", "/etc/c.yaml:4: sampleInterval: too short"),
            ("--sample-interval needs --x", "/etc/c.yaml:4: sampleInterval needs --x"),
            ("profiles: web", "/etc/c.yaml:5: profiles: web"),
            ("--cgroup-root: no hierarchy", "--cgroup-root: no hierarchy"),
            ("something else", "something else"),
        ];
        for (text, located) in cases {
            assert_eq!(sources().located(text.to_owned()), located);
        }
    }

    #[test]
    fn flags_and_keys_convert_both_ways() {
        for flag_name in ["--log", "--kubelet-insecure-skip-verify", "--tls-cert"] {
            assert_eq!(flag(&camel_case(&flag_name[2..])), flag_name);
        }
    }
}
