//! Grounds of the kernel tests of `tests/it`: this machine and the nodes.
//!
//! Nodes have cgroup v2, which is the main ground. This machine has cgroup v1 or a newer kernel, and
//! CPUs that run at the same time: it runs the tests for which that makes a difference.

use std::fmt::Write as _;

/// A ground for the kernel tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// This machine.
    Host,
    /// The node with Linux 6.1.
    Linux61,
    /// The node with Linux 6.12.
    Linux612,
}

use Ground::{Host, Linux61, Linux612};

/// Kernel tests that run on the same grounds.
#[derive(Debug)]
pub struct KernelTests {
    /// Beginning of their names. The longest one that fits a test counts.
    pub name: &'static str,
    /// Their grounds in `cargo xtask test`. With `--all`, each test also runs here and on 6.12.
    pub grounds: &'static [Ground],
    /// Difference between the grounds, or the reason why one suffices.
    pub why: &'static str,
}

/// Grounds of all kernel tests.
pub const KERNEL_TESTS: &[KernelTests] = &[
    tests(
        "kernel::accounting::",
        EVERYWHERE,
        "v1 has other files and units; 6.12 has `cpu.stat.local` and dequeues late; 6.18 throttles \
         at the return to user space",
    ),
    tests("kernel::accounting::a_recreated_", HOST_AND_61, "v1 has a cgroup in each hierarchy"),
    tests("kernel::accounting::a_reset_", ONLY_HOST, "only v1 has a counter that can be reset"),
    tests("kernel::accounting::a_storm_", ONLY_61, "the agent's memory and descriptors"),
    tests("kernel::accounting::a_restarted_", HOST_AND_61, "v1 cuts the times to 10 ms"),
    tests("kernel::advice::", ONLY_61, "a rule of the agent"),
    tests("kernel::agent::", HOST_AND_61, "v1 has other files, and a cgroup in each hierarchy"),
    tests("kernel::agent::a_quota_", EVERYWHERE, "6.12 has `cpu.stat.local`"),
    tests("kernel::agent::probes_", ONLY_61, "the agent's endpoint and exit"),
    tests("kernel::agent::twenty_seconds_", NODES, "as `two_spinners`, for longer"),
    tests("kernel::agent::two_spinners_", EVERYWHERE, "each kernel throttles in its own way"),
    tests(
        "kernel::burst::",
        EVERYWHERE,
        "the file of v1; before 6.10 a burst changes with the quota",
    ),
    tests("kernel::burst::observing_", ONLY_61, "writes nothing"),
    tests("kernel::condition::", ONLY_61, "a rule of the agent, over a minute"),
    tests("kernel::contention::", ONLY_61, "a rule of the agent, over a minute"),
    tests(
        "kernel::crash_loop::",
        &[],
        "only with `--all`: the crash tests of pinning and yielding together, for a minute",
    ),
    tests("kernel::created::", ONLY_61, "the runtime's report, not the kernel"),
    tests("kernel::demo::", HOST_AND_61, "creates cgroups itself, in each hierarchy of v1"),
    tests("kernel::doctor::", EVERYWHERE, "reports features of the kernel"),
    tests("kernel::harness::", HOST_AND_61, "creates and removes the cgroups of the other tests"),
    tests("kernel::names::a_container_", ONLY_61, "the kubelet's list"),
    tests("kernel::names::a_late_v1_", ONLY_HOST, "v1 has a cgroup in each hierarchy"),
    tests("kernel::names::a_restart_", ONLY_61, "the kubelet's list"),
    tests("kernel::pinning::agent::", HOST_AND_61, "the cpusets of v1, by the whole agent"),
    tests("kernel::pinning::answers::", ONLY_61, "the JSON API"),
    tests("kernel::pinning::authorized::", ONLY_61, "decides before it writes"),
    tests("kernel::pinning::churn::", HOST_AND_61, "v1 has other rules for an empty cpuset"),
    tests("kernel::pinning::claimed::", ONLY_61, "writes nothing"),
    tests("kernel::pinning::crash::", HOST_AND_61, "v1 has other orders of writes"),
    tests("kernel::pinning::crash::enforcing_process", &[], "not a test: a process of the others"),
    tests("kernel::pinning::drained::", HOST_AND_61, "v1 has other rules for an empty cpuset"),
    tests("kernel::pinning::enforce::", HOST_AND_61, "v1 has other orders of writes"),
    tests("kernel::pinning::events::", ONLY_61, "the API server"),
    tests("kernel::pinning::foreign::", ONLY_61, "writes nothing"),
    tests("kernel::pinning::given_back::", HOST_AND_61, "v1 has other rules for an empty cpuset"),
    tests(
        "kernel::pinning::hotplug::",
        NODES,
        "takes CPUs offline; 6.12 has another code for cpusets",
    ),
    tests("kernel::pinning::nested::", HOST_AND_61, "in v1 a nested cpuset confines its parent"),
    tests(
        "kernel::pinning::nested::deep_",
        ONLY_HOST,
        "the agent's CPU time; `thousands_` is in both",
    ),
    tests("kernel::pinning::observe::", ONLY_61, "writes nothing"),
    tests("kernel::pinning::placed::", ONLY_61, "the runtime's question"),
    tests("kernel::pinning::resized::", ONLY_61, "the runtime's report"),
    tests("kernel::pinning::rival::", HOST_AND_61, "v1 has other orders of writes"),
    tests("kernel::pinning::starts::", ONLY_61, "the runtime's question"),
    tests("kernel::pinning::unknown::", HOST_AND_61, "in v1 a nested cpuset confines its parent"),
    tests("kernel::resize::", EVERYWHERE, "before 6.10 a burst changes with the quota"),
    tests("kernel::starvation::", ONLY_HOST, "the agent's own time and memory"),
    tests("kernel::throttling::", EVERYWHERE, "each kernel throttles in its own way"),
    tests("kernel::waits::", EVERYWHERE, "each kernel throttles and switches in its own way"),
    tests("kernel::waits::ten_thousand_", ONLY_HOST, "the size of a table; slow to make on a node"),
    tests("kernel::waits::trace_obstacles_", ONLY_61, "attaches nothing"),
    tests("kernel::waits::without_", ONLY_61, "attaches nothing"),
    tests("kernel::yielding::", HOST_AND_61, "v1 has other files"),
    tests("kernel::yielding::fewer_", NODES, "needs eight CPUs; 6.12 has another code for cpusets"),
    tests("kernel::yielding::observing_", ONLY_61, "writes nothing"),
];

