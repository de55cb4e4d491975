//! Content of a page.

use std::collections::BTreeSet;
use std::sync::Arc;

use kubepods::model::Owner;
use metrics::catalogue::{self, MetricKind, Scope};
use metrics::{AgentMetrics, Build, Exposition, Format};
use proptest::prelude::*;
use snapshot::{
    CfsTotals, ContainerIdentity, ContainerRow, CpuLimit, CpusetRow, Limit, NodeSnapshot,
    PodIdentity, PodRow, WindowHistogram, labels,
};

use crate::{FORMATS, NO_CAP, read, snapshots};

#[test]
fn every_metric_of_the_catalogue_is_exposed_as_declared() {
    for format in FORMATS {
        let mut exposition = Exposition::new(NO_CAP);
        let families =
            read(exposition.render(&snapshots::maximal(), &snapshots::agent(), format), format);
        let exposed: BTreeSet<_> = families.iter().map(|family| family.name.as_str()).collect();
        for (scope, descriptor) in catalogue::all() {
            let name = if format == Format::Text { descriptor.name } else { descriptor.family() };
            assert!(exposed.contains(name), "{name} is not on the {format:?} page");
            let family = families.iter().find(|family| family.name == name).unwrap();
            assert_eq!(
                (family.kind, family.help.as_str()),
                (descriptor.kind, descriptor.help),
                "{name}"
            );
            let unit = descriptor.unit().filter(|_| format == Format::OpenMetrics);
            assert_eq!(family.unit.as_deref(), unit, "{name}");
            let declared: BTreeSet<_> =
                scope.labels().iter().chain(descriptor.labels).copied().collect();
            let mut seen: BTreeSet<_> = family
                .samples
                .iter()
                .flat_map(|sample| &sample.labels)
                .map(|(name, _)| name.as_str())
                .collect();
            assert_eq!(seen.remove("le"), descriptor.kind == MetricKind::Histogram, "{name}");
            // The maximal node does not know the NUMA nodes of its CPUs.
            assert!(
                seen.is_subset(&declared)
                    && (seen == declared || name == "cpuwarden_node_cpu_info"),
                "{name}"
            );
        }
        assert_eq!(
            exposed.len(),
            catalogue::all().count(),
            "a family that is not in the catalogue"
        );
    }
}

#[test]
fn names_keep_the_rules_of_prometheus() {
    for (scope, descriptor) in catalogue::all() {
        let name = descriptor.name;
        let prefix = match scope {
            Scope::Container => "cpuwarden_container_",
            Scope::Pod => "cpuwarden_pod_",
            Scope::Interference => "cpuwarden_interference_",
            // Names used by every client library.
            Scope::Node if name.starts_with("process_") => "process_",
            Scope::Node | Scope::Agent => "cpuwarden_",
        };
        assert!(name.starts_with(prefix), "{name}");
        assert_eq!(name.ends_with("_total"), descriptor.kind == MetricKind::Counter, "{name}");
        assert!(
            !descriptor.help.contains(['\\', '\n', '"', '|']),
            "{name}: its HELP text would need escapes"
        );
        assert!(descriptor.help.ends_with('.'), "{name}: its HELP text is no sentence");
        let own = |label: &&str| ["node", "le"].contains(label) || scope.labels().contains(label);
        assert!(!descriptor.labels.iter().any(own), "{name}");
    }
}

#[test]
fn a_sample_name_leads_to_its_metric() {
    let name_of =
        |sample| catalogue::find(sample).map(|(scope, descriptor)| (scope, descriptor.name));
    let ratio = "cpuwarden_container_throttled_window_ratio";
    assert_eq!(
        name_of("cpuwarden_container_throttled_window_ratio_bucket"),
        Some((Scope::Container, ratio))
    );
    assert_eq!(name_of(ratio), None, "a histogram has no sample of its own name");
    let source_up = "cpuwarden_pod_source_up";
    assert_eq!(name_of(source_up), Some((Scope::Agent, source_up)));
    assert_eq!(name_of("cpuwarden_container_threads_total"), None);
}

