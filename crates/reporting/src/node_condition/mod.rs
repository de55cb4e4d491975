//! The condition `CPUContention` of the Node object, with `--node-condition`: true while threads of
//! latency-sensitive pods wait for CPUs. Kubernetes itself has no such condition for CPU, because
//! PSI counts a throttled container as pressure.
//!
//! The only request is a PATCH of `nodes/status`: when the status changes, at most three times in a
//! minute and twice per minute in the long run, and every four to five minutes as a heartbeat.

mod report;
mod rule;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Verdict;
use metrics::AgentMetrics;
use snapshot::{NodeSnapshot, PressureScope, Published};
use tls_client::apiserver::ApiServerConnection;
use tokio::task::JoinHandle;
use watchdog::{Beat, Part, Watchdog};

use report::Reporter;
use rule::Rule;

/// Interval between two readings, and the shortest one between two requests.
const ROUND: Duration = Duration::from_secs(10);
/// Longest random delay before the first reading, because the agents of a fleet may start together.
const SPREAD: Duration = Duration::from_secs(60);

/// What the condition is about.
pub struct Measured {
    /// Snapshots with the node's contention.
    pub published: Published<NodeSnapshot>,
    /// Verdicts about its pods.
    pub verdicts: Published<Vec<Verdict>>,
}

/// The task that reports the condition. Dropping it ends the task; the condition stays.
pub struct NodeCondition(JoinHandle<()>);

impl Drop for NodeCondition {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl NodeCondition {
    /// Starts the task, which reports about this node. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The CA or the token of the API server cannot be read.
    pub fn start(
        connection: &ApiServerConnection,
        node: String,
        measured: Measured,
        metrics: Arc<AgentMetrics>,
        watchdog: &Watchdog,
    ) -> kube::Result<Self> {
        let beat = watchdog.watch(Part::NodeCondition, ROUND);
        let reporter = Reporter::new(connection.client()?, node, metrics, fastrand::f64);
        Ok(Self(tokio::spawn(run(reporter, measured, beat))))
    }
}

async fn run(mut reporter: Reporter, measured: Measured, beat: Beat) {
    beat.beat(SPREAD);
    tokio::time::sleep(SPREAD.mul_f64(fastrand::f64())).await;
    let start = Instant::now();
    let mut rule = Rule::new(Duration::ZERO);
    let mut rounds = tokio::time::interval(ROUND);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        beat.beat(ROUND + report::TIMEOUT);
        let contention = contention(&measured.published.latest());
        if let Some(judgment) = rule.read(start.elapsed(), contention) {
            let worst = worst(&measured.verdicts.latest());
            reporter.report(judgment, worst, Instant::now()).await;
        }
    }
}

/// The first victim with its cause, if a pod is slowed by others.
fn worst(verdicts: &[Verdict]) -> Option<String> {
    let verdict = verdicts.iter().find(|verdict| verdict.is_harm())?;
    Some(format!("{}/{} is {}", verdict.victim.namespace, verdict.victim.pod, verdict.summary))
}

/// Lower bound of the wall time with contention on the node, seconds.
fn contention(snapshot: &NodeSnapshot) -> Option<f64> {
    let mut rows = snapshot.waits.pressure.iter();
    let row = rows.find(|row| row.scope == PressureScope::Node)?;
    Some(Duration::from_nanos(row.lower_ns).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use api::{PodName, SlowedReason, VictimClass};

    use super::*;

    fn verdict(pod: &str, class: VictimClass, reason: SlowedReason, summary: &str) -> Verdict {
        let victim = PodName { namespace: "shop".into(), pod: pod.into() };
        Verdict { victim, class, reason, summary: summary.into(), ..Verdict::default() }
    }

    #[test]
    fn the_worst_pod_is_the_first_that_others_harm() {
        use SlowedReason::{AncestorLimit, Neighbor, OwnLimit, Unknown};
        use VictimClass::{BestEffort, Hungry, Service, Starved};
        let restricted = verdict("yields", Starved, Neighbor, "slowed ×2.0 by shop/checkout");
        let mut verdicts = vec![
            Verdict { restricted: true, ..restricted },
            verdict("limited", Service, OwnLimit, "slowed ×9.0 by its own CPU limit"),
            verdict("shares", Service, AncestorLimit, "slowed ×9.0 by a CPU limit above it"),
            verdict("spins", Hungry, Neighbor, "slowed ×6.0 by batch/report"),
            verdict("idle-time", BestEffort, Neighbor, "slowed ×5.0 by batch/report"),
        ];
        assert_eq!(worst(&verdicts), None);
        verdicts.push(verdict("checkout", Service, Neighbor, "slowed ×2.9 by batch/report"));
        verdicts.push(verdict("cart", Service, Unknown, "slowed ×2.0"));
        let sentence = |verdicts| worst(verdicts).unwrap();
        assert_eq!(sentence(&verdicts), "shop/checkout is slowed ×2.9 by batch/report");
        assert_eq!(sentence(&verdicts[6..]), "shop/cart is slowed ×2.0");
    }
}
