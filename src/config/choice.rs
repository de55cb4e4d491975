//! Options whose value is one of the variants of another crate's enum: their names and help.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use metrics::catalogue::Preset;
use placement::NumaStrategy;
use pod_sources::PodSource;
use serde::{Deserialize, Deserializer, Serializer, de};
use state_dir::ActingMode;

/// A type with a name and a help text for each value.
pub(crate) trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// Each value with its name and its help.
    const ALL: &[(Self, &str, &str)];

    /// The value with this name.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|choice| choice.1 == name).map(|choice| choice.0)
    }
}

impl Choice for ActingMode {
    const ALL: &[(Self, &str, &str)] = &[
        (Self::Off, "off", "Do nothing"),
        (Self::Observe, "observe", "Decide and report only; write nothing"),
        (Self::Enforce, "enforce", "Write to the cgroups of pods"),
    ];
}

impl Choice for PodSource {
    const ALL: &[(Self, &str, &str)] = &[
        (
            Self::Auto,
            "auto",
            "Any source that this node offers, without the API server unless asked for",
        ),
        (Self::Kubelet, "kubelet", "The kubelet's HTTPS port"),
        (Self::PodsApi, "pods-api", "The kubelet's Pods API socket (Kubernetes 1.36 and later)"),
        (Self::ReadOnly, "readonly", "The kubelet's read-only port"),
        (Self::ApiServer, "apiserver", "A watch on the API server"),
        (Self::None, "none", "No source: series carry the pod's UID and the container's id"),
    ];
}

impl Choice for Preset {
    const ALL: &[(Self, &str, &str)] = &[
        (
            Self::Lean,
            "lean",
            "Usage, limits, throttling and waits for neighbors: the metrics of the main alerts",
        ),
        (Self::Standard, "standard", "Everything that the shipped dashboards and alerts read"),
        (Self::Full, "full", "All metrics, including the trace's histograms"),
    ];
}

impl Choice for NumaStrategy {
    const ALL: &[(Self, &str, &str)] = &[
        (
            Self::MostAllocated,
            "most-allocated",
            "The fullest NUMA node with enough free CPUs first",
        ),
        (Self::LeastAllocated, "least-allocated", "The emptiest NUMA node first"),
        (Self::DistributeEvenly, "distribute-evenly", "An even split over all NUMA nodes"),
    ];
}

/// The parser of a flag.
pub(super) fn parser<T: Choice>() -> impl TypedValueParser<Value = T> {
    let values = T::ALL.iter().map(|&(_, name, help)| PossibleValue::new(name).help(help));
    PossibleValuesParser::new(values)
        .try_map(|name| T::named(&name).ok_or_else(|| format!("{name} has no meaning")))
}

/// Writes the name.
pub(super) fn serialize<T: Choice, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    let name = T::ALL.iter().find(|choice| choice.0 == *value).map(|choice| choice.1);
    to.serialize_str(name.unwrap_or_default())
}

/// Reads the name.
pub(super) fn deserialize<'de, T: Choice, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let name = String::deserialize(from)?;
    T::named(&name).ok_or_else(|| {
        let names: Vec<String> = T::ALL.iter().map(|choice| format!("`{}`", choice.1)).collect();
        de::Error::custom(format!("unknown variant `{name}`, expected one of {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;

    /// All values have a name of their own and are read back from it.
    fn check<T: Choice + Debug>(values: &[T]) {
        let named: Vec<T> = T::ALL.iter().map(|choice| choice.0).collect();
        assert_eq!(named, values);
        for &(value, name, _) in T::ALL {
            assert_eq!(T::named(name), Some(value));
            assert_eq!(serialize(&value, serde_json::value::Serializer).unwrap(), name);
            assert_eq!(deserialize::<T, _>(serde_json::Value::from(name)).unwrap(), value);
        }
    }

    #[test]
    fn each_value_is_read_from_its_name() {
        check(&Preset::ALL);
        check(&ActingMode::ALL);
        check(&NumaStrategy::ALL);
        check(&PodSource::ALL);
        for preset in Preset::ALL {
            assert_eq!(Preset::named(preset.as_str()), Some(preset));
        }
        for mode in ActingMode::ALL {
            assert_eq!(ActingMode::named(mode.as_str()), Some(mode));
        }
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = deserialize::<ActingMode, _>(serde_json::Value::from("on")).unwrap_err();
        let expected = "unknown variant `on`, expected one of `off`, `observe`, `enforce`";
        assert_eq!(error.to_string(), expected);
    }
}
