//! The limit on series: whole families are dropped, in the order of the reference, and every
//! dropped series is counted.

use metrics::catalogue::{self, Preset, Scope, Selection};
use metrics::{Exposition, Format};
use proptest::prelude::*;

use crate::{FORMATS, NO_CAP, parser::Family, read, snapshots};

const DROPPED: &str = "cpuwarden_series_dropped_total";

fn series(families: &[Family]) -> usize {
    families.iter().map(|family| family.samples.len()).sum()
}

fn dropped(families: &[Family]) -> usize {
    let mut samples = families.iter().flat_map(|family| &family.samples);
    let sample =
        samples.find(|sample| sample.name == DROPPED).expect("the counter is on every page");
    sample.value.parse().expect("it counts whole series")
}

/// Series of a family, without the values.
fn of(families: &[Family], name: &str) -> Vec<String> {
    let samples =
        families.iter().filter(|family| name_of(family) == name).flat_map(|family| &family.samples);
    samples.map(|sample| format!("{} {:?}", sample.name, sample.labels)).collect()
}

/// Name of the family in the text format.
fn name_of(family: &Family) -> &str {
    let found = family.samples.first().and_then(|sample| catalogue::find(&sample.name));
    found.map_or(&family.name, |(_, descriptor)| descriptor.name)
}

/// A node with 5 pods with a quota and 10 containers, of which every other has no quota.
fn node() -> snapshot::NodeSnapshot {
    let (mut snapshot, maximal) = (snapshots::node(10), snapshots::maximal());
    snapshot.waits = maximal.waits;
    snapshot.pods = (0..5).map(snapshots::pod).collect();
    for (n, row) in snapshot.containers.iter_mut().enumerate() {
        row.identity = snapshots::identity(&format!("namespace-{n}"), "cart", &format!("c{n}"));
        row.gc.clone_from(&maximal.containers[0].gc);
        if n % 2 == 1 {
            (row.cfs, row.windows) = (None, None);
        }
    }
    snapshot
}

/// The families that the cap drops, first to last, as the reference lists them, and whether some
/// series stay.
fn order() -> Vec<(String, bool)> {
    let reference = catalogue::reference();
    let (_, list) = reference.split_once("## Order in which").expect("the reference has the order");
    let name = |line: &str| Some(line.split_once(". `")?.1.split('`').next()?.to_owned());
    list.lines().filter_map(|line| Some((name(line)?, line.contains("but not")))).collect()
}

#[test]
fn one_series_above_the_cap_drops_one_whole_family() {
    let snapshot = node();
    let page = |cap| {
        read(
            Exposition::new(cap).render(&snapshot, &snapshots::agent(), Format::Text),
            Format::Text,
        )
    };
    let whole = page(NO_CAP);
    let total = series(&whole);

    let at = page(total);
    assert_eq!((series(&at), dropped(&at)), (total, 0));

    let below = page(total - 1);
    let (first, _) = order().remove(0);
    let family = of(&whole, &first).len();
    assert!(family > 0, "{first}");
    assert_eq!((series(&below), dropped(&below)), (total - family, family), "{first}");
}

#[test]
fn the_usage_of_every_namespace_is_the_last_to_go() {
    let snapshot = node();
    let usage = "cpuwarden_container_cpu_usage_seconds_total";
    let fixed =
        read(Exposition::new(1).render(&snapshot, &snapshots::agent(), Format::Text), Format::Text);
    assert!(of(&fixed, usage).is_empty());
    let cap = series(&fixed) + snapshot.containers.len();
    let page = read(
        Exposition::new(cap).render(&snapshot, &snapshots::agent(), Format::Text),
        Format::Text,
    );
    assert_eq!(of(&page, usage).len(), snapshot.containers.len());
}

