//! The trace's thread, with a program that no kernel has to load.

use std::sync::atomic::{AtomicU32, Ordering};

use metrics::{Build, Exposition, Format};
use sched_trace::{Owners, RunDelay, WaitReport};
use snapshot::{NodeSnapshot, TraceMode};

use super::*;

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
        published: Published::default(),
        slot: Published::default(),
        metrics: Arc::new(AgentMetrics::new(Build { version: "0", revision: "0" })),
        watchdog: Watchdog::new(),
    }
}

fn page(metrics: &AgentMetrics) -> String {
    let mut exposition = Exposition::new(1000);
    String::from_utf8_lossy(exposition.render(&NodeSnapshot::default(), metrics, Format::Text)).into_owned()
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
    let (wiring, polls, loads) = (wiring(), Arc::<AtomicU32>::default(), Arc::<AtomicU32>::default());
    let report = WaitReport {
        mode: TraceMode::Continuous,
        containers: Vec::new(),
        interference: Vec::new(),
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
    let (tracing, _outcome) = Tracing::spawn(wiring.clone(), true, start).unwrap();
    let feature = || wiring.slot.latest().feature.clone();
    eventually("the panic", || feature().is_some_and(|feature| feature.reason.contains("its thread has panicked")));
    assert!(wiring.slot.latest().trace.is_none(), "nothing is claimed meanwhile");
    eventually("the next program", || feature().is_some_and(|feature| feature.enabled));
    assert_eq!((loads.load(Ordering::Relaxed), wiring.slot.latest().trace.as_ref().unwrap().switches), (2, 7));
    let restarts = "cpuwarden_subsystem_restarts_total{subsystem=\"sched_trace\"} 1";
    assert!(page(&wiring.metrics).contains(restarts), "{}", page(&wiring.metrics));
    assert!(wiring.watchdog.silent().is_empty(), "it is watched, and beats");
    eventually("another poll", || polls.load(Ordering::Relaxed) > 2);
    drop(tracing);
    eventually("the end of the thread", || !wiring.watchdog.silent().is_empty());
}

#[test]
fn a_trace_that_cannot_be_loaded_is_no_subsystem() {
    let wiring = wiring();
    let start = || Err::<PanicsOnce, _>(NotTraced::NoKernelCgroups);
    let (_tracing, outcome) = Tracing::spawn(wiring.clone(), true, start).unwrap();
    let error = outcome.blocking_recv().unwrap().unwrap_err();
    assert!(error.starts_with("no_cgroups"), "{error}");
    eventually("the end of the watch", || wiring.watchdog.silent().is_empty());
    assert!(!wiring.slot.latest().feature.clone().unwrap().enabled);
}
