//! Presets of metric families: how much of each family is on the page.

use super::Descriptor;

/// Preset of metric families, from the smallest page to the largest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Preset {
    /// Usage, limits, throttling and waits for neighbors: what the main alerts and the fleet
    /// dashboard read.
    Lean,
    /// Everything that the shipped dashboards and alerts read.
    #[default]
    Standard,
    /// All families.
    Full,
}

impl Preset {
    /// All presets, from the smallest page to the largest.
    pub const ALL: [Self; 3] = [Self::Lean, Self::Standard, Self::Full];

    /// Name in the configuration and the reference.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lean => "lean",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }

    /// The next smaller preset; `None` below the smallest.
    #[must_use]
    pub const fn below(self) -> Option<Self> {
        match self {
            Self::Lean => None,
            Self::Standard => Some(Self::Lean),
            Self::Full => Some(Self::Standard),
        }
    }
}

/// Extent to which a family is on the page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Not on the page.
    #[default]
    Absent,
    /// Only some of its series; see [`Extent::brief`].
    Brief,
    /// With all its series.
    Whole,
}

/// Presets that include a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Smallest preset that has the whole family.
    pub whole: Preset,
    /// Smallest preset that has some of its series, and a description of these for the reference.
    pub brief: Option<(Preset, &'static str)>,
}

impl Extent {
    /// In every preset.
    pub(super) const ALWAYS: Self = Self { whole: Preset::Lean, brief: None };
}

impl Descriptor {
    /// Form of the family in a preset.
    #[must_use]
    pub fn form(&self, preset: Preset) -> Form {
        match self.extent {
            Extent { whole, .. } if preset >= whole => Form::Whole,
            Extent { brief: Some((brief, _)), .. } if preset >= brief => Form::Brief,
            Extent { .. } => Form::Absent,
        }
    }

    /// Sets the smallest preset that has the whole family.
    pub(super) const fn from(mut self, whole: Preset) -> Self {
        self.extent.whole = whole;
        self
    }

    /// Sets the smallest preset that has some of the family's series, with a description of these.
    pub(super) const fn brief_from(mut self, preset: Preset, series: &'static str) -> Self {
        self.extent.brief = Some((preset, series));
        self
    }
}
