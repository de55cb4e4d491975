//! Meaning of the options about the environment of new containers.

use creation::variables::{InjectionRules, checked_profiles};

use super::Options;
use super::modes::{InjectEnvMode, NriMode};
use crate::exit::Failure;

/// Resolves the options.
///
/// # Errors
/// Options that contradict each other, or the invalid profile, by name.
pub(super) fn resolve(options: &Options) -> Result<Option<InjectionRules>, Failure> {
    let profiles = checked_profiles(&options.inject_profiles)
        .map_err(|text| Failure::config(format!("injectProfiles: {text}")))?;
    match (options.nri, options.inject_env) {
        (_, InjectEnvMode::Off) => return Ok(None),
        (NriMode::Off, _) => {
            let text = "--inject-env needs --nri=on and the runtime's socket; set both";
            return Err(Failure::config(text.to_owned()));
        }
        (NriMode::On, InjectEnvMode::Profiles) if profiles.is_empty() => {
            let text = "--inject-env: profiles needs injectProfiles in the configuration file; add them, or \
                        use annotated";
            return Err(Failure::config(text.to_owned()));
        }
        (NriMode::On, _) => {}
    }
    let observes = options.inject_env == InjectEnvMode::Observe;
    let has_profiles = options.inject_env != InjectEnvMode::Annotated;
    Ok(Some(InjectionRules {
        observes,
        memory_share: options.inject_memory_share,
        request_factor: options.inject_request_factor,
        profiles: if has_profiles { profiles } else { Vec::new() },
    }))
}

#[cfg(test)]
mod tests {
    use analysis::injection::Variable;

    use super::*;

    fn resolve(yaml: &str) -> Result<Option<InjectionRules>, String> {
        let options: Options = serde_saphyr::from_str(yaml).unwrap();
        super::resolve(&options).map_err(|failure| failure.to_string())
    }

    const SHOP: &str =
        "injectProfiles: [{name: shop, selector: {namespaces: [shop], matchLabels: {tier: web}}}]";

    #[test]
    fn nothing_is_injected_by_default() {
        assert_eq!(resolve("{}"), Ok(None));
        assert_eq!(resolve("nri: on"), Ok(None));
        assert_eq!(resolve(SHOP), Ok(None));
    }

    #[test]
    fn the_share_for_gomemlimit_is_70_percent_unless_it_is_set() {
        let share = |yaml: &str| {
            let yaml = format!("nri: on\ninjectEnv: annotated\n{yaml}");
            resolve(&yaml).map(|injection| injection.unwrap().memory_share)
        };
        assert_eq!(share(""), Ok(analysis::HEAP_SHARE));
        assert_eq!(share("injectMemoryShare: 0.9"), Ok(0.9));
    }

    #[test]
    fn requests_count_only_with_a_factor() {
        let factor = |yaml: &str| {
            let yaml = format!("nri: on\ninjectEnv: annotated\n{yaml}");
            resolve(&yaml).map(|injection| injection.unwrap().request_factor)
        };
        assert_eq!(factor(""), Ok(None));
        assert_eq!(factor("injectRequestFactor: 2"), Ok(Some(2.0)));
    }

    #[test]
    fn profiles_are_in_force_only_where_they_are_asked_for() {
        let profiles = |mode| {
            let yaml = format!("nri: on\ninjectEnv: {mode}\n{SHOP}\n");
            let injection = resolve(&yaml).unwrap().unwrap();
            (injection.observes, injection.profiles.len())
        };
        assert_eq!(profiles("observe"), (true, 1));
        assert_eq!(profiles("annotated"), (false, 0));
        assert_eq!(profiles("profiles"), (false, 1));
    }

    #[test]
    fn the_first_profile_that_selects_a_pod_applies() {
        let yaml = "nri: on\ninjectEnv: profiles\ninjectProfiles:\n\
                    - {name: a, selector: {namespaces: [shop], matchLabels: {tier: web}}, variables: [RAYON_NUM_THREADS]}\n\
                    - {name: b, selector: {namespaces: [shop]}, containers: [app]}\n";
        let injection = resolve(yaml).unwrap().unwrap();
        let of = |namespace, tier: &str| {
            let labels = [("tier".to_owned(), tier.to_owned())].into();
            injection.request(namespace, &labels, [None, None]).unwrap()
        };
        assert_eq!(of("shop", "web").unwrap().variables, [Variable::Rayon]);
        let second = of("shop", "batch").unwrap();
        assert_eq!(second.variables, Variable::DEFAULT);
        assert_eq!(second.containers, Some(vec!["app".to_owned()]));
        assert_eq!(of("bank", "web"), None);
    }

    #[test]
    fn contradictions_and_invalid_profiles_are_errors_with_a_remedy() {
        let profile = |rest: &str| format!("injectProfiles: [{{name: a, selector: {rest}}}]");
        let cases = [
            ("injectEnv: annotated".to_owned(), "--inject-env needs --nri=on"),
            (
                "nri: on\ninjectEnv: profiles".to_owned(),
                "--inject-env: profiles needs injectProfiles",
            ),
            (profile("{}"), "profile \"a\": the selector has neither namespaces nor matchLabels"),
            (profile("{namespaces: ['']}"), "profile \"a\": an empty namespace or label key"),
            (
                profile("{namespaces: [a]}, variables: [PATH]"),
                "profile \"a\": variables: \"PATH\": expected true, false, or a list of GOMAXPROCS",
            ),
            (
                profile("{namespaces: [a]}, variables: ['false']"),
                "profile \"a\": variables: \"false\"",
            ),
        ];
        for (yaml, expected) in cases {
            let error = resolve(&yaml).unwrap_err();
            assert!(error.contains(expected), "{yaml}: {error}");
        }
    }
}
