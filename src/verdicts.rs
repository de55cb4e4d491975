//! The verdicts about the node's pods, as a part of the agent.

use std::sync::Arc;
use std::time::Duration;

use advisor::{Advisor, Judge};
use api::Verdict;
use kubepods::PodIndex;
use snapshot::{NodeSnapshot, Published};
use timeline::Timeline;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use watchdog::Part;

use crate::agent::StartContext;

/// Longest round: without a snapshot it only reports that it is alive.
const ROUND: Duration = Duration::from_secs(10);

/// Starts the task. It gives the verdicts to the advice, the views and the metrics, and sends an
/// Event to the owner of each lasting victim if there is a sender. Must be called inside a tokio
/// runtime.
pub(crate) fn start(
    shared: &StartContext<'_>,
    published: &Published<NodeSnapshot>,
    is_published: Arc<Notify>,
    advisor: &Advisor,
    timeline: Option<Timeline>,
) -> JoinHandle<()> {
    let (pods, events) = (shared.pods.clone(), shared.events.clone());
    let (metrics, restricted) = (Arc::clone(&shared.metrics), advisor.restricted());
    let (published, verdicts) = (published.clone(), advisor.verdicts());
    let beat = shared.watchdog.watch(Part::Verdicts, ROUND);
    let mut judge = Judge::default();
    tokio::spawn(async move {
        loop {
            let is_new = tokio::time::timeout(ROUND, is_published.notified()).await.is_ok();
            beat.beat(ROUND);
            let restricted = restricted.latest();
            let is_restricted = |uid: &str| restricted.iter().any(|one| one == uid);
            let read = || judge.read(&published.latest(), is_restricted);
            let Some(judged) = is_new.then(read).flatten() else { continue };
            metrics.slowed().set(judged.rows);
            if let Some(timeline) = &timeline {
                timeline.set_verdicts(judged.verdicts.clone());
            }
            verdicts.publish(judged.verdicts);
            let index = pods.index();
            for verdict in &judged.due {
                log(verdict);
                if let (Some(events), Some(uid)) = (&events, uid(&index, verdict)) {
                    events.slowed(&uid, verdict);
                }
            }
        }
    })
}

fn log(verdict: &Verdict) {
    let victim = format!("{}/{}", verdict.victim.namespace, verdict.victim.pod);
    let (verdict, remedy) = (&verdict.summary, &verdict.remedy);
    tracing::info!(victim, verdict, remedy, "a pod is slowed by others");
}

/// UID of the victim; `None` if the pod is gone or unknown.
fn uid(index: &PodIndex, verdict: &Verdict) -> Option<Box<str>> {
    Some(index.pod_by_name(&verdict.victim.namespace, &verdict.victim.pod)?.uid.clone())
}
