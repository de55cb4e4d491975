//! Parameters of the JSON API.

use std::ops::RangeInclusive;
use std::time::Duration;

use api::{KEPT, Measure};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};

/// Allowed values of `seconds`: up to a day of the recording.
const SECONDS: RangeInclusive<u64> = 1..=24 * 60 * 60;
/// Allowed values of `points`: as many as a history has.
const POINTS: RangeInclusive<u64> = 1..=KEPT as u64;
/// Allowed values of `aggressors`.
const AGGRESSORS: RangeInclusive<u64> = 0..=12;

/// Parameters of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parameters {
    /// The last seconds of the window.
    pub(super) span: Duration,
    /// End of the window, milliseconds since the epoch; the latest frame if absent.
    pub(super) until_ms: Option<u64>,
    /// Maximum number of points over the window; each is the mean of the frames in it.
    pub(super) points: u64,
    /// Whether the client may read what is only for clients on the node itself.
    pub(super) is_local: bool,
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
        let mut parameters = Self {
            span,
            until_ms: None,
            points: KEPT as u64,
            is_local: false,
            uids,
            measures,
            aggressors: 0,
        };
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
                "until" => {
                    parameters.until_ms = Some(number("until", &value, &(0..=i64::MAX as u64))?);
                }
                "points" => parameters.points = number("points", &value, &POINTS)?,
                "uid" => parameters.uids.push(value.into_owned()),
                _ => parameters.measures.push(measure(&value)?),
            }
        }
        Ok(parameters)
    }

    /// Whether the window is not simply the latest part of the history.
    pub(super) fn is_past(&self) -> bool {
        self.until_ms.is_some() || self.span.as_secs() > self.points
    }

    /// Time between two points.
    pub(super) fn step(&self) -> Duration {
        Duration::from_secs(self.span.as_secs().div_ceil(self.points))
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

    const ALL: &[&str] = &["seconds", "until", "points", "uid", "measure", "aggressors"];

    #[test]
    fn a_window_is_past_if_it_ends_earlier_or_has_fewer_points_than_seconds() {
        let parse = |query: &str| Parameters::parse(query, ALL, 60).unwrap();
        assert!(!parse("").is_past() && !parse("seconds=600").is_past());
        for query in ["until=1700000000000", "seconds=601", "points=59"] {
            assert!(parse(query).is_past(), "{query}");
        }
        assert_eq!(parse("seconds=3600").step(), Duration::from_secs(6));
        assert_eq!(parse("seconds=601&points=60").step(), Duration::from_secs(11));
    }

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
        for seconds in ["0", "86401", "-1", "1.5", "", "x"] {
            assert!(error(&format!("seconds={seconds}")).contains("from 1 to 86400"), "{seconds}");
        }
        assert!(error("points=601").contains("from 1 to 600"));
        assert!(error("until=03:04").contains("until: \"03:04\" is not a whole number"));
        assert!(error("aggressors=13").contains("aggressors: \"13\" is not a whole number"));
        let text = error("measure=own");
        assert!(text.contains("`own`") && text.contains("`throttledOwn`"), "{text}");
        assert!(error("span=5").contains("expected one of: seconds, until, points, uid"));
        let none = Parameters::parse("uid=a", &[], 60).unwrap_err();
        assert_eq!(none, "uid: unknown parameter; this path has none");
    }
}
