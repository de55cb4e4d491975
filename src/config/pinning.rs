//! Meaning of the pinning options.

use std::path::PathBuf;

use kernel_text::CpuSet;
use kubelet::chain;
use placement::{Authorization, NumaStrategy, Profile, Profiles, Settings};

use super::options::NumaStrategyName;
use super::{Options, PinningMode};
use crate::exit::Failure;

/// Configuration of pinning.
#[derive(Debug, Clone)]
pub(crate) struct PinningConfig {
    pub(crate) mode: PinningMode,
    pub(crate) reserved: CpuSet,
    pub(crate) settings: Settings,
    pub(crate) profiles: Profiles,
    pub(crate) cpu_manager_state: PathBuf,
    pub(crate) state_dir: PathBuf,
    /// Namespaces whose pods may be agents that place containers.
    pub(crate) owner_namespaces: Vec<String>,
    pub(crate) events: bool,
    said: Vec<Profile>,
}

impl PinningConfig {
    /// # Errors
    /// The invalid option or profile, by name.
    pub(super) fn resolve(options: &Options) -> Result<Self, Failure> {
        let reserved = options.reserved_cpus.as_deref().unwrap_or_default();
        let reserved = reserved.parse().map_err(|error| {
            Failure::config(format!("--reserved-cpus: {reserved:?} is no CPU list such as 0-1,8: {error}"))
        })?;
        let defaults = Settings::default();
        let settings = Settings {
            share_floor: options.share_floor.unwrap_or(defaults.share_floor),
            strategy: strategy(options.numa_strategy.unwrap_or_default()),
            trust_resource_status: options.trust_resource_status.unwrap_or(false),
            best_effort_cpus: options.best_effort_cpus,
            authorization: options.authorization.clone().unwrap_or_default(),
        };
        settings.authorization.check().map_err(|error| Failure::config(format!("authorization: {}", chain(&error))))?;
        for (flag, cpus) in
            [("--share-floor", Some(settings.share_floor)), ("--best-effort-cpus", settings.best_effort_cpus)]
        {
            if cpus == Some(0) {
                return Err(Failure::config(format!("{flag}: a pool needs CPUs; give at least 1")));
            }
        }
        let said = options.profiles.clone().unwrap_or_default();
        let profiles =
            Profiles::new(said.clone()).map_err(|error| Failure::config(format!("profiles: {}", chain(&error))))?;
        Ok(Self {
            mode: options.pinning.unwrap_or_default(),
            reserved,
            settings,
            profiles,
            cpu_manager_state: options.cpu_manager_state.clone().unwrap_or_else(|| pinning::CPU_MANAGER_STATE.into()),
            state_dir: options.state_dir.clone().unwrap_or_else(|| pinning::STATE_DIR.into()),
            owner_namespaces: owner_namespaces(options.cpuset_owner_namespaces.as_deref()),
            events: options.events.unwrap_or(false),
            said,
        })
    }

    pub(super) fn to_options(&self) -> Options {
        Options {
            pinning: Some(self.mode),
            reserved_cpus: Some(self.reserved.to_string()),
            share_floor: Some(self.settings.share_floor),
            best_effort_cpus: self.settings.best_effort_cpus,
            numa_strategy: Some(strategy_name(self.settings.strategy)),
            trust_resource_status: Some(self.settings.trust_resource_status),
            cpu_manager_state: Some(self.cpu_manager_state.clone()),
            state_dir: Some(self.state_dir.clone()),
            cpuset_owner_namespaces: Some(self.owner_namespaces.join(",")),
            events: Some(self.events),
            authorization: Some(self.settings.authorization.clone()).filter(|said| *said != Authorization::default()),
            profiles: Some(self.said.clone()).filter(|profiles| !profiles.is_empty()),
            ..Options::default()
        }
    }
}

fn owner_namespaces(said: Option<&str>) -> Vec<String> {
    match said {
        Some(names) => names.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect(),
        None => pinning::OWNER_NAMESPACES.map(str::to_owned).into(),
    }
}

fn strategy(name: NumaStrategyName) -> NumaStrategy {
    match name {
        NumaStrategyName::MostAllocated => NumaStrategy::MostAllocated,
        NumaStrategyName::LeastAllocated => NumaStrategy::LeastAllocated,
        NumaStrategyName::DistributeEvenly => NumaStrategy::DistributeEvenly,
    }
}

fn strategy_name(strategy: NumaStrategy) -> NumaStrategyName {
    match strategy {
        NumaStrategy::MostAllocated => NumaStrategyName::MostAllocated,
        NumaStrategy::LeastAllocated => NumaStrategyName::LeastAllocated,
        NumaStrategy::DistributeEvenly => NumaStrategyName::DistributeEvenly,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(yaml: &str) -> Result<PinningConfig, String> {
        PinningConfig::resolve(&serde_saphyr::from_str(yaml).unwrap()).map_err(|failure| failure.to_string())
    }

    #[test]
    fn pinning_is_off_unless_said() {
        let config = resolve("{}").unwrap();
        assert_eq!((config.mode, config.settings.share_floor), (PinningMode::Off, 2));
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
        assert!(resolve("shareFloor: 0").unwrap_err().contains("--share-floor"));
        let all = "profiles: [{name: everybody, selector: {}, qosClass: LSR}]";
        assert!(resolve(all).unwrap_err().contains("everybody"));
    }

    #[test]
    fn permissions_come_back_as_they_were_said_and_are_checked() {
        let yaml = "authorization: {classes: {LSE: [{namespaces: [trading]}]}, maxExclusiveCpus: 8}";
        let config = resolve(yaml).unwrap();
        assert_eq!(config.settings.authorization.max_exclusive_cpus, Some(8));
        let text = serde_saphyr::to_string(&config.to_options()).unwrap();
        assert_eq!(resolve(&text).unwrap().settings, config.settings, "{text}");
        let error = resolve("authorization: {classes: {LS: []}}").unwrap_err();
        assert!(error.contains("authorization") && error.contains("LSE"), "{error}");
        assert_eq!(resolve("{}").unwrap().to_options().authorization, None);
    }

    #[test]
    fn profiles_come_back_as_they_were_said() {
        let yaml = "profiles: [{name: web, selector: {namespaces: [shop]}, qosClass: LSR}]";
        let options = resolve(yaml).unwrap().to_options();
        assert_eq!(PinningConfig::resolve(&options).unwrap().said[0].name, "web");
    }
}
