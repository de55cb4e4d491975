//! Suggestions about pods that make others wait, as a part of the agent.

use std::time::{Duration, Instant};

use advisor::{Advisor, InterferencePolicy};
use colocation::Suggestion;
use kubepods::PodIndex;
use snapshot::{NodeSnapshot, Published};
use tokio::task::JoinHandle;
use watchdog::Part;

use crate::agent::Shared;

/// Interval between two readings: harm is its mean over this time.
const ROUND: Duration = Duration::from_secs(10);

/// Starts the task. It publishes the delays for the advice, and sends an Event to the owner of each
/// victim if there is a sender. Must be called inside a tokio runtime.
pub(crate) fn start(
    shared: &Shared<'_>,
    published: &Published<NodeSnapshot>,
    advisor: &Advisor,
) -> JoinHandle<()> {
    let (pods, events) = (shared.pods.clone(), shared.events.clone());
    let (published, delays) = (published.clone(), advisor.delays());
    let beat = shared.watchdog.watch(Part::Interference, ROUND);
    let mut policy = InterferencePolicy::new(Instant::now(), yielding::is_best_effort);
    tokio::spawn(async move {
        let mut rounds = tokio::time::interval(ROUND);
        loop {
            rounds.tick().await;
            beat.beat(ROUND);
            let index = pods.index();
            let due = policy.read(Instant::now(), &published.latest(), &index);
            delays.publish(policy.delays());
            for suggestion in &due {
                log(suggestion);
                if let (Some(events), Some(uid)) = (&events, uid(&index, suggestion)) {
                    events.suggest(&uid, suggestion);
                }
            }
        }
    })
}

fn log(suggestion: &Suggestion) {
    let pair = &suggestion.pair;
    let (victim, aggressor) = (&pair.victim, &pair.aggressor);
    let remedy = suggestion.cause.to_string();
    tracing::info!(victim, aggressor, lost = pair.lost, remedy, "a pod waits for another pod");
}

/// UID of the victim; `None` if the pod is gone or unknown.
fn uid(index: &PodIndex, suggestion: &Suggestion) -> Option<Box<str>> {
    let (namespace, pod) = suggestion.pair.victim.split_once('/')?;
    Some(index.pod_by_name(namespace, pod)?.uid.clone())
}
