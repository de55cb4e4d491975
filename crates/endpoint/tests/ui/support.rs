//! A real server on a free port, fed with snapshots made by hand.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use api::{AdviceReport, DoctorReport, SourceHealth};
use endpoint::{AgentStatus, Parts, Serving, Sources, Ui, View};
use metrics::{AgentMetrics, Build, Exposition};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use snapshot::{
    Bandwidth, CfsTotals, ContainerGc, ContainerIdentity, ContainerRow, ContainerWaits, CpuLimit,
    CpuPlace, CpusetRow, FeatureState, GcInterval, GcSettings, InterferenceRow, Limit, Losses,
    NodeSnapshot, NodeWaits, PodIdentity, PressureRow, PressureScope, Published, Quota, TraceMode,
    TraceRow,
};
use timeline::recording::Origin;
use timeline::{Timeline, TimelineConfig};

/// A name that would become markup if it were ever treated as HTML.
pub(crate) const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";

/// A name with characters that are invisible or change the direction of others, and with what JSON
/// escapes.
pub(crate) const UNSEEN: &str = "a\u{202e}b\u{7}\u{7f}\t\\n";

/// An agent that works, with one source of pod names.
struct Works;

impl AgentStatus for Works {
    fn pod_sources(&self) -> Vec<SourceHealth> {
        let last_success_ms = Some(1_700_000_000_000);
        vec![SourceHealth { source: "kubelet".to_owned(), up: true, last_success_ms }]
    }
}

/// The server and its history.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) timeline: Timeline,
    pub(crate) published: Published<NodeSnapshot>,
    began: Instant,
    containers: u64,
    serving: Option<Serving>,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    /// A server with this number of pods, and without page and API if `ui` is false.
    pub(crate) fn start(containers: u64, ui: bool) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), containers, ui)
    }

    /// As [`start`](Self::start), at an address.
    pub(crate) fn start_at(address: SocketAddr, containers: u64, ui: bool) -> Self {
        let doctor = || {
            let finding =
                json!({"check": "names", "level": "broken", "found": "none", "remedy": HOSTILE});
            Ok(from(json!({"worst": "broken", "findings": [finding]})))
        };
        Self::start_with(address, containers, ui, Box::new(doctor), None)
    }

    /// As [`start`](Self::start), with a recording.
    pub(crate) fn start_recorded(containers: u64, path: &Path) -> Self {
        let address = "127.0.0.1:0".parse().unwrap();
        let doctor = Box::new(|| anyhow::bail!("none"));
        Self::start_with(address, containers, true, doctor, Some(path.to_owned()))
    }

    /// As [`start_at`](Self::start_at), with these findings.
    pub(crate) fn start_with(
        address: SocketAddr,
        containers: u64,
        ui: bool,
        doctor: View<DoctorReport>,
        recorded: Option<PathBuf>,
    ) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let inside = runtime.enter();
        let listener = endpoint::listen(address).unwrap();
        let address = listener.local_addr().unwrap();
        let build = Build { version: "1.2.3", revision: "abc" };
        let metrics = Arc::new(AgentMetrics::new(build));
        let published = Published::default();
        let config = TimelineConfig { node: "n1".into(), containers: 1024, pairs: 64 };
        let timeline = Timeline::new(config);
        let serving = Serving::start(Parts {
            listener,
            identity: None,
            auth: None,
            cadvisor: false,
            allowed_hosts: Vec::new(),
            sources: Sources {
                published: published.clone(),
                metrics,
                advice: Arc::new(AdviceReport::default),
                status: Arc::new(Works),
            },
            new_exposition: Box::new(|| Exposition::new(50_000)),
            interval: Duration::from_secs(1),
            ui: ui.then(|| views(timeline.clone(), doctor, recorded)),
            beat: Box::new(|_| ()),
        });
        let serving = Some(serving.unwrap());
        drop(inside);
        let began = Instant::now();
        Self { address, timeline, published, began, containers, serving, runtime }
    }

    /// Adds the reading of this second.
    pub(crate) fn second(&self, second: u64) {
        self.second_on(second, vec![place(0), place(1)]);
    }

    /// As [`second`](Self::second), on a node with these CPUs.
    pub(crate) fn second_on(&self, second: u64, cpus: Vec<CpuPlace>) {
        self.observe(second, self.containers, cpus);
    }

    /// As [`second`](Self::second), with another number of pods.
    pub(crate) fn second_of(&self, second: u64, containers: u64) {
        self.observe(second, containers, vec![place(0), place(1)]);
    }

    /// As [`second`](Self::second), on a node that does not trace waits for this reason.
    pub(crate) fn untraced_second(&self, second: u64, reason: &str) {
        let mut snapshot = node(self.began, second, self.containers);
        let feature =
            FeatureState { feature: "sched_trace", enabled: false, reason: reason.to_owned() };
        snapshot.waits = Arc::new(NodeWaits { feature: Some(feature), ..NodeWaits::default() });
        self.publish(snapshot);
    }

    fn observe(&self, second: u64, containers: u64, cpus: Vec<CpuPlace>) {
        let mut snapshot = node(self.began, second, containers);
        snapshot.node.cpu_info = cpus;
        self.publish(snapshot);
    }

    fn publish(&self, snapshot: NodeSnapshot) {
        self.timeline.observe(&snapshot);
        self.published.publish(snapshot);
    }

    /// Adds the readings of the first ten seconds.
    pub(crate) fn ten_seconds(self) -> Self {
        (0..=10).for_each(|second| self.second(second));
        self
    }

    /// Status, header and body of a GET.
    pub(crate) fn get(&self, path: &str) -> (u16, String, String) {
        self.get_with(path, "Accept: */*")
    }

    /// As [`get`](Self::get), with a line of the request's header.
    pub(crate) fn get_with(&self, path: &str, header: &str) -> (u16, String, String) {
        let (head, body) = self.get_bytes(path, header);
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head, String::from_utf8(body).unwrap())
    }

    /// Header and body of a GET with this line in its header.
    pub(crate) fn get_bytes(&self, path: &str, header: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n{header}\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).to_lowercase();
        (head, answer.split_off(end + 4))
    }

    /// The JSON answer to a GET that must succeed.
    pub(crate) fn json(&self, path: &str) -> Value {
        let (status, head, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(head.contains("content-type: application/json"), "{path}: {head}");
        serde_json::from_str(&body).unwrap()
    }

    /// Stops the server; returns whether it stopped within this time.
    pub(crate) fn stops_within(mut self, time: Duration) -> bool {
        let stop = self.serving.take().unwrap().stop();
        self.runtime.block_on(async { tokio::time::timeout(time, stop).await.is_ok() })
    }
}

