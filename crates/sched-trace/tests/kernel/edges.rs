//! The edges of a measuring session: the waits in progress when it begins and when it ends. For this
//! machine only: in the node it takes most of a minute to replace a trace beside a starving thread.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use snapshot::TraceMode;

use crate::lab::{Container, Lab, eventually, last_cpu};
use crate::workload::burst;

/// A thread that starves beside a rival, and one that makes their CPU switch every millisecond.
struct Starving {
    /// Dropped first: the victim starves until then.
    others: [Container; 2],
    victim: Container,
}

impl Starving {
    fn new(lab: &mut Lab) -> Self {
        // The thread of the test must not starve.
        lab.take_turns_with_others();
        let cpu = last_cpu();
        let pods = ["victim", "rival", "switching"].map(|name| lab.pod(name));
        pods[0].cgroup.set_weight(2);
        pods[1..].iter().for_each(|pod| pod.cgroup.set_highest_weight());
        let mut victim = lab.container(&pods[0], "c");
        let mut others = [1, 2].map(|at| lab.container(&pods[at], "c"));
        victim.spin(cpu);
        others[0].spin(cpu);
        others[1].burst(cpu, &[burst(50, 1_000)]);
        Self { others, victim }
    }

    fn go(&self) {
        self.others.iter().chain([&self.victim]).for_each(|one| one.signal(Signal::CONT));
    }

    fn stop(&self) {
        self.others.iter().chain([&self.victim]).for_each(|one| one.signal(Signal::STOP));
        self.others.iter().chain([&self.victim]).for_each(Container::wait_until_stopped);
    }

    /// All that the trace counted of the victim's waits.
    fn counted(&self, lab: &mut Lab) -> Duration {
        let rows = &lab.trace().report().containers;
        let found = rows.iter().find(|traced| traced.container == self.victim.id);
        let sum = found.map_or(0, |traced| {
            let waits = &traced.waits;
            waits.neighbor_ns + waits.system_ns + waits.self_ns + waits.unattributed_ns
        });
        Duration::from_nanos(sum)
    }

    /// Polls until something is counted: the trace begins on a CPU with its first switch.
    fn until_counted(&self, lab: &mut Lab, now: Instant) -> Duration {
        let mut counted = Duration::ZERO;
        eventually("a wait of the victim", || {
            lab.poll_at(now, &[]);
            counted = self.counted(lab);
            counted > Duration::ZERO
        });
        counted
    }
}

#[test]
fn waits_count_from_the_start_of_the_trace() {
    let mut lab = Lab::with_budget(1.0);
    let starving = Starving::new(&mut lab);
    // The kernel may let the victim run just before.
    let mut rounds = (0..5).map(|_| {
        starving.go();
        sleep(Duration::from_millis(700));
        let (began, before_ns) = (Instant::now(), starving.victim.delay_ns());
        lab.restart_trace(1.0);
        sleep(Duration::from_millis(100));
        starving.stop();
        lab.poll(&[]);
        lab.poll(&[]);
        let traced = began.elapsed();
        let waited = Duration::from_nanos(starving.victim.delay_ns() - before_ns);
        (waited, traced, starving.counted(&mut lab))
    });
    let is_older = |(waited, traced, _): &(Duration, Duration, Duration)| waited > traced;
    let (waited, traced, counted) = rounds.find(is_older).expect("no wait began before the trace");
    println!("waited {waited:?}, counted {counted:?}");
    assert!(counted <= traced, "counted {counted:?} in {traced:?}");
}

#[test]
fn waits_in_progress_count_before_the_trace_is_detached() {
    let mut lab = Lab::with_budget(1.0);
    let starving = Starving::new(&mut lab);
    starving.go();
    // The run queue's clock is as old as its last tick.
    let is_complete = |(waited, counted): &(Duration, Duration)| {
        println!("waited {waited:?}, counted {counted:?}");
        *counted + Duration::from_millis(10) > *waited
    };
    let mut rounds = (0..2).map(|_| until_detached(&mut lab, &starving));
    assert!(rounds.any(|round| is_complete(&round)), "the last part of the wait is missing");
    starving.stop();
}

/// The victim's wait until the trace is detached, and what was counted of it.
fn until_detached(lab: &mut Lab, starving: &Starving) -> (Duration, Duration) {
    lab.restart_trace(1e-12);
    let before = starving.until_counted(lab, Instant::now());
    let (began, before_ns) = (Instant::now(), starving.victim.run_ns());
    let mut waited = Duration::ZERO;
    // Patience is a matter of the clock that poll is given.
    for second in 1..=6 {
        sleep(Duration::from_millis(25));
        if lab.trace().report().mode == TraceMode::Continuous {
            let ran = Duration::from_nanos(starving.victim.run_ns() - before_ns);
            waited = began.elapsed().saturating_sub(ran);
        }
        lab.poll_at(began + Duration::from_secs(second), &[]);
    }
    assert_eq!(lab.trace().report().mode, TraceMode::Detached);
    (waited, starving.counted(lab) - before)
}

/// The first poll reads what the program counted until then, not until the poll before.
#[test]
fn a_poll_shows_the_waits_in_progress() {
    let mut lab = Lab::with_budget(1.0);
    let starving = Starving::new(&mut lab);
    starving.go();
    lab.restart_trace(1.0);
    let before = starving.until_counted(&mut lab, Instant::now());
    let (began, before_ns) = (Instant::now(), starving.victim.run_ns());
    sleep(Duration::from_millis(300));
    let ran = Duration::from_nanos(starving.victim.run_ns() - before_ns);
    let waited = began.elapsed().saturating_sub(ran);
    lab.poll(&[]);
    let counted = starving.counted(&mut lab) - before;
    starving.stop();
    println!("waited {waited:?}, counted {counted:?}");
    // The run queue's clock is as old as its last tick.
    assert!(counted > waited / 2, "waited {waited:?}, counted {counted:?}");
}
