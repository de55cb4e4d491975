//! CFS bandwidth (`cpu.max`, `cpu.cfs_quota_us`) and weights (`cpu.weight`, `cpu.shares`).

use crate::flat::digits;
use crate::{ParseError, Result, parse_i64};

/// A quota: CPU time a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// No limit (`max` on v2, `-1` on v1).
    Max,
    /// Microseconds a period.
    Usec(u64),
}

impl Quota {
    /// Parses v1's `cpu.cfs_quota_us`.
    ///
    /// # Errors
    /// Anything but a number.
    pub fn parse_v1(text: &[u8]) -> Result<Self> {
        let quota_usec = parse_i64("cpu.cfs_quota_us", text)?;
        Ok(u64::try_from(quota_usec).map_or(Self::Max, Self::Usec))
    }

    /// Microseconds a period; `None` without a limit.
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
    /// CPU time a period.
    pub quota: Quota,
    /// Length of the period, microseconds, never 0.
    pub period_usec: u64,
}

impl Bandwidth {
    /// Parses v2's `cpu.max`: `max 100000` or `20000 100000`.
    ///
    /// # Errors
    /// Another form, or a period of 0.
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

    /// quota ÷ period, in cores; `None` when unlimited.
    #[must_use]
    pub fn limit_cores(&self) -> Option<f64> {
        match self.quota {
            Quota::Max => None,
            Quota::Usec(quota_usec) => Some(quota_usec as f64 / self.period_usec as f64),
        }
    }
}

/// A v2 weight as v1 shares, as cAdvisor shows it: linear, `2 + (weight − 1) × 262142 ÷ 9999`.
#[must_use]
pub fn weight_to_shares(weight: u64) -> u64 {
    2 + (weight.clamp(1, 10_000) - 1) * 262_142 / 9999
}

/// v1 shares (2 to 262144) as a v2 weight (1 to 10000), by the conversion of the OCI runtimes up to runc 1.2 and crun
/// 1.22: linear, `1 + (shares − 2) × 9999 ÷ 262142`. Shares below 2 count as 2, as they do in the kernel.
#[must_use]
pub fn shares_to_weight(shares: u64) -> u64 {
    let shares = shares.clamp(2, 262_144);
    1 + (shares - 2) * 9999 / 262_142
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

    #[test]
    fn the_kubelets_shares_give_the_runtimes_weights() {
        // runc libcontainer/cgroups ConvertCPUSharesToCgroupV2Value: its own table.
        for (shares, weight) in [(2, 1), (1024, 39), (262_144, 10_000), (0, 1), (1_000_000, 10_000)] {
            assert_eq!(shares_to_weight(shares), weight);
        }
    }

    #[test]
    fn a_weight_gives_the_shares_that_cadvisor_shows() {
        for (weight, shares) in [(1, 2), (39, 998), (10_000, 262_144), (0, 2)] {
            assert_eq!(weight_to_shares(weight), shares);
        }
    }
}
