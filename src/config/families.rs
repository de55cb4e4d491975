//! Families of metrics on the page: the preset, and those that are switched one by one.

use metrics::catalogue::{CadvisorGroup, Selection};

use super::Options;
use crate::exit::Failure;

/// Selects the families that the options name.
///
/// # Errors
/// A name that no metric has, or one that is both enabled and disabled.
pub(super) fn selection(options: &Options) -> Result<Selection, Failure> {
    let mut selection = Selection::preset(options.metrics);
    let (enable, disable) = (options.metrics_enable.as_deref(), options.metrics_disable.as_deref());
    for (flag, list, on) in
        [("--metrics-enable", enable, true), ("--metrics-disable", disable, false)]
    {
        for name in names(list) {
            let remedy = "cpuwarden reference metrics lists all names";
            let unknown = |error| Failure::config(format!("{flag}: {error}; {remedy}"));
            selection.switch(name, on).map_err(unknown)?;
        }
    }
    let short = |name: &str| name.strip_prefix("cpuwarden_").unwrap_or(name).to_owned();
    let disabled: Vec<String> = names(disable).map(short).collect();
    if let Some(name) = names(enable).map(short).find(|name| disabled.contains(name)) {
        let text = format!(
            "--metrics-disable: {name} is also in --metrics-enable; remove it from one of them"
        );
        return Err(Failure::config(text));
    }
    Ok(selection)
}

/// Groups of series on the page of cAdvisor's names.
///
/// # Errors
/// A name that no group has.
pub(super) fn cadvisor_groups(options: &Options) -> Result<Vec<CadvisorGroup>, Failure> {
    let Some(list) = options.cadvisor_groups.as_deref() else {
        return Ok(CadvisorGroup::ALL.to_vec());
    };
    let group = |name: &str| {
        let found = CadvisorGroup::ALL.into_iter().find(|group| group.name() == name);
        found.ok_or_else(|| {
            let known = CadvisorGroup::ALL.map(CadvisorGroup::name).join(", ");
            Failure::config(format!("--cadvisor-groups: no group {name:?}; expected {known}"))
        })
    };
    names(Some(list)).map(group).collect()
}

fn names(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use metrics::catalogue::Preset;

    use super::*;

    fn resolve(yaml: &str) -> Result<Selection, Failure> {
        selection(&serde_saphyr::from_str(yaml).unwrap())
    }

    #[test]
    fn standard_is_the_default() {
        assert_eq!(selection(&Options::default()).unwrap(), Selection::preset(Preset::Standard));
    }

    #[test]
    fn families_are_switched_on_top_of_the_preset() {
        let yaml = "metrics: lean\nmetricsEnable: container_threads, cpuwarden_container_info\nmetricsDisable: cgroups\n";
        let mut expected = Selection::preset(Preset::Lean);
        expected.switch("container_threads", true).unwrap();
        expected.switch("container_info", true).unwrap();
        expected.switch("cgroups", false).unwrap();
        assert_eq!(resolve(yaml).unwrap(), expected);
    }

    #[test]
    fn groups_of_cadvisors_series_are_chosen_by_name() {
        let groups = |yaml| cadvisor_groups(&serde_saphyr::from_str(yaml).unwrap());
        assert_eq!(groups("cadvisorMetrics: true\n").unwrap(), CadvisorGroup::ALL);
        let chosen = groups("cadvisorGroups: spec, pressure\n").unwrap();
        assert_eq!(chosen, [CadvisorGroup::Spec, CadvisorGroup::Pressure]);
        let error = groups("cadvisorGroups: limits\n").unwrap_err().to_string();
        assert!(error.contains("no group \"limits\"; expected usage, throttling"), "{error}");
    }

    #[test]
    fn a_family_cannot_be_both_on_and_off() {
        let error = resolve("metricsEnable: cpuwarden_cgroups\nmetricsDisable: cgroups\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("--metrics-disable: cgroups"), "{error}");
    }
}
