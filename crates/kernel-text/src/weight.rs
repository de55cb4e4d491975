//! CPU weights: `cpu.weight` of cgroup v2, `cpu.shares` of v1, and the conversion rules of
//! container runtimes.

use std::ops::RangeInclusive;

const SHARES: RangeInclusive<u64> = 2..=262_144;
const MAX_WEIGHT: u64 = 10_000;

/// Usual steps of CPU requests, millicores, from coarse to fine.
const REQUEST_STEPS: [u64; 8] = [1000, 500, 250, 100, 50, 10, 5, 1];

/// The rule by which a container runtime converts v1 shares to a v2 weight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WeightRule {
    /// runc up to 1.3.1 and crun up to 1.22: `1 + (shares − 2) × 9999 ÷ 262142`, so 1024 shares are
    /// weight 39.
    #[default]
    Linear,
    /// runc from 1.3.2 and crun from 1.23: `⌈10^(L²÷612 + 125L÷612 − 7÷34)⌉` with
    /// `L = log2(shares)`, so 1024 shares are weight 100, the kernel's default on both versions.
    Quadratic,
}

impl WeightRule {
    /// All rules.
    pub const ALL: [Self; 2] = [Self::Linear, Self::Quadratic];

    /// Name used in labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Quadratic => "quadratic",
        }
    }

    /// Weight (1 to 10000) that a runtime writes for these shares. Shares outside the kernel's
    /// range are clamped.
    #[must_use]
    pub fn weight(self, shares: u64) -> u64 {
        let shares = shares.clamp(*SHARES.start(), *SHARES.end());
        match self {
            Self::Linear => 1 + (shares - 2) * 9999 / 262_142,
            // The bounds are exact by definition; the power is not.
            Self::Quadratic if shares == *SHARES.start() => 1,
            Self::Quadratic if shares == *SHARES.end() => MAX_WEIGHT,
            Self::Quadratic => {
                let log = (shares as f64).log2();
                let exponent = (log * log + 125.0 * log) / 612.0 - 7.0 / 34.0;
                10f64.powf(exponent).ceil() as u64
            }
        }
    }

    /// Converts a weight to shares. Of several shares with the same weight, returns those of the
    /// CPU request that is the roundest number of millicores. For the lowest weight returns 2,
    /// which the kubelet writes without a request.
    #[must_use]
    pub fn shares(self, weight: u64) -> u64 {
        if weight <= 1 {
            return *SHARES.start();
        }
        let (lowest, next) = (self.lowest_shares(weight), self.lowest_shares(weight + 1));
        let candidates = lowest..next.max(lowest + 1);
        let round = REQUEST_STEPS.into_iter().find_map(|step| {
            // The first multiple of the step with at least the lowest shares.
            let millis = (lowest * 1000).div_ceil(1024).next_multiple_of(step);
            Some(request_shares(millis)).filter(|shares| candidates.contains(shares))
        });
        round.unwrap_or(lowest)
    }

    /// The lowest shares with at least this weight; one more than the highest shares if there are
    /// none.
    fn lowest_shares(self, weight: u64) -> u64 {
        let (mut low, mut high) = (*SHARES.start(), *SHARES.end() + 1);
        while low < high {
            let middle = low.midpoint(high);
            if self.weight(middle) < weight { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// The only rule that converts these shares to this weight; `None` if both or neither do.
    #[must_use]
    pub fn between(shares: u64, weight: u64) -> Option<Self> {
        match Self::ALL.map(|rule| rule.weight(shares) == weight) {
            [true, false] => Some(Self::Linear),
            [false, true] => Some(Self::Quadratic),
            _ => None,
        }
    }
}

/// The shares that the kubelet requests from the runtime, from a CPU request in millicores; 0 means
/// no request.
#[must_use]
pub fn request_shares(millis: u64) -> u64 {
    (millis.saturating_mul(1024) / 1000).clamp(*SHARES.start(), *SHARES.end())
}

#[cfg(test)]
mod tests {
    use super::WeightRule::{Linear, Quadratic};
    use super::*;

    #[test]
    fn both_rules_give_the_published_weights() {
        // opencontainers/cgroups, ConvertCPUSharesToCgroupV2Value, before and after its change in
        // 2025.
        for (shares, linear, quadratic) in [
            (0, 1, 1),
            (2, 1, 1),
            (102, 4, 17),
            (512, 20, 59),
            (1024, 39, 100),
            (2048, 79, 174),
            (262_143, 9999, 10_000),
            (262_144, 10_000, 10_000),
            (1_000_000, 10_000, 10_000),
        ] {
            assert_eq!(
                (Linear.weight(shares), Quadratic.weight(shares)),
                (linear, quadratic),
                "{shares} shares"
            );
        }
    }

    #[test]
    fn more_shares_never_weigh_less() {
        for rule in WeightRule::ALL {
            let weights = SHARES.map(|shares| rule.weight(shares));
            assert!(weights.clone().is_sorted(), "{rule:?}");
            assert!(weights.clone().all(|weight| (1..=MAX_WEIGHT).contains(&weight)), "{rule:?}");
        }
    }

    #[test]
    fn every_weight_reads_back_to_shares_of_that_weight() {
        for rule in WeightRule::ALL {
            let reached: std::collections::BTreeSet<u64> =
                SHARES.map(|shares| rule.weight(shares)).collect();
            for weight in reached {
                assert_eq!(rule.weight(rule.shares(weight)), weight, "{rule:?}, weight {weight}");
            }
        }
    }

    #[test]
    fn requests_in_steps_of_50_millicores_read_back_exactly() {
        for rule in WeightRule::ALL {
            for shares in (50..=16_000).step_by(50).map(request_shares) {
                assert_eq!(rule.shares(rule.weight(shares)), shares, "{rule:?}");
            }
        }
    }

    #[test]
    fn no_request_reads_back_as_two_shares() {
        for rule in WeightRule::ALL {
            assert_eq!([0, 1].map(|weight| rule.shares(weight)), [2, 2], "{rule:?}");
            assert_eq!(rule.shares(rule.weight(request_shares(0))), 2, "{rule:?}");
        }
    }

    #[test]
    fn weights_beyond_the_highest_shares_read_back_as_these() {
        for rule in WeightRule::ALL {
            assert!(SHARES.contains(&rule.shares(10_000)), "{rule:?}");
            assert_eq!(rule.weight(rule.shares(10_000)), 10_000, "{rule:?}");
        }
    }

    #[test]
    fn one_known_request_shows_the_rule() {
        for millis in 10..=255_000 {
            let shares = request_shares(millis);
            for rule in WeightRule::ALL {
                assert_eq!(
                    WeightRule::between(shares, rule.weight(shares)),
                    Some(rule),
                    "{millis} millicores"
                );
            }
        }
        assert_eq!(WeightRule::between(2, 1), None, "both agree");
        assert_eq!(WeightRule::between(1024, 55), None, "neither does");
    }
}
