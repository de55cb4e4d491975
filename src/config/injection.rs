//! Meaning of the options about the environment of new containers.

use std::collections::{BTreeMap, BTreeSet};

use analysis::injection::{Request, UnknownVariable};
use placement::Selector;
use serde::{Deserialize, Serialize};

use super::Options;
use super::options::{InjectEnvMode, NriMode};
use crate::exit::Failure;

/// Variables for the containers of the pods of a selector. A pod's own annotation overrides it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct InjectProfile {
    /// Name, for logs; unique.
    pub(crate) name: String,
    /// Selector of the pods.
    pub(crate) selector: Selector,
    /// Names of the variables [default: GOMAXPROCS, GOMEMLIMIT].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) variables: Vec<String>,
    /// Names of the containers [default: the app containers].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) containers: Vec<String>,
}

/// Checked options of the injection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Injection {
    /// Whether variables are only reported.
    pub(crate) observes: bool,
    /// Profiles in their order; empty unless they are in force.
    pub(crate) profiles: Vec<(Selector, Request)>,
}

impl Injection {
    /// # Errors
    /// Options that contradict each other, or the invalid profile, by name.
    pub(super) fn resolve(options: &Options) -> Result<Option<Self>, Failure> {
        let profiles = profiles(&options.inject_profiles)
            .map_err(|text| Failure::config(format!("injectProfiles: {text}")))?;
        match (options.nri, options.inject_env) {
            (NriMode::Off, InjectEnvMode::Off) => return Ok(None),
            (NriMode::On, InjectEnvMode::Off) => {
                let text = "--nri: on has no effect without --inject-env; set it to observe, annotated or profiles";
                return Err(Failure::config(text.to_owned()));
            }
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
        Ok(Some(Self { observes, profiles: if has_profiles { profiles } else { Vec::new() } }))
    }

    /// The request for a pod: that of its annotations (variables, containers), else that of the
    /// first profile that selects it.
    ///
    /// # Errors
    /// An annotation with an unknown variable.
    pub(crate) fn request(
        &self,
        namespace: &str,
        labels: &BTreeMap<String, String>,
        [variables, containers]: [Option<&str>; 2],
    ) -> Result<Option<Request>, UnknownVariable> {
        match variables {
            Some(variables) => Request::parse(variables, containers),
            None => Ok(self.profile(namespace, labels).cloned()),
        }
    }

    fn profile(&self, namespace: &str, labels: &BTreeMap<String, String>) -> Option<&Request> {
        let of = |(selector, _): &&(Selector, Request)| selector.matches(namespace, labels);
        self.profiles.iter().find(of).map(|(_, request)| request)
    }
}

fn profiles(profiles: &[InjectProfile]) -> Result<Vec<(Selector, Request)>, String> {
    let mut names = BTreeSet::new();
    let mut all = Vec::new();
    for (at, profile) in (1..).zip(profiles) {
        let InjectProfile { name, selector, .. } = profile;
        if name.is_empty() {
            return Err(format!("profile {at} of the list has no name"));
        }
        if !names.insert(name) {
            return Err(format!("duplicate profile {name:?}"));
        }
        if *selector == Selector::default() {
            return Err(format!(
                "profile {name:?}: the selector has neither namespaces nor matchLabels"
            ));
        }
        if selector.selects_nothing() {
            return Err(format!(
                "profile {name:?}: an empty namespace or label key selects nothing"
            ));
        }
        let request =
            request(profile).map_err(|error| format!("profile {name:?}: variables: {error}"))?;
        all.push((selector.clone(), request));
    }
    Ok(all)
}

fn request(profile: &InjectProfile) -> Result<Request, UnknownVariable> {
    let variables = match &profile.variables[..] {
        [] => "true".to_owned(),
        names => names.join(","),
    };
    let containers = (!profile.containers.is_empty()).then(|| profile.containers.join(","));
    let request = Request::parse(&variables, containers.as_deref())?;
    request.ok_or(UnknownVariable(variables))
}

#[cfg(test)]
mod tests {
    use analysis::injection::Variable;

    use super::*;

    fn resolve(yaml: &str) -> Result<Option<Injection>, String> {
        let options: Options = serde_saphyr::from_str(yaml).unwrap();
        Injection::resolve(&options).map_err(|failure| failure.to_string())
    }

    const SHOP: &str =
        "injectProfiles: [{name: shop, selector: {namespaces: [shop], matchLabels: {tier: web}}}]";

    #[test]
    fn nothing_is_injected_by_default() {
        assert_eq!(resolve("{}"), Ok(None));
        assert_eq!(resolve(SHOP), Ok(None));
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
            injection.profile(namespace, &labels)
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
            ("nri: on".to_owned(), "--nri: on has no effect without --inject-env"),
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
