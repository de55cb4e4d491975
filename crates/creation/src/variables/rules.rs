//! Rules of the injection: which pods' containers get which variables.

use std::collections::{BTreeMap, BTreeSet};

use analysis::injection::{Request, UnknownVariable};
use placement::Selector;
use serde::{Deserialize, Serialize};

/// Variables for the containers of the pods of a selector. A pod's own annotation overrides it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InjectProfile {
    /// Name, for logs; unique.
    pub name: String,
    /// Selector of the pods.
    pub selector: Selector,
    /// Names of the variables [default: GOMAXPROCS, GOMEMLIMIT].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// Names of the containers [default: the app containers].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
}

/// Checked options of the injection.
#[derive(Debug, Clone, PartialEq)]
pub struct InjectionRules {
    /// Whether variables are only reported.
    pub observes: bool,
    /// Share of the memory limit for GOMEMLIMIT, above 0 and up to 0.9.
    pub memory_share: f64,
    /// Threads per requested core for containers without a CPU limit, above 0; `None`: they get
    /// no variable about threads.
    pub request_factor: Option<f64>,
    /// Profiles in their order; empty unless they are in force.
    pub profiles: Vec<(Selector, Request)>,
}

impl InjectionRules {
    /// The request for a pod: that of its annotations (variables, containers), else that of the
    /// first profile that selects it.
    ///
    /// # Errors
    /// An annotation with an unknown variable.
    pub fn request(
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

/// Checks profiles.
///
/// # Errors
/// The invalid profile, by name.
pub fn checked_profiles(profiles: &[InjectProfile]) -> Result<Vec<(Selector, Request)>, String> {
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
