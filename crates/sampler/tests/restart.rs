//! User and system time on cgroup v1 are the kernel's own ticks since the first reading.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sampler::{Sampler, SamplerConfig};
use support::NoNames;
use tempfile::TempDir;

const POD: &str = "kubepods/burstable/pod8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0006";
const TICK_NS: u64 = 10_000_000;

/// A v1 node with one container.
struct Node {
    root: TempDir,
    now: Instant,
    /// CPU time of the container in user and in kernel mode, nanoseconds.
    used: [u64; 2],
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let node = Self { root, now: Instant::now(), used: [0; 2] };
        for controller in ["cpu", "cpuacct"] {
            fs::create_dir_all(node.container(controller)).unwrap();
        }
        node.write();
        node
    }

    fn container(&self, controller: &str) -> PathBuf {
        self.root.path().join(controller).join(POD).join(format!("{:064x}", 1))
    }

    /// Writes the files as the kernel does: the usage in nanoseconds, the modes in whole ticks.
    fn write(&self) {
        let [user, system] = self.used;
        let cgroup = self.container("cpuacct");
        write(&cgroup.join("cpuacct.usage"), &format!("{}\n", user + system));
        write(
            &cgroup.join("cpuacct.stat"),
            &format!("user {}\nsystem {}\n", user / TICK_NS, system / TICK_NS),
        );
    }

    fn run(&mut self, user_ns: u64, system_ns: u64) {
        self.used[0] += user_ns;
        self.used[1] += system_ns;
        self.write();
    }

    fn start_sampler(&self) -> Sampler {
        let config = SamplerConfig {
            kubepods: vec!["kubepods".to_owned()],
            ..support::config(self.root.path())
        };
        Sampler::new(config, Box::new(NoNames::default())).unwrap()
    }

    /// User and system time after the sampler's next tick, nanoseconds.
    fn modes(&mut self, sampler: &mut Sampler) -> [u64; 2] {
        self.now += Duration::from_secs(1);
        sampler.tick(self.now);
        let row = &sampler.published().latest().containers[0];
        [row.user_ns.unwrap(), row.system_ns.unwrap()]
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[test]
fn a_restarted_sampler_counts_nothing_again() {
    let mut node = Node::new();
    node.run(2_600_000_000_000_000, 40_000_000);
    for restart in 0..10 {
        let mut sampler = node.start_sampler();
        assert_eq!(node.modes(&mut sampler), [0, 0], "restart {restart}");
        node.run(30_000_000, 10_000_000);
        assert_eq!(node.modes(&mut sampler), [30_000_000, 10_000_000], "restart {restart}");
        let row = &sampler.published().latest().containers[0];
        assert_eq!(
            row.kernel.usage_ns,
            Some(node.used[0] + node.used[1]),
            "the kernel's own value"
        );
    }
}

#[test]
fn ticks_that_step_back_are_held_at_their_highest() {
    let mut node = Node::new();
    let mut sampler = node.start_sampler();
    let stat = node.container("cpuacct").join("cpuacct.stat");
    let modes = [[10, 5], [9, 6], [2, 7], [11, 7]].map(|[user, system]| {
        node.run(20 * TICK_NS, 0);
        write(&stat, &format!("user {user}\nsystem {system}\n"));
        node.modes(&mut sampler).map(|ns| ns / TICK_NS)
    });
    assert_eq!(modes, [[0, 0], [0, 1], [0, 2], [1, 2]]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn modes_never_fall_and_are_less_than_20_ms_short_of_the_usage(
        steps in proptest::collection::vec((0u64..30_000_000, 0u64..30_000_000, 0..5), 1..30)
    ) {
        let mut node = Node::new();
        let mut sampler = node.start_sampler();
        // What the kernel showed at the first reading.
        let mut base = [0; 2];
        node.modes(&mut sampler);
        let mut before = [0; 2];
        for (user, system, chance) in steps {
            // Often little or no time is used between two ticks.
            let used = [user, system].map(|ns| if chance == 0 { ns } else { ns / 20 });
            node.run(used[0], used[1]);
            if chance == 1 {
                sampler = node.start_sampler();
                base = node.used.map(|ns| ns / TICK_NS * TICK_NS);
            }
            let modes = node.modes(&mut sampler);
            let modes = [base[0] + modes[0], base[1] + modes[1]];
            prop_assert!(modes[0] >= before[0] && modes[1] >= before[1], "{:?} after {:?}", modes, before);
            prop_assert!(modes[0] <= node.used[0] && modes[1] <= node.used[1], "{:?} of {:?}", modes, node.used);
            let [usage, shown] = [node.used, modes].map(|modes| modes[0] + modes[1]);
            prop_assert!(usage - shown < 2 * TICK_NS, "{} of {}", shown, usage);
            before = modes;
        }
    }
}
