//! Kubernetes Events about decisions of pinning, if `--events` is set. Best effort, rate-limited,
//! and never delaying pinning itself. Apart from `pinning`, which thereby needs no client of the
//! API server.

mod message;
mod publisher;
mod queue;

use std::sync::Arc;
use std::time::Duration;

use kubelet::ApiServerConnection;
use metrics::AgentMetrics;
use pinning::{PassReport, PinningStatus};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use watchdog::{Beat, Part, Watchdog};

use message::Message;
use publisher::EventPublisher;
use queue::Queue;

/// Maximum time that the publisher waits for a message before it beats. Together with the time of
/// one request it stays within the watchdog's limit.
const ROUND: Duration = Duration::from_secs(30);

/// Sends Events through a queue; dropping this discards the queue.
pub struct Events {
    node: String,
    queue: Arc<Queue>,
    metrics: Arc<AgentMetrics>,
    /// Whether cpusets were written after the last pass; `None` before the first pass.
    enforcing: Option<bool>,
    publishing: JoinHandle<()>,
}

impl Drop for Events {
    fn drop(&mut self) {
        self.publishing.abort();
    }
}

impl Events {
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
        Ok(Self { node, queue, metrics, enforcing: None, publishing })
    }

    /// Queues the messages about a pass. Never waits.
    pub fn tell(&mut self, report: &PassReport) {
        report.decisions.iter().filter_map(Message::of).for_each(|message| self.say(message));
        let enforcing = report.status == PinningStatus::Enforcing;
        if self.enforcing.replace(enforcing).is_some_and(|before| before != enforcing) {
            self.say(Message::of_status(&self.node, &report.status));
        }
    }

    fn say(&self, message: Message) {
        if !self.queue.push(message) {
            self.metrics.pinning().add_event("dropped");
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

    use kubelet::{ApiServerConfig, PodConfig, PodService, PodSource};
    use kubelet_stub::apiserver::ApiServerStub;
    use pinning::{Decision, PodOutcome};
    use tokio::runtime::Handle;

    use super::queue::CAPACITY;
    use super::*;

    struct Cluster {
        server: ApiServerStub,
        metrics: Arc<AgentMetrics>,
        _directory: tempfile::TempDir,
    }

    impl Cluster {
        async fn new() -> (Self, Events) {
            let directory = tempfile::tempdir().unwrap();
            let server = ApiServerStub::start(directory.path()).await.unwrap();
            let apiserver = ApiServerConfig {
                url: Some(server.url()),
                ca_file: Some(server.ca_file()),
                token_file: Some(server.token_file()),
                ..ApiServerConfig::default()
            };
            let config = PodConfig { source: PodSource::None, apiserver, ..PodConfig::default() };
            let pods = PodService::start(&config, &Handle::current()).unwrap();
            let connection = pods.apiserver(&config).unwrap();
            let metrics =
                Arc::new(AgentMetrics::new(metrics::Build { version: "0", revision: "0" }));
            let events = Events::start(
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
        (0..CAPACITY + 50).for_each(|pod| events.say(Message::of_test(pod, "a")));
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
            events.say(Message::of_test(1, note));
            cluster.until("an answer", |cluster| cluster.count("sent") == sent).await;
        }
        assert_eq!(shown(&cluster), [("a".into(), 2.into()), ("b".into(), ().into())]);
        cluster.server.expire_events();
        events.say(Message::of_test(1, "b"));
        cluster.until("an answer", |cluster| cluster.count("sent") == 4).await;
        assert_eq!(shown(&cluster), [("b".into(), ().into())]);
        assert_eq!(cluster.count("failed"), 0);
    }

    #[tokio::test]
    async fn pauses_create_node_events_and_a_start_does_not() {
        let (cluster, mut events) = Cluster::new().await;
        let enforcing = PassReport { status: PinningStatus::Enforcing, ..observing() };
        for report in [&observing(), &observing(), &enforcing, &enforcing, &observing(), &enforcing]
        {
            events.tell(report);
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

    #[test]
    fn a_pod_without_a_name_has_no_event() {
        let outcome = PodOutcome::Released;
        let decision =
            Decision { uid: "u".into(), namespace: String::new(), pod: "u".into(), outcome };
        assert_eq!(Message::of(&decision), None);
    }
}
