//! A human-readable duration: `1s`, `250ms`, `6h`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A duration that is parsed and printed in human-readable form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct HumanDuration(pub Duration);

impl HumanDuration {
    /// Parses a duration of a command line; a number without a unit means seconds.
    ///
    /// # Errors
    /// Names the text and the expected form.
    pub fn from_seconds_or_text(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(seconds) => Ok(Self(Duration::from_secs(seconds))),
            Err(_) => text.parse(),
        }
    }
}

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |error| format!("{text:?} is not a duration such as 1s or 250ms: {error}");
        humantime::parse_duration(text).map(Self).map_err(wrong)
    }
}

impl TryFrom<String> for HumanDuration {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HumanDuration> for String {
    fn from(span: HumanDuration) -> Self {
        span.to_string()
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(out)
    }
}
