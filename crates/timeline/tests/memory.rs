//! Memory of the history on a node with 330 containers.

use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use api::KEPT;
use peak_alloc::PeakAlloc;
use snapshot::{
    ContainerIdentity, ContainerRow, ContainerWaits, CpuLimit, InterferenceRow, Limit, Losses,
    NodeSnapshot, NodeWaits, PodIdentity, TraceMode, TraceRow,
};
use timeline::{BYTES_PER_CONTAINER, MAX_CONTAINERS, MAX_PAIRS, Timeline, TimelineConfig};

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

    fn second(&self, second: u64, step_ns: u64) -> NodeSnapshot {
        let waits = Arc::new(ContainerWaits { neighbor_ns: second, ..ContainerWaits::default() });
        let row = |identity: &Arc<ContainerIdentity>| ContainerRow {
            identity: Arc::clone(identity),
            live: true,
            usage_ns: Some(second * (400_000_000 + second * step_ns / 2)),
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

/// Bytes in use after ten minutes and more, in which each container uses a CPU time that changes
/// from second to second by `step_ns`.
fn in_use_after_ten_minutes(step_ns: u64) -> usize {
    let node = Node::new();
    let before = HEAP.current_usage();
    let timeline = Timeline::new(TimelineConfig {
        node: "node-1".to_owned(),
        containers: MAX_CONTAINERS,
        pairs: MAX_PAIRS,
    });
    for second in 0..2 * KEPT as u64 {
        timeline.observe(&node.second(second, step_ns));
    }
    assert_eq!(timeline.frames(Duration::from_secs(KEPT as u64)).count(), KEPT);
    HEAP.current_usage() - before
}

#[test]
fn the_memory_of_the_history_grows_with_the_changes_of_the_values() {
    let steady = in_use_after_ten_minutes(0);
    let changing = in_use_after_ten_minutes(1_000_000);
    println!("{steady} bytes in use if nothing changes, {changing} if every container does");
    // The state of each series, and of the node in each frame.
    let others = 2048 * KIB;
    assert!(steady < others, "{steady}");
    let values = CONTAINERS * BYTES_PER_CONTAINER;
    assert!((values..values + others).contains(&changing), "{changing} of {values}");
}
