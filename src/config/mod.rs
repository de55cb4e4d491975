//! Configuration: the options (flags over environment over file over defaults), and what follows
//! from them.

#[cfg(test)]
mod chart_schema;
mod choice;
mod families;
mod injection;
mod modes;
mod options;
mod pinning;
mod pod_labels;
mod range;
mod reading;
mod record_dir;
mod resolved;
mod sources;
mod values;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use serde::de::IgnoredAny;

pub(crate) use console::{ByteSize, HumanDuration, ListenAddress};
pub(crate) use modes::{BpfCountersMode, GcMode, NriMode, SchedTraceMode, UiMode};
pub(crate) use options::{Options, augment};
pub(crate) use range::Within;
pub(crate) use record_dir::{RECORDING_SIZE, RecordDir};
pub(crate) use resolved::Config;
pub(crate) use sources::{OptionSources, camel_case, unknown_variables};

use crate::exit::Failure;

/// Reads the configuration file; returns the options, with defaults where it has none, and the
/// text.
///
/// # Errors
/// A file that cannot be read, is not YAML, or has an unknown key or value; the message names file,
/// line and key.
pub(crate) fn read_file(path: Option<&Path>) -> Result<(Options, String), Failure> {
    let Some(path) = path else { return Ok((Options::default(), String::new())) };
    let place = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::config(match error.kind() {
            ErrorKind::InvalidData => format!("--config: {place} is not text (UTF-8)"),
            ErrorKind::IsADirectory => format!("--config: {place} is a directory; name a file"),
            _ => format!("--config: cannot read {place}: {error}; correct the path"),
        })
    })?;
    if text.trim().is_empty() {
        return Ok((Options::default(), text));
    }
    // First of all: with a key that does not exist, a file that is no YAML would be about the key.
    serde_saphyr::from_str::<IgnoredAny>(&text)
        .map_err(|error| values::file_error(path, &text, &error))?;
    let options = serde_saphyr::from_str(&without_nulls(&text));
    let options = options.map_err(|error| values::file_error(path, &text, &error))?;
    Ok((options, text))
}

