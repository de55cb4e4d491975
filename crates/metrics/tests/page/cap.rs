//! The limit on series: whole rows are dropped, always the same ones, and every dropped series is counted.

use metrics::{Exposition, Format};
use proptest::prelude::*;

use crate::{FORMATS, NO_CAP, parser::Family, read, snapshots};

const DROPPED: &str = "cpuwarden_series_dropped_total";

fn series(families: &[Family]) -> usize {
    families.iter().map(|family| family.samples.len()).sum()
}

fn dropped(families: &[Family]) -> usize {
    let mut samples = families.iter().flat_map(|family| &family.samples);
    let sample = samples.find(|sample| sample.name == DROPPED).expect("the counter is on every page");
    sample.value.parse().expect("it counts whole series")
}

/// Series with the value `value` of the label `name`, each with its identity and value, in the page's order.
fn of(families: &[Family], name: &str, value: &str) -> Vec<String> {
    let samples = families.iter().flat_map(|family| &family.samples);
    samples.filter(|sample| sample.label(name) == Some(value)).map(|sample| format!("{sample:?}")).collect()
}

/// A node with 5 pods with a quota and 10 containers. Every other container has no quota and thus fewer series, so that
/// a later row could fit where an earlier one does not.
fn node() -> snapshot::NodeSnapshot {
    let mut snapshot = snapshots::node(10);
    snapshot.pods = (0..5).map(snapshots::pod).collect();
    for (n, row) in snapshot.containers.iter_mut().enumerate() {
        row.identity = snapshots::identity("shop", "cart", &format!("c{n}"));
        if n % 2 == 1 {
            (row.cfs, row.windows) = (None, None);
        }
    }
    snapshot
}

#[test]
fn a_page_at_the_cap_is_whole_and_one_series_less_drops_a_row() {
    let snapshot = node();
    let whole = read(Exposition::new(NO_CAP).render(&snapshot, &snapshots::agent(), Format::Text), Format::Text);
    let total = series(&whole);

    let at = read(Exposition::new(total).render(&snapshot, &snapshots::agent(), Format::Text), Format::Text);
    assert_eq!((series(&at), dropped(&at)), (total, 0));

    let below = read(Exposition::new(total - 1).render(&snapshot, &snapshots::agent(), Format::Text), Format::Text);
    // The advice row is the last.
    let last = of(&whole, "container", "main");
    assert_eq!((series(&below), dropped(&below)), (total - last.len(), last.len()));
    assert!(of(&below, "container", "main").is_empty());
    assert_eq!(of(&below, "container", "c9"), of(&whole, "container", "c9"));
}

#[test]
fn each_page_that_leaves_series_out_counts_them() {
    let (snapshot, agent, mut exposition) = (node(), snapshots::agent(), Exposition::new(200));
    let first = read(exposition.render(&snapshot, &agent, Format::Text), Format::Text);
    let second = read(exposition.render(&snapshot, &agent, Format::OpenMetrics), Format::OpenMetrics);
    assert!(dropped(&first) > 0);
    assert_eq!(dropped(&second), 2 * dropped(&first));
}

proptest! {
    // Each case strictly parses a page several times.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cap_keeps_whole_rows_from_the_front_and_counts_the_rest(cap in 0..700_usize) {
        let (snapshot, agent) = (node(), snapshots::agent());
        let whole = read(Exposition::new(NO_CAP).render(&snapshot, &agent, Format::Text), Format::Text);
        let mut empty = snapshot.clone();
        (empty.pods, empty.containers) = (Vec::new(), Vec::new());
        agent.advice().set(Vec::new());
        let fixed = series(&read(Exposition::new(NO_CAP).render(&empty, &agent, Format::Text), Format::Text));
        for format in FORMATS {
            let agent = snapshots::agent();
            let page = read(Exposition::new(cap).render(&snapshot, &agent, format), format);
            prop_assert!(series(&page) <= cap.max(fixed));
            prop_assert!(series(&page) >= fixed);
            prop_assert_eq!(series(&page) + dropped(&page), series(&whole));
            let rows = snapshot.pods.iter().map(|pod| ("pod", pod.identity.pod.clone()));
            let rows = rows.chain(snapshot.containers.iter().map(|row| ("container", row.identity.container.clone())));
            // The advice row is the last.
            let rows = rows.chain([("container", "main".to_owned())]);
            let mut cut = false;
            for (label, name) in rows {
                let shown = of(&page, label, &name);
                cut |= shown.is_empty();
                prop_assert!(shown.is_empty() || !cut, "{} came back behind the cut", name);
                prop_assert!(shown.is_empty() || shown == of(&whole, label, &name), "{} is not whole", name);
            }
        }
    }
}
