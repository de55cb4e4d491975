//! Compares cpuwarden with five published methods that name the pod for which another pod waits, on
//! the same streams of scheduler events. Needs nothing; takes seconds.
//!
//! A small scheduler in virtual time, like CFS with bandwidth control, plays one minute of each case
//! in `methods/scenes.rs` and reports switches, wakeups, migrations and throttles. It also integrates
//! exactly who ran while the victim waited. The cause of each case is checked by removal: without
//! this workload the victim waits at most a third as long, and without any other it does not.
//!
//! Printed: right, wrong and undecided by method, and the seconds blamed on the wrong pod or on none,
//! in comparison with the exact integral; then what the trace finds in bursts.
//! `cargo bench -p analysis --bench blame`

#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[allow(dead_code, reason = "a test uses the rest")]
mod methods;

fn main() {
    println!("{}", methods::report(&methods::rows()));
    println!("{}", methods::report(&methods::recorded_rows()));
    print!("{}", methods::bursts::report());
}
