//! Limits of a cgroup.

use kernel_text::Bandwidth;

/// A limit of a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Limit<T> {
    /// Not known: no read has succeeded yet, or the cgroup is gone.
    #[default]
    NotRead,
    /// This kernel or cgroup has no such file.
    Absent,
    /// No limit is set.
    Unlimited,
    /// The limit.
    Limited(T),
}

impl<T> Limit<T> {
    /// The limit; `None` if there is none, or if it is not known.
    pub fn limited(self) -> Option<T> {
        match self {
            Self::Limited(limit) => Some(limit),
            Self::NotRead | Self::Absent | Self::Unlimited => None,
        }
    }
}

/// A CPU limit, as set by a quota.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuLimit {
    /// Quota ÷ period.
    pub cores: f64,
    /// CFS period of the quota, microseconds.
    pub period_usec: u64,
}

impl Limit<CpuLimit> {
    /// The limit that this bandwidth sets.
    #[must_use]
    pub fn of(bandwidth: Bandwidth) -> Self {
        let period_usec = bandwidth.period_usec;
        let limited = |cores| Self::Limited(CpuLimit { cores, period_usec });
        bandwidth.limit_cores().map_or(Self::Unlimited, limited)
    }

    /// The limit in cores; `None` if there is none, or if it is not known.
    #[must_use]
    pub fn cores(self) -> Option<f64> {
        self.limited().map(|limit| limit.cores)
    }
}
