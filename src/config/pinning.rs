//! Meaning of the pinning options.

use kernel_text::CpuSet;
use placement::{PlacementSettings, Profiles};
use watchdog::errors::chain;

use super::Options;
use crate::exit::Failure;

/// Configuration of pinning, where it is not simply an option.
#[derive(Debug, Clone)]
pub(crate) struct PinningConfig {
    pub(crate) reserved: CpuSet,
    pub(crate) settings: PlacementSettings,
    pub(crate) profiles: Profiles,
    /// Namespaces whose pods may be agents that place containers.
    pub(crate) owner_namespaces: Vec<String>,
}

impl PinningConfig {
    /// # Errors
    /// The invalid option or profile, by name.
    pub(super) fn resolve(options: &Options) -> Result<Self, Failure> {
        let reserved = options.reserved_cpus.as_deref().unwrap_or_default();
        let reserved = reserved.parse().map_err(|error| {
            Failure::config(format!(
                "--reserved-cpus: {reserved:?} is not a CPU list such as 0-1,8: {error}"
            ))
        })?;
        let settings = PlacementSettings {
            share_floor: options.share_floor,
            strategy: options.numa_strategy,
            trust_resource_status: options.trust_resource_status,
            best_effort_cpus: options.best_effort_cpus,
            authorization: options.authorization.clone(),
        };
        settings
            .authorization
            .check()
            .map_err(|error| Failure::config(format!("authorization: {}", chain(&error))))?;
        let profiles = Profiles::new(options.profiles.clone())
            .map_err(|error| Failure::config(format!("profiles: {}", chain(&error))))?;
        let namespaces = options
            .cpuset_owner_namespaces
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        Ok(Self {
            reserved,
            settings,
            profiles,
            owner_namespaces: namespaces.map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state_dir::ActingMode;

    fn resolve(yaml: &str) -> Result<PinningConfig, String> {
        PinningConfig::resolve(&serde_saphyr::from_str(yaml).unwrap())
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn pinning_is_off_by_default() {
        assert_eq!(Options::default().pinning, ActingMode::Off);
        let config = resolve("{}").unwrap();
        assert_eq!(config.settings.share_floor, 2);
        assert!(!config.settings.trust_resource_status && config.reserved.is_empty());
    }

    #[test]
    fn namespaces_of_other_agents_are_a_list() {
        let of = |yaml| resolve(yaml).unwrap().owner_namespaces;
        assert_eq!(of("{}"), ["kube-system", "koordinator-system"]);
        assert_eq!(of("cpusetOwnerNamespaces: kube-system, intel"), ["kube-system", "intel"]);
        assert_eq!(of("cpusetOwnerNamespaces: ''"), [""; 0]);
    }

    #[test]
    fn what_cannot_be_meant_is_named() {
        assert!(resolve("reservedCpus: 3-1").unwrap_err().contains("--reserved-cpus"));
        let all = "profiles: [{name: everybody, selector: {}, qosClass: LSR}]";
        assert!(resolve(all).unwrap_err().contains("everybody"));
    }

    #[test]
    fn permissions_are_checked() {
        let yaml =
            "authorization: {classes: {LSE: [{namespaces: [trading]}]}, maxExclusiveCpus: 8}";
        assert_eq!(resolve(yaml).unwrap().settings.authorization.max_exclusive_cpus, Some(8));
        let error = resolve("authorization: {classes: {LS: []}}").unwrap_err();
        assert!(error.contains("authorization") && error.contains("LSE"), "{error}");
    }
}
