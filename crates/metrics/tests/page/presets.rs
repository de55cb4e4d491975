//! Presets of families: their number of series for a container, and what each must have.

use std::collections::{BTreeMap, BTreeSet};

use metrics::catalogue::{CadvisorGroup, Preset, Selection};
use metrics::{Exposition, Format};
use snapshot::{Bandwidth, ContainerRow, Limit, NodeSnapshot, Quota};

use crate::parser::{Family, Sample};
use crate::{FORMATS, NO_CAP, read, snapshots};

/// Maximum number of series of a container with a quota, and of one without.
const LIMITS: [(Preset, usize, usize); 2] = [(Preset::Lean, 10, 6), (Preset::Standard, 22, 12)];

fn page(snapshot: &NodeSnapshot, selection: &Selection) -> Vec<Family> {
    let mut exposition = Exposition::with_selection(NO_CAP, selection.clone());
    read(exposition.render(snapshot, &snapshots::agent(), Format::Text), Format::Text)
}

/// Series of the first pod's container with this name.
pub(crate) fn of_container<'f>(families: &'f [Family], name: &str) -> Vec<&'f Sample> {
    let samples = families.iter().flat_map(|family| &family.samples);
    samples.filter(|sample| sample.label("container") == Some(name)).collect()
}

/// A node with one container with every value, traced or not.
fn node(with_quota: bool, traced: bool) -> NodeSnapshot {
    let mut snapshot = snapshots::maximal();
    snapshot.containers.truncate(1);
    let row = &mut snapshot.containers[0];
    row.identity = snapshots::identity("shop", "cart-1", "main");
    if !with_quota {
        *row = without_quota(row);
    }
    if !traced {
        row.waits = None;
        snapshot.waits = Default::default();
    }
    snapshot
}

/// The row as it is without a quota at any level.
pub(crate) fn without_quota(row: &ContainerRow) -> ContainerRow {
    let mut waits = row.waits.as_deref().copied().expect("a traced row");
    waits.throttled_ns = 0;
    ContainerRow {
        cfs: None,
        windows: None,
        throttled_ancestor_ns: None,
        cpu_limit: Limit::Unlimited,
        bandwidth: row.bandwidth.map(|own| Bandwidth { quota: Quota::Max, ..own }),
        waits: Some(waits.into()),
        ..row.clone()
    }
}

#[test]
fn the_page_of_cadvisors_names_has_the_chosen_groups_only() {
    let page = |groups: &[CadvisorGroup]| {
        let mut exposition = Exposition::new(NO_CAP).with_cadvisor_groups(groups);
        let (snapshot, agent) = (snapshots::maximal(), snapshots::agent());
        let page = exposition.render_cadvisor(&snapshot, &agent, Format::Text);
        let families = read(page, Format::Text);
        families.into_iter().map(|family| family.name).collect::<Vec<_>>()
    };
    let all = page(&CadvisorGroup::ALL);
    let each: Vec<_> = CadvisorGroup::ALL.iter().flat_map(|group| page(&[*group])).collect();
    assert_eq!(each, all, "each family is in one group");
    assert_eq!(page(&[CadvisorGroup::Threads]), ["container_threads"]);
    let gap = page(&[CadvisorGroup::Pressure, CadvisorGroup::Quota]);
    assert_eq!((gap.len(), &*gap[0]), (7, "container_spec_cpu_quota"));
    assert_eq!(page(&[]), [""; 0]);
}

#[test]
fn the_page_of_cadvisors_names_has_no_sandbox() {
    let mut snapshot = node(true, false);
    let page = |snapshot: &NodeSnapshot| {
        let agent = snapshots::agent();
        let mut exposition = Exposition::new(NO_CAP);
        let page = exposition.render_cadvisor(snapshot, &agent, Format::Text);
        read(page, Format::Text).iter().map(|family| family.samples.len()).sum::<usize>()
    };
    assert!(page(&snapshot) > 0);
    snapshot.containers[0].identity = snapshots::identity("shop", "cart-1", "POD");
    assert_eq!(page(&snapshot), 0);
}

#[test]
fn a_container_has_no_more_series_than_its_preset_allows() {
    for (preset, with, without) in LIMITS {
        for traced in [false, true] {
            for (with_quota, most) in [(true, with), (false, without)] {
                let families = page(&node(with_quota, traced), &Selection::preset(preset));
                let mut series = of_container(&families, "main");
                // In every preset, but only with options that are off by default: one for each
                // variable that a pod asks for, one for a burst, and garbage collection.
                let optional = [
                    "cpuwarden_container_injected_env_info",
                    "cpuwarden_container_burst_seconds",
                    "cpuwarden_container_gc_",
                ];
                series.retain(|one| !optional.iter().any(|start| one.name.starts_with(start)));
                assert!(
                    series.len() <= most,
                    "{preset:?}, quota {with_quota}, traced {traced}: {series:#?}"
                );
            }
        }
    }
}

