//! The agents as the source: the verdicts that hold now, of each node.

use std::collections::{BTreeMap, BTreeSet};

use agent_client::block_on;
use api::{CauseKind, SlowedReason, Trace, Verdict};
use console::{Failure, stderr};
use serde::Deserialize;

use super::{Culprit, FleetReport, Name, Pair, Source, TEN_MINUTES, Throttled, Victim};
use super::{ranked, shares};
use crate::args::ClusterArgs;
use crate::cluster::{AT_ONCE, TIMEOUT, resolve_all};
use crate::per_node::{Answers, answers};

/// Number of nodes from which a command takes minutes.
const MANY: usize = 200;
/// Objects in one answer to kubectl's list (its `--chunk-size`).
const CHUNK: usize = 500;
/// Requests for one agent: kubectl reads the pod and forwards a port of it.
const PER_AGENT: usize = 2;

/// The part of `/api/v1/frame` that is needed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeVerdicts {
    node: NodePart,
    verdicts: Vec<Verdict>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct NodePart {
    trace: Trace,
}

/// Asks all agents.
pub(super) fn report(args: &ClusterArgs, limit: usize) -> Result<FleetReport, Failure> {
    let (resolved, cluster) = resolve_all(args)?;
    let nodes = resolved.nodes().len();
    if nodes > MANY {
        stderr::say(format!(
            "asking {nodes} agents, {AT_ONCE} at a time; --prometheus answers at once"
        ));
    }
    let answers = answers(&cluster, &resolved, TIMEOUT, |client, _| {
        block_on(client.get::<NodeVerdicts>("/api/v1/frame"))
    })?;
    Ok(of_answers(&answers, limit))
}

/// Seconds of one workload, added up over pods and nodes.
#[derive(Debug, Default)]
struct Sum<'a> {
    value: f64,
    nodes: BTreeSet<&'a str>,
}

fn of_answers<'a>(answers: &'a Answers<NodeVerdicts>, limit: usize) -> FleetReport {
    let mut victims = BTreeMap::<Name, Sum<'_>>::new();
    let mut culprits = BTreeMap::<Name, Sum<'_>>::new();
    let mut throttled = BTreeMap::<Name, f64>::new();
    let mut pairs = BTreeMap::<(Name, Name), f64>::new();
    for (node, answer) in &answers.found {
        for verdict in answer.verdicts.iter().filter(|verdict| !verdict.restricted) {
            let (victim, seconds) = (victim(verdict), verdict.slowed_of_ten_minutes);
            if matches!(verdict.reason, SlowedReason::OwnLimit | SlowedReason::AncestorLimit) {
                *throttled.entry(victim).or_default() += verdict.lost_cores;
                continue;
            }
            // As the counters: a pod that always wants more CPU is owed nothing.
            if !verdict.is_harm() {
                continue;
            }
            let cause = cause(verdict);
            let add = |to: &mut BTreeMap<Name, Sum<'a>>, name: &Name| {
                let sum = to.entry(name.clone()).or_default();
                sum.value += seconds;
                sum.nodes.insert(node);
            };
            add(&mut victims, &victim);
            if verdict.culprit().is_some() {
                add(&mut culprits, &cause);
            }
            *pairs.entry((victim, cause)).or_default() += seconds;
        }
    }
    let pairs: Vec<Pair> =
        pairs.into_iter().map(|((victim, cause), seconds)| (victim, cause, seconds)).collect();
    let victims = victims.into_iter().map(|(name, sum)| Victim {
        by: shares(&pairs, &name, |pair| &pair.0, |pair| &pair.1),
        name,
        slowed_seconds: sum.value,
        nodes: sum.nodes.len(),
    });
    let culprits = culprits.into_iter().map(|(name, sum)| Culprit {
        victims: shares(&pairs, &name, |pair| &pair.1, |pair| &pair.0),
        name,
        harm_seconds: sum.value,
        nodes: sum.nodes.len(),
    });
    let throttled =
        throttled.into_iter().map(|(name, lost_cores)| Throttled { name, lost_cores }).collect();
    FleetReport {
        window_seconds: TEN_MINUTES,
        source: source(answers),
        victims: ranked(victims.collect(), limit, |row| row.slowed_seconds, |row| &row.name),
        culprits: ranked(culprits.collect(), limit, |row| row.harm_seconds, |row| &row.name),
        throttled: ranked(throttled, limit, |row| row.lost_cores, |row| &row.name),
    }
}

fn source(answers: &Answers<NodeVerdicts>) -> Source {
    let nodes = answers.found.len() + answers.missing;
    let is_untraced = |answer: &&(String, NodeVerdicts)| answer.1.node.trace.mode != "continuous";
    Source::Agents {
        nodes,
        missing: answers.missing,
        untraced: answers.found.iter().filter(is_untraced).count(),
        api_server_requests: nodes.div_ceil(CHUNK) + PER_AGENT * nodes,
    }
}

/// The victim's workload; the pod itself from earlier agents.
fn victim(verdict: &Verdict) -> Name {
    let workload = match &*verdict.workload {
        "" => verdict.victim.pod.clone(),
        name => name.to_owned(),
    };
    Name { cluster: String::new(), namespace: verdict.victim.namespace.clone(), workload }
}

