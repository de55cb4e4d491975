//! Defaults of the chart: on every node, evicted last, small, and with restricted network access.

use serde_json::Value;

use super::chart::{documents, pod, render};

fn object(text: &str, kind: &str) -> Value {
    documents(text)
        .into_iter()
        .find(|object| object["kind"] == kind)
        .unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
fn an_agent_is_on_every_node_and_the_last_to_be_evicted() {
    let pod = pod(&render(&[]));
    let tolerations = pod["tolerations"].as_array().unwrap();
    assert!(
        tolerations.len() == 1
            && tolerations[0]["operator"] == "Exists"
            && tolerations[0]["key"].is_null()
    );
    assert_eq!(pod["priorityClassName"].as_str(), Some("system-node-critical"));
}

#[test]
fn an_agent_asks_for_little_and_is_never_throttled() {
    let resources = pod(&render(&[]))["containers"][0]["resources"].clone();
    let requests =
        ["cpu", "memory"].map(|name| resources["requests"][name].as_str().unwrap().to_owned());
    assert_eq!(requests, ["20m", "48Mi"]);
    assert!(
        resources["limits"]["cpu"].is_null() && resources["limits"]["memory"] == "128Mi",
        "{resources:?}"
    );
}

/// Then the start of every container waits for the agent.
#[test]
fn an_agent_that_answers_the_runtime_asks_for_more() {
    let request = |values: &str| {
        let agent = pod(&render(&[&format!("--set={values}")]))["containers"][0].clone();
        let requests = agent["resources"]["requests"].clone();
        assert_eq!(requests["memory"], "48Mi", "{values}");
        requests["cpu"].as_str().unwrap().to_owned()
    };
    assert_eq!(request("nri.enabled=true"), "100m");
    assert_eq!(request("profile=pin"), "20m");
    assert_eq!(request("nri.enabled=true,resources.requests.cpu=50m"), "50m");
}

#[test]
fn a_tenth_of_the_agents_is_replaced_at_a_time() {
    let strategy = object(&render(&[]), "DaemonSet")["spec"]["updateStrategy"].clone();
    assert_eq!(strategy["type"].as_str(), Some("RollingUpdate"));
    assert_eq!(strategy["rollingUpdate"]["maxUnavailable"].as_str(), Some("10%"));
}

#[test]
fn agents_use_the_api_server_only_where_needed() {
    let ports = |arguments: &[&str]| {
        let rules = object(&render(arguments), "NetworkPolicy")["spec"]["egress"]
            .as_array()
            .unwrap()
            .clone();
        let of = |rule: &Value| rule["ports"].as_array().unwrap().clone();
        rules.iter().flat_map(of).map(|port| port["port"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ports(&[]), [10250]);
    // IPv6 form from values.yaml; it becomes a URL once the kubelet inserts the address.
    assert_eq!(ports(&["--set=kubelet.url=https://[$(NODE_IP)]:1234"]), [1234]);
    assert_eq!(ports(&["--set=kubelet.url=https://$(NODE_IP)"]), [443]);
    let api_server = [10250, 443, 6443];
    assert_eq!(ports(&["--set=endpoint.auth=true,endpoint.tls.secretName=tls"]), api_server);
    assert_eq!(ports(&["--set=config.apiserverFallback=true"]), api_server);
    assert_eq!(ports(&["--set=config.podSource=apiserver"]), api_server);
}

#[test]
fn the_network_policy_admits_only_listed_peers() {
    let from = |arguments: &[&str]| {
        let ingress = object(&render(arguments), "NetworkPolicy")["spec"]["ingress"][0].clone();
        assert_eq!(ingress["ports"][0]["port"].as_str(), Some("metrics"));
        ingress["from"].clone()
    };
    assert!(from(&[]).is_null());
    let listed =
        from(&["--set=networkPolicy.from[0].namespaceSelector.matchLabels.name=monitoring"]);
    assert_eq!(listed[0]["namespaceSelector"]["matchLabels"]["name"].as_str(), Some("monitoring"));
}

#[test]
fn a_scrape_has_the_labels_that_rules_and_the_mixin_select() {
    let text = render(&["--api-versions=monitoring.coreos.com/v1", "--set=cadvisorMetrics=true"]);
    let spec = object(&text, "PodMonitor")["spec"].clone();
    assert_eq!(spec["jobLabel"].as_str(), Some("app.kubernetes.io/name"));
    assert_eq!(
        pod_label(&text, "app.kubernetes.io/name").as_deref(),
        Some("cpuwarden"),
        "the job of the alerts"
    );
    let endpoints = spec["podMetricsEndpoints"].as_array().unwrap();
    let paths: Vec<_> =
        endpoints.iter().map(|endpoint| endpoint["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["/metrics", "/metrics/cadvisor"]);
    for endpoint in endpoints {
        assert_eq!(endpoint["honorLabels"].as_bool(), Some(true), "{endpoint:?}");
        assert_eq!(
            relabeled(endpoint, "node")["sourceLabels"][0].as_str(),
            Some("__meta_kubernetes_pod_node_name")
        );
    }
    assert_eq!(relabeled(&endpoints[1], "job")["replacement"].as_str(), Some("kubelet"));
    assert_eq!(
        relabeled(&endpoints[1], "metrics_path")["sourceLabels"][0].as_str(),
        Some("__metrics_path__")
    );
}

fn pod_label(text: &str, name: &str) -> Option<String> {
    let labels = object(text, "DaemonSet")["spec"]["template"]["metadata"]["labels"].clone();
    labels[name].as_str().map(str::to_owned)
}

fn relabeled(endpoint: &Value, label: &str) -> Value {
    let rules = endpoint["relabelings"].as_array().unwrap();
    rules
        .iter()
        .find(|rule| rule["targetLabel"] == label)
        .unwrap_or_else(|| panic!("no {label}: {rules:?}"))
        .clone()
}