#[test]
fn full_is_everything_and_has_the_histograms_of_the_trace() {
    let families = page(&node(true, true), &Selection::preset(Preset::Full));
    let of_all = read(
        Exposition::new(NO_CAP).render(&node(true, true), &snapshots::agent(), Format::Text),
        Format::Text,
    );
    assert_eq!(of_container(&families, "main").len(), of_container(&of_all, "main").len());
    for name in [
        "cpuwarden_container_runqueue_latency_seconds",
        "cpuwarden_container_throttle_stall_seconds",
    ] {
        assert!(families.iter().any(|family| family.name == name), "{name}");
    }
}

#[test]
fn a_larger_preset_only_adds_series() {
    let of = |preset| -> BTreeSet<String> {
        let families = page(&node(true, true), &Selection::preset(preset));
        let samples = families.iter().flat_map(|family| &family.samples);
        // Lean has the usage without its modes.
        let of_modes = |sample: &&Sample| !sample.name.contains("cpu_usage");
        samples
            .filter(of_modes)
            .map(|sample| format!("{} {:?}", sample.name, sample.labels))
            .collect()
    };
    let [lean, standard, full] = Preset::ALL.map(of);
    assert!(lean.is_subset(&standard) && standard.is_subset(&full));
    assert!(lean.len() < standard.len() && standard.len() < full.len());
}

#[test]
fn lean_has_the_usage_in_one_series_with_the_same_sum() {
    let usage = |preset| -> (usize, f64) {
        let families = page(&node(true, true), &Selection::preset(preset));
        let series = of_container(&families, "main")
            .into_iter()
            .filter(|sample| sample.name.contains("cpu_usage"));
        let values: Vec<f64> = series.map(|sample| sample.value.parse().unwrap()).collect();
        (values.len(), values.iter().sum())
    };
    let (lean, standard) = (usage(Preset::Lean), usage(Preset::Standard));
    assert_eq!((lean.0, standard.0), (1, 2));
    // On cgroup v1 the modes are rounded down to 10 ms each.
    assert!((lean.1 - standard.1).abs() <= 0.02, "{lean:?} {standard:?}");
}

#[test]
fn series_that_are_always_zero_or_absent_are_not_exported() {
    for preset in Preset::ALL {
        let families = page(&node(false, true), &Selection::preset(preset));
        for sample in of_container(&families, "main") {
            let is_of_quota =
                ["cfs", "throttled", "cpu_limit"].iter().any(|part| sample.name.contains(part));
            let is_advised = sample.name.contains("recommended");
            assert!(
                is_advised || !is_of_quota && sample.label("cause") != Some("throttled"),
                "{sample:?}"
            );
        }
    }
}

#[test]
fn no_histogram_of_shares_has_a_bucket_beside_the_last() {
    let families = page(&snapshots::maximal(), &Selection::preset(Preset::Full));
    for family in families.iter().filter(|family| family.name.ends_with("window_ratio")) {
        let bounds: BTreeSet<_> =
            family.samples.iter().filter_map(|sample| sample.label("le")).collect();
        assert_eq!(
            bounds,
            BTreeSet::from(["0.0", "0.1", "0.25", "0.5", "0.9", "+Inf"]),
            "{}",
            family.name
        );
    }
}

#[test]
fn a_family_is_switched_on_and_off_on_top_of_a_preset() {
    let names = |selection: &Selection| -> BTreeSet<String> {
        page(&node(true, true), selection).into_iter().map(|family| family.name).collect()
    };
    let mut selection = Selection::preset(Preset::Lean);
    let before = names(&selection);
    selection.switch("container_threads", true).unwrap();
    selection.switch("cpuwarden_node_steal_seconds_total", false).unwrap();
    selection.switch("pool_cpus", false).unwrap();
    let after = names(&selection);
    let changed: Vec<_> = before.symmetric_difference(&after).map(String::as_str).collect();
    assert_eq!(
        changed,
        [
            "cpuwarden_container_threads",
            "cpuwarden_node_steal_seconds_total",
            "cpuwarden_pool_cpus"
        ]
    );
}

#[test]
fn every_preset_is_a_valid_page_in_both_formats() {
    for preset in Preset::ALL {
        let [text, openmetrics] = FORMATS.map(|format| {
            let mut exposition = Exposition::with_selection(NO_CAP, Selection::preset(preset));
            let families =
                read(exposition.render(&snapshots::maximal(), &snapshots::agent(), format), format);
            let samples = families.iter().flat_map(|family| &family.samples);
            let values: BTreeMap<String, String> = samples
                .map(|sample| {
                    (format!("{} {:?}", sample.name, sample.labels), sample.value.clone())
                })
                .collect();
            values
        });
        assert_eq!(text, openmetrics, "{preset:?}");
    }
}
