//! Helm's notes after an install, rendered by helm as a template in a copy of the chart.

use std::fs;
use std::process::Command;

use pod_sources::Cause;
use serde_json::Value;
use xtask::tools;

use super::{deploy, output_of, read};

/// Notes of an install with these values on this Kubernetes.
fn notes(kubernetes: &str, arguments: &[&str]) -> String {
    let place = tempfile::tempdir().unwrap();
    let chart = place.path().join("cpuwarden");
    output_of(Command::new("cp").arg("-rL").arg(deploy("chart/cpuwarden")).arg(&chart));
    let text = fs::read_to_string(chart.join("templates/NOTES.txt")).unwrap();
    let template = format!(
        "{{{{- define \"notes\" -}}}}\n{text}{{{{- end }}}}\nnotes: {{{{ include \"notes\" . | toJson }}}}\n"
    );
    fs::write(chart.join("templates/notes.yaml"), template).unwrap();
    let mut helm = Command::new(tools::helm().unwrap());
    helm.args([
        "template",
        "cpuwarden",
        "--namespace=cpuwarden",
        "--show-only=templates/notes.yaml",
    ]);
    helm.args(["--set=image.repository=r/c", &format!("--kube-version={kubernetes}")])
        .args(arguments)
        .arg(&chart);
    let rendered: Value = serde_saphyr::from_str(&output_of(&mut helm)).unwrap();
    // Line breaks may be anywhere.
    let words: Vec<&str> = rendered["notes"].as_str().unwrap().split_whitespace().collect();
    words.join(" ")
}

#[test]
fn notes_name_remedies_for_kubelets_before_1_33() {
    let names =
        |text: &str| text.contains("Its kubelets give the pod list to holders of nodes/proxy only");
    let old = notes("1.32.4", &[]);
    assert!(names(&old), "{old}");
    for value in
        ["config.podSource=apiserver", "kubelet.readOnlyPort=10255", "rbac.nodesProxy=true"]
    {
        assert!(old.contains(&format!("--set {value} ")), "{value}: {old}");
        assert!(!names(&notes("1.32.4", &[&format!("--set={value}")])), "{value} was chosen");
        assert!(Cause::Forbidden.remedy().contains(value), "doctor and the log name {value} too");
    }
    assert!(!names(&notes("1.33.0", &[])));
    assert!(!names(&notes("v1.33.0-gke.100", &[])), "a provider's version");
}

/// The remedies are the same in all places.
#[test]
fn docs_name_the_same_remedies_as_the_agent() {
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (runbook, troubleshooting) =
        (words(&read("docs/runbooks.md")), words(&read("docs/troubleshooting.md")));
    for cause in Cause::ALL {
        for (page, text) in [("runbooks.md", &runbook), ("troubleshooting.md", &troubleshooting)] {
            assert!(
                text.replace('`', "").contains(cause.remedy()),
                "{page} lacks: {}",
                cause.remedy()
            );
        }
    }
    let notes = notes("1.37.0", &[]);
    assert!(notes.contains(Cause::Certificate.remedy()), "{notes}");
}

#[test]
fn notes_name_the_page_and_how_to_reach_it() {
    let default = notes("1.37.0", &[]);
    assert!(default.contains("at http://localhost:9753/ during"), "{default}");
    assert!(default.contains("kubectl -n cpuwarden port-forward ds/cpuwarden 9753"), "{default}");
    let tls = notes("1.37.0", &["--set=endpoint.tls.secretName=tls,endpoint.port=9000"]);
    assert!(tls.contains("at https://localhost:9000/ during") && tls.contains("ds/cpuwarden 9000"));
    assert!(!notes("1.37.0", &["--set=ui=false"]).contains("port-forward"));
}

#[test]
fn notes_name_the_price_of_the_trace_and_the_way_without_it() {
    let without = "--set profile=monitor";
    let default = notes("1.37.0", &[]);
    for words in [
        "at most 1 % of each node's CPUs",
        "runs as root with BPF and PERFMON",
        "can read everything on its node",
        "If the cluster refuses the pods (kubectl -n cpuwarden describe daemonset/cpuwarden)",
        without,
    ] {
        assert!(default.contains(words), "{words}: {default}");
    }
    let monitor = notes("1.37.0", &["--set=profile=monitor"]);
    assert!(!monitor.contains(without) && !monitor.contains("PERFMON"), "{monitor}");
    let traced = "Waits are not traced: profile=monitor. To see who waits for whom: helm upgrade cpuwarden CHART \
                  --namespace cpuwarden --reset-then-reuse-values --set profile=trace";
    assert!(monitor.contains(traced), "{monitor}");
    assert!(!notes("1.37.0", &["--set=profile=pin"]).contains(without));
}

#[test]
fn notes_name_the_labels_of_kube_prometheus_stack() {
    let line = "--set podMonitor.labels.release=kube-prometheus-stack";
    let on = "--set=podMonitor.enabled=true,prometheusRule.enabled=true";
    assert!(notes("1.37.0", &[on]).contains(line));
    assert!(!notes("1.37.0", &[on, "--set=podMonitor.labels.release=mine"]).contains(line));
    assert!(
        notes("1.37.0", &["--set=podMonitor.enabled=false"]).contains("No PodMonitor was created")
    );
    assert!(
        !notes("1.37.0", &["--set=serviceMonitor.enabled=true"])
            .contains("No PodMonitor was created")
    );
}

#[test]
fn notes_name_the_namespaces_labels_unless_created() {
    let line = "kubectl label --overwrite namespace cpuwarden";
    let label = "pod-security.kubernetes.io/enforce=privileged";
    let printed = notes("1.37.0", &["--set=platform=openshift"]);
    assert!(printed.contains(line) && printed.contains(label), "{printed}");
    assert!(printed.contains("security.openshift.io/scc.podSecurityLabelSync=false"), "{printed}");
    assert!(!notes("1.37.0", &["--set=namespace.create=true"]).contains(line));
}

#[test]
fn options_that_weaken_security_print_a_warning() {
    for (value, words) in [
        ("kubelet.tlsVerify=false", "WARNING: kubelet.tlsVerify is off"),
        ("rbac.nodesProxy=true", "WARNING: rbac.nodesProxy is on"),
    ] {
        assert!(notes("1.37.0", &[&format!("--set={value}")]).contains(words), "{value}");
        assert!(!notes("1.37.0", &[]).contains(words), "{value}");
    }
    assert!(notes("1.37.0", &["--set=profile=pin"]).contains("Pinning is in observe mode"));
    assert!(notes("1.37.0", &["--set=enabled=false"]).contains("nothing was created"));
}
