//! The settings for each platform: helm renders them, they are valid, and the page of platforms
//! describes them.

use std::collections::BTreeMap;

use serde_json::Value;

use super::chart::{
    OPERATOR, PROFILES, container, documents, kube_versions, pod, render, valid_on_every_minor,
    variable,
};
use super::read;

const PLATFORMS: [&str; 10] =
    ["gke", "eks", "aks", "openshift", "talos", "k3s", "rke2", "k0s", "microk8s", "kind"];

fn on(platform: &str, more: &[&str]) -> String {
    render(&[&[&*format!("--set=platform={platform}")], more].concat())
}

fn object(text: &str, kind: &str) -> Option<Value> {
    documents(text).into_iter().find(|object| object["kind"] == kind)
}

/// Arguments for a platform and a profile.
fn arguments(platform: &str, profile: &str) -> [String; 3] {
    let values = format!("--set=platform={platform},profile={profile},namespace.create=true");
    [values, OPERATOR.to_owned(), "--set=dashboards.enabled=false".to_owned()]
}

#[test]
fn every_platform_and_profile_is_valid_on_all_versions() {
    let all = PLATFORMS.iter().flat_map(|platform| PROFILES.map(|profile| (platform, profile)));
    let sets: Vec<_> = all.map(|(platform, profile)| arguments(platform, profile)).collect();
    let sets: Vec<_> = sets.iter().map(|set| set.iter().map(|one| &**one).collect()).collect();
    for checked in valid_on_every_minor(&sets) {
        assert!(
            checked.contains("DaemonSet/cpuwarden") && checked.contains("Namespace/cpuwarden"),
            "{checked}"
        );
    }
}

