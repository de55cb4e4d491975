//! The condition `CPUContention` of the Node object, with `--node-condition`: true while threads of
//! latency-sensitive pods wait for CPUs. Kubernetes itself has no such condition for CPU, because
//! PSI counts a throttled container as pressure.
//!
//! The only request is a PATCH of `nodes/status`: when the status changes, and every five minutes
//! as a heartbeat.

mod report;
mod rule;

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::Verdict;
use kube::Client;
use metrics::AgentMetrics;
use snapshot::{NodeSnapshot, PressureScope, Published};
use tls_client::apiserver::ApiServerConnection;
use tokio::task::JoinHandle;
use watchdog::{Beat, Part, Watchdog};

use report::Reporter;
use rule::Rule;

/// Interval between two readings, and the shortest one between two requests.
const ROUND: Duration = Duration::from_secs(10);

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
        let client = connection.client()?;
        Ok(Self(tokio::spawn(run(client, node, measured, metrics, beat, ROUND))))
    }
}

async fn run(
    client: Client,
    node: String,
    measured: Measured,
    metrics: Arc<AgentMetrics>,
    beat: Beat,
    round: Duration,
) {
    let start = Instant::now();
    let mut rule = Rule::new(Duration::ZERO);
    let mut reporter = Reporter::new(client, node, metrics);
    let mut rounds = tokio::time::interval(round);
    rounds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        rounds.tick().await;
        beat.beat(round + report::TIMEOUT);
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
