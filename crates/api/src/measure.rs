//! The measures that the history keeps of each container.

use serde::{Deserialize, Serialize};

use crate::frame::{ContainerFrame, Rates};

/// One measure of a container. Units are those of [`Rates`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Measure {
    /// [`Rates::usage_cores`].
    UsageCores,
    /// [`ContainerFrame::limit_cores`].
    LimitCores,
    /// [`Rates::throttled_share`].
    ThrottledShare,
    /// [`Rates::throttled_own`].
    ThrottledOwn,
    /// [`Rates::throttled_ancestor`].
    ThrottledAncestor,
    /// [`Rates::neighbor`].
    Neighbor,
    /// [`Rates::own`].
    #[serde(rename = "self")]
    Own,
    /// [`Rates::system`].
    System,
    /// [`Rates::smt`].
    Smt,
    /// [`Rates::contention`].
    Contention,
}

impl Measure {
    /// All measures.
    pub const ALL: [Self; 10] = [
        Self::UsageCores,
        Self::LimitCores,
        Self::ThrottledShare,
        Self::ThrottledOwn,
        Self::ThrottledAncestor,
        Self::Neighbor,
        Self::Own,
        Self::System,
        Self::Smt,
        Self::Contention,
    ];

    /// Reads the measure of a container.
    #[must_use]
    pub fn of(self, rates: &Rates, limit_cores: Option<f64>) -> Option<f64> {
        match self {
            Self::UsageCores => rates.usage_cores,
            Self::LimitCores => limit_cores,
            Self::ThrottledShare => rates.throttled_share,
            Self::ThrottledOwn => rates.throttled_own,
            Self::ThrottledAncestor => rates.throttled_ancestor,
            Self::Neighbor => rates.neighbor,
            Self::Own => rates.own,
            Self::System => rates.system,
            Self::Smt => rates.smt,
            Self::Contention => rates.contention,
        }
    }

    /// Writes the measure of a container.
    pub fn set(self, row: &mut ContainerFrame, value: Option<f64>) {
        let rates = &mut row.rates;
        match self {
            Self::UsageCores => rates.usage_cores = value,
            Self::LimitCores => row.limit_cores = value,
            Self::ThrottledShare => rates.throttled_share = value,
            Self::ThrottledOwn => rates.throttled_own = value,
            Self::ThrottledAncestor => rates.throttled_ancestor = value,
            Self::Neighbor => rates.neighbor = value,
            Self::Own => rates.own = value,
            Self::System => rates.system = value,
            Self::Smt => rates.smt = value,
            Self::Contention => rates.contention = value,
        }
    }
}
