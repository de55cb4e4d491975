//! Whether a writer of cgroups writes.

/// Value of `--pinning`, `--best-effort` or `--burst`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ActingMode {
    /// The feature is off.
    #[default]
    Off,
    /// The feature decides and reports, and writes nothing.
    Observe,
    /// The feature writes its decisions to cgroups.
    Enforce,
}

impl ActingMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Off, Self::Observe, Self::Enforce];

    /// Name in options and messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Observe => "observe",
            Self::Enforce => "enforce",
        }
    }
}
