//! Sends the condition to the API server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use metrics::AgentMetrics;
use serde_json::{Value, json};

use super::rule::{ConditionStatus, Judgment};

/// Type of the condition.
const TYPE: &str = "CPUContention";
/// Longest interval of heartbeats, that of the kubelet's node status.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(300);
/// Maximum share of it that is randomly removed: the nodes of a fleet must not send in step.
const JITTER: f64 = 0.2;
/// Timeout of a request, with the wait for the client's rate limit.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after a failed request; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LAST_PAUSE: Duration = Duration::from_secs(300);

/// Sends a state when it is new, or as a heartbeat.
pub(crate) struct Reporter {
    nodes: Api<Node>,
    node: String,
    metrics: Arc<AgentMetrics>,
    /// The last accepted status with its time.
    sent: Option<(ConditionStatus, Instant)>,
    /// Time from it to the next heartbeat.
    heartbeat: Duration,
    /// Random numbers in 0..1.
    chance: fn() -> f64,
    /// Pause after the last failure, and its end.
    pause: Option<(Duration, Instant)>,
}

impl Reporter {
    /// `chance` returns random numbers in 0..1.
    pub(crate) fn new(
        client: Client,
        node: String,
        metrics: Arc<AgentMetrics>,
        chance: fn() -> f64,
    ) -> Self {
        let nodes = Api::all(client);
        Self { nodes, node, metrics, sent: None, heartbeat: HEARTBEAT, chance, pause: None }
    }

    /// `worst` is a sentence about the first victim.
    pub(crate) async fn report(&mut self, judgment: Judgment, worst: Option<String>, now: Instant) {
        if !self.is_due(judgment.status, now) {
            return;
        }
        let is_new = self.sent.is_none_or(|(status, _)| status != judgment.status);
        let patch =
            Patch::Strategic(condition(judgment, worst, is_new, &Timestamp::now().to_string()));
        let parameters = PatchParams::default();
        let request = self.nodes.patch_status(&self.node, &parameters, &patch);
        let failed = match tokio::time::timeout(TIMEOUT, request).await {
            Ok(Ok(_)) => None,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Some(format!(
                "{}; remedy: grant the verb patch on nodes/status (nodeCondition of the chart)",
                status.message
            )),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the API server does not answer".to_owned()),
        };
        self.metrics.add_node_condition_patch(if failed.is_none() { "ok" } else { "error" });
        match failed {
            None => {
                if is_new {
                    let status = judgment.status.as_str();
                    tracing::info!(status, share = judgment.share, "node condition {TYPE} set");
                }
                (self.sent, self.pause) = (Some((judgment.status, now)), None);
                self.heartbeat = HEARTBEAT.mul_f64(1.0 - JITTER * (self.chance)());
            }
            Some(error) => {
                if self.pause.is_none() {
                    tracing::warn!(error, "failed to set the node condition {TYPE}");
                }
                let pause =
                    self.pause.map_or(FIRST_PAUSE, |(pause, _)| (pause * 2).min(LAST_PAUSE));
                self.pause = Some((pause, now + pause));
            }
        }
    }

    fn is_due(&self, status: ConditionStatus, now: Instant) -> bool {
        let is_due = self.sent.is_none_or(|(sent, at)| {
            sent != status || now.saturating_duration_since(at) >= self.heartbeat
        });
        is_due && self.pause.is_none_or(|(_, end)| now >= end)
    }
}

/// The patch. Without a new status the API server keeps the time of the last transition.
fn condition(judgment: Judgment, worst: Option<String>, is_new: bool, now: &str) -> Value {
    let mut message = match judgment.share {
        Some(share) => format!(
            "In at least {:.0}% of the last minute, as a mean over the CPUs, a thread of a Guaranteed or Burstable pod \
             waited for a CPU; waits for the pod's own limit are not counted",
            share * 100.0
        ),
        None => "cpuwarden does not trace waits all the time on this node".to_owned(),
    };
    if let Some(worst) = worst.filter(|_| judgment.status == ConditionStatus::True) {
        message = format!("{message}; {worst}");
    }
    let mut condition = json!({
        "type": TYPE,
        "status": judgment.status.as_str(),
        "reason": judgment.status.reason(),
        "message": message,
        "lastHeartbeatTime": now,
    });
    if is_new {
        condition["lastTransitionTime"] = now.into();
    }
    json!({"status": {"conditions": [condition]}})
}

