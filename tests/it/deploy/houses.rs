//! What a house sets for itself: alerts one by one, namespaces that can alert, the namespaces of rules
//! and dashboards, and the keys of the agent's configuration.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::{Value, json};
use xtask::generated;

use super::chart::{OPERATOR, documents, render};
use super::output_of;

/// The chart with these values under `prometheusRule`, as JSON.
fn with_rules(values: &Value) -> String {
    render(&[OPERATOR, &format!("--set-json=prometheusRule={values}")])
}

/// The rules by name: alerts and recorded series.
fn rules(text: &str) -> BTreeMap<String, Value> {
    let objects = documents(text).into_iter().filter(|object| object["kind"] == "PrometheusRule");
    let groups = objects.flat_map(|object| object["spec"]["groups"].as_array().unwrap().clone());
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap().clone());
    let name =
        |rule: &Value| rule["alert"].as_str().or(rule["record"].as_str()).unwrap().to_owned();
    rules.map(|rule| (name(&rule), rule)).collect()
}

fn assert_valid(text: &str) {
    let place = tempfile::tempdir().unwrap();
    let objects = documents(text).into_iter().filter(|object| object["kind"] == "PrometheusRule");
    for (number, rules) in objects.enumerate() {
        let file = place.path().join(format!("{number}.yaml"));
        fs::write(&file, serde_saphyr::to_string(&rules["spec"]).unwrap()).unwrap();
        output_of(Command::new("promtool").args(["check", "rules"]).arg(&file));
    }
}

#[test]
fn a_single_alert_gets_its_own_time_severity_labels_and_annotations() {
    let before = rules(&render(&[OPERATOR]));
    let text = with_rules(&json!({
        "alertLabels": {"env": "prod", "team": "platform"},
        "alerts": {
            "ServiceSlowed": {
                "for": "5m", "severity": "critical", "labels": {"team": "shop"},
                "annotations": {"chat": "#shop", "summary": "Ours."},
            },
            "CPUThrottlingBursty": {"severity": "none"},
        },
    }));
    assert_valid(&text);
    let after = rules(&text);
    let slowed = &after["ServiceSlowed"];
    assert_eq!(slowed["for"], "5m");
    assert_eq!(slowed["labels"], json!({"env": "prod", "team": "shop", "severity": "critical"}));
    assert_eq!(
        (&slowed["annotations"]["chat"], &slowed["annotations"]["summary"]),
        (&json!("#shop"), &json!("Ours."))
    );
    assert_eq!(
        slowed["annotations"]["description"],
        before["ServiceSlowed"]["annotations"]["description"]
    );
    assert_eq!(slowed["keep_firing_for"], "10m");
    assert_eq!(after["CPUThrottlingBursty"]["labels"]["severity"], "none");
    for (name, rule) in &before {
        let now = &after[name];
        assert_eq!(now["expr"], rule["expr"], "{name}");
        if rule["alert"].is_string() {
            assert_eq!(now["labels"]["env"], "prod", "{name}");
            if !["ServiceSlowed", "CPUThrottlingBursty"].contains(&&**name) {
                assert_eq!(now["labels"]["severity"], rule["labels"]["severity"], "{name}");
                assert_eq!(
                    (&now["for"], &now["annotations"]),
                    (&rule["for"], &rule["annotations"]),
                    "{name}"
                );
            }
        } else {
            assert_eq!(now, rule, "{name}");
        }
    }
}

