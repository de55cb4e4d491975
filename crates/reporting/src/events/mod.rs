//! Kubernetes Events about decisions of pinning and co-location, if `--events` is set. Best effort,
//! rate-limited, and never delaying the decisions themselves.

mod message;
mod publisher;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use api::Verdict;
use metrics::AgentMetrics;
use pinning::{PassReport, PinningStatus};
use tls_client::apiserver::ApiServerConnection;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use watchdog::{Beat, Part, Watchdog};
use yielding::rules::Step;

use message::Message;
use publisher::EventPublisher;
use queue::Queue;

/// Maximum time that the publisher waits for a message before it beats. Together with the time of
/// one request it stays within the watchdog's limit.
const ROUND: Duration = Duration::from_secs(30);

/// The publisher of Events. Dropping it ends the publisher and discards the queue.
pub struct EventTask {
    sender: EventSender,
    publishing: JoinHandle<()>,
}

impl Drop for EventTask {
    fn drop(&mut self) {
        self.publishing.abort();
    }
}

impl EventTask {
    /// Starts the publisher, which reports as this node. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// The CA or the token of the API server cannot be read.
    pub fn start(
        connection: &ApiServerConnection,
        node: String,
        metrics: Arc<AgentMetrics>,
        watchdog: &Watchdog,
    ) -> kube::Result<Self> {
        let queue = Arc::new(Queue::default());
        let publisher = EventPublisher::new(connection.client()?, node.clone());
        let beat = watchdog.watch(Part::Events, ROUND);
        let publishing =
            tokio::spawn(publish(publisher, Arc::clone(&queue), Arc::clone(&metrics), beat));
        Ok(Self { sender: EventSender { node: node.into(), queue, metrics }, publishing })
    }

    /// A sender into the publisher's queue.
    #[must_use]
    pub fn sender(&self) -> EventSender {
        self.sender.clone()
    }
}

/// Queues messages for the publisher; never waits. Cheap to clone.
#[derive(Debug, Clone)]
pub struct EventSender {
    node: Arc<str>,
    queue: Arc<Queue>,
    metrics: Arc<AgentMetrics>,
}

impl EventSender {
    /// Queues a message for the owner of a pod that others slow. `uid` is the pod's.
    pub fn slowed(&self, uid: &str, verdict: &Verdict) {
        if let Some(message) = Message::of_verdict(uid, verdict) {
            self.say(message);
        }
    }

    /// Queues a message about the node: its best-effort pods took another step.
    pub(crate) fn best_effort(&self, step: Step, reason: &str) {
        self.say(Message::of_step(&self.node, step, reason));
    }

    /// Queues a message for a pod's owner: a container's limit begins to burst or no longer bursts,
    /// or a request is rejected.
    pub(crate) fn burst(&self, [namespace, pod, uid]: [&str; 3], burst: &Burst<'_>) {
        self.say(Message::of_burst([namespace, pod, uid], burst));
    }

    fn say(&self, message: Message) {
        if !self.queue.push(message) {
            self.metrics.pinning().add_event("dropped");
        }
    }
}

/// Change of a container's burst.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Burst<'a> {
    /// Start of the container's burst.
    Begins {
        /// Name of the container.
        container: &'a str,
        /// Burst, percent of the quota.
        percent: u64,
        /// Replayed share of throttled periods without burst.
        without: f64,
        /// Replayed share of throttled periods with burst.
        with: f64,
    },
    /// End of the container's burst.
    Ends {
        /// Name of the container.
        container: &'a str,
        /// Reason of the end.
        reason: String,
    },
    /// The pod requests a quota above the limit, which is not offered.
    Rejected {
        /// Name of the container.
        container: &'a str,
    },
}

/// Events about pinning.
#[derive(Debug)]
pub(crate) struct PinningEvents {
    sender: EventSender,
    /// Whether cpusets were written after the last pass; `None` before the first pass.
    enforcing: Option<bool>,
}

impl PinningEvents {
    /// Events through this sender.
    pub(crate) fn new(sender: EventSender) -> Self {
        Self { sender, enforcing: None }
    }

    /// Queues the messages about a pass. Never waits.
    pub(crate) fn report(&mut self, report: &PassReport) {
        let decided = report.decisions.iter().filter_map(Message::of);
        decided.for_each(|message| self.sender.say(message));
        let enforcing = report.status == PinningStatus::Enforcing;
        if self.enforcing.replace(enforcing).is_some_and(|before| before != enforcing) {
            self.sender.say(Message::of_status(&self.sender.node, &report.status));
        }
    }
}

