//! Cost of the program, and its behavior above its budget.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use snapshot::TraceMode;

use crate::lab::{Container, Lab, Pod, last_cpu};
use crate::workload::burst;

/// Some 10,000 switches a second on the first CPU: what the program costs is a matter of this and
/// not of what else the machine does.
fn churn(lab: &mut Lab) -> (Container, Pod) {
    let pod = lab.pod("churn");
    let mut churn = lab.container(&pod, "c");
    churn.burst(0, &[burst(1, 100); 6]);
    churn.signal(Signal::CONT);
    (churn, pod)
}

/// Cost as a share of all CPUs' time, over so long.
fn cost_share(lab: &mut Lab, span: Duration) -> f64 {
    let (start, before) = (Instant::now(), lab.poll(&[]).run_ns);
    sleep(span);
    let report = lab.poll(&[]);
    assert!(report.switches > 0 && report.mode == TraceMode::Continuous, "{report:?}");
    (report.run_ns - before) as f64 / start.elapsed().as_nanos() as f64 / f64::from(last_cpu() + 1)
}

#[test]
fn kernel_beyond_any_budget_the_program_is_detached() {
    let mut lab = Lab::with_budget(1e-12);
    let start = Instant::now();
    // Patience is a matter of the clock that poll is given.
    for second in 1..=4 {
        sleep(Duration::from_millis(50));
        lab.poll_at(start + Duration::from_secs(second), &[]);
    }
    assert_eq!(lab.trace().report().mode, TraceMode::Detached);
    let switches = lab.poll_at(start + Duration::from_secs(5), &[]).switches;
    sleep(Duration::from_millis(50));
    assert_eq!(lab.poll_at(start + Duration::from_secs(6), &[]).switches, switches);
}

/// Bursts are for this machine only: in the node the same would take minutes and show nothing else.
#[test]
fn bursts_estimate_what_they_do_not_see() {
    let mut lab = Lab::with_budget(1.0);
    let churning = churn(&mut lab);
    let share = cost_share(&mut lab, Duration::from_secs(2));
    drop((churning, lab));
    let mut lab = Lab::with_budget(share / 2.5);
    let _churning = churn(&mut lab);
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut containers = [0, 1].map(|index| lab.container(&pods[index], "c"));
    containers.iter_mut().for_each(|container| container.spin(last_cpu()));
    let [victim, rival] = &containers;
    let mut modes = Vec::new();
    let [victim, _] = lab.measure_with([victim, rival], |lab| {
        let (start, mut switches, mut was_attached, mut ends) = (Instant::now(), 0, false, 0);
        // The first end is that of the continuous trace. A burst stands for the pause before it.
        while ends < 6 && start.elapsed() < Duration::from_secs(60) {
            sleep(Duration::from_millis(250));
            let report = lab.poll(&[]);
            modes.push(report.mode);
            let is_attached = report.switches > switches;
            ends += u32::from(was_attached && !is_attached);
            (switches, was_attached) = (report.switches, is_attached);
        }
    });
    assert!(modes.iter().any(|mode| matches!(mode, TraceMode::Bursts { .. })), "{modes:?}");
    let ratio = victim.sum_ns() as f64 / victim.delay_ns as f64;
    println!("{ratio} of the waits");
    // Two equals take turns of some milliseconds: any second is like any other.
    assert!((0.85..1.15).contains(&ratio), "{ratio}, {victim:?}, {modes:?}");
}