#[test]
fn each_page_that_leaves_series_out_counts_them() {
    let (snapshot, agent, mut exposition) = (node(), snapshots::agent(), Exposition::new(200));
    let first = read(exposition.render(&snapshot, &agent, Format::Text), Format::Text);
    let second =
        read(exposition.render(&snapshot, &agent, Format::OpenMetrics), Format::OpenMetrics);
    assert!(dropped(&first) > 0);
    assert_eq!(dropped(&second), 2 * dropped(&first));
}

#[test]
fn a_dropped_family_returns_only_with_room_to_spare() {
    let (all, agent) = (node(), snapshots::agent());
    let mut fewer = all.clone();
    fewer.containers.truncate(9);
    let mut least = all.clone();
    least.containers.truncate(4);
    let count = |snapshot| {
        series(&read(Exposition::new(NO_CAP).render(snapshot, &agent, Format::Text), Format::Text))
    };
    let mut exposition = Exposition::new(count(&fewer));
    let mut dropped_at = |snapshot| {
        let before =
            dropped(&read(exposition.render(snapshot, &agent, Format::Text), Format::Text));
        dropped(&read(exposition.render(snapshot, &agent, Format::Text), Format::Text)) - before
    };
    assert_eq!(dropped_at(&fewer), 0);
    assert!(dropped_at(&all) > 0);
    assert!(dropped_at(&fewer) > 0, "it would fit exactly");
    assert_eq!(dropped_at(&least), 0);
}

#[test]
fn the_page_of_cadvisors_names_drops_families_from_its_end() {
    let snapshot = node();
    let page = |cap| {
        let agent = snapshots::agent();
        read(Exposition::new(cap).render_cadvisor(&snapshot, &agent, Format::Text), Format::Text)
    };
    let whole = page(NO_CAP);
    let below = page(series(&whole) - 1);
    let names = |families: &[Family]| -> Vec<String> {
        families.iter().map(|family| family.name.clone()).collect()
    };
    assert_eq!(names(&below), names(&whole)[..whole.len() - 1]);
}

proptest! {
    // Each case strictly parses a page several times.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_cap_drops_families_in_the_order_of_the_reference_and_counts_their_series(
        cap in 0..700_usize,
        preset in prop::sample::select(Preset::ALL.to_vec()),
    ) {
        let (snapshot, agent) = (node(), snapshots::agent());
        let render = |cap, agent: &_, format| {
            let mut exposition = Exposition::with_selection(cap, Selection::preset(preset));
            read(exposition.render(&snapshot, agent, format), format)
        };
        let whole = render(NO_CAP, &agent, Format::Text);
        let rows = |family: &&Family| catalogue::find(&family.samples[0].name)
            .is_some_and(|(scope, _)| !matches!(scope, Scope::Node | Scope::Agent));
        let of_rows: usize = whole.iter().filter(rows).map(|family| family.samples.len()).sum();
        let fixed = series(&whole) - of_rows;
        for format in FORMATS {
            let page = render(cap, &snapshots::agent(), format);
            prop_assert!(series(&page) <= cap.max(fixed) && series(&page) >= fixed);
            prop_assert_eq!(series(&page) + dropped(&page), series(&whole));
            if preset != Preset::Full {
                continue;
            }
            // Once a step is not taken, no later one is. Where the trace runs, the brief forms of
            // some are empty.
            let mut is_over = false;
            let mut standard = Exposition::with_selection(NO_CAP, Selection::preset(Preset::Standard));
            let standard = read(standard.render(&snapshot, &agent, Format::Text), Format::Text);
            let is_empty_brief = |name: &str| order().contains(&(name.to_owned(), true)) && of(&standard, name).is_empty();
            for (name, is_brief) in order() {
                let (shown, there) = (of(&page, &name).len(), of(&whole, &name).len());
                if !is_brief && is_empty_brief(&name) {
                    continue;
                }
                let is_taken = if is_brief { shown < there } else { shown == 0 };
                prop_assert!(!is_over || !is_taken, "{} goes before its turn", name);
                is_over |= !is_taken;
            }
        }
    }
}