#[cfg(test)]
mod tests {
    use kubelet_stub::apiserver::ApiServerStub;
    use tls_client::apiserver::{ApiServerConfig, ApiServerConnection};

    use super::*;

    const TRUE: Judgment = Judgment { status: ConditionStatus::True, share: Some(0.234) };
    const FALSE: Judgment = Judgment { status: ConditionStatus::False, share: Some(0.01) };

    async fn start(directory: &tempfile::TempDir) -> (ApiServerStub, Reporter) {
        let server = ApiServerStub::start(directory.path()).await.unwrap();
        let config = ApiServerConfig {
            url: Some(server.url()),
            ca_file: Some(server.ca_file()),
            token_file: Some(server.token_file()),
            ..ApiServerConfig::default()
        };
        let connection = ApiServerConnection::new(&config, Arc::default()).unwrap();
        let client = connection.client().unwrap();
        let metrics = AgentMetrics::new(metrics::Build { version: "0", revision: "0" });
        let reporter = Reporter::new(client, "node-1".into(), Arc::new(metrics), || 0.0);
        (server, reporter)
    }

    #[tokio::test]
    async fn a_new_status_and_a_heartbeat_are_the_only_requests() {
        let directory = tempfile::tempdir().unwrap();
        let (server, mut reporter) = start(&directory).await;
        let start = Instant::now();
        for (state, second) in [(FALSE, 0), (FALSE, 10), (TRUE, 20), (TRUE, 319), (TRUE, 320)] {
            let worst = Some("shop/checkout is slowed ×2.9 by batch/report".to_owned());
            reporter.report(state, worst, start + Duration::from_secs(second)).await;
        }
        let requests = server.requests();
        assert_eq!(requests, ["/api/v1/nodes/node-1/status?"; 3]);
        let sent = server.node_patches();
        let conditions: Vec<_> =
            sent.iter().map(|patch| &patch["status"]["conditions"][0]).collect();
        let statuses: Vec<_> = conditions.iter().map(|one| &one["status"]).collect();
        assert_eq!(statuses, ["False", "True", "True"]);
        assert!(conditions.iter().all(|one| one["type"] == "CPUContention"), "{sent:?}");
        assert!(conditions.iter().all(|one| one["lastHeartbeatTime"].is_string()), "{sent:?}");
        let is_transition: Vec<_> =
            conditions.iter().map(|one| one["lastTransitionTime"].is_string()).collect();
        assert_eq!(is_transition, [true, true, false]);
        let message = conditions[1]["message"].as_str().unwrap();
        assert!(message.starts_with("In at least 23% of the last minute"), "{message}");
        assert!(message.ends_with("; shop/checkout is slowed ×2.9 by batch/report"), "{message}");
        let quiet = conditions[0]["message"].as_str().unwrap();
        assert!(!quiet.contains("checkout"), "{quiet}");
    }

    #[tokio::test]
    async fn heartbeats_of_a_fleet_do_not_stay_in_step() {
        let directory = tempfile::tempdir().unwrap();
        let (server, mut reporter) = start(&directory).await;
        reporter.chance = || 1.0;
        let start = Instant::now();
        for second in [0, 239, 240] {
            reporter.report(FALSE, None, start + Duration::from_secs(second)).await;
        }
        assert_eq!(server.requests().len(), 2, "the earliest heartbeat is a fifth earlier");
    }

    #[tokio::test]
    async fn without_permission_it_retries_less_often_and_resumes_when_granted() {
        let directory = tempfile::tempdir().unwrap();
        let (server, mut reporter) = start(&directory).await;
        server.forbid_node_patches(true);
        let start = Instant::now();
        for second in (0..=600).step_by(10) {
            reporter.report(TRUE, None, start + Duration::from_secs(second)).await;
        }
        // At 0, 10, 30, 70, 150, 310 and 610 s.
        assert_eq!(server.requests().len(), 6);
        server.forbid_node_patches(false);
        reporter.report(TRUE, None, start + Duration::from_secs(610)).await;
        reporter.report(FALSE, None, start + Duration::from_secs(620)).await;
        let sent = server.node_patches();
        let statuses: Vec<_> =
            sent.iter().map(|patch| &patch["status"]["conditions"][0]["status"]).collect();
        assert_eq!(statuses, ["True", "False"]);
    }
}
