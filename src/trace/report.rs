//! What a poll has found, under the names of the series.

use std::collections::HashMap;
use std::sync::Arc;

use sampler::snapshot::FeatureState;
use sampler::waits::{ContainerWaits, InterferenceRow, Mode, NodeWaits, TraceRow};
use sched_trace::{Aggressor, Interference, WaitReport};

use super::FEATURE;
use super::owners::NodeOwners;

pub(super) fn waits(found: &WaitReport, owners: &NodeOwners) -> NodeWaits {
    NodeWaits {
        containers: containers(found, owners),
        interference: found.interference.iter().filter_map(|row| interference(row, owners)).collect(),
        trace: Some(TraceRow {
            mode: found.mode,
            run_ns: found.run_ns,
            switches: found.switches,
            losses: found.losses,
        }),
        feature: Some(feature(found.mode)),
    }
}

fn containers(found: &WaitReport, owners: &NodeOwners) -> HashMap<Box<str>, Arc<ContainerWaits>> {
    let named = found.containers.iter().filter_map(|waits| {
        let labels = owners.labels(waits.container)?;
        let waits = ContainerWaits {
            throttled_ns: waits.throttled_ns,
            neighbor_ns: waits.neighbor_ns,
            self_ns: waits.self_ns,
            system_ns: waits.system_ns,
            unattributed_ns: waits.unattributed_ns,
            latency: waits.latency,
            stalls: waits.stalls,
            smt: waits.smt,
        };
        Some((labels.into(), Arc::new(waits)))
    });
    named.collect()
}

fn interference(row: &Interference, owners: &NodeOwners) -> Option<InterferenceRow> {
    let (aggressor_namespace, aggressor_pod) = match row.aggressor {
        Aggressor::Pod(pod) => {
            let identity = owners.identity(pod)?;
            (identity.namespace.as_str(), identity.pod.as_str())
        }
        Aggressor::System => ("system", ""),
        Aggressor::Other => ("other", ""),
    };
    Some(InterferenceRow {
        victim: Arc::clone(owners.identity(row.victim)?),
        aggressor_namespace: aggressor_namespace.into(),
        aggressor_pod: aggressor_pod.into(),
        wait_ns: row.wait_ns,
    })
}

/// In force, with a reason all the same where the values are estimates.
fn feature(mode: Mode) -> FeatureState {
    let reason = match mode {
        Mode::Continuous => "",
        Mode::Bursts { .. } => "estimates: in bursts, to stay within --sched-trace-budget",
        Mode::Detached => "over_budget: even bursts would pass --sched-trace-budget",
    };
    FeatureState { feature: FEATURE, enabled: mode != Mode::Detached, reason: reason.to_owned() }
}