async fn publish(
    mut publisher: EventPublisher,
    queue: Arc<Queue>,
    metrics: Arc<AgentMetrics>,
    beat: Beat,
) {
    let mut failing = false;
    loop {
        beat.beat(ROUND);
        let Ok((message, times)) = timeout(ROUND, queue.pop()).await else { continue };
        let sent = publisher.publish(message, times).await;
        metrics.pinning().add_event(if sent.is_ok() { "sent" } else { "failed" });
        log_if_new(&mut failing, sent.as_ref().err());
    }
}

/// Logs one line when events start to get lost.
fn log_if_new(failing: &mut bool, lost: Option<&anyhow::Error>) {
    if let Some(lost) = lost.filter(|_| !*failing) {
        tracing::warn!(error = format!("{lost:#}"), "failed to send Kubernetes Events");
    }
    *failing = lost.is_some();
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use api::{CauseKind, Culprit, PodName};
    use kubelet_stub::apiserver::ApiServerStub;
    use pinning::{Decision, PodOutcome};
    use tls_client::apiserver::ApiServerConfig;

    use super::queue::CAPACITY;
    use super::*;

    struct Cluster {
        server: ApiServerStub,
        metrics: Arc<AgentMetrics>,
        _directory: tempfile::TempDir,
    }

    impl Cluster {
        async fn new() -> (Self, EventTask) {
            let directory = tempfile::tempdir().unwrap();
            let server = ApiServerStub::start(directory.path()).await.unwrap();
            let config = ApiServerConfig {
                url: Some(server.url()),
                ca_file: Some(server.ca_file()),
                token_file: Some(server.token_file()),
                ..ApiServerConfig::default()
            };
            let connection = ApiServerConnection::new(&config, Arc::default()).unwrap();
            let metrics =
                Arc::new(AgentMetrics::new(metrics::Build { version: "0", revision: "0" }));
            let events = EventTask::start(
                &connection,
                "node-1".to_owned(),
                Arc::clone(&metrics),
                &Watchdog::new(),
            )
            .unwrap();
            (Self { server, metrics, _directory: directory }, events)
        }

        fn count(&self, result: &str) -> u64 {
            let mut exposition = metrics::Exposition::new(1000);
            let page = exposition.render(
                &snapshot::NodeSnapshot::default(),
                &self.metrics,
                metrics::Format::Text,
            );
            let prefix = format!("cpuwarden_pin_events_total{{result=\"{result}\"}} ");
            let line = String::from_utf8_lossy(page)
                .lines()
                .find_map(|line| line.strip_prefix(&prefix)?.parse().ok());
            line.unwrap_or(0)
        }

        async fn until(&self, what: &str, count: impl Fn(&Self) -> bool) {
            let deadline = Instant::now() + Duration::from_secs(60);
            while !count(self) {
                assert!(Instant::now() < deadline, "{what}: not within a minute");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }

    fn observing() -> PassReport {
        PassReport::idle("somebody else keeps changing".to_owned())
    }

    #[tokio::test]
    async fn a_storm_stays_under_the_rate_and_what_is_lost_is_counted() {
        let (cluster, events) = Cluster::new().await;
        let began = Instant::now();
        (0..CAPACITY + 50).for_each(|pod| events.sender.say(Message::of_test(pod, "a")));
        assert_eq!(cluster.count("dropped"), 50);
        cluster.until("ten requests", |cluster| cluster.server.requests().len() >= 10).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let windows = 1 + usize::try_from(began.elapsed().as_secs() / 30).unwrap();
        assert!(
            cluster.server.requests().len() <= 10 * windows,
            "{}",
            cluster.server.requests().len()
        );
    }

    #[tokio::test]
    async fn repeated_messages_share_an_event_until_it_expires() {
        let (cluster, events) = Cluster::new().await;
        let shown = |cluster: &Cluster| {
            let of = |event: &serde_json::Value| {
                (event["note"].clone(), event["series"]["count"].clone())
            };
            cluster.server.events().iter().map(of).collect::<Vec<_>>()
        };
        for (note, sent) in [("a", 1), ("a", 2), ("b", 3)] {
            events.sender.say(Message::of_test(1, note));
            cluster.until("an answer", |cluster| cluster.count("sent") == sent).await;
        }
        assert_eq!(shown(&cluster), [("a".into(), 2.into()), ("b".into(), ().into())]);
        cluster.server.expire_events();
        events.sender.say(Message::of_test(1, "b"));
        cluster.until("an answer", |cluster| cluster.count("sent") == 4).await;
        assert_eq!(shown(&cluster), [("b".into(), ().into())]);
        assert_eq!(cluster.count("failed"), 0);
    }

    #[tokio::test]
    async fn pauses_create_node_events_and_a_start_does_not() {
        let (cluster, events) = Cluster::new().await;
        let mut pinning = PinningEvents::new(events.sender());
        let enforcing = PassReport { status: PinningStatus::Enforcing, ..observing() };
        for report in [&observing(), &observing(), &enforcing, &enforcing, &observing(), &enforcing]
        {
            pinning.report(report);
        }
        // The two changes to enforcing make one message, because nothing was sent in between.
        cluster.until("two events", |cluster| cluster.count("sent") == 2).await;
        let sent = cluster.server.events();
        let of = |event: &serde_json::Value| {
            format!("{} {} {}", event["reason"], event["regarding"]["kind"], event["note"])
        };
        let sent: Vec<String> = sent.iter().map(of).collect();
        assert!(sent[0].contains("PinningResumed\" \"Node"), "{sent:?}");
        assert!(
            sent[1].contains("PinningSteppedBack\" \"Node") && sent[1].contains("keeps changing"),
            "{sent:?}"
        );
    }

    #[tokio::test]
    async fn verdicts_steps_and_bursts_become_events() {
        let (cluster, events) = Cluster::new().await;
        let sender = events.sender();
        let culprit = |kind: &str, name: &str| Culprit {
            namespace: "batch".to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            ..Culprit::default()
        };
        let verdict = |culprit: Culprit| Verdict {
            victim: PodName { namespace: "shop".to_owned(), pod: "cart-0".to_owned() },
            cause: CauseKind::One,
            summary: format!("slowed ×2.9 by {}, 20 s of the last minute", culprit.name()),
            remedy: "move it".to_owned(),
            culprits: vec![culprit],
            ..Verdict::default()
        };
        // Each cause has its own Event, also those of one round.
        sender.slowed("uid-cart", &verdict(culprit("Pod", "encode-0")));
        sender.slowed("uid-cart", &verdict(culprit("CronJob", "index")));
        sender.best_effort(Step::Idle, "shop/cart-0 waits");
        sender.best_effort(Step::None, "no harm for 30 s");
        let pod = ["shop", "cart-0", "uid-cart"];
        let begins = |container| Burst::Begins { container, percent: 80, without: 0.2, with: 0.01 };
        // The containers of a pod have their own Events.
        sender.burst(pod, &begins("app"));
        sender.burst(pod, &begins("log"));
        sender.burst(pod, &Burst::Ends { container: "app", reason: "not throttled".to_owned() });
        sender.burst(pod, &Burst::Rejected { container: "app" });
        cluster.until("eight events", |cluster| cluster.count("sent") == 8).await;
        let of = |event: &serde_json::Value| {
            let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
            let about = &event["regarding"];
            let path = about["fieldPath"].as_str().unwrap_or_default();
            let about = format!("{}{path}", about["name"].as_str().unwrap_or_default());
            (text("type"), text("reason"), about, text("note"))
        };
        let related = |event: &serde_json::Value| event["related"]["name"].clone();
        let sent = cluster.server.events();
        let pairs: Vec<_> = sent.iter().map(related).filter(|name| !name.is_null()).collect();
        assert_eq!(pairs, ["encode-0", "index"]);
        let sent: Vec<_> = sent.iter().map(of).collect();
        let [app, log] = ["cart-0spec.containers{app}", "cart-0spec.containers{log}"];
        let expected = [
            (
                "Warning",
                "CpuContention",
                "cart-0",
                "Slowed ×2.9 by batch/encode-0, 20 s of the last minute: move it",
            ),
            ("Warning", "CpuContention", "cart-0", "Slowed ×2.9 by batch/index,"),
            ("Normal", "BestEffortYields", "node-1", "Best-effort pods yield CPU (step 1 of 3)"),
            ("Normal", "BestEffortReleased", "node-1", "no longer restricted"),
            ("Normal", "CpuBurstBegins", app, "container app may burst by 80% of its limit"),
            ("Normal", "CpuBurstBegins", log, "container log may burst by 80% of its limit"),
            ("Normal", "CpuBurstEnds", app, "container app no longer bursts: not throttled"),
            (
                "Warning",
                "QuotaBurstRejected",
                app,
                "container app rejected: cpuwarden offers bursts",
            ),
        ];
        assert_eq!(sent.len(), expected.len(), "{sent:?}");
        for ((type_, reason, about, note), expected) in sent.iter().zip(expected) {
            assert_eq!((&**type_, &**reason, &**about), (expected.0, expected.1, expected.2));
            assert!(note.contains(expected.3), "{note}");
        }
    }

    #[test]
    fn a_pod_without_a_name_has_no_event() {
        let outcome = PodOutcome::Released;
        let decision =
            Decision { uid: "u".into(), namespace: String::new(), pod: "u".into(), outcome };
        assert_eq!(Message::of(&decision), None);
    }
}
