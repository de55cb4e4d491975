//! Values of the chart: the effect of each, and the rejection of unknown ones.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use xtask::generated;

use super::chart::{
    OPERATOR, container, documents, pod, render, valid_on_every_minor, variable, writable,
};
use super::{output_of, read};

fn object(text: &str, kind: &str) -> Option<Value> {
    documents(text).into_iter().find(|object| object["kind"] == kind)
}

fn refusal(arguments: &[&str]) -> String {
    generated::render(arguments).map(drop).expect_err(&arguments.concat()).to_string()
}

#[test]
fn a_missing_image_name_is_rejected_with_the_remedy() {
    let text = refusal(&["--set=image.repository="]);
    assert!(
        text.contains("image.repository is not set") && text.contains("docker build"),
        "{text}"
    );
}

#[test]
fn an_image_may_have_a_registry_and_a_digest() {
    let image = |values: &str| {
        container(&render(&[&format!("--set={values}")]))["image"].as_str().unwrap().to_owned()
    };
    assert_eq!(image("image.registry=ghcr.io/a,image.repository=b"), "ghcr.io/a/b:0.1.0");
    let digest = format!("sha256:{}", "ab".repeat(32));
    assert_eq!(
        image(&format!("image.repository=b,image.tag=x,image.digest={digest}")),
        format!("b@{digest}")
    );
    assert!(refusal(&["--set=image.digest=sha256:short"]).contains("digest"));
}

#[test]
fn a_chart_that_is_switched_off_makes_nothing() {
    let text = render(&["--set=enabled=false,namespace.create=true,image.repository=", OPERATOR]);
    assert_eq!(documents(&text), [Value::Null; 0]);
}

#[test]
fn extra_values_are_added_and_valid() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("values.yaml");
    let values = "
extraEnv: [{name: CPUWARDEN_LOG, value: debug}]
extraVolumes: [{name: ca, configMap: {name: ca}}]
extraVolumeMounts: [{name: ca, mountPath: /ca, readOnly: true}]
hostNetwork: true
podSecurityContext: {supplementalGroups: [7]}
probes: {startup: {failureThreshold: 30, periodSeconds: 2}, liveness: {timeoutSeconds: 9}}
updateStrategy: {type: OnDelete}
fullnameOverride: warden
commonLabels: {team: sre}
kubelet: {caConfigMap: {name: kubelet-ca}, readOnlyPort: 10255, tlsVerify: false}
podMonitor: {metricRelabelings: [{action: labeldrop, regex: cpu}], scrapeTimeout: 9s, sampleLimit: 60000}
";
    fs::write(&file, values).unwrap();
    let values = format!("--values={}", file.display());
    for checked in valid_on_every_minor(&[vec![&values, OPERATOR]]) {
        assert!(
            checked.contains("DaemonSet/warden") && checked.contains("PodMonitor/warden"),
            "{checked}"
        );
    }
    let text = render(&[&values, OPERATOR]);
    let (pod, agent) = (pod(&text), container(&text));
    assert_eq!(variable(&agent, "CPUWARDEN_LOG").as_deref(), Some("debug"));
    let has =
        |list: &Value, name: &str| list.as_array().unwrap().iter().any(|item| item["name"] == name);
    assert!(has(&pod["volumes"], "ca") && has(&agent["volumeMounts"], "ca"));
    assert_eq!(
        (pod["hostNetwork"].as_bool(), pod["dnsPolicy"].as_str()),
        (Some(true), Some("ClusterFirstWithHostNet"))
    );
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"].as_str(), Some("RuntimeDefault"));
    assert_eq!(pod["securityContext"]["supplementalGroups"][0].as_u64(), Some(7));
    assert_eq!(agent["startupProbe"]["failureThreshold"].as_u64(), Some(30));
    assert_eq!(agent["livenessProbe"]["timeoutSeconds"].as_u64(), Some(9));
    let set = object(&text, "DaemonSet").unwrap();
    assert_eq!(set["spec"]["updateStrategy"]["type"].as_str(), Some("OnDelete"));
    assert_eq!(
        variable(&agent, "CPUWARDEN_KUBELET_CA_FILE").as_deref(),
        Some("/etc/cpuwarden-kubelet-ca/ca-bundle.crt")
    );
    assert_eq!(variable(&agent, "CPUWARDEN_KUBELET_INSECURE_SKIP_VERIFY").as_deref(), Some("true"));
    assert_eq!(
        variable(&agent, "CPUWARDEN_KUBELET_READONLY_URL").as_deref(),
        Some("http://$(NODE_IP):10255")
    );
    for made in documents(&text) {
        assert_eq!(
            made["metadata"]["labels"]["team"].as_str(),
            Some("sre"),
            "{}",
            made["kind"].as_str().unwrap()
        );
    }
    let monitor = object(&text, "PodMonitor").unwrap();
    assert_eq!(monitor["spec"]["sampleLimit"].as_u64(), Some(60_000));
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["scrapeTimeout"].as_str(), Some("9s"));
    assert_eq!(endpoint["metricRelabelings"][0]["regex"].as_str(), Some("cpu"));
}

