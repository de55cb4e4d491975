//! Waits that the program cannot see are not lost: the kernel's run delay includes them.

use std::thread::sleep;
use std::time::Duration;

use sched_trace::RunDelay;

use crate::lab::{Container, Lab, last_cpu};

/// Reports the wait of the victim while everything stands still, and returns the part of it that is
/// unattributed.
fn settle(lab: &mut Lab, victim: &Container, gained_ns: u64) -> u64 {
    lab.poll(&[RunDelay { container: victim.id, gained_ns }]);
    let report = lab.poll(&[]);
    let traced = report.containers.iter().find(|traced| traced.container == victim.id);
    traced.expect("it has waited").waits.unattributed_ns
}

/// A task that is moved while it waits begins a new wait, as far as the run queue can tell.
#[test]
fn kernel_waits_before_a_migration_are_unattributed() {
    let mut lab = Lab::new();
    // The thread that moves the victim must not starve.
    lab.take_turns_with_others();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut victim = lab.container(&pods[0], "c");
    let mut rivals = [0, last_cpu()].map(|cpu| (cpu, lab.container(&pods[1], &format!("c{cpu}"))));
    victim.spin(0);
    rivals.iter_mut().for_each(|(cpu, rival)| (0..3).for_each(|_| rival.spin(*cpu)));
    let all = [&victim, &rivals[0].1, &rivals[1].1];
    lab.measure_with(all, |_| sleep(Duration::from_millis(300)));
    let (delay_ns, before_ns) = (victim.delay_ns(), settle(&mut lab, &victim, 0));
    let [measured, ..] = lab.measure_with(all, |_| {
        let mut cpus = [last_cpu(), 0].into_iter().cycle();
        for _ in 0..150 {
            victim.move_to(cpus.next().expect("a cycle does not end"));
            sleep(Duration::from_millis(11));
        }
    });
    let unattributed_ns = settle(&mut lab, &victim, victim.delay_ns() - delay_ns) - before_ns;
    println!("{measured:?}, unattributed {unattributed_ns}");
    let attributed_ns = measured.sum_ns() - measured.found.unattributed_ns;
    let missing_ns = measured.delay_ns.saturating_sub(attributed_ns);
    assert!(missing_ns * 100 > measured.delay_ns, "nothing was moved while it waited");
    let off = unattributed_ns as f64 / missing_ns as f64 - 1.0;
    assert!(off.abs() <= 0.05, "{missing_ns} are missing, {unattributed_ns} unattributed");
}
