//! The two annotations of Koordinator's CPU orchestration, as JSON.

use std::collections::BTreeMap;

use kernel_text::CpuSet;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::policy::{Bind, BindPolicy, ExclusivePolicy, Exclusivity};

/// The requested policies. A required policy overrides a preferred one; empty and `Default` mean
/// FullPCPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct ResourceSpec {
    /// Placement of its CPUs on cores.
    pub bind: Bind,
    /// Separation of its CPUs from other pods.
    pub exclusive: Exclusivity,
}

/// An invalid annotation, or an invalid spec in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// Not JSON, or not in the annotation's format.
    #[error("not in the format that Koordinator defines")]
    Json(#[from] serde_json::Error),
    /// A value that Koordinator does not define.
    #[error("{key}: unknown value {value:?}")]
    Value {
        /// Key of the value.
        key: &'static str,
        /// The unknown value.
        value: String,
    },
    /// An unknown key; an error only in the configuration.
    #[error("unknown key {0:?}")]
    Key(String),
    /// An invalid list of CPUs.
    #[error("cpuset")]
    Cpus(#[from] kernel_text::ParseError),
}

const REQUIRED_BIND: &str = "requiredCPUBindPolicy";
const PREFERRED_BIND: &str = "preferredCPUBindPolicy";
const REQUIRED_EXCLUSIVE: &str = "requiredCPUExclusivePolicy";
const PREFERRED_EXCLUSIVE: &str = "preferredCPUExclusivePolicy";

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Wire {
    #[serde(rename = "requiredCPUBindPolicy", skip_serializing_if = "Option::is_none")]
    required_bind: Option<String>,
    #[serde(rename = "preferredCPUBindPolicy", skip_serializing_if = "Option::is_none")]
    preferred_bind: Option<String>,
    #[serde(rename = "requiredCPUExclusivePolicy", skip_serializing_if = "Option::is_none")]
    required_exclusive: Option<String>,
    #[serde(rename = "preferredCPUExclusivePolicy", skip_serializing_if = "Option::is_none")]
    preferred_exclusive: Option<String>,
    /// Later versions of Koordinator may add keys; a configuration may not contain unknown ones.
    #[serde(flatten, skip_serializing)]
    unknown: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
struct WireStatus {
    cpuset: Option<String>,
}

impl ResourceSpec {
    /// Parses the annotation `resource-spec`. Ignores unknown keys.
    ///
    /// # Errors
    /// Not a JSON object, or a policy that Koordinator does not define.
    pub fn from_annotation(json: &str) -> Result<Self, SpecError> {
        serde_json::from_str::<Wire>(json)?.policies()
    }
}

/// Parses the annotation `resource-status`: the CPUs that a scheduler chose, or `None` if it chose
/// none.
pub(crate) fn cpus_of_status(json: &str) -> Result<Option<CpuSet>, SpecError> {
    let status: WireStatus = serde_json::from_str(json)?;
    Ok(status.cpuset.as_deref().map(CpuSet::parse).transpose()?.filter(|cpus| !cpus.is_empty()))
}

impl Wire {
    fn policies(&self) -> Result<ResourceSpec, SpecError> {
        let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let bind = match (given(&self.required_bind), given(&self.preferred_bind)) {
            (Some(value), _) => {
                Bind { policy: bind_policy(REQUIRED_BIND, &value)?, required: true }
            }
            (None, Some(value)) => {
                Bind { policy: bind_policy(PREFERRED_BIND, &value)?, required: false }
            }
            (None, None) => Bind::default(),
        };
        let exclusive = match (given(&self.required_exclusive), given(&self.preferred_exclusive)) {
            (Some(value), _) => Exclusivity {
                policy: exclusive_policy(REQUIRED_EXCLUSIVE, &value)?,
                required: true,
            },
            (None, Some(value)) => Exclusivity {
                policy: exclusive_policy(PREFERRED_EXCLUSIVE, &value)?,
                required: false,
            },
            (None, None) => Exclusivity::default(),
        };
        Ok(ResourceSpec { bind, exclusive })
    }
}

impl TryFrom<Wire> for ResourceSpec {
    type Error = SpecError;

    fn try_from(wire: Wire) -> Result<Self, SpecError> {
        match wire.unknown.keys().next() {
            Some(key) => Err(SpecError::Key(key.clone())),
            None => wire.policies(),
        }
    }
}

impl From<ResourceSpec> for Wire {
    fn from(spec: ResourceSpec) -> Self {
        let bind = Some(spec.bind.policy.as_str().to_owned());
        let exclusive = Some(spec.exclusive.policy.as_str().to_owned());
        let mut wire = Self::default();
        *(if spec.bind.required { &mut wire.required_bind } else { &mut wire.preferred_bind }) =
            bind;
        *(if spec.exclusive.required {
            &mut wire.required_exclusive
        } else {
            &mut wire.preferred_exclusive
        }) = exclusive;
        wire
    }
}

fn bind_policy(key: &'static str, value: &str) -> Result<BindPolicy, SpecError> {
    match value {
        "Default" | "FullPCPUs" => Ok(BindPolicy::FullPcpus),
        "SpreadByPCPUs" => Ok(BindPolicy::SpreadByPcpus),
        _ => Err(SpecError::Value { key, value: value.to_owned() }),
    }
}

fn exclusive_policy(key: &'static str, value: &str) -> Result<ExclusivePolicy, SpecError> {
    match value {
        "None" => Ok(ExclusivePolicy::None),
        "PCPULevel" => Ok(ExclusivePolicy::PcpuLevel),
        "NUMANodeLevel" => Ok(ExclusivePolicy::NumaNodeLevel),
        _ => Err(SpecError::Value { key, value: value.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(json: &str) -> ResourceSpec {
        ResourceSpec::from_annotation(json).unwrap()
    }

    const SPREAD: BindPolicy = BindPolicy::SpreadByPcpus;
    const FULL: BindPolicy = BindPolicy::FullPcpus;

    #[test]
    fn any_text_decodes_to_a_spec_or_an_error() {
        let tokens: [&[u8]; 5] =
            [b"\"requiredCPUBindPolicy\":", b"\"\"", b"null", b"{}", b"\"PCPULevel\""];
        corpus::run(env!("CARGO_MANIFEST_DIR"), "resource_spec", &tokens, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            let read = || ResourceSpec::from_annotation(text);
            let Ok(spec) = corpus::within((64 << 10) + 64 * text.len(), read) else { return };
            let written = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<ResourceSpec>(&written).unwrap(), spec);
        });
    }

    #[test]
    fn any_text_is_a_status_or_an_error_and_its_cpus_are_the_lists() {
        let tokens: [&[u8]; 4] = [b"\"cpuset\":", b"\"0-8191\"", b"null", b"{}"];
        corpus::run(env!("CARGO_MANIFEST_DIR"), "resource_status", &tokens, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            // A CPU list of ten bytes can expand to a set of a kilobyte.
            let read = || cpus_of_status(text);
            let Ok(Some(cpus)) = corpus::within((64 << 10) + 256 * text.len(), read) else {
                return;
            };
            assert!(!cpus.is_empty());
            let status = serde_json::json!({ "cpuset": cpus.to_string() }).to_string();
            assert_eq!(cpus_of_status(&status).unwrap(), Some(cpus));
        });
    }

    #[test]
    fn required_beats_preferred_and_empty_is_full() {
        let both = spec(
            r#"{"requiredCPUBindPolicy":"SpreadByPCPUs","preferredCPUBindPolicy":"FullPCPUs"}"#,
        );
        assert_eq!(both.bind, Bind { policy: SPREAD, required: true });
        let preferred =
            spec(r#"{"requiredCPUBindPolicy":"","preferredCPUBindPolicy":"SpreadByPCPUs"}"#);
        assert_eq!(preferred.bind, Bind { policy: SPREAD, required: false });
        assert_eq!(spec("{}"), ResourceSpec::default());
        assert_eq!(
            spec(r#"{"preferredCPUBindPolicy":null}"#).bind,
            Bind { policy: FULL, required: false }
        );
        assert_eq!(
            spec(r#"{"requiredCPUBindPolicy":"Default"}"#).bind,
            Bind { policy: FULL, required: true }
        );
    }

    #[test]
    fn the_exclusive_policy_may_be_required_too() {
        let preferred = spec(r#"{"preferredCPUExclusivePolicy":"PCPULevel"}"#).exclusive;
        assert_eq!(preferred, Exclusivity { policy: ExclusivePolicy::PcpuLevel, required: false });
        let required = spec(r#"{"requiredCPUExclusivePolicy":"NUMANodeLevel"}"#).exclusive;
        assert_eq!(
            required,
            Exclusivity { policy: ExclusivePolicy::NumaNodeLevel, required: true }
        );
    }

    #[test]
    fn keys_of_a_later_koordinator_are_passed_over_in_an_annotation() {
        assert_eq!(
            spec(r#"{"numaTopology":{"deep":[1]},"preferredCPUBindPolicy":"SpreadByPCPUs"}"#)
                .bind
                .policy,
            SPREAD
        );
    }

    #[test]
    fn forged_annotations_are_errors() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        for json in [
            "",
            "null",
            "[]",
            "{",
            r#"{"preferredCPUBindPolicy":"Full"}"#,
            r#"{"preferredCPUBindPolicy":"fullpcpus"}"#,
            r#"{"preferredCPUBindPolicy":3}"#,
            r#"{"requiredCPUExclusivePolicy":"All"}"#,
            r#"{"preferredCPUBindPolicy":"Default","preferredCPUBindPolicy":"Default"}"#,
            &deep,
            &format!(r#"{{"x":{deep}}}"#),
        ] {
            assert!(ResourceSpec::from_annotation(json).is_err(), "{json:.60}");
        }
    }

    #[test]
    fn a_status_names_cpus_or_none() {
        let cpus = |json| cpus_of_status(json).map(|cpus| cpus.map(|cpus| cpus.to_string()));
        assert_eq!(
            cpus(r#"{"cpuset":"0-3,8","numaNodeResources":[{"node":0}]}"#).unwrap().as_deref(),
            Some("0-3,8")
        );
        assert_eq!(cpus(r#"{"cpuset":""}"#).unwrap(), None);
        assert_eq!(cpus("{}").unwrap(), None);
        for json in [r#"{"cpuset":"0-"}"#, r#"{"cpuset":"0-99999"}"#, r#"{"cpuset":[0]}"#, "0-3"] {
            assert!(cpus(json).is_err(), "{json}");
        }
    }

    #[test]
    fn a_configuration_round_trips_and_knows_every_key() {
        let yaml = "requiredCPUBindPolicy: SpreadByPCPUs\npreferredCPUExclusivePolicy: PCPULevel\n";
        let spec: ResourceSpec = serde_saphyr::from_str(yaml).unwrap();
        assert_eq!(serde_saphyr::to_string(&spec).unwrap(), yaml);
        let error =
            serde_saphyr::from_str::<ResourceSpec>("requiredCPUBindPolcy: FullPCPUs").unwrap_err();
        assert!(error.to_string().contains("requiredCPUBindPolcy"), "{error}");
    }
}
