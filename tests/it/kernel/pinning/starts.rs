//! Starts of shared containers beside a pod with exclusive CPUs: where their first instruction may
//! run, with and without the runtime's question.

use kernel_text::CpuSet;
use nri::api::PodSandbox;

use super::agent::{kubelet, list, options};
use super::placed::{Runtimes, container, flags, sandbox, scene};
use super::scene::{Scene, container_id};
use crate::kernel::created::Socket;
use crate::support::{Agent, Qos, eventually};

const STARTS: usize = 50;

/// Starts a container of a new pod as a runtime does. Returns whether the agent answered with its
/// CPUs, and those that its first program may use.
fn start(
    scene: &Scene,
    number: usize,
    mut ask: Option<impl FnMut(&PodSandbox, &str) -> Option<CpuSet>>,
) -> (bool, CpuSet) {
    let uid = format!("8e0d3a0c-5f4b-4f60-9f2a-3d8c1d0e{number:04}");
    let (pod, id) = (sandbox(&uid, "LS", 0), container_id(1000 + number));
    let answer = ask.as_mut().and_then(|ask| ask(&pod, &id));
    let cgroup = scene.tree.pod(Qos::Burstable, &uid);
    let container = cgroup.child(&id);
    if let Some(cpus) = &answer {
        container.write("cpuset", "cpuset.cpus", &cpus.to_string());
    }
    let mut program = container.command("grep");
    let output = program.args(["Cpus_allowed_list", "/proc/self/status"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    container.remove();
    cgroup.remove();
    (answer.is_some(), text.split_whitespace().last().unwrap().parse().unwrap())
}

#[test]
fn no_shared_container_starts_on_exclusive_cpus_if_the_runtime_asks() {
    let (scene, socket) = (scene(), Socket::new());
    let options = options(&scene, kubelet(&list(&scene)));
    let _agent = Agent::start(&flags(&options, &socket));
    let mut runtime = Runtimes::accept(&socket, vec![], vec![]);
    eventually("a grant", || scene.effective(1).len() == 1);
    let own = scene.effective(1);
    let is_overlap = |cpus: &CpuSet| !cpus.is_disjoint(&own);
    let mut question = |pod: &PodSandbox, id: &str| runtime.once(pod, &container(pod, id)).0;
    let starts = (0..STARTS).map(|number| start(&scene, number, Some(&mut question)));
    let (placed, unanswered): (Vec<_>, Vec<_>) = starts.partition(|(is_placed, _)| *is_placed);
    let asked = placed.iter().filter(|(_, cpus)| is_overlap(cpus)).count();
    let none: Option<fn(&PodSandbox, &str) -> Option<CpuSet>> = None;
    let starts = (STARTS..2 * STARTS).map(|number| start(&scene, number, none));
    let unasked = starts.filter(|(_, cpus)| is_overlap(cpus)).count();
    println!("{STARTS} starts beside a pod with {own}: {asked} on its CPUs, {unasked} unasked");
    assert_eq!(asked, 0);
    // On a busy machine an answer may be too late.
    assert!(unanswered.len() * 10 < STARTS, "{} were not placed", unanswered.len());
    assert!(unasked > 0, "nothing to prevent: a new pod's cgroup has all CPUs");
}