#[test]
fn the_reference_lists_every_metric_once() {
    let reference = catalogue::reference();
    let (tables, _) = reference.split_once("## Only for queries").unwrap();
    for (_, descriptor) in catalogue::all() {
        assert_eq!(
            tables.matches(&format!("| `{}` |", descriptor.name)).count(),
            1,
            "{}",
            descriptor.name
        );
    }
    assert!(reference.contains(
        "| `cpuwarden_container_numa_memory_bytes` | gauge | bytes | `numa_node` | full | Memory of the container on each \
         NUMA node. From memory.numa_stat. |"
    ));
}

#[test]
fn before_the_first_tick_there_is_only_the_agent() {
    for format in FORMATS {
        let agent = AgentMetrics::new(Build { version: "0.1.0", revision: "0123abc" });
        let mut exposition = Exposition::new(NO_CAP);
        let families = read(exposition.render(&NodeSnapshot::default(), &agent, format), format);
        let names: Vec<_> =
            families.iter().map(|family| family.name.trim_end_matches("_total")).collect();
        assert_eq!(
            names,
            [
                "cpuwarden_build_info",
                "cpuwarden_sample_duration_seconds",
                "cpuwarden_sample_lateness_seconds",
                "cpuwarden_series_dropped",
                "cpuwarden_apiserver_requests",
                "cpuwarden_pod_lists_cut",
            ]
        );
    }
}

#[test]
fn a_row_without_values_has_no_series() {
    let mut snapshot = snapshots::node(0);
    let row =
        ContainerRow { identity: snapshots::identity("a", "b", "c"), ..ContainerRow::default() };
    snapshot.containers = vec![row];
    let mut exposition = Exposition::new(NO_CAP);
    let page = exposition.render(
        &snapshot,
        &AgentMetrics::new(Build { version: "0.1.0", revision: "0123abc" }),
        Format::Text,
    );
    assert!(!String::from_utf8_lossy(page).contains("cpuwarden_container"));
}

#[test]
fn info_is_for_live_containers_and_counters_outlive_them() {
    let mut exposition = Exposition::new(NO_CAP);
    let page = exposition.render(&snapshots::maximal(), &snapshots::agent(), Format::Text);
    let families = read(page, Format::Text);
    let of_gone: Vec<_> = families
        .iter()
        .flat_map(|family| &family.samples)
        .filter(|sample| sample.label("container") == Some("gone"))
        .map(|sample| (sample.name.as_str(), sample.value.as_str()))
        .collect();
    let usage = "cpuwarden_container_cpu_usage_seconds_total";
    assert_eq!(of_gone, [(usage, "3"), (usage, "0.25")]);
}

#[test]
fn a_compressed_page_is_the_page() {
    let mut exposition = Exposition::new(NO_CAP);
    let page = exposition.render(&snapshots::node(100), &snapshots::agent(), Format::Text).to_vec();
    let compressed =
        exposition.render_compressed(&snapshots::node(100), &snapshots::agent(), Format::Text);
    assert!(compressed.len() * 5 < page.len(), "{} of {} bytes", compressed.len(), page.len());
    assert_eq!(metrics::exposition::decompress(compressed).unwrap(), page);
}

/// A row with any subset of its values, and a unique name.
fn any_row() -> impl Strategy<Value = ContainerRow> {
    let ns = || proptest::option::of(any::<u64>());
    let cfs = proptest::option::of((any::<u32>(), any::<u64>(), ns()));
    let numa = proptest::collection::btree_map(0..8_u32, any::<u64>(), 0..4);
    let cores = || proptest::option::of(0.0..1000.0_f64);
    let windows = proptest::option::of((any::<[u16; 6]>(), 0.0..100.0_f64));
    (
        (any::<bool>(), ns(), ns(), cfs, ns()),
        (windows, cores(), cores(), numa, proptest::option::of("[0-9,-]{0,9}")),
    )
        .prop_map(
            |((live, user_ns, system_ns, cfs, waiting), (windows, limit, request, numa, cpus))| {
                ContainerRow {
                    live,
                    user_ns,
                    system_ns,
                    cfs: cfs.map(|(periods, throttled_ns, burst_ns)| CfsTotals {
                        periods: u64::from(periods),
                        throttled_ns,
                        burst_ns,
                        ..CfsTotals::default()
                    }),
                    windows: windows.map(|(counts, sum)| WindowHistogram {
                        counts: counts.map(u64::from),
                        sum,
                    }),
                    pressure_waiting_ns: waiting,
                    throttled_ancestor_ns: waiting.filter(|_| live),
                    cpu_limit: limit.map_or(Limit::Unlimited, |cores| {
                        Limit::Limited(CpuLimit { cores, period_usec: 100_000 })
                    }),
                    request_cores: request,
                    cpuset: cpus.map(|cpus| Arc::new(CpusetRow { cpus, count: 3 })),
                    numa_memory: numa.into_iter().collect(),
                    ..ContainerRow::default()
                }
            },
        )
}