/// Every selector of pods in an alert about pods has the matcher; no other rule changes.
#[test]
fn namespaces_are_taken_in_or_left_out_by_every_alert_about_pods() {
    let text =
        with_rules(&json!({"namespaces": {"only": ["shop", "team-*"], "except": ["team-x"]}}));
    assert_valid(&text);
    let (before, after) = (rules(&render(&[OPERATOR])), rules(&text));
    let about_pods = [
        "CPUThrottledByAncestor",
        "CPUThrottlingBursty",
        "CPUThrottlingHarmful",
        "ExclusiveCPUOverlap",
        "NoisyNeighbor",
        "RuntimeParallelismMismatch",
        "ServiceSlowed",
        "node:cpuwarden_slowed_pods:count10m",
    ];
    let changed: Vec<&String> =
        before.keys().filter(|name| before[*name]["expr"] != after[*name]["expr"]).collect();
    assert_eq!(changed, about_pods);
    let pods = [
        "container:cpuwarden_",
        "pod:cpuwarden_",
        "cpuwarden_container_",
        "cpuwarden_pod_",
        "cpuwarden_exclusive_",
    ];
    for name in about_pods {
        let expression = after[name]["expr"].as_str().unwrap();
        let selectors: usize = pods
            .iter()
            .map(|prefix| {
                let starts = expression.match_indices(prefix).map(|(at, _)| at);
                // Not the middle of a longer name.
                starts.filter(|at| !expression[..*at].ends_with([':', '_'])).count()
            })
            .sum();
        let label = if name == "NoisyNeighbor" { "aggressor_namespace" } else { "namespace" };
        let matchers = format!(r#"{{{label}=~"shop|team-.*",{label}!~"team-x""#);
        let restricted = usize::from(expression.contains("cpuwarden_best_effort_restricted"));
        assert_eq!(
            expression.matches(&matchers).count(),
            selectors + restricted,
            "{name}: {expression}"
        );
    }
}

/// One throttled container in each namespace, with measured counters of a throttled load.
#[test]
fn only_pods_of_the_chosen_namespaces_alert() {
    let text =
        with_rules(&json!({"namespaces": {"only": ["shop", "team-*"], "except": ["team-x"]}}));
    let place = tempfile::tempdir().unwrap();
    let objects = documents(&text).into_iter().filter(|object| object["kind"] == "PrometheusRule");
    for (at, rule) in objects.enumerate() {
        let text = serde_saphyr::to_string(&rule["spec"]).unwrap();
        fs::write(place.path().join(format!("{at}.yaml")), text).unwrap();
    }
    let series = ["shop", "shop-2", "team-a", "team-x", "batch"].map(|namespace| {
        let labels = format!("{{namespace=\"{namespace}\", pod=\"p\", container=\"c\"}}");
        [
            ("cpuwarden_container_cfs_throttled_periods_total", "0+300x40"),
            ("cpuwarden_container_cfs_period_seconds", "0.1x40"),
            ("cpuwarden_container_cpu_limit_cores", "0.1x40"),
            ("cpuwarden_container_cpu_usage_seconds_total", "0+6x40"),
        ]
        .map(|(name, values)| json!({"series": format!("{name}{labels}"), "values": values}))
    });
    let fired = ["shop", "team-a"]
        .map(|namespace| json!({"labels": format!("{{namespace=\"{namespace}\"}}"), "value": 1}));
    let expression =
        r#"count by (namespace) (ALERTS{alertname="CPUThrottlingHarmful", alertstate="firing"})"#;
    let test = json!({
        "rule_files": ["0.yaml", "1.yaml"],
        "tests": [{
            "interval": "1m",
            "input_series": series.concat(),
            "promql_expr_test": [{"expr": expression, "eval_time": "30m", "exp_samples": fired}],
        }],
    });
    fs::write(place.path().join("test.yaml"), test.to_string()).unwrap();
    output_of(Command::new("promtool").args(["test", "rules", "test.yaml"]).current_dir(&place));
}

#[test]
fn rules_and_dashboards_are_in_the_namespaces_of_choice() {
    let namespaces = |arguments: &[&str], kind: &str| {
        let objects = documents(&render(&[&[OPERATOR], arguments].concat()));
        let mut found: Vec<String> = objects
            .iter()
            .filter(|object| object["kind"] == kind)
            .map(|object| object["metadata"]["namespace"].as_str().unwrap().to_owned())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    };
    let chosen = ["--set=prometheusRule.namespace=monitoring,dashboards.namespace=grafana"];
    assert_eq!(namespaces(&[], "PrometheusRule"), ["cpuwarden"]);
    assert_eq!(namespaces(&[], "ConfigMap"), ["cpuwarden"]);
    assert_eq!(namespaces(&chosen, "PrometheusRule"), ["monitoring"]);
    // One ConfigMap is the agent's configuration.
    assert_eq!(namespaces(&chosen, "ConfigMap"), ["cpuwarden", "grafana"]);
}

#[test]
fn wrong_changes_of_alerts_are_rejected_by_name() {
    for (value, place) in [
        ("alerts.ServiceSlow.for=5m", "ServiceSlow"),
        ("alerts.ServiceSlowed.for=soon", "for"),
        ("alerts.ServiceSlowed.expr=x", "expr"),
        ("alerts.ServiceSlowed.labels.a.b=x", "labels"),
        ("namespaces.without={a}", "without"),
        ("namespaces.only={Shop}", "only"),
        ("namespace=Monitoring", "namespace"),
        ("disabled.ServiceSlow=true", "ServiceSlow"),
    ] {
        let argument = format!("--set=prometheusRule.{value}");
        let refusal = generated::render(&[&argument]).map(drop).expect_err(value).to_string();
        assert!(refusal.contains(place), "{value}: {refusal}");
    }
}

#[test]
fn keys_of_the_configuration_are_checked_by_name_type_and_range() {
    for (value, place) in [
        ("sampleIntervall=1s", "sampleIntervall"),
        ("sampleInterval=1", "sampleInterval"),
        ("sampleInterval=fast", "sampleInterval"),
        (
            "sampleInterval=50ms",
            "config.sampleInterval: 50ms is out of range: expected 100ms to 1m",
        ),
        ("sampleInterval=1m 30s", "sampleInterval: 1m 30s is out of range"),
        ("reconcileInterval=2h", "reconcileInterval: 2h is out of range: expected 0s to 1h"),
        ("adviceAfter=9s", "adviceAfter: 9s is out of range"),
        ("adviceAfter=1w 1s", "expected 10s to 7days"),
        ("podPollInterval=500ms", "podPollInterval: 500ms is out of range"),
        ("maxSeries=many", "maxSeries"),
        ("maxSeries=0", "maxSeries"),
        ("schedTrace=maybe", "schedTrace"),
        ("pinning=true", "pinning"),
        ("cpuBudget=-1", "cpuBudget"),
        ("cpuBudget=1e300", "cpuBudget"),
        ("schedTraceBudget=1.5", "schedTraceBudget"),
        ("injectMemoryShare=0.95", "injectMemoryShare"),
        ("burstPercent=100", "burstPercent"),
        ("recordSize=1TB", "recordSize"),
        ("recordSize=1KiB", "recordSize"),
        ("recordSize=1MB", "recordSize"),
        ("recordSize=0MiB", "recordSize"),
        ("podLabels=te am", "podLabels"),
        ("cadvisorGroups=limits", "cadvisorGroups"),
        ("apiserverFallback=perhaps", "apiserverFallback"),
        ("log=", "log"),
        ("log=loud", "log"),
        ("log=sampler=loud", "log"),
        ("logFormat=xml", "logFormat"),
        ("reservedCpus=first", "reservedCpus"),
        ("profiles[0].colour=red", "colour"),
        ("listen=:9000", "listen"),
        ("schedTraceHint=x", "schedTraceHint"),
    ] {
        let argument = format!("--set=config.{value}");
        let refusal = generated::render(&[&argument]).map(drop).expect_err(value).to_string();
        assert!(refusal.contains(place), "{value}: {refusal}");
    }
}

/// As `helm --set` and YAML make them, values arrive at the agent in its own form.
#[test]
fn valid_keys_of_the_configuration_reach_the_agent() {
    let config = |values: &str| {
        let text = render(&[&format!("--set={values}")]);
        let maps = documents(&text).into_iter().filter(|object| object["kind"] == "ConfigMap");
        let file = maps.filter_map(|map| Some(map["data"]["cpuwarden.yaml"].as_str()?.to_owned()));
        file.collect::<String>()
    };
    let given = "config.cpuBudget=0.05,config.schedTraceBudget=1,config.maxSeries=100,config.sampleInterval=30s 500ms,config.log=off,\
                 config.reservedCpus=0-1,config.record=/mine,config.recordSize=250MiB,config.podLabels=team,config.adviceAfter=7days,\
                 config.bpfCounters=false,config.gc=true";
    let expected = "adviceAfter: 7days\nbpfCounters: \"off\"\ncpuBudget: 0.05\ngc: \"on\"\nlog: \"off\"\nmaxSeries: 100\n\
                    metrics: standard\npodLabels: team\nrecord: /mine\nrecordSize: 250MiB\nreservedCpus: 0-1\n\
                    sampleInterval: 30s 500ms\nschedTraceBudget: 1";
    assert_eq!(config(given).trim(), expected);
    assert_eq!(
        config("config.log=sampler=debug\\,warn").trim(),
        "log: sampler=debug,warn\nmetrics: standard"
    );
}
