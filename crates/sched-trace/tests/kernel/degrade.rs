//! Without the right to it there is no trace, and nothing worse.

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use sched_trace::{Options, SchedTrace};

use crate::lab::Lab;

#[test]
fn kernel_missing_capabilities_are_reported() {
    // What BPF can do here is probed once in a process: with capabilities.
    let lab = Lab::new();
    let refused = std::thread::spawn(|| {
        let none = CapabilitySet::empty();
        set_capabilities(
            None,
            CapabilitySets { effective: none, permitted: none, inheritable: none },
        )
        .unwrap();
        SchedTrace::start(&Options::default()).map(drop).unwrap_err()
    });
    let error = refused.join().unwrap();
    assert_eq!(error.reason(), "not_permitted", "{error:?}");
    drop(lab);
}
