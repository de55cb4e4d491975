//! The Helm chart: it lints, and renders in every profile. The output is valid on every supported
//! Kubernetes, and a profile has only what it needs.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use serde_json::{Value, json};
use xtask::{generated, tools};

use super::{deploy, output_of, read};
use crate::support::binary;

/// Oldest and newest supported Kubernetes minor.
const MINORS: [&str; 2] = ["1.27", "1.37"];
pub(super) const PROFILES: [&str; 3] = ["monitor", "trace", "pin"];

#[test]
fn the_chart_lints() {
    generated::lint().unwrap();
}

#[test]
fn generated_files_are_up_to_date() {
    for file in generated::all(&binary()).unwrap() {
        let committed = fs::read_to_string(&file.path).unwrap_or_default();
        assert!(
            committed == file.text,
            "{} is out of date: cargo xtask generate",
            file.path.display()
        );
    }
}

#[test]
fn manifests_are_valid_on_the_oldest_and_the_newest_kubernetes() {
    let values = PROFILES.map(|profile| format!("--set=profile={profile}"));
    let sets: Vec<_> = values.iter().map(|values| vec![&**values, OPERATOR, EVERYTHING]).collect();
    for checked in valid_on_every_minor(&sets) {
        for kind in ["DaemonSet", "NetworkPolicy", "PodMonitor", "PrometheusRule", "ConfigMap"] {
            assert!(checked.contains(&format!("{kind}/cpuwarden")), "{checked}");
        }
    }
}

/// Arguments of helm for the oldest and the newest supported Kubernetes.
pub(super) fn kube_versions() -> [String; 2] {
    MINORS.map(|minor| format!("--kube-version={minor}.0"))
}

/// Renders the chart with each set of arguments for each of [`MINORS`], and checks it against that
/// version's schemas. Returns a line per minor and set: the checked objects.
pub(super) fn valid_on_every_minor(sets: &[Vec<&str>]) -> Vec<String> {
    let checked = kube_versions().into_iter().zip(MINORS).flat_map(|(version, minor)| {
        let texts = sets.iter().map(|set| render(&[&[&*version], &set[..]].concat()));
        validated(&texts.collect::<Vec<_>>(), minor)
    });
    checked.collect()
}

/// The checked objects of each text. The validator starts once: it loads for seconds.
fn validated(texts: &[String], minor: &str) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let files: Vec<_> =
        (0..texts.len()).map(|at| place.path().join(format!("release-{at}.yaml"))).collect();
    files.iter().zip(texts).for_each(|(file, text)| fs::write(file, text).unwrap());
    let mut python = Command::new(tools::python().unwrap());
    let checked =
        output_of(python.arg(deploy("tests/validate_manifests.py")).arg(minor).args(files));
    let checked: Vec<String> = checked.lines().map(str::to_owned).collect();
    assert_eq!(checked.len(), texts.len(), "{checked:?}");
    checked
}

#[test]
fn names_of_digits_or_of_the_greatest_length_are_valid() {
    let (longest, namespace) = ("a".repeat(53), format!("--namespace={}", "9".repeat(63)));
    let values = [
        "--set-string=serviceAccount.name=7,serviceAccount.annotations.a=1,endpoint.tls.secretName=5",
        OPERATOR,
    ];
    let arguments = [&[&*namespace, "--set=profile=pin"], &values[..]].concat();
    let names = ["1", "1e3", &longest];
    let texts = names.map(|name| generated::render_release(name, &arguments).unwrap());
    for (name, checked) in names.iter().zip(validated(&texts, MINORS[1])) {
        assert!(checked.contains("DaemonSet/"), "{name}: {checked}");
    }
}

#[test]
fn modes_that_look_like_yaml_booleans_stay_modes() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("values.yaml");
    fs::write(&file, "profile: pin\nconfig: {pinning: off, schedTrace: on}\n").unwrap();
    let text = render(&["--values", file.to_str().unwrap()]);
    assert_eq!(variable(&container(&text), "CPUWARDEN_PINNING").as_deref(), Some("off"));
    let map = documents(&text).into_iter().find(|object| object["kind"] == "ConfigMap").unwrap();
    assert_eq!(data(&map)[0].1.trim(), "metrics: standard\npinning: \"off\"\nschedTrace: \"on\"");
    let text = render(&["--set=profile=pin"]);
    assert_eq!(variable(&container(&text), "CPUWARDEN_PINNING").as_deref(), Some("observe"));
}