fn views(timeline: Timeline, doctor: View<DoctorReport>, recorded: Option<PathBuf>) -> Ui {
    let topology = json!({
        "online": "0-1", "offline": "", "isolated": "", "nohzFull": "",
        "numaNodes": {"0": "0-1"}, "distances": {},
        "cpus": [
            {"cpu": 0, "core": 0, "l3": 0, "die": null, "numaNode": 0, "socket": 0, "kind": null,
             "owner": HOSTILE},
            {"cpu": 1, "core": 0, "l3": 0, "die": null, "numaNode": 0, "socket": 0, "kind": null,
             "owner": "shop/pod-1 (LSR)"},
        ],
    });
    let pins = json!([
        {"namespace": "shop", "pod": "pod-1", "cpu_qos": "LSR", "bind_policy": "FullPCPUs",
         "cpus": "1", "since": 1_700_000_000, "verified": true},
        {"namespace": "shop", "pod": "pod-2", "reason": "node_cap"},
        {"namespace": "shop", "pod": HOSTILE, "reason": HOSTILE},
        {"namespace": "shop", "pod": HOSTILE, "cgroup": "/kubepods/besteffort/pod0",
         "setting": "idle", "value": "1", "original": "0"},
    ]);
    Ui {
        timeline,
        is_replay: false,
        version: "1.2.3",
        revision: "abc",
        topology: Box::new(move || Ok(from(topology.clone()))),
        pins: Box::new(move || Ok(from(pins.clone()))),
        doctor,
        origin: Origin { node: "n1".to_owned(), agent: "1.2.3".to_owned() },
        recorded,
    }
}

/// The value with this JSON form.
pub(crate) fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn identity(number: u64) -> Arc<ContainerIdentity> {
    let pod = if number == 0 { HOSTILE.to_owned() } else { format!("pod-{number}") };
    Arc::new(ContainerIdentity {
        labels: format!("namespace=\"shop\",pod=\"{number}\",container=\"app\"").into(),
        namespace: "shop".into(),
        pod,
        container: match number {
            0 => HOSTILE.into(),
            2 => UNSEEN.into(),
            _ => "app".into(),
        },
        cpu_qos: if number == 0 { HOSTILE.to_owned() } else { String::new() },
        uid: format!("uid-{number}"),
        qos_class: "Burstable".into(),
        ..ContainerIdentity::default()
    })
}

