//! Kubernetes releases that a cluster can have.

use std::fmt;
use std::str::FromStr;

/// A Kubernetes release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    minor: u32,
    patch: u32,
}

impl Release {
    /// The last release in which `/pods` of the kubelet needs `nodes/proxy`.
    pub const V1_32: Self = Self { minor: 32, patch: 5 };
    /// The newest release of the Go module proxy when this was written.
    pub const NEWEST: Self = Self { minor: 37, patch: 1 };
    /// All releases.
    pub const ALL: [Self; 2] = [Self::V1_32, Self::NEWEST];

    /// Version of the Go module `k8s.io/kubernetes`, such as `v1.32.5`.
    pub fn module_version(self) -> String {
        format!("v{self}")
    }

    /// Version of the Go modules of its staging directory, such as `v0.32.5`.
    pub fn staging_version(self) -> String {
        format!("v0.{}.{}", self.minor, self.patch)
    }

    /// Minor version.
    pub fn minor(self) -> u32 {
        self.minor
    }

    /// Whether kubelets know the permission `nodes/pods`, so that the agent needs no more than
    /// that.
    pub fn has_fine_grained_authorization(self) -> bool {
        self.minor >= 33
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "1.{}.{}", self.minor, self.patch)
    }
}

impl FromStr for Release {
    type Err = String;

    /// Parses `newest`, or a minor version such as `1.32`.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|release| text == format!("1.{}", release.minor));
        let newest = (text == "newest").then_some(Self::NEWEST);
        newest.or(known).ok_or_else(|| {
            let names: Vec<_> =
                Self::ALL.iter().map(|release| format!("1.{}", release.minor)).collect();
            format!("not one of {}, newest", names.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_selected_by_minor_version_or_newest() {
        assert_eq!("1.32".parse(), Ok(Release::V1_32));
        assert_eq!("newest".parse(), Ok(Release::NEWEST));
        assert_eq!(Release::V1_32.staging_version(), "v0.32.5");
        assert_eq!(Release::V1_32.module_version(), "v1.32.5");
        assert_eq!("1.31".parse::<Release>(), Err("not one of 1.32, 1.37, newest".into()));
    }

    #[test]
    fn fine_grained_authorization_begins_with_1_33() {
        assert!(!Release::V1_32.has_fine_grained_authorization());
        assert!(Release::NEWEST.has_fine_grained_authorization());
    }
}
