//! Waits that the program cannot see are not lost: the kernel's run delay tells of them.

use std::thread::sleep;
use std::time::Duration;

use sched_trace::RunDelay;

use crate::lab::{Lab, last_cpu};

/// A task that is moved while it waits begins to wait anew, as far as the run queue can tell.
#[test]
fn kernel_waits_before_a_migration_are_unattributed() {
    let mut lab = Lab::new();
    let pods = ["victim", "rival"].map(|name| lab.pod(name));
    let mut victim = lab.container(&pods[0], "c");
    let mut rivals = [0, last_cpu()].map(|cpu| (cpu, lab.container(&pods[1], &format!("c{cpu}"))));
    victim.spin(0);
    rivals.iter_mut().for_each(|(cpu, rival)| (0..3).for_each(|_| rival.spin(*cpu)));
    let [measured, ..] = lab.measure_with([&victim, &rivals[0].1, &rivals[1].1], |lab| {
        let mut reported = victim.delay_ns();
        let mut cpus = [last_cpu(), 0].into_iter().cycle();
        for _ in 0..45 {
            for _ in 0..4 {
                victim.move_to(cpus.next().expect("a cycle does not end"));
                sleep(Duration::from_millis(11));
            }
            let delay = victim.delay_ns();
            lab.poll(&[RunDelay { container: victim.id, gained_ns: delay - reported }]);
            reported = delay;
        }
    });
    println!("{measured:?}");
    let (found, delay_ns) = (measured.found, measured.delay_ns);
    let missing_ns = delay_ns.saturating_sub(measured.sum_ns() - found.unattributed_ns);
    assert!(missing_ns * 50 > delay_ns, "nothing was moved while it waited: {measured:?}");
    // Less what was waited until the first report, see `Residual`.
    assert!(found.unattributed_ns * 4 > missing_ns, "of {missing_ns}: {measured:?}");
    // What is reported lags by two polls.
    let off = measured.sum_ns() as f64 / delay_ns as f64 - 1.0;
    assert!(off.abs() <= 0.1, "{off}: {measured:?}");
}
