//! Eligibility for exclusive CPUs: a pod's labels and annotations and its profile, checked against
//! the node's rules.

use kernel_text::CpuSet;

use crate::plan::Class;
use crate::reason::Reason;

use super::spec::cpus_of_status;
use super::{Authorization, CpuQos, Pod, PriorityClass, Profiles, QOS_CLASS_LABEL, ResourceSpec};

/// The class and claim of a pod, with the reason for a rejection.
pub(crate) struct Classification {
    /// The pool without exclusive CPUs.
    pub(crate) shared: Class,
    /// Claim to exclusive CPUs, if the pod is eligible.
    pub(crate) claim: Option<Claim>,
    /// Reason why it is not eligible, or another invalid label or annotation.
    pub(crate) rejection: Option<Reason>,
}

/// An eligible pod's claim to exclusive CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) class: Class,
    pub(crate) cpus: usize,
    pub(crate) spec: ResourceSpec,
    /// CPUs chosen by a trusted scheduler.
    pub(crate) decided: Option<CpuSet>,
}

/// The rules of eligibility, apart from the pod.
pub(crate) struct Rules<'a> {
    pub(crate) profiles: &'a Profiles,
    pub(crate) trust_resource_status: bool,
    pub(crate) authorization: &'a Authorization,
}

/// Classifies a pod. An LSE or LSR pod that is not eligible runs in the shared pool.
pub(crate) fn classify(pod: &Pod, rules: &Rules<'_>) -> Classification {
    let profile = rules.profiles.of(pod);
    let asks_itself = profile.is_none_or(|profile| profile.qos_class.is_none()) && !pod.admitted;
    let label = pod
        .labels
        .get(QOS_CLASS_LABEL)
        .map(|label| CpuQos::parse(label).ok_or(Reason::UnknownQosClass));
    let (qos, unknown) = match profile.and_then(|profile| profile.qos_class).map(Ok).or(label) {
        Some(Ok(qos)) => (qos, None),
        Some(Err(reason)) => (CpuQos::Ls, Some(reason)),
        None => (CpuQos::Ls, None),
    };
    if let Err(reason) = rules.authorization.class(pod, qos)
        && asks_itself
    {
        return Classification { shared: Class::Share, claim: None, rejection: Some(reason) };
    }
    let spec = match (profile.and_then(|profile| profile.resource_spec), &pod.resource_spec) {
        (Some(spec), _) => Ok(spec),
        (None, Some(json)) => ResourceSpec::from_annotation(json)
            .map_err(|_| Reason::ResourceSpecMalformed)
            .and_then(|spec| rules.authorization.spec(pod, spec)),
        (None, None) => Ok(ResourceSpec::default()),
    };
    let shared = if qos == CpuQos::Be { Class::BestEffort } else { Class::Share };
    let class = match qos {
        CpuQos::Lse => Class::Lse,
        CpuQos::Lsr => Class::Lsr,
        CpuQos::Ls | CpuQos::Be | CpuQos::System => {
            return Classification { shared, claim: None, rejection: unknown.or(spec.err()) };
        }
    };
    match spec.and_then(|spec| claim(pod, qos, class, spec, rules)) {
        Ok(claim) => Classification { shared, claim: Some(claim), rejection: None },
        Err(reason) => Classification { shared, claim: None, rejection: Some(reason) },
    }
}