#[test]
fn an_ipv6_address_is_listened_at_with_or_without_brackets() {
    let listen = |address: &str| {
        variable(
            &container(&render(&[&format!("--set=endpoint.address={address}")])),
            "CPUWARDEN_LISTEN",
        )
        .unwrap()
    };
    assert_eq!(["::", "[::1]", "0.0.0.0"].map(listen), ["[::]:9753", "[::1]:9753", "0.0.0.0:9753"]);
    let default = variable(&container(&render(&[])), "CPUWARDEN_LISTEN");
    assert_eq!(default.as_deref(), Some("[::]:9753"), "IPv4, IPv6, or both");
}

#[test]
fn the_network_policy_allows_every_configured_port() {
    let ports = |values: &str| {
        let objects = documents(&render(&[&format!("--set={values}")]));
        let policy = objects.into_iter().find(|object| object["kind"] == "NetworkPolicy").unwrap();
        let rules = policy["spec"]["egress"].as_array().unwrap().clone();
        let ports = rules.iter().flat_map(|rule| rule["ports"].as_array().unwrap().clone());
        ports.map(|port| port["port"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ports("kubelet.url=https://[fd00::1]"), [443]);
    assert_eq!(ports("config.kubeletReadonlyUrl=http://127.0.0.1:10255/"), [10250, 10255]);
    assert_eq!(
        ports("config.podSource=apiserver,config.apiserverUrl=https://api:8443"),
        [10250, 443, 6443, 8443]
    );
}

/// Value of a variable in the agent's environment.
pub(super) fn variable(agent: &Value, name: &str) -> Option<String> {
    let variables = agent["env"].as_array().unwrap().iter();
    variables
        .filter(|variable| variable["name"] == name)
        .find_map(|v| v["value"].as_str().map(str::to_owned))
}

pub(super) const OPERATOR: &str = "--api-versions=monitoring.coreos.com/v1";
const EVERYTHING: &str = "--set=events=true,drainOnStop=true,endpoint.auth=true,endpoint.tls.secretName=tls,cadvisorMetrics=true,rbac.nodesProxy=true,\
config.apiserverFallback=true,podMonitor.authorization.credentials.name=token,podMonitor.authorization.credentials.key=t";

#[test]
fn monitor_runs_unprivileged_and_read_only() {
    let agent = container(&render(&["--set=profile=monitor"]));
    let security = &agent["securityContext"];
    assert_eq!(
        (security["runAsNonRoot"].as_bool(), security["runAsUser"].as_u64()),
        (Some(true), Some(65532))
    );
    assert_eq!(security["readOnlyRootFilesystem"].as_bool(), Some(true));
    assert_eq!(security["allowPrivilegeEscalation"].as_bool(), Some(false));
    let capabilities = &security["capabilities"];
    assert!(capabilities["drop"][0] == "ALL" && capabilities["add"].is_null(), "{security:?}");
    assert_eq!(writable(&agent), [""; 0]);
    assert!(agent["lifecycle"].is_null() && agent["resources"]["limits"]["cpu"].is_null());
}

#[test]
fn profiles_add_only_what_they_need() {
    assert_eq!(render(&[]), render(&["--set=profile=trace"]), "trace is the default");
    let agent = container(&render(&["--set=profile=trace"]));
    assert_eq!(added_capabilities(&agent), ["BPF", "PERFMON"]);
    assert_eq!(writable(&agent), [""; 0]);
    let agent = container(&render(&["--set=profile=pin,config.pinning=enforce"]));
    assert!(agent["securityContext"]["capabilities"]["add"].is_null());
    assert_eq!(writable(&agent), ["/host/cgroup", "/var/lib/cpuwarden"]);
}

#[test]
fn tracing_follows_the_profile_or_the_configuration() {
    let mode = |values: &str| {
        variable(&container(&render(&[&format!("--set={values}")])), "CPUWARDEN_SCHED_TRACE")
    };
    assert_eq!(mode("profile=monitor").as_deref(), Some("off"));
    assert_eq!(mode("profile=pin").as_deref(), Some("off"));
    assert_eq!(mode("profile=pin,config.schedTrace=auto").as_deref(), Some("auto"));
    assert_eq!(mode("profile=trace"), None);
}

/// An untraced page shows the value and the command, not a flag that nobody has set.
#[test]
fn an_untraced_agent_knows_the_value_and_the_command_that_trace() {
    let hint = |values: &str| {
        let agent = container(&render(&[&format!("--set={values}")]));
        variable(&agent, "CPUWARDEN_SCHED_TRACE_HINT")
    };
    let command = |value: &str, set: &str| {
        Some(format!(
            "{value}. To see who waits for whom: helm upgrade cpuwarden CHART --namespace cpuwarden \
             --reset-then-reuse-values --set {set}"
        ))
    };
    assert_eq!(hint("profile=trace"), None);
    assert_eq!(hint("profile=pin,config.bestEffort=observe"), None);
    assert_eq!(hint("profile=monitor"), command("profile=monitor", "profile=trace"));
    assert_eq!(hint("profile=pin"), command("profile=pin", "config.bestEffort=observe"));
    assert_eq!(
        hint("profile=trace,config.schedTrace=off"),
        command("config.schedTrace=off", "config.schedTrace=auto")
    );
    assert_eq!(
        hint("profile=monitor,config.schedTrace=off"),
        command("profile=monitor", "profile=trace,config.schedTrace=auto")
    );
}

#[test]
fn limits_burst_only_in_the_profile_that_writes() {
    let agent = container(&render(&["--set=profile=pin,config.pinning=off,config.burst=enforce"]));
    assert_eq!(writable(&agent), ["/host/cgroup", "/var/lib/cpuwarden"]);
    let observing = container(&render(&["--set=profile=pin,config.burst=observe"]));
    assert_eq!(writable(&observing), [""; 0]);
    let error = generated::render(&["--set=config.burst=enforce"]).unwrap_err().to_string();
    assert!(error.contains("config.burst=enforce") && error.contains("profile=pin"), "{error}");
}

#[test]
fn best_effort_pods_yield_only_in_the_profile_that_writes_and_with_the_trace() {
    let agent =
        container(&render(&["--set=profile=pin,config.pinning=off,config.bestEffort=enforce"]));
    assert_eq!(writable(&agent), ["/host/cgroup", "/var/lib/cpuwarden"]);
    assert_eq!(added_capabilities(&agent), ["BPF", "PERFMON"]);
    assert_eq!(variable(&agent, "CPUWARDEN_SCHED_TRACE"), None);
    let observing = container(&render(&["--set=profile=pin,config.bestEffort=observe"]));
    assert_eq!(writable(&observing), [""; 0]);
    assert_eq!(added_capabilities(&observing), ["BPF", "PERFMON"]);
    let untraced = ["--set=profile=pin,config.bestEffort=enforce,config.schedTrace=off"];
    let untraced = container(&render(&untraced));
    assert!(untraced["securityContext"]["capabilities"]["add"].is_null());
    assert_eq!(variable(&untraced, "CPUWARDEN_SCHED_TRACE").as_deref(), Some("off"));
}

/// Those of a Service named cpuwarden begin like the agent's own.
#[test]
fn the_pod_has_no_variables_of_services() {
    for profile in PROFILES {
        let pod = pod(&render(&[&format!("--set=profile={profile}")]));
        assert_eq!(pod["enableServiceLinks"], false, "{profile}");
    }
}

#[test]
fn pins_outlive_the_agent_unless_drained_for_an_uninstall() {
    assert!(container(&render(&["--set=profile=pin"]))["lifecycle"].is_null());
    let drains = container(&render(&["--set=profile=pin,drainOnStop=true"]));
    assert_eq!(drains["lifecycle"]["preStop"]["exec"]["command"][1].as_str(), Some("drain"));
    assert!(
        container(&render(&["--set=drainOnStop=true"]))["lifecycle"].is_null(),
        "there is nothing to drain"
    );
}

#[test]
fn events_and_their_permission_need_pinning_or_the_trace_and_a_request() {
    let granted = |arguments: &[&str]| {
        let text = render(arguments);
        let has_variable = container(&text)["env"]
            .as_array()
            .unwrap()
            .iter()
            .any(|v| v["name"] == "CPUWARDEN_EVENTS");
        let role =
            documents(&text).into_iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        let rule = role["rules"]
            .as_array()
            .unwrap()
            .iter()
            .find(|rule| rule["resources"][0] == "events")
            .cloned();
        (
            has_variable,
            rule.map(|rule| serde_saphyr::to_string(&rule).unwrap()),
            text.contains("port: 6443"),
        )
    };
    assert_eq!(granted(&["--set=profile=pin"]), (false, None, false));
    assert_eq!(granted(&["--set=profile=monitor,events=true"]), (false, None, false));
    let rule = "apiGroups:\n- events.k8s.io\nresources:\n- events\nverbs:\n- create\n- patch\n";
    for profile in ["trace", "pin"] {
        let set = format!("--set=profile={profile},events=true");
        assert_eq!(granted(&[&set]), (true, Some(rule.to_owned()), true), "{profile}");
    }
}

#[test]
fn the_node_condition_and_its_permission_need_the_trace_and_a_request() {
    let granted = |arguments: &[&str]| {
        let text = render(arguments);
        let env = container(&text)["env"].as_array().unwrap().clone();
        let role =
            documents(&text).into_iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        let rules = role["rules"].as_array().unwrap().clone();
        let rule = rules.iter().find(|rule| rule["resources"][0] == "nodes/status");
        (
            env.iter().any(|variable| variable["name"] == "CPUWARDEN_NODE_CONDITION"),
            rule.cloned(),
            text.contains("port: 6443"),
        )
    };
    assert_eq!(granted(&["--set=profile=trace"]), (false, None, false));
    assert_eq!(granted(&["--set=profile=monitor,nodeCondition=true"]), (false, None, false));
    let rule = json!({"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]});
    let expected = (true, Some(rule), true);
    assert_eq!(granted(&["--set=profile=trace,nodeCondition=true"]), expected);
}

#[test]
fn runtimes_add_root_and_sys_ptrace_only_on_request() {
    for (profile, before) in [("monitor", &[][..]), ("trace", &["BPF", "PERFMON"]), ("pin", &[])] {
        let agent = container(&render(&[&format!("--set=profile={profile},runtimes=true")]));
        assert_eq!(added_capabilities(&agent), [before, &["SYS_PTRACE"]].concat(), "{profile}");
        let security = &agent["securityContext"];
        assert_eq!(
            (security["runAsUser"].as_u64(), security["runAsNonRoot"].as_bool()),
            (Some(0), None)
        );
    }
}

#[test]
fn nri_adds_root_and_the_sockets_directory_only_on_request() {
    let before = render(&[]);
    assert!(!before.contains("CPUWARDEN_NRI") && !before.contains("nri.sock"), "{before}");
    let text = render(&[
        "--set=profile=monitor,nri.enabled=true,nri.injectEnv=annotated,nri.socket=/run/nri/nri.sock",
    ]);
    let agent = container(&text);
    assert_eq!(agent["securityContext"]["runAsUser"], 0);
    assert!(agent["securityContext"]["capabilities"]["add"].is_null());
    let named = |list: &Value| {
        let list = list.as_array().unwrap();
        list.iter().find(|one| one["name"] == "nri").cloned().unwrap()
    };
    let mount = named(&agent["volumeMounts"]);
    assert_eq!(mount["mountPath"], "/run/nri");
    assert_eq!(mount["readOnly"], true);
    let path = &named(&pod(&text)["volumes"])["hostPath"];
    assert_eq!((&path["path"], &path["type"]), (&json!("/run/nri"), &json!("DirectoryOrCreate")));
    for (name, value) in [
        ("CPUWARDEN_NRI", "on"),
        ("CPUWARDEN_NRI_SOCKET", "/run/nri/nri.sock"),
        ("CPUWARDEN_INJECT_ENV", "annotated"),
    ] {
        assert_eq!(variable(&agent, name).as_deref(), Some(value), "{name}");
    }
    for wrong in ["nri.socket=relative.sock", "nri.injectEnv=all", "config.nri=x", "nri.other=1"] {
        let arguments = [format!("--set={wrong}")];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        assert!(generated::render(&arguments).is_err(), "{wrong}");
    }
}

fn added_capabilities(agent: &Value) -> Vec<String> {
    let added = agent["securityContext"]["capabilities"]["add"].as_array().unwrap();
    added.iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn profiles_share_only_the_hosts_pid_namespace() {
    let shared = |pod: &Value| {
        ["hostPID", "hostNetwork", "hostIPC"].map(|field| pod[field].as_bool().unwrap_or(false))
    };
    assert_eq!(shared(&pod(&render(&["--set=hostPID=false"]))), [false; 3]);
    for profile in PROFILES {
        let pod = pod(&render(&[&format!("--set=profile={profile}")]));
        assert_eq!(shared(&pod), [true, false, false], "{profile}");
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"].as_str(),
            Some("RuntimeDefault")
        );
    }
}

#[test]
fn the_agent_may_only_get_pods_from_the_kubelet() {
    let resources = |text: &str| {
        let role =
            documents(text).into_iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        let rules = role["rules"].as_array().unwrap().clone();
        rules
            .iter()
            .map(|rule| rule["resources"][0].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(resources(&render(&[])), ["nodes/pods"]);
    assert_eq!(resources(&render(&["--set=rbac.nodesProxy=true"])), ["nodes/pods", "nodes/proxy"]);
    assert_eq!(resources(&render(&["--set=profile=pin"])), ["nodes/pods", "nodes/configz"]);
}

#[test]
fn every_variable_of_the_manifests_is_an_option_of_the_agent() {
    let reference = output_of(Command::new(binary()).args(["reference", "configuration"]));
    let agent = container(&render(&["--set=profile=pin", EVERYTHING]));
    let names = agent["env"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap().to_owned());
    for name in names.filter(|name| name.starts_with("CPUWARDEN_") && name != "CPUWARDEN_CONFIG") {
        assert!(reference.contains(&format!("`{name}`")), "{name} is no option");
    }
}

#[test]
fn unknown_chart_values_are_rejected_by_name() {
    let refused = [
        ("--set=profil=pin", "profil"),
        ("--set=profile=all", "profile"),
        ("--set=resources.limits.cpu=1", "limits"),
        ("--set=resources.limits=null", "limits"),
        ("--set=endpoint.port=80", "port"),
        ("--set=kubelet.url=http://node:10255", "url"),
        ("--set=endpoint.auth=true", "endpoint.tls.secretName"),
        ("--set=prometheusRule.burstyWarningNamespaces={Shop}", "burstyWarningNamespaces"),
        ("--set=prometheusRule.grafanaBaseUrl=https://grafana/", "grafanaBaseUrl"),
        ("--set=config.listen=:9000", "listen"),
        ("--set=config.events=true", "events"),
    ];
    for (argument, place) in refused {
        let refusal = generated::render(&[argument]).map(drop).expect_err(argument).to_string();
        assert!(refusal.contains(place), "{argument}: {refusal}");
    }
}

#[test]
fn without_the_operator_no_object_of_its_kinds_is_made() {
    let kinds = |text: &str| {
        documents(text).iter().map(|object| object["kind"].as_str().unwrap().to_owned()).collect()
    };
    let plain: Vec<String> = kinds(&render(&[]));
    assert!(
        !plain.iter().any(|kind| kind == "PodMonitor" || kind == "PrometheusRule"),
        "{plain:?}"
    );
    let with: Vec<String> = kinds(&render(&[OPERATOR]));
    assert!(
        with.iter().any(|kind| kind == "PodMonitor")
            && with.iter().any(|kind| kind == "PrometheusRule"),
        "{with:?}"
    );
}

#[test]
fn rules_and_dashboards_of_the_chart_are_the_files_themselves() {
    let text = render(&[OPERATOR, "--set=metrics=full"]);
    let objects = documents(&text);
    for (rule, file) in rules(&text).iter().zip(["alerts.yaml", "recording.yaml"]) {
        assert_eq!(
            *rule,
            serde_saphyr::from_str::<Value>(&read(&format!("rules/{file}"))).unwrap(),
            "{file}"
        );
    }
    let maps =
        objects.iter().filter(|object| object["metadata"]["labels"]["grafana_dashboard"] == "1");
    let dashboards: Vec<(&str, &str)> = maps.flat_map(data).collect();
    assert_eq!(dashboards.len(), fs::read_dir(deploy("dashboards")).unwrap().count());
    for (name, text) in dashboards {
        let file = name.strip_prefix("cpuwarden-").unwrap();
        assert_eq!(text.trim_end(), read(&format!("dashboards/{file}")).trim_end(), "{file}");
    }
}

#[test]
fn the_alerts_links_begin_with_the_bases_that_were_set() {
    let links = |values: &str| {
        let rules = rules(&render(&[OPERATOR, &format!("--set={values}")]));
        let alert = rules[0]["groups"][0]["rules"][0]["annotations"].clone();
        ["runbook_url", "dashboard_url"].map(|name| alert[name].as_str().unwrap().to_owned())
    };
    let grafana = "prometheusRule.grafanaBaseUrl=https://grafana.example.com/g";
    let docs = "prometheusRule.runbookBaseUrl=https://example.com/docs";
    let pod = "/d/cpuwarden-pod?var-namespace={{ $labels.namespace }}&var-pod={{ $labels.pod }}\
               {{ with $labels.cluster }}&var-cluster={{ . }}{{ end }}";
    let [runbook, published] = ["/d/cpuwarden-runbooks?viewPanel=1#", "/runbooks.md#"];
    let named = |base: &str, path: &str| format!("{base}{path}cputhrottlingharmful");
    let in_grafana = "https://grafana.example.com/g";
    assert_eq!(links("profile=monitor"), [named("", runbook), pod.to_owned()]);
    assert_eq!(links(grafana), [named(in_grafana, runbook), format!("{in_grafana}{pod}")]);
    assert_eq!(links(docs), [named("https://example.com/docs", published), pod.to_owned()]);
    let both = links(&format!("{grafana},{docs}"));
    assert_eq!(both, [named("https://example.com/docs", published), format!("{in_grafana}{pod}")]);
}

#[test]
fn bursts_are_a_warning_in_the_namespaces_that_were_chosen() {
    let rules =
        rules(&render(&[OPERATOR, "--set=prometheusRule.burstyWarningNamespaces={shop,pay-1}"]));
    let place = tempfile::tempdir().unwrap();
    for (at, rule) in rules.iter().enumerate() {
        fs::write(place.path().join(format!("{at}.yaml")), serde_saphyr::to_string(rule).unwrap())
            .unwrap();
    }
    let severities =
        [("shop", "warning"), ("pay-1", "warning"), ("shop-2", "info"), ("batch", "info")];
    let series = severities.map(|(namespace, _)| {
        let labels = format!("{{namespace=\"{namespace}\", pod=\"p\", container=\"c\"}}");
        format!(
            "      - {{series: 'cpuwarden_container_cfs_throttled_periods_total{labels}', values: 0+120x40}}
      - {{series: 'cpuwarden_container_cfs_period_seconds{labels}', values: 0.1x40}}
      - {{series: 'cpuwarden_container_cpu_limit_cores{labels}', values: 0.1x40}}
      - {{series: 'cpuwarden_container_cpu_usage_seconds_total{labels}', values: 0+3x40}}\n"
        )
    });
    let fired = severities.map(|(namespace, severity)| {
        format!("          - {{labels: '{{namespace=\"{namespace}\", severity=\"{severity}\"}}', value: 1}}\n")
    });
    let test = format!(
        "rule_files: [0.yaml, 1.yaml]
tests:
  - interval: 1m
    input_series:
{}    promql_expr_test:
      - expr: count by (namespace, severity) (ALERTS{{alertname=\"CPUThrottlingBursty\", alertstate=\"firing\"}})
        eval_time: 30m
        exp_samples:
{}",
        series.concat(),
        fired.concat()
    );
    fs::write(place.path().join("test.yaml"), test).unwrap();
    output_of(Command::new("promtool").args(["test", "rules", "test.yaml"]).current_dir(&place));
}

/// The rules that the chart creates for the Prometheus operator: alerts and recording rules.
fn rules(text: &str) -> Vec<Value> {
    let objects = documents(text).into_iter().filter(|object| object["kind"] == "PrometheusRule");
    objects.map(|object| object["spec"].clone()).collect()
}

/// The chart with these arguments. Helm renders it once for all tests.
pub(super) fn render(arguments: &[&str]) -> String {
    static RENDERED: Mutex<BTreeMap<Vec<String>, Arc<OnceLock<String>>>> =
        Mutex::new(BTreeMap::new());
    let key = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let text = Arc::clone(RENDERED.lock().unwrap().entry(key).or_default());
    text.get_or_init(|| generated::render(arguments).unwrap()).clone()
}

pub(super) fn documents(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

pub(super) fn pod(text: &str) -> Value {
    let objects = documents(text);
    objects.iter().find(|object| object["kind"] == "DaemonSet").unwrap()["spec"]["template"]["spec"]
        .clone()
}

pub(super) fn container(text: &str) -> Value {
    pod(text)["containers"][0].clone()
}

fn data(map: &Value) -> Vec<(&str, &str)> {
    map["data"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str().unwrap()))
        .collect()
}

/// Paths that a container may write, other than its recording.
pub(super) fn writable(container: &Value) -> Vec<&str> {
    let mounts = container["volumeMounts"].as_array().unwrap().iter();
    mounts
        .filter(|mount| mount["readOnly"] != true && mount["name"] != "recording")
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect()
}