#[test]
fn the_read_only_port_is_that_of_the_kubelets_host() {
    let at = |values: &str| {
        let agent = container(&render(&[&format!("--set=kubelet.readOnlyPort=10255,{values}")]));
        variable(&agent, "CPUWARDEN_KUBELET_READONLY_URL").unwrap()
    };
    assert_eq!(at("kubelet.url=https://[$(NODE_IP)]:10250"), "http://[$(NODE_IP)]:10255");
    assert_eq!(at("kubelet.url=https://$(NODE_IP)"), "http://$(NODE_IP):10255");
    assert!(
        render(&["--set=kubelet.readOnlyPort=10255"]).contains("{port: 10255"),
        "the NetworkPolicy lets it out"
    );
}

#[test]
fn probes_wait_for_seconds() {
    let agent = container(&render(&[]));
    for probe in ["livenessProbe", "readinessProbe"] {
        assert!(agent[probe]["timeoutSeconds"].as_u64().unwrap() >= 3, "{probe}");
    }
}

#[test]
fn a_service_monitor_takes_the_place_of_the_pod_monitor() {
    let values =
        "--set=serviceMonitor.enabled=true,serviceMonitor.labels.release=kps,cadvisorMetrics=true";
    for checked in valid_on_every_minor(&[vec![values, OPERATOR]]) {
        assert!(
            checked.contains("Service/cpuwarden") && checked.contains("ServiceMonitor/cpuwarden"),
            "{checked}"
        );
    }
    let text = render(&[values, OPERATOR]);
    assert!(object(&text, "PodMonitor").is_none(), "each agent would be scraped twice");
    let (service, monitor) =
        (object(&text, "Service").unwrap(), object(&text, "ServiceMonitor").unwrap());
    assert_eq!(service["spec"]["clusterIP"].as_str(), Some("None"));
    let by_pod = object(&render(&[OPERATOR, "--set=cadvisorMetrics=true"]), "PodMonitor").unwrap();
    assert_eq!(monitor["spec"]["endpoints"], by_pod["spec"]["podMetricsEndpoints"]);
    assert_eq!(monitor["metadata"]["labels"]["release"].as_str(), Some("kps"));
    let selected = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
    assert!(selected.iter().all(|(label, value)| service["metadata"]["labels"][label] == *value));
}

fn alerts(text: &str) -> Vec<(String, String)> {
    let rules = documents(text).into_iter().filter(|object| object["kind"] == "PrometheusRule");
    let groups = rules.flat_map(|object| object["spec"]["groups"].as_array().unwrap().clone());
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    let expression =
        |rule: Value| Some((rule["alert"].as_str()?.to_owned(), rule["expr"].as_str()?.to_owned()));
    rules.filter_map(expression).collect()
}

#[test]
fn disabling_an_alert_removes_only_that_alert() {
    let all = alerts(&render(&[OPERATOR]));
    let left = alerts(&render(&[OPERATOR, "--set=prometheusRule.disabled.NodeCPUSteal=true"]));
    assert_eq!(
        left,
        all.iter().filter(|(name, _)| name != "NodeCPUSteal").cloned().collect::<Vec<_>>()
    );
    assert_eq!(
        alerts(&render(&[OPERATOR, "--set=prometheusRule.disabled.NodeCPUSteal=false"])),
        all
    );
    assert!(refusal(&["--set=prometheusRule.disabled.NodeSteal=true"]).contains("NodeSteal"));
    let schema: Value = serde_json::from_str(&read("chart/cpuwarden/values.schema.json")).unwrap();
    let known = schema["definitions"]["alert"]["enum"].as_array().unwrap();
    let names: Vec<&str> = known.iter().map(|name| name.as_str().unwrap()).collect();
    assert_eq!(names, all.iter().map(|(name, _)| &**name).collect::<Vec<_>>());
}

