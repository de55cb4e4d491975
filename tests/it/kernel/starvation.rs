//! The agent with little memory and almost no CPU.

use crate::support::{Agent, Cgroup, Qos, RealTree, Workload};

const UID: &str = "8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0c0111";
const ID: &str = "8a7d1ed414474e4033ac29ccb8653d9b4a7d1ed414474e4033ac29ccb8650111";

const MEMORY: u64 = 64 << 20;
const SPINNERS: u32 = 60;

/// Ticks and answers of the starved agent.
const TICKS: u64 = 5;
/// CPU time that the spinners may have used by then, nanoseconds.
const MOST_NS: u64 = 600_000_000_000;

/// Largest memory of the cgroup, bytes; `None` where the kernel does not say.
fn most_memory(cgroup: &Cgroup) -> Option<u64> {
    let directory = cgroup.dir("memory");
    ["memory.peak", "memory.max_usage_in_bytes"]
        .iter()
        .find_map(|file| std::fs::read_to_string(directory.join(file)).ok()?.trim().parse().ok())
}

#[test]
fn a_starved_agent_answers_ticks_and_stays_small() {
    let tree = RealTree::new();
    let container = tree.pod(Qos::Burstable, UID).child(ID);
    let cgroup = tree.above().child("agent");
    cgroup.set_memory_limit_bytes(MEMORY);
    let kubepods = format!("--kubepods={}", tree.kubepods().path().display());
    let options = [&*kubepods, "--pod-source=none", "--sched-trace=off"];
    let agent = Agent::start_in(&cgroup, &options);
    agent.after_ticks(1);
    let _spinners = container.spawn(&Workload::Spin { threads: SPINNERS });
    cgroup.set_weight(2);
    let (used, ticks) = (container.usage_ns(), agent.metrics().ticks());
    let mut now = ticks;
    while now < ticks + TICKS {
        let rivals = container.usage_ns() - used;
        assert!(rivals < MOST_NS, "{} ticks while others ran {rivals} ns", now - ticks);
        assert_eq!(agent.get("/healthz"), (200, "ok\n".to_owned()));
        now = agent.metrics().ticks();
    }
    let user = [("container", ID), ("mode", "user")];
    let user = agent.metrics().value("cpuwarden_container_cpu_usage_seconds_total", &user);
    assert!(user > Some(0.0), "{user:?}");
    assert!(!agent.log().contains("\"level\":\"ERROR\""), "{}", agent.log());
    let most = most_memory(&cgroup);
    println!(
        "at most {most:?} bytes, {} s of others",
        (container.usage_ns() - used) / 1_000_000_000
    );
    assert!(most.is_none_or(|bytes| bytes <= MEMORY), "{most:?}");
    // It would have exited if the kernel had ended it for its memory, or the watchdog.
    assert!(agent.signal(rustix::process::Signal::TERM).0.success());
}
