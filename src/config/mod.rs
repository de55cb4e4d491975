//! Configuration in two stages: the options as given (flags over environment over file), then the values in force.

mod families;
mod options;
mod pinning;
mod resolved;
mod said;
mod span;
mod values;

use std::path::Path;

pub(crate) use families::FamiliesConfig;
pub(crate) use options::{
    LogFormat, MetricsPreset, Options, PinningMode, PodSourceName, SchedTraceMode, WeightRuleName,
};
pub(crate) use pinning::PinningConfig;
pub(crate) use resolved::Config;
pub(crate) use said::{Said, camel_case};
pub(crate) use span::Span;

use crate::exit::Failure;

/// Reads the configuration file; returns the options and the text. Without a path, both are empty.
///
/// # Errors
/// A file that cannot be read, is not YAML, or has an unknown key or value; the message names file, line and key.
pub(crate) fn read_file(path: Option<&Path>) -> Result<(Options, String), Failure> {
    let Some(path) = path else { return Ok((Options::default(), String::new())) };
    let place = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::config(format!("--config: cannot read {place}: {error}; correct the path")))?;
    if text.trim().is_empty() {
        return Ok((Options::default(), text));
    }
    let options = serde_saphyr::from_str(&text).map_err(|error| values::file_error(path, &text, &error))?;
    Ok((options, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Options, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cpuwarden.yaml");
        std::fs::write(&path, text).unwrap();
        read_file(Some(&path)).map(|(options, _)| options)
    }

    #[test]
    fn keys_are_the_flags_in_camel_case() {
        let options = file("sampleInterval: 250ms\nlisten: 127.0.0.1:1\npodSource: readonly\n").unwrap();
        assert_eq!(options.sample_interval.unwrap().0.as_millis(), 250);
        assert_eq!(options.pod_source, Some(PodSourceName::ReadOnly));
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error = file("listen: 127.0.0.1:1\nlissten: x\n").unwrap_err().to_string();
        assert!(error.contains("lissten") && error.contains("cpuwarden.yaml:2: "), "{error}");
    }

    #[test]
    fn a_bad_value_says_what_is_wanted() {
        let error = file("sampleInterval: fast\n").unwrap_err().to_string();
        assert!(error.contains("250ms"), "{error}");
    }

    #[test]
    fn an_empty_file_says_nothing() {
        assert_eq!(file("\n").unwrap(), Options::default());
    }

    #[test]
    fn the_stronger_value_wins_and_the_weaker_fills_in() {
        let flags = Options { max_series: Some(1), ..Options::default() };
        let file = Options { max_series: Some(2), kubepods: Some("k".into()), ..Options::default() };
        let merged = flags.or(file);
        assert_eq!((merged.max_series, merged.kubepods.as_deref()), (Some(1), Some("k")));
    }
}
