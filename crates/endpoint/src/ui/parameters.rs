//! Parameters of the JSON API.

use std::ops::RangeInclusive;
use std::time::Duration;

use api::{KEPT, Measure};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};

/// Allowed values of `seconds`: as long as the history.
const SECONDS: RangeInclusive<u64> = 1..=KEPT as u64;
/// Allowed values of `aggressors`.
const AGGRESSORS: RangeInclusive<u64> = 0..=12;

/// Parameters of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// The last seconds of the history.
    pub(super) span: Duration,
    /// UIDs of pods; empty selects all.
    pub(super) uids: Vec<String>,
    /// Measures; empty selects all.
    pub(super) measures: Vec<Measure>,
    /// Maximum number of aggressors of each pod.
    pub(super) aggressors: usize,
}

impl Parameters {
    /// Parses a query in which only the parameters in `known` are allowed.
    ///
    /// # Errors
    /// Describes the first wrong parameter.
    pub(super) fn parse(query: &str, known: &[&str], seconds: u64) -> Result<Self, String> {
        let span = Duration::from_secs(seconds);
        let (uids, measures) = (Vec::new(), Vec::new());
        let mut parameters = Self { span, uids, measures, aggressors: 0 };
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                unknown if !known.contains(&unknown) => {
                    return Err(unknown_parameter(unknown, known));
                }
                "seconds" => {
                    parameters.span = Duration::from_secs(number("seconds", &value, &SECONDS)?);
                }
                "aggressors" => {
                    let aggressors = number("aggressors", &value, &AGGRESSORS)?;
                    parameters.aggressors = usize::try_from(aggressors).unwrap_or(usize::MAX);
                }
                "uid" => parameters.uids.push(value.into_owned()),
                _ => parameters.measures.push(measure(&value)?),
            }
        }
        Ok(parameters)
    }
}

fn unknown_parameter(name: &str, known: &[&str]) -> String {
    match known {
        [] => format!("{name}: unknown parameter; this path has none"),
        known => format!("{name}: unknown parameter; expected one of: {}", known.join(", ")),
    }
}

fn number(name: &str, value: &str, allowed: &RangeInclusive<u64>) -> Result<u64, String> {
    value.parse().ok().filter(|number| allowed.contains(number)).ok_or_else(|| {
        let (first, last) = (allowed.start(), allowed.end());
        format!("{name}: {value:?} is not a whole number from {first} to {last}")
    })
}

fn measure(value: &str) -> Result<Measure, String> {
    let measure: StrDeserializer<'_, Error> = value.into_deserializer();
    Measure::deserialize(measure).map_err(|error| format!("measure: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[&str] = &["seconds", "uid", "measure", "aggressors"];

    #[test]
    fn parameters_may_repeat_and_have_defaults() {
        let query = "uid=a%2Db&measure=self&uid=c&measure=usageCores&seconds=600&aggressors=5";
        let parameters = Parameters::parse(query, ALL, 60).unwrap();
        assert_eq!(parameters.uids, ["a-b", "c"]);
        assert_eq!(parameters.measures, [Measure::Own, Measure::UsageCores]);
        assert_eq!((parameters.span, parameters.aggressors), (Duration::from_secs(600), 5));
        let none = Parameters::parse("", ALL, 60).unwrap();
        assert_eq!((none.span, none.uids.len(), none.aggressors), (Duration::from_secs(60), 0, 0));
    }

    #[test]
    fn a_wrong_parameter_is_named_with_what_is_allowed() {
        let error = |query: &str| Parameters::parse(query, ALL, 60).unwrap_err();
        for seconds in ["0", "601", "-1", "1.5", "", "x"] {
            assert!(error(&format!("seconds={seconds}")).contains("from 1 to 600"), "{seconds}");
        }
        assert!(error("aggressors=13").contains("aggressors: \"13\" is not a whole number"));
        let text = error("measure=own");
        assert!(text.contains("`own`") && text.contains("`throttledOwn`"), "{text}");
        assert!(error("span=5").contains("expected one of: seconds, uid, measure, aggressors"));
        let none = Parameters::parse("uid=a", &[], 60).unwrap_err();
        assert_eq!(none, "uid: unknown parameter; this path has none");
    }
}