/// The text with empty lines for keys without a value, which leave the default in force.
fn without_nulls(text: &str) -> String {
    let values: BTreeMap<String, Option<IgnoredAny>> =
        serde_saphyr::from_str(text).unwrap_or_default();
    let keys = sources::keys(text);
    let nulls: Vec<usize> =
        keys.iter().filter(|(key, _)| values.get(*key) == Some(&None)).map(|(_, at)| *at).collect();
    let lines = text
        .lines()
        .enumerate()
        .map(|(at, line)| if nulls.contains(&(at + 1)) { "" } else { line });
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use pod_sources::PodSource;

    use super::*;

    fn file(text: &str) -> Result<Options, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpuwarden.yaml");
        std::fs::write(&path, text).unwrap();
        read_file(Some(&path)).map(|(options, _)| options)
    }

    #[test]
    fn keys_are_the_flags_in_camel_case() {
        let options =
            file("sampleInterval: 250ms\nlisten: 127.0.0.1:1\npodSource: readonly\n").unwrap();
        assert_eq!(options.sample_interval.0.as_millis(), 250);
        assert_eq!(options.pod_source, PodSource::ReadOnly);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = file("listen: 127.0.0.1:1\nlissten: x\n").unwrap_err().to_string();
        assert!(error.contains("lissten") && error.contains("cpuwarden.yaml:2: "), "{error}");
    }

    #[test]
    fn a_mistyped_key_is_answered_with_the_key_that_is_meant() {
        for (text, meant) in [
            (
                "sampleIntervall: 1s\n",
                "unknown field `sampleIntervall`; did you mean `sampleInterval`?",
            ),
            ("sample-interval: 1s\n", "did you mean `sampleInterval`?"),
            (
                "config: {log: info}\n",
                "the file has the keys of the chart's `config` at its top level",
            ),
            ("nonsense: 1\n", "unknown field `nonsense`; cpuwarden run --help lists the flags"),
        ] {
            let error = file(text).unwrap_err().to_string();
            assert!(error.contains(meant) && !error.contains("expected one of"), "{error}");
        }
        let nested = file("profiles:\n  - name: web\n    colour: red\n").unwrap_err().to_string();
        assert!(nested.contains("colour") && nested.contains("qosClass"), "{nested}");
    }

    #[test]
    fn a_value_of_another_type_is_reported_with_its_key() {
        for (text, expected) in [
            ("listen: 1\n", "cpuwarden.yaml:1: listen: "),
            ("listen: 1\n", "[::]:1"),
            ("maxSeries: many\n", "cpuwarden.yaml:1: maxSeries: expected a whole number: many"),
            ("cpuBudget: much\n", "cpuwarden.yaml:1: cpuBudget: expected a number: much"),
            ("cpuBudget: .nan\n", "cpuwarden.yaml:1: cpuBudget: expected a finite number: .nan"),
            ("maxSeries: {a: 1}\n", "cpuwarden.yaml:1: maxSeries: expected a single value: {a: 1}"),
            (
                "podLabels: [a]\n",
                "expected a single value: [a]; separate several by commas; correct",
            ),
            ("profiles: x\n", "cpuwarden.yaml:1: profiles: expected a list"),
            ("ui: false\n", "cpuwarden.yaml:1: ui: `false` is not one of off, on; correct"),
            ("{log: info, maxSeries: x}\n", "cpuwarden.yaml:1: expected a whole number; correct"),
        ] {
            let error = file(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn numbers_may_be_in_quotes() {
        let options = file("cpuBudget: \"0.05\"\nmaxSeries: 7\nreservedCpus: 1\n").unwrap();
        assert_eq!((options.cpu_budget, options.max_series), (0.05, 7));
        assert_eq!(options.reserved_cpus.as_deref(), Some("1"));
    }

    #[test]
    fn a_file_that_is_no_yaml_is_not_about_a_key() {
        for text in ["a: [b\n", "listen: [\n", "a: b: c\n"] {
            let error = file(text).unwrap_err().to_string();
            assert!(error.contains("cpuwarden.yaml:") && !error.contains("unknown"), "{error}");
        }
    }

    #[test]
    fn errors_of_the_parser_are_in_words() {
        for (text, expected) in [
            (
                "- log\n",
                "cpuwarden.yaml:1: expected keys with values, such as `name: web`; correct",
            ),
            ("log: info\n---\nlog: warn\n", "more than one YAML document; keep one"),
            ("~: 1\n", "cpuwarden.yaml:1: null is not a text"),
            ("log: in\u{1}fo\n", "cpuwarden.yaml:1: log: a control character; remove it"),
            ("listen: [::]:9753\n", "listen: "),
            ("listen: [::]:9753\n", "; put the value in quotes: \"[::]:9753\"; correct the file"),
        ] {
            let error = file(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            let has_code =
                ["from_str", "Option", "deserialize", "\\u{"].map(|word| error.contains(word));
            assert_eq!(has_code, [false; 4], "{error}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_said_to_be_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let error = |path: &Path| read_file(Some(path)).unwrap_err().to_string();
        assert!(error(dir.path()).contains("is a directory; name a file"));
        let noise = dir.path().join("noise");
        std::fs::write(&noise, b"listen: \xff\n").unwrap();
        assert!(error(&noise).contains("noise is not text (UTF-8)"));
        assert!(error(&dir.path().join("none")).contains("correct the path"));
    }

    #[test]
    fn an_invalid_value_is_reported_with_the_expected_one() {
        let error = file("sampleInterval: fast\n").unwrap_err().to_string();
        assert!(error.contains("250ms"), "{error}");
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        assert_eq!(file("\n").unwrap(), Options::default());
    }

    #[test]
    fn a_key_without_a_value_leaves_the_default() {
        assert_eq!(file("listen:\nlog: null\nevents: ~\nkubepods:\n").unwrap(), Options::default());
        let error = file("listen:\nsampleInterval: fast\n").unwrap_err().to_string();
        assert!(error.contains("cpuwarden.yaml:2: "), "{error}");
    }

    #[test]
    fn the_stronger_value_wins_and_the_weaker_fills_in() {
        let mut options = file("maxSeries: 2\nkubepods: k\nevents: true\n").unwrap();
        let command = augment(clap::Command::new("run")).no_binary_name(true);
        let given = command.try_get_matches_from(["--max-series=1", "--events=false"]).unwrap();
        clap::FromArgMatches::update_from_arg_matches(&mut options, &given).unwrap();
        let expected = Options { max_series: 1, kubepods: Some("k".into()), ..Options::default() };
        assert_eq!(options, expected);
    }

    #[test]
    fn defaults_that_other_crates_have_too_are_the_same() {
        let (options, pods) = (Options::default(), pod_sources::PodConfig::default());
        assert_eq!(
            (options.kubelet_url, options.pod_poll_interval.0),
            (pods.kubelet.url, pods.poll_interval)
        );
        assert_eq!(options.cpuset_owner_namespaces, ::pinning::OWNER_NAMESPACES.join(","));
        assert_eq!(options.share_floor, placement::PlacementSettings::default().share_floor);
    }
}
