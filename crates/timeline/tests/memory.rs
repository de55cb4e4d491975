//! Memory of the history on a node with 330 containers.

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use api::KEPT;
use peak_alloc::PeakAlloc;
use snapshot::{
    ContainerIdentity, ContainerRow, ContainerWaits, CpuLimit, InterferenceRow, Limit, Losses,
    NodeSnapshot, NodeWaits, PodIdentity, TraceMode, TraceRow,
};
use timeline::{
    BYTES_PER_CONTAINER, BYTES_PER_PAIR, MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig,
};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const CONTAINERS: usize = 330;
const KIB: usize = 1 << 10;

/// The containers, and the pods of those that wait.
struct Node {
    began: Instant,
    containers: Vec<Arc<ContainerIdentity>>,
    victims: Vec<Arc<PodIdentity>>,
}

impl Node {
    fn new() -> Self {
        let labels = |number| format!("namespace=\"shop\",pod=\"web-{number}\"");
        let container = |number| ContainerIdentity {
            labels: labels(number).into(),
            namespace: "shop".into(),
            pod: format!("web-{number}"),
            container: "app".into(),
            uid: format!("uid-{number}"),
            ..ContainerIdentity::default()
        };
        let victim = |number| PodIdentity {
            labels: labels(number).into(),
            namespace: "shop".into(),
            pod: format!("web-{number}"),
        };
        Self {
            began: Instant::now(),
            containers: (0..CONTAINERS).map(|number| Arc::new(container(number))).collect(),
            victims: (0..CONTAINERS).map(|number| Arc::new(victim(number))).collect(),
        }
    }

    fn second(&self, second: u64) -> NodeSnapshot {
        let waits = Arc::new(ContainerWaits { neighbor_ns: second, ..ContainerWaits::default() });
        let row = |identity: &Arc<ContainerIdentity>| ContainerRow {
            identity: Arc::clone(identity),
            live: true,
            usage_ns: Some(second * 500_000_000),
            cpu_limit: Limit::Limited(CpuLimit { cores: 0.5, period_usec: 100_000 }),
            waits: Some(Arc::clone(&waits)),
            ..ContainerRow::default()
        };
        let pair = |victim: &Arc<PodIdentity>| InterferenceRow {
            victim: Arc::clone(victim),
            aggressor_namespace: "batch".into(),
            aggressor_pod: "hog".into(),
            wait_ns: second * 1_000_000,
        };
        let (mode, losses) = (TraceMode::Continuous, Losses::default());
        let waits = NodeWaits {
            interference: self.victims.iter().map(pair).collect(),
            trace: Some(TraceRow { mode, run_ns: 0, switches: 0, losses }),
            ..NodeWaits::default()
        };
        NodeSnapshot {
            taken: Some(UNIX_EPOCH + Duration::from_secs(second)),
            read_at: Some(self.began + Duration::from_secs(second)),
            interval: Duration::from_secs(1),
            containers: self.containers.iter().map(row).collect(),
            waits: Arc::new(waits),
            ..NodeSnapshot::default()
        }
    }
}

#[test]
fn the_history_of_ten_minutes_is_reserved_at_the_start() {
    let node = Node::new();
    let before = HEAP.current_usage();
    let timeline = Timeline::new(TimelineConfig {
        node: "node-1".to_owned(),
        containers: MAX_CONTAINERS,
        pairs: MAX_PAIRS,
    });
    let reserved = HEAP.current_usage() - before;
    let values = MAX_CONTAINERS * BYTES_PER_CONTAINER + MAX_PAIRS * BYTES_PER_PAIR;
    // Besides the values: the state of each series, and of the node in each frame.
    assert!((values..values + 1024 * KIB).contains(&reserved), "{reserved} of {values}");

    for second in 0..2 * KEPT as u64 {
        timeline.observe(&node.second(second));
    }
    assert_eq!(timeline.frames(Duration::from_secs(KEPT as u64)).count(), KEPT);
    let grown = HEAP.current_usage() - before - reserved;
    println!("{reserved} bytes reserved, {values} of them values; {grown} more in use");
    // Keys and names.
    assert!(grown < 300 * KIB, "{grown}");
}