#[test]
fn every_threshold_changes_the_rules_and_they_stay_valid() {
    let schema: Value = serde_json::from_str(&read("chart/cpuwarden/values.schema.json")).unwrap();
    let known = schema["properties"]["prometheusRule"]["properties"]["thresholds"]["properties"]
        .as_object()
        .unwrap();
    let all = alerts(&render(&[OPERATOR]));
    for threshold in known.keys() {
        let text =
            render(&[OPERATOR, &format!("--set=prometheusRule.thresholds.{threshold}=0.625")]);
        let changed = alerts(&text);
        let differ = changed.iter().zip(&all).filter(|(now, before)| now != before).count();
        assert!(
            differ > 0 && changed.iter().any(|(_, expression)| expression.contains("0.625")),
            "{threshold}"
        );
        let place = tempfile::tempdir().unwrap();
        for (number, rules) in
            documents(&text).iter().filter(|object| object["kind"] == "PrometheusRule").enumerate()
        {
            let file = place.path().join(format!("{number}.yaml"));
            fs::write(&file, serde_saphyr::to_string(&rules["spec"]).unwrap()).unwrap();
            output_of(Command::new("promtool").args(["check", "rules"]).arg(&file));
        }
    }
    assert!(refusal(&["--set=prometheusRule.thresholds.steal=1"]).contains("steal"));
    // Prometheus 2 refuses all rules of the object.
    for wrong in ["alertLabels.bad-name", "alerts.ServiceSlowed.labels.1st"] {
        let refused = refusal(&[&format!("--set=prometheusRule.{wrong}=x")]);
        assert!(refused.contains(wrong.rsplit('.').next().unwrap()), "{refused}");
    }
    // Percent: the alert would never fire.
    for wrong in ["slowedRatio=30", "harmfulThrottledRatio=25", "stealRatio=1.5"] {
        let refused = refusal(&[&format!("--set=prometheusRule.thresholds.{wrong}")]);
        assert!(refused.contains(wrong.split('=').next().unwrap()), "{refused}");
    }
}

/// The agent accepts no names: its pods would restart again and again.
#[test]
fn the_endpoints_address_is_that_of_an_ip() {
    for (address, listens_on) in
        [("::", "[::]:9753"), ("[::1]", "[::1]:9753"), ("127.0.0.1", "127.0.0.1:9753")]
    {
        let agent = container(&render(&[&format!("--set=endpoint.address={address}")]));
        assert_eq!(variable(&agent, "CPUWARDEN_LISTEN").as_deref(), Some(listens_on));
    }
    for wrong in ["localhost", "0.0.0.0:9753", "10.0.0", "*", "eth0"] {
        let refused = refusal(&[&format!("--set-string=endpoint.address={wrong}")]);
        assert!(refused.contains("/endpoint/address"), "{wrong}: {refused}");
    }
}

#[test]
fn pin_observes_and_can_write_nothing_until_it_is_to_enforce() {
    let agent = container(&render(&["--set=profile=pin"]));
    assert_eq!(variable(&agent, "CPUWARDEN_PINNING").as_deref(), Some("observe"));
    assert_eq!(writable(&agent), [""; 0]);
    let drains = container(&render(&["--set=profile=pin,drainOnStop=true"]));
    assert_eq!(
        writable(&drains),
        ["/host/cgroup", "/var/lib/cpuwarden"],
        "it may have enforced before"
    );
}

#[test]
fn the_agent_records_to_a_bounded_volume_by_default() {
    let volume = |text: &str| {
        let volumes = pod(text)["volumes"].as_array().unwrap().clone();
        volumes.into_iter().find(|volume| volume["name"] == "recording")
    };
    let storage = |text: &str| {
        let resources = container(text)["resources"].clone();
        ["requests", "limits"].map(|kind| resources[kind]["ephemeral-storage"].clone())
    };
    let size = |text: &str| variable(&container(text), "CPUWARDEN_RECORD_SIZE");
    let text = render(&[]);
    assert_eq!(volume(&text).unwrap()["emptyDir"], json!({"sizeLimit": "300Mi"}));
    assert_eq!(storage(&text), ["250Mi", "400Mi"]);
    assert_eq!(size(&text).as_deref(), Some("250MiB"));
    let mounts = container(&text)["volumeMounts"].as_array().unwrap().clone();
    let mount = mounts.iter().find(|mount| mount["name"] == "recording").unwrap();
    let record = variable(&container(&text), "CPUWARDEN_RECORD");
    assert_eq!(mount["mountPath"].as_str(), record.as_deref());

    let text = render(&["--set=recording.size=100,resources.limits.ephemeral-storage=1Gi"]);
    assert_eq!(volume(&text).unwrap()["emptyDir"], json!({"sizeLimit": "150Mi"}));
    assert_eq!(
        (storage(&text), size(&text).as_deref()),
        (["100Mi", "1Gi"].map(Value::from), Some("100MiB"))
    );

    let text = render(&["--set=recording.hostPath=/var/lib/r"]);
    let host = json!({"path": "/var/lib/r", "type": "DirectoryOrCreate"});
    assert_eq!(volume(&text).unwrap()["hostPath"], host);
    assert_eq!(storage(&text), [Value::Null, Value::Null]);

    for off in ["recording.enabled=false", "ui=false", "config.record=/mine"] {
        let text = render(&[&format!("--set={off}")]);
        assert_eq!((volume(&text), size(&text)), (None, None), "{off}");
    }
    assert!(refusal(&["--set=recording.size=250Mi"]).contains("size"));
    let text = refusal(&["--set=config.recordSize=1GiB"]);
    assert!(text.contains("config.recordSize has no effect next to recording.size"), "{text}");
    assert!(refusal(&["--set=recording.hostPath=relative"]).contains("hostPath"));
}

