//! A time that a user types.

use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::HumanDuration;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A time in a recording, or in the past of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Milliseconds since the epoch.
    Time(u64),
    /// Milliseconds since midnight, UTC, at the last time before the end.
    TimeOfDay(u64),
    /// Time before the end.
    BeforeEnd(Duration),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(HumanDuration(span)) = text.strip_prefix('-').and_then(|span| span.parse().ok())
        {
            return Ok(Self::BeforeEnd(span));
        }
        let of_day = format!("1970-01-01T{text}{}Z", if text.len() == 5 { ":00" } else { "" });
        if let Ok(time) = humantime::parse_rfc3339(&of_day) {
            return Ok(Self::TimeOfDay(milliseconds(time)));
        }
        let time = humantime::parse_rfc3339_weak(text).map_err(
            |_| "not a time such as 2026-11-22T03:04:05Z, 03:04 (UTC), or -10m (before the end)",
        )?;
        Ok(Self::Time(milliseconds(time)))
    }
}

impl Moment {
    /// Milliseconds since the epoch, where the data end at `end`.
    #[must_use]
    pub fn before(self, end: u64) -> u64 {
        match self {
            Self::Time(time) => time,
            Self::BeforeEnd(span) => {
                end.saturating_sub(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
            }
            Self::TimeOfDay(time) => {
                let today = end - end % DAY_MS + time;
                if today <= end { today } else { today.saturating_sub(DAY_MS) }
            }
        }
    }
}

fn milliseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22T03:00:00Z.
    const THREE: u64 = 1_795_316_400_000;

    fn at(text: &str) -> u64 {
        text.parse::<Moment>().unwrap().before(THREE + 299_000)
    }

    #[test]
    fn a_time_is_absolute_or_of_the_day_or_before_the_end() {
        assert_eq!(at("2026-11-22T03:00:00Z"), THREE);
        assert_eq!(at("2026-11-22 03:00:05"), THREE + 5000);
        assert_eq!(at("03:00"), THREE);
        assert_eq!(at("03:01:30"), THREE + 90_000);
        assert_eq!(at("03:05"), THREE + 300_000 - DAY_MS);
        assert_eq!(at("-1m"), THREE + 239_000);
        let error = "tomorrow".parse::<Moment>().unwrap_err();
        assert!(error.contains("-10m (before the end)"), "{error}");
        assert!("25:00".parse::<Moment>().is_err());
    }
}