/// A container that uses half a core, is throttled in a quarter of its periods, and waits.
fn row(number: u64, second: u64) -> ContainerRow {
    let cfs = CfsTotals {
        periods: 10 * second,
        throttled_periods: 5 * second / 2,
        throttled_ns: second * 200_000_000 / (number + 1),
        ..CfsTotals::default()
    };
    let waits = ContainerWaits {
        neighbor_ns: second * 100_000_000 / (number + 1),
        self_ns: second * 1_000_000,
        system_ns: second * 2_000_000,
        ..ContainerWaits::default()
    };
    ContainerRow {
        identity: identity(number),
        live: true,
        usage_ns: Some(second * 500_000_000),
        cfs: Some(cfs),
        throttled_ancestor_ns: Some(0),
        bandwidth: Some(Bandwidth { quota: Quota::Max, period_usec: 100_000 }),
        cpu_limit: Limit::Limited(CpuLimit { cores: 0.5, period_usec: 100_000 }),
        request_cores: Some(0.25),
        waits: Some(Arc::new(waits)),
        cpuset: Some(Arc::new(CpusetRow { cpus: "0-1".into(), count: 2 })),
        gc: (number == 1).then(|| Arc::new(collections(second))),
        ..ContainerRow::default()
    }
}

/// Garbage collection with every value that a runtime reports.
fn collections(second: u64) -> ContainerGc {
    let recent = GcInterval {
        number: second / 10,
        seconds: 10.0,
        cycles: 25,
        cpu_share: Some(0.37),
        stopped_share: Some(0.02),
    };
    ContainerGc {
        cycles: second * 3,
        live_bytes: Some(64 << 20),
        goal_bytes: Some(128 << 20),
        limit_bytes: Some(256 << 20),
        settings: GcSettings {
            gogc: Some(100),
            gomaxprocs: Some(2),
            collectors: vec!["G1 young collection pauses".into()],
        },
        recent: Some(recent),
        ..ContainerGc::default()
    }
}

fn waits(second: u64) -> NodeWaits {
    let pair = |victim: &str, aggressor: &str, share: u64| InterferenceRow {
        victim: Arc::new(PodIdentity {
            labels: format!("pod=\"{victim}\"").into(),
            namespace: "shop".into(),
            pod: victim.into(),
        }),
        aggressor_namespace: "shop".into(),
        aggressor_pod: aggressor.into(),
        wait_ns: second * share,
    };
    let pressure = |scope, lower, upper| PressureRow {
        scope,
        lower_ns: (second as f64 * lower * 1e9) as u64,
        upper_ns: (second as f64 * upper * 1e9) as u64,
        lower,
        upper,
    };
    let trace =
        TraceRow { mode: TraceMode::Continuous, run_ns: 0, switches: 0, losses: Losses::default() };
    let feature = FeatureState { feature: "sched_trace", enabled: true, reason: String::new() };
    NodeWaits {
        interference: vec![
            pair(HOSTILE, "pod-1", 90_000_000),
            pair(HOSTILE, "pod-2", 20_000_000),
            pair("pod-1", HOSTILE, 10_000_000),
        ],
        pressure: vec![
            pressure(PressureScope::Node, 0.25, 0.5),
            pressure(PressureScope::Guaranteed, 0.0, 0.0),
            pressure(PressureScope::Burstable, 0.25, 0.5),
        ],
        trace: Some(trace),
        feature: Some(feature),
        ..NodeWaits::default()
    }
}

/// A CPU of the only core.
pub(crate) fn place(cpu: u32) -> CpuPlace {
    CpuPlace {
        cpu,
        core: Some(0),
        llc: Some(0),
        numa_node: Some(0),
        socket: Some(0),
        ..CpuPlace::default()
    }
}

fn node(began: Instant, second: u64, containers: u64) -> NodeSnapshot {
    let mut snapshot = NodeSnapshot {
        sequence: second + 1,
        taken: Some(UNIX_EPOCH + Duration::from_secs(1_700_000_000 + second)),
        read_at: Some(began + Duration::from_secs(second)),
        interval: Duration::from_secs(1),
        containers: (0..containers).map(|number| row(number, second)).collect(),
        waits: Arc::new(waits(second)),
        ..NodeSnapshot::default()
    };
    snapshot.node.pressure_waiting_ns = Some(second * 300_000_000);
    snapshot.node.steal_ns = Some(0);
    snapshot
}