const EVERYWHERE: &[Ground] = &[Host, Linux61, Linux612];
const HOST_AND_61: &[Ground] = &[Host, Linux61];
const NODES: &[Ground] = &[Linux61, Linux612];
const ONLY_61: &[Ground] = &[Linux61];
const ONLY_HOST: &[Ground] = &[Host];

const fn tests(name: &'static str, grounds: &'static [Ground], why: &'static str) -> KernelTests {
    KernelTests { name, grounds, why }
}

/// Beginnings of the names of the kernel tests that this machine runs only with `--all`.
pub const NOT_ON_HOST: &[&str] = &{
    let mut names = [""; count_not_on_host()];
    let (mut at, mut row) = (0, 0);
    while row < KERNEL_TESTS.len() {
        if !KERNEL_TESTS[row].is_on_host() {
            names[at] = KERNEL_TESTS[row].name;
            at += 1;
        }
        row += 1;
    }
    names
};

const fn count_not_on_host() -> usize {
    let (mut count, mut row) = (0, 0);
    while row < KERNEL_TESTS.len() {
        if !KERNEL_TESTS[row].is_on_host() {
            count += 1;
        }
        row += 1;
    }
    count
}

/// Host tests that only `cargo xtask test --all` runs; they are marked `ignore`. Each has a smaller
/// case that always runs.
pub const ONLY_IN_ALL: &[&str] = &[
    // Smaller: four programs of one Go release.
    "advice::go::following_the_advice_ends_throttling_of_every_go_program",
    // Smaller: the replay of recorded runs of the same loads, advice::recorded.
    "advice::replay::the_replay_predicts_the_throttled_share_within_five_points",
    // Smaller: three of the loads, until their alerts fire.
    "deploy::prometheus::loads::two_minutes_of_real_loads_alert_for_harm_and_not_for_bursts",
    // Smaller: the same panels on a recorded node.
    "deploy::prometheus::panels_of_pressure_show_a_running_node",
    // Smaller: the same readiness with another time, status::tests of the binary.
    "endpoint::without_names_for_a_minute_the_agent_is_ready_and_degraded",
    // Smaller: half as many clients for half as long.
    "floods::a_long_flood_of_scrapes_does_not_slow_sampling",
];

impl KernelTests {
    const fn is_on_host(&self) -> bool {
        let mut at = 0;
        while at < self.grounds.len() {
            if matches!(self.grounds[at], Host) {
                return true;
            }
            at += 1;
        }
        false
    }

    /// Whether they run on this ground.
    pub fn is_on(&self, ground: Ground) -> bool {
        self.grounds.contains(&ground)
    }
}

/// The row of a test; `None` if it is no kernel test, or a new one without a row.
pub fn of(test: &str) -> Option<&'static KernelTests> {
    let fitting = KERNEL_TESTS.iter().filter(|tests| test.starts_with(tests.name));
    fitting.max_by_key(|tests| tests.name.len())
}

/// The table in CONTRIBUTING.md.
pub fn table() -> String {
    let mut text = "| kernel tests | host | 6.1 | 6.12 | why |\n|---|---|---|---|---|\n".to_owned();
    for tests in KERNEL_TESTS {
        let name = tests.name.strip_prefix("kernel::").unwrap_or(tests.name);
        let [host, v6_1, v6_12] =
            [Host, Linux61, Linux612].map(|ground| if tests.is_on(ground) { "yes" } else { "" });
        let _ = writeln!(text, "| `{name}` | {host} | {v6_1} | {v6_12} | {} |", tests.why);
    }
    text
}