fn claim(
    pod: &Pod,
    qos: CpuQos,
    class: Class,
    spec: ResourceSpec,
    rules: &Rules<'_>,
) -> Result<Claim, Reason> {
    if PriorityClass::of(pod, qos) != PriorityClass::Prod {
        return Err(Reason::PriorityNotProd);
    }
    let millis = pod.request_millis.filter(|&millis| millis > 0 && millis.is_multiple_of(1000));
    let cpus = millis
        .and_then(|millis| usize::try_from(millis / 1000).ok())
        .ok_or(Reason::RequestNotInteger)?;
    if pod.limit_millis != pod.request_millis {
        return Err(Reason::RequestNotLimit);
    }
    let decided = match &pod.resource_status {
        Some(json) if rules.trust_resource_status => {
            cpus_of_status(json).map_err(|_| Reason::ResourceStatusMalformed)?
        }
        _ => None,
    };
    Ok(Claim { class, cpus, spec, decided })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{PRIORITY_CLASS_LABEL, Profile, Selector};

    fn pod(qos: &str) -> Pod {
        let labels = [(QOS_CLASS_LABEL.to_owned(), qos.to_owned())].into();
        let best_effort = qos == "BE";
        Pod {
            labels,
            request_millis: Some(4000),
            limit_millis: Some(4000),
            best_effort,
            ..Pod::default()
        }
    }

    fn classified(pod: &Pod) -> Classification {
        let (profiles, authorization) = (Profiles::default(), Authorization::default());
        classify(
            pod,
            &Rules {
                profiles: &profiles,
                trust_resource_status: true,
                authorization: &authorization,
            },
        )
    }

    fn rejection(pod: &Pod) -> Option<Reason> {
        let class = classified(pod);
        assert!(
            class.rejection.is_none() || (class.claim.is_none() && class.shared == Class::Share)
        );
        class.rejection
    }

    #[test]
    fn only_lse_and_lsr_are_eligible() {
        for (qos, class, shared) in [
            ("LSE", Some(Class::Lse), Class::Share),
            ("LSR", Some(Class::Lsr), Class::Share),
            ("LS", None, Class::Share),
            ("SYSTEM", None, Class::Share),
            ("BE", None, Class::BestEffort),
        ] {
            let found = classified(&pod(qos));
            assert_eq!(
                (found.claim.map(|claim| claim.class), found.shared, found.rejection),
                (class, shared, None),
                "{qos}"
            );
        }
        assert_eq!(classified(&Pod::default()).shared, Class::Share);
    }

    #[test]
    fn ineligible_pods_have_a_reason() {
        let millis =
            |request_millis, limit_millis| Pod { request_millis, limit_millis, ..pod("LSR") };
        assert_eq!(rejection(&pod("LSRR")), Some(Reason::UnknownQosClass));
        for request in [None, Some(0), Some(1500), Some(999)] {
            assert_eq!(
                rejection(&millis(request, request)),
                Some(Reason::RequestNotInteger),
                "{request:?}"
            );
        }
        assert_eq!(rejection(&millis(Some(2000), None)), Some(Reason::RequestNotLimit));
        assert_eq!(rejection(&millis(Some(2000), Some(4000))), Some(Reason::RequestNotLimit));
        assert_eq!(
            rejection(&Pod { priority: Some(5500), ..pod("LSE") }),
            Some(Reason::PriorityNotProd)
        );
        let mut batch = pod("LSR");
        batch.labels.insert(PRIORITY_CLASS_LABEL.into(), "koord-batch".into());
        assert_eq!(rejection(&batch), Some(Reason::PriorityNotProd));
    }

    #[test]
    fn malformed_annotations_reject_the_pod() {
        let spec = |qos| Pod { resource_spec: Some("{".into()), ..pod(qos) };
        assert_eq!(rejection(&spec("LSR")), Some(Reason::ResourceSpecMalformed));
        assert_eq!(rejection(&spec("LS")), Some(Reason::ResourceSpecMalformed));
        let status = Pod { resource_status: Some("0-3".into()), ..pod("LSR") };
        assert_eq!(rejection(&status), Some(Reason::ResourceStatusMalformed));
    }

    #[test]
    fn a_status_counts_only_where_it_is_trusted() {
        let pod = Pod { resource_status: Some(r#"{"cpuset":"4-7"}"#.into()), ..pod("LSR") };
        let decided = |trust_resource_status| {
            let (profiles, authorization) = (Profiles::default(), Authorization::default());
            let rules =
                Rules { profiles: &profiles, trust_resource_status, authorization: &authorization };
            let class = classify(&pod, &rules);
            class.claim.unwrap().decided.map(|cpus| cpus.to_string())
        };
        assert_eq!((decided(true).as_deref(), decided(false)), (Some("4-7"), None));
    }

    #[test]
    fn a_profile_overrides_the_pods_labels() {
        let selector = Selector { namespaces: vec![String::from("shop")], ..Selector::default() };
        let spec =
            ResourceSpec::from_annotation(r#"{"preferredCPUBindPolicy":"SpreadByPCPUs"}"#).unwrap();
        let profile = Profile {
            name: "web".into(),
            selector,
            qos_class: Some(CpuQos::Lsr),
            resource_spec: Some(spec),
        };
        let profiles = Profiles::new(vec![profile]).unwrap();
        let pod = Pod { namespace: "shop".into(), resource_spec: Some("{".into()), ..pod("BE") };
        let rules = Rules {
            profiles: &profiles,
            trust_resource_status: false,
            authorization: &Authorization::default(),
        };
        let claim = classify(&pod, &rules).claim.unwrap();
        assert_eq!((claim.class, claim.spec), (Class::Lsr, spec));
    }

    #[test]
    fn a_label_without_permission_leaves_the_pod_shared() {
        let guaranteed = Pod { best_effort: false, ..pod("BE") };
        assert_eq!(rejection(&guaranteed), Some(Reason::BestEffortNotAllowed));
        let required = r#"{"requiredCPUExclusivePolicy":"NUMANodeLevel"}"#;
        let locking = Pod { resource_spec: Some(required.into()), ..pod("LSR") };
        assert_eq!(rejection(&locking), Some(Reason::RequiredExclusiveNotAllowed));
        let nobody = Authorization {
            classes: [(CpuQos::Lse, Vec::new())].into(),
            ..Authorization::default()
        };
        let profiles = Profiles::default();
        let rules =
            Rules { profiles: &profiles, trust_resource_status: false, authorization: &nobody };
        assert_eq!(classify(&pod("LSE"), &rules).rejection, Some(Reason::ClassNotAllowed));
        assert!(
            classify(&Pod { admitted: true, ..pod("LSE") }, &rules).claim.is_some(),
            "it has been granted before"
        );
    }

    #[test]
    fn an_operators_profile_needs_no_permission() {
        let selector = Selector { namespaces: vec![String::from("shop")], ..Selector::default() };
        let spec =
            ResourceSpec::from_annotation(r#"{"requiredCPUExclusivePolicy":"PCPULevel"}"#).unwrap();
        let profile = Profile {
            name: "web".into(),
            selector,
            qos_class: Some(CpuQos::Lse),
            resource_spec: Some(spec),
        };
        let profiles = Profiles::new(vec![profile]).unwrap();
        let nobody = Authorization {
            classes: [(CpuQos::Lse, Vec::new())].into(),
            ..Authorization::default()
        };
        let rules =
            Rules { profiles: &profiles, trust_resource_status: false, authorization: &nobody };
        let pod = Pod { namespace: "shop".into(), ..pod("") };
        assert_eq!(
            classify(&pod, &rules).claim.map(|claim| (claim.class, claim.spec)),
            Some((Class::Lse, spec))
        );
    }
}
