//! The figures of deploy/docs/sizing.md, counted on rendered pages. `UPDATE_GOLDEN=1` writes them.

use std::fmt::Write as _;
use std::sync::Arc;

use metrics::catalogue::{Preset, Selection};
use metrics::{AgentMetrics, Build, Exposition, Format};
use snapshot::NodeSnapshot;
use snapshot::{InterferenceRow, NodeWaits};

use crate::presets::{of_container, without_quota};
use crate::{NO_CAP, read, snapshots};

/// Aggressors of one pod, at most: five pods, the others together, and the host.
const AGGRESSORS: usize = 7;

/// A node of `pods` pods with two containers each, and the agent's own metrics of a plain agent.
fn node(pods: usize, with_quota: bool, traced: bool) -> (NodeSnapshot, AgentMetrics) {
    let mut snapshot = snapshots::node(2 * pods);
    let agent = AgentMetrics::new(Build { version: "0.1.0", revision: "0123abc" });
    agent.pod_source_succeeded("kubelet", snapshots::taken());
    if with_quota {
        snapshot.pods = (0..pods).map(snapshots::pod).collect();
    }
    let advised = |row: &snapshot::ContainerRow| metrics::AdviceRow {
        identity: Arc::clone(&row.identity),
        ..snapshots::advised("any")
    };
    agent.advice().set(snapshot.containers.iter().map(advised).collect());
    for row in &mut snapshot.containers {
        if !with_quota {
            *row = without_quota(row);
        }
        if !traced {
            row.waits = None;
        }
    }
    if traced {
        let aggressors = (0..pods * AGGRESSORS).map(|at| InterferenceRow {
            victim: snapshots::pod(at / AGGRESSORS).identity,
            aggressor_namespace: "batch".into(),
            aggressor_pod: format!("encode-{}", at % AGGRESSORS).into(),
            wait_ns: 1_250_000_000 + at as u64,
        });
        let interference = aggressors.collect();
        snapshot.waits =
            Arc::new(NodeWaits { interference, ..(*snapshots::maximal().waits).clone() });
    }
    (snapshot, agent)
}

/// Number of series, bytes, and bytes with gzip of a page.
struct Size {
    series: usize,
    plain: usize,
    gzip: usize,
}

fn size(preset: Preset, pods: usize, traced: bool) -> Size {
    let (snapshot, agent) = node(pods, true, traced);
    let mut exposition = Exposition::with_selection(NO_CAP, Selection::preset(preset));
    let page = exposition.render(&snapshot, &agent, Format::Text);
    let (plain, lines) = (page.len(), page.split(|&byte| byte == b'\n'));
    let series = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#")).count();
    let gzip = exposition.render_compressed(&snapshot, &agent, Format::Text).len();
    Size { series, plain, gzip }
}

fn cases() -> impl Iterator<Item = (Preset, bool)> {
    Preset::ALL.into_iter().flat_map(|preset| [(preset, false), (preset, true)])
}

fn name(preset: Preset, traced: bool) -> String {
    format!("`{}`{}", preset.as_str(), if traced { ", trace" } else { "" })
}

fn containers() -> String {
    let mut text = String::from("| preset | with a quota | without a quota |\n|---|---|---|\n");
    for (preset, traced) in cases() {
        let [with, without] = [true, false].map(|with_quota| {
            let (snapshot, agent) = node(1, with_quota, traced);
            let mut exposition = Exposition::with_selection(NO_CAP, Selection::preset(preset));
            of_container(
                &read(exposition.render(&snapshot, &agent, Format::Text), Format::Text),
                "app",
            )
            .len()
        });
        let _ = writeln!(text, "| {} | {with} | {without} |", name(preset, traced));
    }
    text
}

fn one_node() -> String {
    let mut text = String::from("| preset | series | page | with gzip |\n|---|---|---|---|\n");
    for (preset, traced) in cases() {
        let Size { series, plain, gzip } = size(preset, 110, traced);
        let [plain, gzip] = [plain, gzip].map(|bytes| bytes.div_ceil(1024));
        let _ = writeln!(
            text,
            "| {} | {} | {plain} KiB | {gzip} KiB |",
            name(preset, traced),
            grouped(series)
        );
    }
    text
}

fn thousand_nodes() -> String {
    let mut text = String::from(
        "| preset | series | samples per second | with gzip, per second |\n|---|---|---|---|\n",
    );
    for (preset, traced) in cases() {
        let Size { series, gzip, .. } = size(preset, 110, traced);
        let (millions, mib) = (series as f64 / 1000.0, gzip as f64 * 1000.0 / 30.0 / 1_048_576.0);
        let samples = grouped(series * 1000 / 30);
        let _ = writeln!(
            text,
            "| {} | {millions:.2} million | {samples} | {mib:.1} MiB |",
            name(preset, traced)
        );
    }
    text
}

fn fleet() -> String {
    let mut text = String::from("| preset | series |\n|---|---|\n");
    for (preset, traced) in cases() {
        let millions = size(preset, 50, traced).series as f64 * 4_100.0 / 1e6;
        let _ = writeln!(text, "| {} | {millions:.1} million |", name(preset, traced));
    }
    text
}

fn grouped(number: usize) -> String {
    if number < 1000 {
        number.to_string()
    } else {
        format!("{},{:03}", grouped(number / 1000), number % 1000)
    }
}

#[test]
fn the_sizing_page_has_what_the_pages_count() {
    let path = format!("{}/../../deploy/docs/sizing.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let tables = [
        ("containers", containers()),
        ("node", one_node()),
        ("nodes", thousand_nodes()),
        ("fleet", fleet()),
    ];
    let mut expected = text.clone();
    for (part, table) in tables {
        let start = format!("<!-- counted: {part} -->\n");
        let (before, rest) =
            expected.split_once(&start).unwrap_or_else(|| panic!("{path}: no {start}"));
        let (_, after) =
            rest.split_once("<!-- end -->").unwrap_or_else(|| panic!("{path}: {part} has no end"));
        expected = format!("{before}{start}{table}<!-- end -->{after}");
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &expected).unwrap_or_else(|error| panic!("{path}: {error}"));
    } else {
        assert_eq!(text, expected, "UPDATE_GOLDEN=1 writes {path}");
    }
}
