//! The steady state allocates nothing. A separate test binary, because counting replaces the global
//! allocator.

mod snapshots;

use allocation_counter::measure;
use metrics::catalogue::{Preset, Selection};
use metrics::{AgentMetrics, Exposition, Format};
use snapshot::NodeSnapshot;

const NO_CAP: usize = usize::MAX;

/// Number of allocations of one page after the first, which sizes the buffer. Compare two numbers
/// only for the same `agent`: each registry of the prometheus crate has its own order, which
/// affects the allocations of sorting.
fn allocations(agent: &AgentMetrics, containers: usize, max_series: usize, format: Format) -> u64 {
    let mut snapshot = snapshots::node(containers);
    snapshot.pods = (0..containers / 2).map(snapshots::pod).collect();
    agent.advice().set((0..containers).map(|n| snapshots::advised(&format!("pod-{n}"))).collect());
    let mut exposition = Exposition::new(max_series);
    exposition.render(&snapshot, agent, format);
    measure(|| {
        std::hint::black_box(exposition.render(&snapshot, agent, format));
    })
    .count_total
}

#[test]
fn rows_cost_no_allocation() {
    let agent = snapshots::agent();
    for format in [Format::Text, Format::OpenMetrics] {
        let agent_only = allocations(&agent, 0, NO_CAP, format);
        assert_eq!(allocations(&agent, 500, NO_CAP, format), agent_only, "{format:?}");
    }
}

#[test]
fn presets_allocate_nothing_and_lean_renders_less() {
    let agent = snapshots::agent();
    let snapshots = [snapshots::node(0), snapshots::node(500)];
    agent.advice().set(Vec::new());
    let mut lengths = Vec::new();
    for preset in Preset::ALL {
        let mut exposition = Exposition::with_selection(NO_CAP, Selection::preset(preset));
        let counts = [1, 0].map(|at| {
            exposition.render(&snapshots[at], &agent, Format::Text);
            let mut render = || {
                std::hint::black_box(exposition.render(&snapshots[at], &agent, Format::Text)).len()
            };
            let mut length = 0;
            let counted = measure(|| length = render()).count_total;
            lengths.push(length);
            counted
        });
        assert_eq!(counts[0], counts[1], "{preset:?}");
    }
    let of_rows: Vec<usize> = lengths.chunks(2).map(|pages| pages[0] - pages[1]).collect();
    assert!(of_rows[0] * 2 < of_rows[1] && of_rows[1] * 2 < of_rows[2], "{of_rows:?}");
}

#[test]
fn the_agents_own_metrics_cost_a_bounded_number() {
    let agent = snapshots::agent();
    let count = allocations(&agent, 0, NO_CAP, Format::Text);
    let mut exposition = Exposition::new(NO_CAP);
    let page = exposition.render(&snapshots::node(0), &agent, Format::Text);
    let families = String::from_utf8_lossy(page).matches("# TYPE ").count() as u64;
    // The prometheus crate's gather allocates for each family and label: 452 for 55 when this was
    // written.
    assert!(count < 9 * families, "{count} for {families} families");
}

#[test]
fn a_page_over_the_cap_costs_no_allocation_for_its_rows_either() {
    let agent = snapshots::agent();
    assert_eq!(
        allocations(&agent, 500, 1000, Format::Text),
        allocations(&agent, 20, 200, Format::Text)
    );
}

#[test]
fn compressing_again_costs_no_allocation() {
    let (snapshot, agent) = (snapshots::node(500), snapshots::agent());
    let mut exposition = Exposition::new(NO_CAP);
    exposition.render(&snapshot, &agent, Format::Text);
    let page = exposition.take_page();
    exposition.compress(&page);
    let counted = measure(|| {
        std::hint::black_box(exposition.compress(&page));
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn rows_of_a_compressed_page_cost_no_allocation() {
    let agent = snapshots::agent();
    agent.advice().set(Vec::new());
    let counts = [0, 500].map(|containers| {
        let snapshots = [snapshots::node(containers), changed(snapshots::node(containers))];
        let mut exposition = Exposition::new(NO_CAP);
        for _ in 0..2 {
            for snapshot in &snapshots {
                exposition.render_compressed(snapshot, &agent, Format::Text);
            }
        }
        measure(|| {
            std::hint::black_box(exposition.render_compressed(&snapshots[0], &agent, Format::Text));
        })
        .count_total
    });
    assert_eq!(counts[0], counts[1]);
}

/// The same node, of which every row has changed.
fn changed(mut node: NodeSnapshot) -> NodeSnapshot {
    for row in &mut node.containers {
        row.user_ns = row.user_ns.map(|ns| ns + 1);
    }
    node
}
