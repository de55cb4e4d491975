//! Without the right to them, neither program is loaded, and nothing worse happens.

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
use sched_trace::{GroupCounters, KernelTypes, Options, SchedTrace};

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
        let options = Options::default();
        let types = KernelTypes::read(&options.sys_root).unwrap();
        let version = testkit::try_hierarchy().unwrap().version;
        let counters = GroupCounters::load(&options.sys_root, &types, version).map(drop);
        [SchedTrace::start(&options).map(drop), counters].map(Result::unwrap_err)
    });
    for error in refused.join().unwrap() {
        assert_eq!(error.reason(), "not_permitted", "{error:?}");
    }
    drop(lab);
}
