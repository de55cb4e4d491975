//! A task that is moved while it waits begins a new wait, as far as the run queue can tell. The part
//! before has a cause as well.

use std::thread::sleep;
use std::time::Duration;

use sched_trace::RunDelay;

use crate::accuracy::{PERIOD_USEC, assert_near};
use crate::lab::{Container, Lab, Measured, Pod, last_cpu};

/// A thread that is moved between two CPUs, each with three rivals.
struct Moved {
    pods: [Pod; 2],
    victim: Container,
    rivals: [Container; 2],
}

impl Moved {
    fn new(lab: &mut Lab) -> Self {
        // The thread that moves the victim must not starve.
        lab.take_turns_with_others();
        let pods = ["victim", "rival"].map(|name| lab.pod(name));
        let mut victim = lab.container(&pods[0], "c");
        let cpus = [0, last_cpu()];
        let mut rivals = cpus.map(|cpu| lab.container(&pods[1], &format!("c{cpu}")));
        victim.spin(0);
        for (rival, cpu) in rivals.iter_mut().zip(cpus) {
            (0..3).for_each(|_| rival.spin(cpu));
        }
        Self { pods, victim, rivals }
    }

    fn measure(&self, lab: &mut Lab, meanwhile: impl FnOnce()) -> Measured {
        let all = [&self.victim, &self.rivals[0], &self.rivals[1]];
        let [measured, ..] = lab.measure_with(all, |_| meanwhile());
        measured
    }

    fn move_around(&self) {
        for cpu in [last_cpu(), 0].into_iter().cycle().take(150) {
            self.victim.move_to(cpu);
            sleep(Duration::from_millis(11));
        }
    }

    /// Reports the wait of the victim while everything stands still, and returns the part of it that
    /// is unattributed.
    fn settle(&self, lab: &mut Lab, gained_ns: u64) -> u64 {
        lab.poll(&[RunDelay { container: self.victim.id, gained_ns }]);
        let report = lab.poll(&[]);
        let traced = report.containers.iter().find(|traced| traced.container == self.victim.id);
        traced.expect("it has waited").waits.unattributed_ns
    }

    fn lost_ns(&self, lab: &Lab) -> u64 {
        lab.lost(self.pods[0].id).sum()
    }
}

#[test]
fn kernel_waits_before_a_migration_keep_their_cause() {
    let mut lab = Lab::new();
    let moved = Moved::new(&mut lab);
    // A group that comes to a CPU may first run for what CFS lets a sleeper catch up on, 6 ms and
    // more of each stay. The time that this is worth goes with the weight: here, a sixth to a third.
    moved.pods[0].cgroup.set_request_milli(100);
    moved.measure(&mut lab, || sleep(Duration::from_millis(300)));
    let (delay_ns, before_ns) = (moved.victim.delay_ns(), moved.settle(&mut lab, 0));
    let lost_ns = moved.lost_ns(&lab);
    let measured = moved.measure(&mut lab, || moved.move_around());
    let gained_ns = moved.victim.delay_ns() - delay_ns;
    let unattributed_ns = moved.settle(&mut lab, gained_ns) - before_ns;
    let lost_ns = moved.lost_ns(&lab) - lost_ns;
    println!("{measured:?}, unattributed {unattributed_ns}, lost {lost_ns}");
    assert!(measured.delay_ns * 10 > measured.run_ns, "it hardly waited");
    assert!(unattributed_ns * 20 <= measured.delay_ns, "{unattributed_ns} unattributed");
    // It has one thread: what that waits for others is what the pod loses.
    let waited_ns = measured.found.neighbor_ns + measured.found.system_ns;
    assert_near("waited", waited_ns, measured.delay_ns, 0.05);
    assert_near("lost", lost_ns, waited_ns, 0.05);
}

/// A wait that is throttled on one run queue and moved to another has no cause, but is not lost.
#[test]
fn kernel_a_moved_thread_under_a_limit_loses_no_wait() {
    let mut lab = Lab::new();
    let moved = Moved::new(&mut lab);
    moved.victim.cgroup.set_quota_usec(2_000, PERIOD_USEC);
    moved.measure(&mut lab, || sleep(Duration::from_millis(300)));
    let (delay_ns, before_ns) = (moved.victim.delay_ns(), moved.settle(&mut lab, 0));
    let measured = moved.measure(&mut lab, || moved.move_around());
    let gained_ns = moved.victim.delay_ns() - delay_ns;
    let unattributed_ns = moved.settle(&mut lab, gained_ns) - before_ns;
    println!("{measured:?}, unattributed {unattributed_ns}");
    assert!(measured.sum_ns() <= measured.delay_ns + measured.delay_ns / 20, "{measured:?}");
    let caused_ns = measured.sum_ns() - measured.found.unattributed_ns;
    assert_near("all waits", caused_ns + unattributed_ns, gained_ns, 0.05);
}
