//! Sends messages to the API server, one at a time; the client's rate limit applies.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::message::Message;

const CONTROLLER: &str = "cpuwarden";
/// Maximum length of the object's name in the event's name, bytes: 253 less a dot and the time.
const NAME: usize = 230;
/// A message repeated within this time extends its event series, as with Kubernetes' own
/// controllers.
const SERIES: Duration = Duration::from_secs(360);
/// Timeout of one request, including the wait for the rate limit and retries.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(90);

/// Publishes events; remembers those sent recently.
pub(super) struct EventPublisher {
    client: Client,
    /// Name of the reporting instance: the node.
    instance: String,
    sent: Vec<Sent>,
}

struct Sent {
    message: Message,
    name: String,
    times: i32,
    at: Instant,
}

impl EventPublisher {
    pub(super) fn new(client: Client, instance: String) -> Self {
        Self { client, instance, sent: Vec::new() }
    }

    /// Creates an event for a message that came `times` times, or adds to the series of the same
    /// message.
    ///
    /// # Errors
    /// The event could not be sent.
    pub(super) async fn publish(&mut self, message: Message, times: i32) -> anyhow::Result<()> {
        let published =
            tokio::time::timeout(PUBLISH_TIMEOUT, self.try_publish(message, times)).await;
        published.context("the API server does not answer")?.context("cannot create the Event")
    }

    async fn try_publish(&mut self, message: Message, times: i32) -> kube::Result<()> {
        self.sent.retain(|sent| sent.at.elapsed() < SERIES);
        let api = Api::<Event>::namespaced(self.client.clone(), message.namespace());
        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.message == message) {
            let times = sent.times.saturating_add(times);
            let patch = json!({"series": series(times)});
            match api.patch(&sent.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                // The event is gone: events expire after an hour or are deleted.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                done => {
                    done?;
                    (sent.times, sent.at) = (times, Instant::now());
                    return Ok(());
                }
            }
        }
        let event = self.event(&message, times);
        let name = event.metadata.name.clone().unwrap_or_default();
        api.create(&PostParams::default(), &event).await?;
        // Only the newest event of a kind about an object continues as a series; a changed note
        // starts a new event.
        self.sent.retain(|sent| !sent.message.is_about_the_same(&message));
        self.sent.push(Sent { message, name, times, at: Instant::now() });
        Ok(())
    }

    fn event(&self, message: &Message, times: i32) -> Event {
        let now = Timestamp::now();
        let object = message.regarding.name.as_deref().unwrap_or_default();
        let object = object[..object.floor_char_boundary(NAME)].trim_end_matches(['-', '.']);
        Event {
            metadata: ObjectMeta {
                name: Some(format!("{object}.{:x}", now.as_nanosecond())),
                namespace: Some(message.namespace().to_owned()),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            regarding: Some(message.regarding.clone()),
            related: message.related.clone(),
            type_: Some(message.kind.type_.to_owned()),
            reason: Some(message.kind.reason.to_owned()),
            action: Some(message.kind.action.to_owned()),
            note: Some(message.note.clone()),
            reporting_controller: Some(CONTROLLER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            series: (times > 1).then(|| series(times)),
            ..Event::default()
        }
    }
}

fn series(times: i32) -> EventSeries {
    EventSeries { count: times, last_observed_time: MicroTime(Timestamp::now()) }
}