#[test]
fn every_platform_has_its_row_with_what_was_run_here() {
    let page = read("docs/platforms.md");
    let schema: Value = serde_json::from_str(&read("chart/cpuwarden/values.schema.json")).unwrap();
    let accepted: Vec<&str> = schema["properties"]["platform"]["enum"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect();
    assert_eq!(accepted, [&[""], &PLATFORMS[..]].concat());
    let header = page.lines().find(|line| line.starts_with("| platform |")).unwrap();
    assert!(header.contains("tested here") && header.contains("from documentation"), "{header}");
    for platform in PLATFORMS {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| `{platform}` |")))
            .expect(platform);
        assert!(row.split(" | ").all(|cell| !cell.trim().is_empty()), "{row}");
    }
}

#[test]
fn a_quota_admits_the_priority_class_where_required() {
    let quota = |platform: &str, more: &[&str]| object(&on(platform, more), "ResourceQuota");
    let made = quota("gke", &[]).unwrap();
    let scope = &made["spec"]["scopeSelector"]["matchExpressions"][0];
    assert_eq!(
        (scope["scopeName"].as_str(), scope["values"][0].as_str()),
        (Some("PriorityClass"), Some("system-node-critical"))
    );
    assert!(made["spec"]["hard"]["pods"].is_string());
    assert!(quota("gke", &["--namespace=kube-system"]).is_none(), "no limit holds there");
    assert!(quota("gke", &["--set=priorityClassName=high"]).is_none());
    assert!(quota("gke", &["--set=resourceQuota.enabled=false"]).is_none());
    assert!(
        quota("eks", &[]).is_none()
            && quota("eks", &["--set=resourceQuota.enabled=true"]).is_some()
    );
}

#[test]
fn openshift_admits_what_each_profile_uses_and_nothing_more() {
    for (profile, capabilities) in
        [("monitor", &[][..]), ("trace", &["BPF", "PERFMON"]), ("pin", &[])]
    {
        let text = on("openshift", &[&format!("--set=profile={profile}")]);
        let scc = object(&text, "SecurityContextConstraints").unwrap();
        let allowed: Vec<&str> = scc["allowedCapabilities"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap())
            .collect();
        assert_eq!(allowed, capabilities, "{profile}");
        assert_eq!(scc["users"][0].as_str(), Some("system:serviceaccount:cpuwarden:cpuwarden"));
        assert_eq!(
            (scc["allowHostPID"].as_bool(), scc["allowHostNetwork"].as_bool()),
            (Some(true), Some(false))
        );
        assert_eq!(scc["allowPrivilegedContainer"].as_bool(), Some(false));
        assert_eq!(pod(&text)["securityContext"]["seLinuxOptions"]["type"].as_str(), Some("spc_t"));
        // Each volume of the pod must be of an allowed kind.
        let kinds: Vec<&str> =
            scc["volumes"].as_array().unwrap().iter().map(|kind| kind.as_str().unwrap()).collect();
        for volume in pod(&text)["volumes"].as_array().unwrap() {
            assert!(kinds.iter().any(|kind| !volume[*kind].is_null()), "{volume:?}");
        }
    }
    assert!(object(&on("gke", &[]), "SecurityContextConstraints").is_none());
    assert!(pod(&render(&[]))["securityContext"]["seLinuxOptions"].is_null());
}

#[test]
fn no_agent_is_made_for_nodes_without_a_kubelet() {
    let excluded = |platform: &str, more: &[&str]| {
        let terms = pod(&on(platform, more))["affinity"]["nodeAffinity"].clone();
        let terms =
            terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"][0].clone();
        let rules = terms["matchExpressions"].as_array().cloned().unwrap_or_default();
        let of = |rule: &Value| {
            format!(
                "{} {} {}",
                text(&rule["key"]),
                text(&rule["operator"]),
                text(&rule["values"][0])
            )
        };
        rules.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(excluded("eks", &[]), ["eks.amazonaws.com/compute-type NotIn fargate"]);
    assert!(excluded("aks", &[]).contains(&"type NotIn virtual-kubelet".to_owned()));
    assert!(excluded("gke", &[]).is_empty());
    assert!(
        excluded("eks", &["--set=affinity.podAffinity.a=b"]).is_empty(),
        "what was set goes before"
    );
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn the_cgroup_volume_is_recursively_read_only_if_supported() {
    let mount = |arguments: &[&str]| {
        let mounts = container(&render(arguments))["volumeMounts"].as_array().unwrap().clone();
        let mount = mounts.into_iter().find(|mount| mount["name"] == "cgroup").unwrap();
        ["recursiveReadOnly", "mountPropagation"]
            .map(|field| mount[field].as_str().map(str::to_owned))
    };
    let [recursive, host, none] =
        [Some("IfPossible"), Some("HostToContainer"), Some("None")].map(|it| it.map(str::to_owned));
    assert_eq!(mount(&[]), [recursive, None]);
    assert_eq!(mount(&["--kube-version=1.30.9"]), [None, host.clone()]);
    let enforce = "--set=profile=pin,config.pinning=enforce";
    assert_eq!(mount(&[enforce]), [None, host.clone()]);
    assert_eq!(mount(&[enforce, "--set=platform=kind"]), [None, none.clone()]);
    assert_eq!(mount(&["--kube-version=1.30.9", "--set=platform=k3s"]), [None, none]);
    assert_eq!(mount(&["--set=mountPropagation=HostToContainer"]), [None, host]);
}

#[test]
fn a_namespace_of_the_release_admits_the_pods_and_outlives_it() {
    assert!(object(&on("talos", &[]), "Namespace").is_none());
    let made = object(
        &on("talos", &["--set=namespace.create=true,namespace.labels.team=sre"]),
        "Namespace",
    )
    .unwrap();
    let labels = &made["metadata"]["labels"];
    assert_eq!(labels["pod-security.kubernetes.io/enforce"].as_str(), Some("privileged"));
    assert_eq!(labels["team"].as_str(), Some("sre"));
    assert_eq!(made["metadata"]["annotations"]["helm.sh/resource-policy"].as_str(), Some("keep"));
}

/// The kubelet's keys are in the directory of its certificate, so the agent must not see it.
#[test]
fn the_agent_sees_only_the_kubelets_certificate() {
    for platform in [&[""], &PLATFORMS[..]].concat() {
        for profile in PROFILES {
            // The same arguments as above: helm has rendered them.
            let [values, operator, dashboards] = arguments(platform, profile);
            let [_, newest] = kube_versions();
            let text = render(&[&*newest, &values, &operator, &dashboards]);
            let (agent, copier) = (container(&text), pod(&text)["initContainers"][0].clone());
            let file = match platform {
                "k3s" | "rke2" => "/host/pki/serving-kubelet.crt",
                _ => "/host/pki/kubelet.crt",
            };
            assert_eq!(
                (copier["args"][0].as_str(), copier["args"][1].as_str()),
                (Some("copy-certificate"), Some(file))
            );
            let mounts = |container: &Value| container["volumeMounts"].as_array().unwrap().clone();
            assert!(
                mounts(&agent).iter().all(|mount| mount["name"] != "kubelet-pki"),
                "{platform} {profile}"
            );
            let pki =
                mounts(&copier).into_iter().find(|mount| mount["name"] == "kubelet-pki").unwrap();
            assert_eq!(pki["readOnly"].as_bool(), Some(true));
            // Only root may read the keys.
            let security = &copier["securityContext"];
            assert_eq!(
                (security["runAsNonRoot"].as_bool(), security["runAsUser"].as_u64()),
                (Some(true), Some(65532))
            );
            assert!(
                security["capabilities"]["drop"][0] == "ALL"
                    && security["capabilities"]["add"].is_null()
            );
            let volumes = pod(&text)["volumes"].as_array().unwrap().clone();
            let directory =
                volumes.into_iter().find(|volume| volume["name"] == "kubelet-pki").unwrap();
            // The directory may be missing, and no file is created in its place.
            assert_eq!(directory["hostPath"]["type"].as_str(), Some("DirectoryOrCreate"));
            let named = variable(&agent, "CPUWARDEN_KUBELET_HOST_CERTIFICATE");
            assert_eq!(named.as_deref(), Some("/etc/cpuwarden-kubelet/kubelet.crt"));
        }
    }
}

/// Host paths of the volumes, by their names.
fn host_paths(arguments: &[&str]) -> BTreeMap<String, String> {
    let volumes = pod(&render(arguments))["volumes"].as_array().unwrap().clone();
    let paths = volumes.iter().filter_map(|volume| {
        let path = volume["hostPath"]["path"].as_str()?;
        Some((text(&volume["name"]).to_owned(), path.to_owned()))
    });
    paths.collect()
}

#[test]
fn volumes_are_in_the_kubelets_directory() {
    let kubelets = |arguments: &[&str]| -> Vec<String> {
        let paths = host_paths(arguments);
        ["kubelet-pki", "pod-resources", "plugins", "cpu-manager-state"]
            .iter()
            .filter_map(|name| paths.get(*name).cloned())
            .collect()
    };
    let below = |root: &str, pki: &str| {
        [pki.to_owned()]
            .into_iter()
            .chain(
                ["pod-resources", "plugins_registry", "cpu_manager_state"]
                    .map(|name| format!("{root}/{name}")),
            )
            .collect::<Vec<_>>()
    };
    let pin = ["--kube-version=1.32.0", "--set=profile=pin"];
    let of = |value: &str| kubelets(&[&pin[..], &[&format!("--set={value}")]].concat());
    let usual = "/var/lib/kubelet";
    assert_eq!(of("platform="), below(usual, "/var/lib/kubelet/pki"));
    assert_eq!(of("platform=k0s"), below("/var/lib/k0s/kubelet", "/var/lib/k0s/kubelet/pki"));
    let snap = "/var/snap/microk8s";
    let microk8s =
        below(&format!("{snap}/common/var/lib/kubelet"), &format!("{snap}/current/certs"));
    assert_eq!(of("platform=microk8s"), microk8s);
    assert_eq!(of("platform=rke2"), below(usual, "/var/lib/rancher/rke2/agent"));
    assert_eq!(of("kubelet.rootDir=/data/kubelet"), below("/data/kubelet", "/data/kubelet/pki"));
    let both = of("platform=k0s,kubelet.rootDir=/data/kubelet");
    assert_eq!(
        both,
        below("/data/kubelet", "/data/kubelet/pki"),
        "a value goes before the platform"
    );
    for profile in ["monitor", "trace"] {
        let set = format!("--set=profile={profile},kubelet.rootDir=/data/kubelet");
        assert_eq!(kubelets(&[&set]), ["/data/kubelet/pki"], "{profile}");
    }
    // The agent finds them in one place, whatever the node has.
    let mounts = |arguments: &[&str]| container(&render(arguments))["volumeMounts"].clone();
    assert_eq!(mounts(&["--set=profile=pin"]), mounts(&["--set=profile=pin,platform=k0s"]));
}

#[test]
fn no_certificate_is_copied_where_none_is_used() {
    for value in [
        "kubelet.hostCertificate=",
        "kubelet.tlsVerify=false",
        "config.podSource=apiserver",
        "config.podSource=none",
    ] {
        let text = render(&[&format!("--set={value}")]);
        assert!(pod(&text)["initContainers"].is_null() && !text.contains("kubelet-pki"), "{value}");
        assert_eq!(
            variable(&container(&text), "CPUWARDEN_KUBELET_HOST_CERTIFICATE"),
            None,
            "{value}"
        );
    }
}