#[test]
fn info_names_the_workload_and_the_chosen_labels_of_the_pod() {
    let mut snapshot = snapshots::maximal();
    let info = |snapshot: &NodeSnapshot, format| {
        let page =
            read(Exposition::new(NO_CAP).render(snapshot, &snapshots::agent(), format), format);
        let family = page.iter().find(|family| family.name == "cpuwarden_container_info").unwrap();
        family.samples[0].clone()
    };
    let none = ContainerIdentity { workload: None, ..(*snapshot.containers[0].identity).clone() };
    snapshot.containers[0].identity = Arc::new(none);
    for format in FORMATS {
        assert_eq!(info(&snapshot, format).label("workload"), None, "a pod of no workload");
    }
    let owner = Owner { kind: "Deployment".into(), name: "cart".into() };
    let labels = [("label_team", "shop \"a\""), ("label_app_kubernetes_io_name", "cart")];
    let row = &mut snapshot.containers[0];
    row.identity = Arc::new(ContainerIdentity {
        workload: Some(owner),
        pod_labels: labels::pairs(&labels),
        ..(*row.identity).clone()
    });
    for format in FORMATS {
        let info = info(&snapshot, format);
        for (name, value) in
            labels.iter().chain(&[("workload", "cart"), ("cgroup_driver", "systemd")])
        {
            assert_eq!(info.label(name), Some(*value), "{name}");
        }
    }
}

proptest! {
    #[test]
    fn both_formats_have_the_same_content_for_any_rows(
        rows in proptest::collection::vec(any_row(), 0..6)
    ) {
        let mut snapshot = snapshots::node(0);
        for (n, mut row) in rows.into_iter().enumerate() {
            row.identity = snapshots::identity("shop", "cart", &n.to_string());
            snapshot.containers.push(row);
        }
        let agent = snapshots::agent();
        let [text, openmetrics] = FORMATS.map(|format| {
            read(Exposition::new(NO_CAP).render(&snapshot, &agent, format), format)
        });
        let samples = |families: &[crate::Family]| -> Vec<_> {
            families.iter().flat_map(|family| family.samples.clone()).collect()
        };
        prop_assert_eq!(samples(&text), samples(&openmetrics));
    }

    #[test]
    fn any_label_value_comes_back(
        namespace: String,
        pod: String,
        container: String,
        image in "[\\\\\"\n\r\u{0}é😀 -~]{0,20}",
        reason: String,
    ) {
        let mut snapshot = snapshots::maximal();
        let own = [("namespace", &*namespace), ("pod", &*pod), ("container", &*container)];
        let row = &mut snapshot.containers[0];
        let identity = ContainerIdentity { labels: labels::pairs(&own), image: image.clone(), ..(*row.identity).clone() };
        row.identity = Arc::new(identity);
        snapshot.pods = vec![PodRow {
            identity: Arc::new(PodIdentity { labels: labels::pairs(&own[..2]), ..PodIdentity::default() }),
            ..snapshots::pod(0)
        }];
        snapshot.node.features[1].reason = reason.clone();
        for format in FORMATS {
            let families = read(Exposition::new(NO_CAP).render(&snapshot, &snapshots::agent(), format), format);
            let first = |name: &str| families.iter().find(|family| family.name == name).unwrap().samples[0].clone();
            let info = first("cpuwarden_container_info");
            for (name, value) in own.iter().chain(&[("image", &*image)]) {
                prop_assert_eq!(info.label(name), Some(*value));
            }
            let limit = first("cpuwarden_pod_cpu_limit_cores");
            prop_assert_eq!(limit.label("pod"), Some(&*pod));
            let features = families.iter().find(|family| family.name == "cpuwarden_feature_enabled").unwrap();
            prop_assert_eq!(features.samples[1].label("reason"), Some(&*reason));
        }
    }
}
