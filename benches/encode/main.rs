//! Cost of a page of metrics. Cases:
//!
//! - 200, 1,000 and 5,000 cgroups, text and OpenMetrics, into a reused buffer
//! - 15,000 series: the whole page, only its rows, and the prometheus crate on the same series
//!   (gather and TextEncoder, and TextEncoder alone), with ratios
//! - 220 cgroups, each preset
//! - the same page compressed with gzip level 1 into a reused buffer
//! - a scrape with gzip, each of another snapshot, of 500 pods without any use of CPU and of 250
//!   busy pods: rendered and compressed as a whole; only the pieces that have changed; the same if
//!   nothing has changed, and without any rows; and by the agent's server at the socket, the last
//!   page again, another one, and another one when the caches are cold ([`scrapes`])
//!
//! In all but the last, each row has every value that a container can have on cgroup v2.
//! `cargo bench --bench encode`

mod scrapes;
#[path = "../../crates/metrics/tests/snapshots/mod.rs"]
mod snapshots;
#[path = "../support/mod.rs"]
mod support;

use std::hint::black_box;

use metrics::catalogue::{self, Descriptor, MetricKind, Preset, Scope, Selection};
use metrics::{Exposition, Format};
use prometheus::{
    Encoder as _, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, TextEncoder,
};
use support::{Case, interleaved, print};

fn main() {
    for cgroups in [200, 1_000, 5_000] {
        scale(cgroups);
    }
    presets(220);
    against_the_prometheus_crate(15_000);
    scrapes::run();
}

fn presets(cgroups: usize) {
    let (snapshot, agent) = (snapshots::node(cgroups), snapshots::agent());
    for preset in Preset::ALL {
        let mut exposition = Exposition::with_selection(usize::MAX, Selection::preset(preset));
        let page = exposition.render(&snapshot, &agent, Format::Text).to_vec();
        let series = series(&String::from_utf8(page).expect("a page is UTF-8"));
        let case = Case::new(preset.as_str(), || {
            black_box(exposition.render(&snapshot, &agent, Format::Text));
        });
        println!("{cgroups} cgroups, {}: {series} series", preset.as_str());
        print(&interleaved(vec![case]), "series", series);
    }
}

fn scale(cgroups: usize) {
    let (snapshot, agent) = (snapshots::node(cgroups), snapshots::agent());
    let cases =
        [("text", Format::Text), ("OpenMetrics", Format::OpenMetrics)].map(|(name, format)| {
            let mut exposition = Exposition::new(usize::MAX);
            let (snapshot, agent) = (&snapshot, &agent);
            Case::new(name, move || {
                black_box(exposition.render(snapshot, agent, format));
            })
        });
    let series = series(&page_of(cgroups));
    println!("{cgroups} cgroups, {series} series");
    print(&interleaved(cases.into()), "series", series);
}

fn against_the_prometheus_crate(target: usize) {
    let per_cgroup = series(&page_of(2)) - series(&page_of(1));
    let cgroups = target.div_ceil(per_cgroup);
    let page = page_of(cgroups);
    let series = series(&page);
    let registry = same_series(&page);
    let families = registry.gather();
    let text =
        TextEncoder::new().encode_to_string(&families).expect("the registry holds valid families");
    assert_eq!(self::series(&text), series, "both encode the same series");

    let (snapshot, agent) = (snapshots::node(cgroups), snapshots::agent());
    let (mut exposition, mut compressing) =
        (Exposition::new(usize::MAX), Exposition::new(usize::MAX));
    let compressed = compressing.compress(page.as_bytes()).len();
    let (mut gathered, mut encoded) = (Vec::new(), Vec::new());
    let measured = interleaved(vec![
        Case::new("page", || {
            black_box(exposition.render(&snapshot, &agent, Format::Text));
        }),
        Case::new("prometheus crate: gather + TextEncoder", || {
            encode(&registry.gather(), &mut gathered);
        }),
        Case::new("prometheus crate: TextEncoder", || encode(&families, &mut encoded)),
        Case::new("gzip level 1 of the page", || {
            black_box(compressing.compress(page.as_bytes()));
        }),
    ]);
    println!("{series} series of {cgroups} cgroups, {} bytes, {compressed} compressed", page.len());
    print(&measured, "series", series);
    let agent_only =
        Exposition::new(usize::MAX).render(&snapshots::node(0), &agent, Format::Text).len();
    println!(
        "  (the page's allocations are the agent's own {agent_only} bytes; its rows make none)"
    );
    for other in &measured[1..3] {
        println!("  {} / page = {:.1}", other.name, other.ratio_to(&measured[0]));
    }
    println!("  gzip / page = {:.1}", measured[3].ratio_to(&measured[0]));
}

fn encode(families: &[prometheus::proto::MetricFamily], buffer: &mut Vec<u8>) {
    buffer.clear();
    TextEncoder::new().encode(families, buffer).expect("a Vec takes any text");
    black_box(&buffer);
}

fn page_of(cgroups: usize) -> String {
    let mut exposition = Exposition::new(usize::MAX);
    let page = exposition.render(&snapshots::node(cgroups), &snapshots::agent(), Format::Text);
    String::from_utf8(page.to_vec()).expect("a page is UTF-8")
}

fn series(page: &str) -> usize {
    page.lines().filter(|line| !line.starts_with('#')).count()
}

/// A registry of the prometheus crate with the same series as the page.
fn same_series(page: &str) -> Registry {
    let registry = Registry::new();
    for (scope, descriptor) in catalogue::all() {
        register(&registry, scope, descriptor, page);
    }
    registry
}

fn register(registry: &Registry, scope: Scope, descriptor: &Descriptor, page: &str) {
    let names: Vec<_> = scope.labels().iter().chain(descriptor.labels).copied().collect();
    let values = |line| -> Vec<_> {
        names.iter().map(|name| label(line, name).unwrap_or_default()).collect()
    };
    let opts = Opts::new(descriptor.name, descriptor.help);
    let registered = match descriptor.kind {
        MetricKind::Counter => {
            let counters = IntCounterVec::new(opts, &names).expect("valid names");
            samples(page, descriptor.name)
                .for_each(|line| counters.with_label_values(&values(line)).inc_by(1 << 40));
            registry.register(Box::new(counters))
        }
        MetricKind::Gauge => {
            let gauges = GaugeVec::new(opts, &names).expect("valid names");
            samples(page, descriptor.name)
                .for_each(|line| gauges.with_label_values(&values(line)).set(value(line)));
            registry.register(Box::new(gauges))
        }
        MetricKind::Histogram => {
            let bucket = format!("{}_bucket", descriptor.name);
            let bounds = |line| {
                label(line, "le").and_then(|le| le.parse::<f64>().ok()).unwrap_or(f64::INFINITY)
            };
            let mut buckets: Vec<_> =
                samples(page, &bucket).map(bounds).take_while(|le| le.is_finite()).collect();
            buckets.dedup();
            let histograms = HistogramVec::new(HistogramOpts::from(opts).buckets(buckets), &names)
                .expect("valid names");
            for line in samples(page, &bucket) {
                histograms.with_label_values(&values(line)).observe(bounds(line).min(1.0));
            }
            registry.register(Box::new(histograms))
        }
    };
    registered.expect("distinct names");
}

fn samples<'a>(page: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    page.lines().filter(move |line| {
        line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
    })
}

/// Value of a label. No label name here is a suffix of another, and no value contains an escape.
fn label<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = line.split_once(&format!("{name}=\""))?;
    value.split('"').next()
}

fn value(line: &str) -> f64 {
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
}