/// Root can connect to the sockets in it.
#[test]
fn only_pinning_mounts_the_directory_of_the_kubelets_plugins() {
    let is_mounted = |arguments: &[&str]| {
        let text = render(arguments);
        let path = |mount: &Value| mount["mountPath"] == "/var/lib/kubelet/plugins_registry";
        let mounts = container(&text)["volumeMounts"].as_array().unwrap().clone();
        let volumes = pod(&text)["volumes"].as_array().unwrap().clone();
        let is_volume = volumes.iter().any(|volume| volume["name"] == "plugins");
        assert_eq!(is_volume, mounts.iter().any(path), "{arguments:?}");
        is_volume
    };
    let of_pin = |config: &str| is_mounted(&[&format!("--set=profile=pin,{config}")]);
    assert!(of_pin("config.pinning=observe") && of_pin("config.pinning=enforce"));
    assert!(!of_pin("config.pinning=off,config.bestEffort=enforce"));
    assert!(!is_mounted(&["--set=profile=trace"]) && !is_mounted(&[]));
}

#[test]
fn before_1_33_pinning_reads_the_kubelets_policy_from_its_file() {
    let mounts = |arguments: &[&str]| {
        let text = render(&[&["--set=profile=pin,config.podSource=apiserver"], arguments].concat());
        let volumes = pod(&text)["volumes"].as_array().unwrap().clone();
        volumes
            .into_iter()
            .find(|volume| volume["name"] == "cpu-manager-state")
            .map(|volume| volume["hostPath"].clone())
    };
    let state = mounts(&["--kube-version=1.32.0"]).unwrap();
    assert_eq!(
        (state["path"].as_str(), state["type"].as_str()),
        (Some("/var/lib/kubelet/cpu_manager_state"), Some("File"))
    );
    assert!(mounts(&["--kube-version=1.33.0"]).is_none(), "/configz has it");
}

#[test]
fn readers_may_be_granted_every_guarded_path() {
    let text = render(&["--set=endpoint.auth=true,endpoint.tls.secretName=tls"]);
    let reader = documents(&text).into_iter().find(|object| {
        object["kind"] == "ClusterRole"
            && object["metadata"]["name"].as_str().is_some_and(|name| name.ends_with("-reader"))
    });
    let paths = reader.unwrap()["rules"][0]["nonResourceURLs"].as_array().unwrap().clone();
    let paths: Vec<&str> = paths.iter().map(|path| path.as_str().unwrap()).collect();
    assert_eq!(paths, ["/metrics", "/metrics/cadvisor", "/", "/api/v1/*"]);
}

#[test]
fn keys_and_typos_are_rejected_by_their_name() {
    for (argument, place) in [
        ("--set=kubelet.hostCertificate=/var/lib/kubelet/pki/kubelet.key", "hostCertificate"),
        (
            "--set=kubelet.hostCertificate=/var/lib/kubelet/pki/kubelet-server-current.pem",
            "hostCertificate",
        ),
        ("--set=kubelet.hostCert=x", "hostCert"),
        ("--set=platform=minikube", "platform"),
        ("--set=profile=observe", "profile"),
        ("--set=probes.liveness.timeout=3", "timeout"),
        ("--set=podMonitor.relabelings=x", "relabelings"),
        ("--set=extraEnvs=x", "extraEnvs"),
        ("--set=mountPropagation=Bidirectional", "mountPropagation"),
    ] {
        let text = refusal(&[argument]);
        assert!(text.contains(place), "{argument}: {text}");
    }
}

/// A key with nothing but comments below it: helm removes such a key with its default. It must not
/// reach a template, or turn a check off.
#[test]
fn an_emptied_key_is_refused_by_its_name() {
    for key in [
        "config",
        "recording",
        "endpoint",
        "profile",
        "kubelet.tlsVerify",
        "networkPolicy.enabled",
        "probes.liveness",
        "prometheusRule.namespaces",
    ] {
        let refused = refusal(&[&format!("--set={key}=null")]);
        let (above, name) = key.rsplit_once('.').unwrap_or(("", key));
        let missing = format!("missing property '{name}'");
        assert!(refused.contains(&missing) && refused.contains(above), "{key}: {refused}");
    }
}
