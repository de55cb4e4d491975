//! The trace in bursts of one second out of four: what their counts say of all waits.

use super::attribution::{Attribution, Found};
use super::scene::{Event, Kind, LENGTH, MS, Ns, SECOND, Scene};
use super::scenes::cases;
use super::scheduler::Scheduler;
use super::stream::Stream;

const ONE_OF: Ns = 4;
/// Cases with less waiting are left out.
const LEAST: Ns = SECOND;

/// The table, as in `benches/README.md`.
pub(crate) fn report() -> String {
    let mut text = String::from("| case | mean wait | with its cause | without a cause | sum |\n");
    text += "|---|---|---|---|---|\n";
    for case in cases() {
        let (events, exact) = Scheduler::run(&case.scene);
        if exact.waited < LEAST {
            continue;
        }
        let found = estimated(&case.scene, &events);
        let percent = |ns: Ns| 100.0 * ns as f64 / exact.waited as f64;
        let (known, unknown) = (percent(found.cause + found.throttled), percent(found.unknown));
        let mean = exact.waited as f64 / waits(&case.scene, &events) as f64 / MS as f64;
        let sum = known + unknown;
        let name = case.name;
        text +=
            &format!("| {name} | {mean:.0} ms | {known:.0} % | {unknown:.0} % | {sum:.0} % |\n");
    }
    text
}

/// The mean of four estimates, each from other seconds. All count as often as they are multiplied.
fn estimated(scene: &Scene, events: &[Event]) -> Found {
    let mut sum = Found::default();
    for phase in 0..ONE_OF {
        let found = in_bursts(scene, events, phase);
        sum.cause += found.cause;
        sum.throttled += found.throttled;
        sum.unknown += found.unknown;
    }
    sum
}

fn in_bursts(scene: &Scene, events: &[Event], phase: Ns) -> Found {
    let mut attribution = Attribution::new(Stream::new(scene));
    let is_burst = |second: Ns| second % ONE_OF == phase;
    let (mut second, mut is_attached) = (0, is_burst(0));
    for event in events {
        while event.at >= (second + 1) * SECOND {
            second += 1;
            if is_attached {
                attribution.take(second * SECOND);
            }
            is_attached = is_burst(second);
            if is_attached {
                attribution.begin_session();
            }
        }
        match is_attached {
            true => attribution.apply(event),
            false => attribution.stream.apply(event),
        }
    }
    if is_attached {
        attribution.take(LENGTH);
    }
    attribution.found
}

/// Number of the victim's waits.
fn waits(scene: &Scene, events: &[Event]) -> usize {
    let mut stream = Stream::new(scene);
    let mut count = 0;
    for event in events {
        if let Kind::Switch { next: Some(next), .. } = event.kind {
            let has_waited = stream.threads[next].waits.is_some_and(|since| since < event.at);
            count += usize::from(has_waited && stream.pod(next) == scene.victim);
        }
        stream.apply(event);
    }
    count
}
