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

/// Beginning of each option's variable.
const PREFIX: &str = "CPUWARDEN_";

/// Variables of other programs of this workspace, and of its build and tests.
const OTHER_VARIABLES: [&str; 6] = [
    "CPUWARDEN_CONFIG",
    "CPUWARDEN_AGENT_NAMESPACE",
    "CPUWARDEN_REVISION",
    "CPUWARDEN_BIN",
    "CPUWARDEN_BLESS",
    "CPUWARDEN_SCREENSHOTS",
];

/// A sentence for each variable of this process that looks like an option and is none.
pub(crate) fn unknown_variables() -> Vec<String> {
    let command = super::augment(clap::Command::new("run"));
    let known: Vec<String> = command
        .get_arguments()
        .filter_map(|arg| arg.get_env()?.to_str().map(str::to_owned))
        .collect();
    let set = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut unknown: Vec<String> =
        set.filter_map(|(name, value)| unknown_variable(&name, &value, &known)).collect();
    unknown.sort_unstable();
    unknown
}

fn unknown_variable(name: &str, value: &str, known: &[String]) -> Option<String> {
    let is_known = known.iter().any(|one| one == name) || OTHER_VARIABLES.contains(&name);
    if !name.starts_with(PREFIX) || is_known || is_service_link(name, value) {
        return None;
    }
    // The prefix, which all of them have, makes no two of them alike.
    let bare = |name: &'_ str| name.trim_start_matches(PREFIX).to_owned();
    let options: Vec<String> = known.iter().map(|known| bare(known)).collect();
    let hint = match console::nearest(&bare(name), options.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {PREFIX}{meant}?"),
        None => "remove it".to_owned(),
    };
    Some(format!("{name}: no option has this variable, so it is ignored; {hint}"))
}

/// Whether the kubelet sets this variable for a Service whose name begins with cpuwarden:
/// `…_SERVICE_HOST`, `…_SERVICE_PORT`, `…_SERVICE_PORT_NAME`, `…_PORT` with a URL, and
/// `…_PORT_9753_TCP` with its parts.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_url = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    let of_port = name.rsplit_once("_PORT_").is_some_and(|(_, rest)| {
        let mut parts = rest.split('_');
        let port = parts.next().is_some_and(|port| port.parse::<u16>().is_ok());
        port && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    });
    // …_PORT_9753_TCP_PORT ends with another _PORT.
    let of_part = name.strip_suffix("_PORT").is_some_and(|rest| {
        ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| rest.ends_with(protocol))
    });
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT") && is_url
        || of_port
        || of_part
}

/// Environment variable of an option: `sample-interval` becomes `CPUWARDEN_SAMPLE_INTERVAL`.
pub(super) fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.replace('-', "_").to_uppercase())
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
    fn an_unknown_variable_is_named_with_the_one_that_is_meant() {
        let known = ["CPUWARDEN_SAMPLE_INTERVAL", "CPUWARDEN_UI"].map(str::to_owned);
        let of = |name: &str, value: &str| unknown_variable(name, value, &known);
        assert_eq!(of("CPUWARDEN_SAMPLE_INTERVAL", "1s"), None);
        assert_eq!(of("CPUWARDEN_CONFIG", "/c"), None);
        assert_eq!(of("PATH", "/bin"), None);
        assert_eq!(
            of("CPUWARDEN_SAMPLE_INTERVALL", "1s").unwrap(),
            "CPUWARDEN_SAMPLE_INTERVALL: no option has this variable, so it is ignored; did you mean \
             CPUWARDEN_SAMPLE_INTERVAL?"
        );
        assert!(of("CPUWARDEN_PORT", "9753").unwrap().ends_with("remove it"));
    }

    #[test]
    fn variables_of_a_service_are_not_meant_for_the_agent() {
        for (name, value) in [
            ("CPUWARDEN_SERVICE_HOST", "10.96.0.9"),
            ("CPUWARDEN_SERVICE_PORT", "9753"),
            ("CPUWARDEN_SERVICE_PORT_METRICS", "9753"),
            ("CPUWARDEN_PORT", "tcp://10.96.0.9:9753"),
            ("CPUWARDEN_PORT_9753_TCP", "tcp://10.96.0.9:9753"),
            ("CPUWARDEN_PORT_9753_TCP_PROTO", "tcp"),
            ("CPUWARDEN_PORT_9753_TCP_PORT", "9753"),
            ("CPUWARDEN_PORT_9753_TCP_ADDR", "10.96.0.9"),
            ("CPUWARDEN_WEB_SERVICE_HOST", "fd00::9"),
            ("CPUWARDEN_WEB_PORT_53_UDP_ADDR", "fd00::9"),
        ] {
            assert_eq!(unknown_variable(name, value, &[]), None, "{name}");
        }
        assert!(unknown_variable("CPUWARDEN_SERVICE", "1", &[]).is_some());
    }

    #[test]
    fn flags_and_keys_convert_both_ways() {
        for flag_name in ["--log", "--kubelet-insecure-skip-verify", "--tls-cert"] {
            assert_eq!(flag(&camel_case(&flag_name[2..])), flag_name);
        }
    }
}
