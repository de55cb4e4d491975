//! CFS bandwidth: `cpu.max`, `cpu.cfs_quota_us`.

use crate::flat::digits;
use crate::{ParseError, Result, parse_i64};

/// A quota: CPU time per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// No limit (`max` on v2, `-1` on v1).
    Max,
    /// Microseconds per period.
    Usec(u64),
}

impl Quota {
    /// Parses v1's `cpu.cfs_quota_us`.
    ///
    /// # Errors
    /// Fails for anything but a number.
    pub fn parse_v1(text: &[u8]) -> Result<Self> {
        let quota_usec = parse_i64("cpu.cfs_quota_us", text)?;
        Ok(u64::try_from(quota_usec).map_or(Self::Max, Self::Usec))
    }

    /// Microseconds per period; `None` without a limit.
    #[must_use]
    pub fn usec(self) -> Option<u64> {
        match self {
            Self::Max => None,
            Self::Usec(usec) => Some(usec),
        }
    }
}

/// Quota and period of one cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bandwidth {
    /// CPU time per period.
    pub quota: Quota,
    /// Length of the period, microseconds, never 0.
    pub period_usec: u64,
}

impl Bandwidth {
    /// Parses v2's `cpu.max`: `max 100000` or `20000 100000`.
    ///
    /// # Errors
    /// Fails for another format, or a period of 0.
    pub fn parse_v2(text: &[u8]) -> Result<Self> {
        let text = text.trim_ascii();
        Self::split_v2(text).ok_or_else(|| match text {
            b"" => ParseError::Empty { file: "cpu.max" },
            _ => ParseError::unexpected("cpu.max", text),
        })
    }

    fn split_v2(text: &[u8]) -> Option<Self> {
        let space = text.iter().position(|&byte| byte == b' ')?;
        let quota = match &text[..space] {
            b"max" => Quota::Max,
            number => Quota::Usec(digits(number)?),
        };
        let period_usec = digits(&text[space + 1..]).filter(|&usec| usec > 0)?;
        Some(Self { quota, period_usec })
    }

    /// Quota ÷ period, in cores; `None` if unlimited.
    #[must_use]
    pub fn limit_cores(&self) -> Option<f64> {
        match self.quota {
            Quota::Max => None,
            Quota::Usec(quota_usec) => Some(quota_usec as f64 / self.period_usec as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_is_no_limit() {
        let bandwidth = Bandwidth::parse_v2(b"max 100000\n").unwrap();
        assert_eq!(bandwidth.limit_cores(), None);
        assert_eq!(Quota::parse_v1(b"-1\n"), Ok(Quota::Max));
    }

    #[test]
    fn a_quota_is_cores() {
        let bandwidth = Bandwidth::parse_v2(b"20000 100000\n").unwrap();
        assert_eq!(bandwidth.limit_cores(), Some(0.2));
        assert_eq!(Quota::parse_v1(b"20000\n"), Ok(Quota::Usec(20_000)));
    }

    #[test]
    fn bad_text_is_an_error() {
        for text in [&b""[..], b"max", b"max 0", b"x 100000", b"1 2 3"] {
            assert!(Bandwidth::parse_v2(text).is_err(), "{text:?}");
        }
        assert!(Quota::parse_v1(b"max").is_err());
    }
}
