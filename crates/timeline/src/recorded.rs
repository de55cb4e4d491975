//! Adds frames of a recording to the history.

use std::sync::Arc;

use api::{ContainerFrame, Frame, Measure, NodeFrame};
use snapshot::{ContainerIdentity, CpusetRow, PodIdentity};

use crate::counters::Counters;
use crate::history::position;
use crate::node::{NodeValues, shared, without_load};
use crate::state::{Container, Pair, TimelineState};

impl TimelineState {
    /// Adds a frame after the latest one, and returns its number.
    pub(crate) fn add_frame(&mut self, frame: &Frame) -> u64 {
        // Number 1 is the first reading, which is not a frame.
        self.frame = self.frame.max(1) + 1;
        self.containers.advance(self.frame);
        self.pairs.advance(self.frame);
        let position = position(self.frame);
        self.at_ms[position] = frame.at_ms;
        self.seconds[position] = frame.seconds;
        frame.containers.iter().for_each(|row| self.add_recorded_container(row));
        self.add_recorded_pairs(frame);
        self.set_verdicts(frame.verdicts.clone());
        self.add_recorded_node(&frame.node);
        self.frame
    }

    fn add_recorded_container(&mut self, row: &ContainerFrame) {
        let key = format!("{}\n{}\n{}\n{}", row.uid, row.namespace, row.pod, row.container);
        let new = || Container::recorded(row);
        let Some(at) = self.containers.slot(&key, self.frame, new) else { return };
        if let Some(container) = self.containers.state_mut(at) {
            *container = Container::recorded(row);
        }
        let values = Measure::ALL.map(|measure| measure.of(&row.rates, row.limit_cores));
        self.containers.set(at, self.frame, values);
    }

    fn add_recorded_pairs(&mut self, frame: &Frame) {
        for row in &frame.interference {
            let (victim, aggressor) = (&row.victim, &row.aggressor);
            let key = format!(
                "{}\n{}\n{}\n{}",
                victim.namespace, victim.pod, aggressor.namespace, aggressor.pod
            );
            let new = || Pair {
                victim: Arc::new(PodIdentity::new(victim.namespace.clone(), victim.pod.clone())),
                aggressor_namespace: aggressor.namespace.as_str().into(),
                aggressor_pod: aggressor.pod.as_str().into(),
                wait_ns: 0,
            };
            let Some(at) = self.pairs.slot(&key, self.frame, new) else { continue };
            self.pairs.set(at, self.frame, [Some(row.wait)]);
        }
    }

    /// Adds the node of a recorded frame.
    fn add_recorded_node(&mut self, node: &NodeFrame) {
        self.node.clone_from(&node.name);
        self.cpus.clone_from(&node.cpus);
        self.set_colocation(node.colocation.clone());
        let previous = &self.nodes[position(self.frame - 1)];
        self.nodes[position(self.frame)] = NodeValues {
            pressure: node.pressure,
            contention: node.contention,
            steal: node.steal,
            trace: shared(&previous.trace, node.trace.clone()),
            colocation: Arc::clone(&self.colocation),
            verdicts: Arc::clone(&self.verdicts),
            cpus: shared(&previous.cpus, without_load(&node.cpus)),
        };
    }
}

impl Container {
    fn recorded(row: &ContainerFrame) -> Self {
        let identity = ContainerIdentity {
            namespace: row.namespace.clone(),
            pod: row.pod.clone(),
            container: row.container.clone(),
            uid: row.uid.clone(),
            qos_class: row.qos_class.clone(),
            cpu_qos: row.cpu_qos.clone(),
            ..ContainerIdentity::default()
        };
        // The views only show the list.
        let cpuset = |cpus: &String| Arc::new(CpusetRow { cpus: cpus.clone(), count: 0 });
        Self {
            identity: Arc::new(identity),
            counters: Counters::default(),
            is_still: false,
            rates: row.rates,
            limit_cores: row.limit_cores,
            request_cores: row.request_cores,
            cpuset: row.cpus.as_ref().map(cpuset),
            gc: None,
        }
    }
}
