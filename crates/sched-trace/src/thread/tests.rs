//! The trace's thread, with a program that no kernel has to load.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use snapshot::TraceMode;

use super::*;
use crate::{Owners, RunDelay, WaitReport};

/// A program whose first poll panics.
struct PanicsOnce {
    polls: Arc<AtomicU32>,
    report: WaitReport,
}

impl Program for PanicsOnce {
    fn poll(&mut self, _: Instant, _: &mut dyn Owners, _: &[RunDelay]) -> &WaitReport {
        assert!(self.polls.fetch_add(1, Ordering::Relaxed) > 0, "on purpose");
        &self.report
    }
}

fn wiring() -> Wiring {
    let directory = || Some("/nowhere".into());
    let hierarchy = Hierarchy {
        version: kernel_text::CgroupVersion::V2,
        hybrid: false,
        cpu: "/nowhere".into(),
        cpuacct: directory(),
        cpuset: directory(),
        memory: directory(),
    };
    Wiring {
        hierarchy,
        tree: None,
        published: Published::default(),
        slot: Published::default(),
        watchdog: Watchdog::new(),
    }
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_trace_whose_thread_panicked_is_loaded_again_and_counted() {
    let (wiring, polls, loads) =
        (wiring(), Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let report = WaitReport {
        mode: TraceMode::Continuous,
        containers: Vec::new(),
        interference: Vec::new(),
        lost: Vec::new(),
        losses: Default::default(),
        switches: 7,
        run_ns: 0,
    };
    let start = {
        let (polls, loads) = (Arc::clone(&polls), Arc::clone(&loads));
        move || {
            loads.fetch_add(1, Ordering::Relaxed);
            Ok(PanicsOnce { polls: Arc::clone(&polls), report: report.clone() })
        }
    };
    let (started, panics) = (mpsc::channel(), Arc::<AtomicU32>::default());
    let panicked = {
        let panics = Arc::clone(&panics);
        move || {
            panics.fetch_add(1, Ordering::Relaxed);
        }
    };
    let tracing = spawn_with(
        wiring.clone(),
        start,
        move |outcome| started.0.send(outcome).unwrap(),
        panicked,
    )
    .unwrap();
    assert!(started.1.recv().unwrap().is_ok());
    let feature = || wiring.slot.latest().feature.clone();
    eventually("the panic", || {
        feature().is_some_and(|feature| feature.reason.contains("the trace's thread panicked"))
    });
    assert!(wiring.slot.latest().trace.is_none(), "nothing is claimed meanwhile");
    eventually("the next program", || feature().is_some_and(|feature| feature.enabled));
    assert_eq!(
        (loads.load(Ordering::Relaxed), wiring.slot.latest().trace.as_ref().unwrap().switches),
        (2, 7)
    );
    assert_eq!(panics.load(Ordering::Relaxed), 1);
    assert!(wiring.watchdog.silent().is_empty(), "it is watched, and beats");
    eventually("another poll", || polls.load(Ordering::Relaxed) > 2);
    drop(tracing);
    eventually("the end of the thread", || !wiring.watchdog.silent().is_empty());
}

#[test]
fn a_trace_that_cannot_be_loaded_is_no_subsystem() {
    let wiring = wiring();
    let ((say, outcome), (hand, counters)) = (mpsc::channel(), mpsc::channel());
    let options = Options { sys_root: "/nowhere".into(), budget: 0.01 };
    let started = move |outcome| say.send(outcome).unwrap();
    let collected = move |counters| hand.send(counters).unwrap();
    let _tracing = spawn(options, wiring.clone(), started, Some(collected), || ()).unwrap();
    let error = outcome.recv().unwrap().unwrap_err();
    assert_eq!(error.reason(), "no_cgroups");
    assert_eq!(counters.recv().unwrap().unwrap_err(), error.summary());
    eventually("the end of the watch", || wiring.watchdog.silent().is_empty());
    assert!(!wiring.slot.latest().feature.clone().unwrap().enabled);
}

#[test]
fn polls_come_shortly_before_the_ticks_of_the_sampler() {
    let start = Instant::now();
    let second = |number: u32| INTERVAL * number;
    for offset in [0, 100, 400, 600, 849, 850, 851, 990] {
        let mut poll = start;
        for number in 1..=12 {
            let ticked = start + second(number) - INTERVAL + Duration::from_millis(offset);
            let next = next_poll(poll, Some(ticked));
            assert!(next >= poll + INTERVAL - MAX_SHIFT && next <= poll + INTERVAL + MAX_SHIFT);
            poll = next;
        }
        let to_tick =
            (start + second(13) + Duration::from_millis(offset) - poll).as_millis() % 1000;
        assert_eq!(to_tick, LEAD.as_millis(), "{offset}");
    }
    assert_eq!(next_poll(start, None), start + INTERVAL);
}