/// The cause, as the recorded series name it.
fn cause(verdict: &Verdict) -> Name {
    let (namespace, workload) = match (verdict.culprit(), verdict.cause) {
        (Some(culprit), _) => (&*culprit.namespace, &*culprit.name),
        (None, CauseKind::Several) => ("several", ""),
        (None, _) => ("unknown", ""),
    };
    Name { cluster: String::new(), namespace: namespace.into(), workload: workload.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Answer of an agent whose pods are slowed: workload, reason, cause, seconds.
    fn answer(node: &str, slowed: &[(&str, &str, Value, f64)]) -> (String, NodeVerdicts) {
        let verdicts = slowed.iter().enumerate().map(|(number, (workload, reason, cause, seconds))| {
            let culprits: Vec<&Value> = Some(cause).filter(|cause| cause.is_object()).into_iter().collect();
            json!({
                "victim": { "namespace": "shop", "pod": format!("{workload}-{number}") },
                "workload": workload, "reason": reason, "slowedOfTenMinutes": seconds, "lostCores": 0.5,
                "cause": if cause.is_object() { json!("one") } else { cause.clone() },
                "culprits": culprits,
            })
        });
        let verdicts: Vec<Value> = verdicts.collect();
        let frame = json!({ "node": { "trace": { "mode": "continuous" } }, "verdicts": verdicts });
        (node.to_owned(), serde_json::from_value(frame).unwrap())
    }

    fn of(namespace: &str, kind: &str, name: &str) -> Value {
        json!({ "namespace": namespace, "kind": kind, "name": name })
    }

    #[test]
    fn harm_is_added_up_by_workload_over_nodes() {
        let report = || of("batch", "Job", "report");
        let host = of("system", "", "");
        let found = vec![
            answer(
                "a",
                &[("cart", "neighbor", report(), 300.0), ("cart", "neighbor", report(), 100.0)],
            ),
            answer(
                "b",
                &[
                    ("cart", "neighbor", json!("several"), 50.0),
                    ("pay", "neighbor", report(), 60.0),
                    ("pay", "system", host, 500.0),
                    ("own", "self", json!("own"), 600.0),
                ],
            ),
            answer(
                "c",
                &[
                    ("web", "own_limit", json!("own"), 600.0),
                    ("web", "ancestor_limit", json!("own"), 9.0),
                ],
            ),
        ];
        let all = of_answers(&Answers { found, missing: 1 }, 10);
        let names = |shares: &[super::super::Share]| -> Vec<(String, f64)> {
            let name = |name: &Name| format!("{}/{}", name.namespace, name.workload);
            shares.iter().map(|share| (name(&share.name), share.seconds)).collect()
        };
        let victims: Vec<_> = all
            .victims
            .iter()
            .map(|row| (&*row.name.workload, row.slowed_seconds, row.nodes))
            .collect();
        assert_eq!(victims, [("pay", 560.0, 1), ("cart", 450.0, 2)]);
        assert_eq!(
            names(&all.victims[1].by),
            [("batch/report".to_owned(), 400.0), ("several/".to_owned(), 50.0)]
        );
        let culprits: Vec<_> = all
            .culprits
            .iter()
            .map(|row| (&*row.name.namespace, row.harm_seconds, row.nodes))
            .collect();
        assert_eq!(culprits, [("system", 500.0, 1), ("batch", 460.0, 2)]);
        assert_eq!(
            names(&all.culprits[1].victims),
            [("shop/cart".to_owned(), 400.0), ("shop/pay".to_owned(), 60.0)]
        );
        let throttled: Vec<_> =
            all.throttled.iter().map(|row| (&*row.name.workload, row.lost_cores)).collect();
        assert_eq!(throttled, [("web", 1.0)]);
        let source = Source::Agents { nodes: 4, missing: 1, untraced: 0, api_server_requests: 9 };
        assert_eq!(all.source, source);
    }

    #[test]
    fn a_pod_that_always_wants_more_is_no_victim() {
        let report = of("batch", "Job", "report");
        let (node, mut frame) = answer("a", &[("batch", "neighbor", report, 30.0)]);
        frame.verdicts[0].class = api::VictimClass::Hungry;
        let all = of_answers(&Answers { found: vec![(node, frame)], missing: 0 }, 10);
        assert!(all.victims.is_empty() && all.culprits.is_empty(), "{all:?}");
    }

    #[test]
    fn an_unknown_cause_is_nobodys_harm() {
        let (mut node, mut frame) = answer("a", &[("cart", "unknown", json!("unknown"), 30.0)]);
        node.clear();
        frame.node.trace.mode = "off".to_owned();
        frame.verdicts[0].workload.clear();
        let all = of_answers(&Answers { found: vec![(node, frame)], missing: 0 }, 10);
        assert_eq!(all.victims[0].name.workload, "cart-0", "the pod, from earlier agents");
        assert_eq!(all.victims[0].by[0].name.namespace, "unknown");
        assert!(all.culprits.is_empty());
        assert!(matches!(all.source, Source::Agents { untraced: 1, .. }), "{:?}", all.source);
    }

    #[test]
    fn a_fleet_costs_two_requests_per_agent_and_one_per_five_hundred_pods() {
        let found = (0..4100).map(|number| answer(&number.to_string(), &[])).collect();
        let Source::Agents { api_server_requests, .. } = source(&Answers { found, missing: 0 })
        else {
            panic!("not of agents");
        };
        assert_eq!(api_server_requests, 9 + 2 * 4100);
    }
}
