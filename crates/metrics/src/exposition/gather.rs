//! The prometheus crate's metrics, written in both formats: its own encoder supports only one.

use prometheus::proto;
use snapshot::labels;

use super::samples::{Detail, Samples};
use super::writer::PageWriter;
use crate::AgentMetrics;
use crate::catalogue::{Form, MetricKind, agent::AGENT};

/// Writes the agent's own metrics, in the catalogue's order. The number of allocations does not
/// depend on the node's size.
pub(super) fn write(writer: &mut PageWriter<'_>, agent: &AgentMetrics, forms: &[Form]) {
    let families = agent.gather();
    let mut labels = String::new();
    for (descriptor, _) in AGENT.iter().zip(forms).filter(|(_, form)| **form != Form::Absent) {
        let found = families.binary_search_by(|family| family.name().cmp(descriptor.name));
        let Ok(at) = found else { continue };
        let header = writer.open(descriptor);
        let mut series = 0;
        for metric in families[at].get_metric() {
            labels.clear();
            let pairs = metric.get_label().iter();
            labels::append(&mut labels, pairs.map(|pair| (pair.name(), pair.value())));
            let mut samples = Samples::new(writer.page, descriptor, Detail::WHOLE);
            samples.set_row(&labels);
            sample(&mut samples, descriptor.kind, metric);
            series += samples.series();
        }
        writer.close(&header, series);
    }
}

fn sample(samples: &mut Samples<'_>, kind: MetricKind, metric: &proto::Metric) {
    match kind {
        MetricKind::Counter => samples.number(Some(metric.get_counter().get_value())),
        MetricKind::Gauge => samples.number(Some(metric.get_gauge().get_value())),
        MetricKind::Histogram => {
            let histogram = metric.get_histogram();
            let buckets = histogram
                .get_bucket()
                .iter()
                .map(|bucket| (bucket.upper_bound(), bucket.cumulative_count()));
            samples.cumulative_histogram(
                buckets,
                histogram.get_sample_count(),
                histogram.get_sample_sum(),
            );
        }
    }
}
