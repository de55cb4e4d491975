//! Declarations of all metrics that cpuwarden exposes.
//!
//! A table row is a [`Descriptor`] with the function that reads its samples from a snapshot row. HELP and TYPE, the
//! exposition, the generated reference, and the checks of dashboards and alert rules therefore always agree. Names are
//! a public interface: changing one is a breaking change. This module formats no number and holds no state.

mod advice;
pub(crate) mod agent;
pub(crate) mod cadvisor;
mod container;
mod interference;
mod node;
pub(crate) mod pinning;
mod pod;
mod reference;

pub(crate) use advice::ADVICE;
pub(crate) use cadvisor::CADVISOR;
pub(crate) use container::CONTAINER;
pub(crate) use interference::INTERFERENCE;
pub(crate) use node::NODE;
pub(crate) use pod::POD;
pub use reference::{QUERY_ONLY, reference};

use snapshot::{ContainerRow, InterferenceRow, NodeSnapshot, PodRow};

use crate::AdviceRow;
use crate::exposition::samples::Samples;

/// Prometheus metric type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; the name ends in `_total`.
    Counter,
    /// Any value; also the constant 1 of an `_info` metric.
    Gauge,
    /// Cumulative buckets, their sum and count.
    Histogram,
}

impl Kind {
    /// Name in a TYPE line of both formats.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Description of a metric, independent of its values.
#[derive(Debug, Clone, Copy)]
pub struct Descriptor {
    /// Full name, with the `cpuwarden_` prefix and, on a counter, `_total`.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Labels beyond those of the scope, in the order of exposition.
    pub labels: &'static [&'static str],
    /// HELP text: the meaning, the unit unless it is in the name, the source file, and surprising properties.
    pub help: &'static str,
}

impl Descriptor {
    /// Name of the family in OpenMetrics, without `_total`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self.kind {
            Kind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            Kind::Gauge | Kind::Histogram => self.name,
        }
    }

    /// The base unit at the end of the name; `None` for plain numbers.
    #[must_use]
    pub fn unit(&self) -> Option<&'static str> {
        let family = self.family();
        ["seconds", "bytes", "cores", "ratio"]
            .into_iter()
            .find(|unit| family.strip_suffix(unit).is_some_and(|stem| stem.ends_with('_')))
    }

    /// Names of its samples: its own, or the three of a histogram.
    pub fn sample_names(&self) -> impl Iterator<Item = String> {
        let suffixes: &[&str] = match self.kind {
            Kind::Counter | Kind::Gauge => &[""],
            Kind::Histogram => &["_bucket", "_sum", "_count"],
        };
        suffixes.iter().map(|suffix| format!("{}{suffix}", self.name))
    }
}

/// Object that a metric's series describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One container, over all its restarts.
    Container,
    /// One pod.
    Pod,
    /// A pod that waits, and a pod that causes the wait.
    Interference,
    /// The node, as of the tick.
    Node,
    /// The agent itself.
    Agent,
}

impl Scope {
    /// Labels of every series of this scope, before those of the metric.
    #[must_use]
    pub const fn labels(self) -> &'static [&'static str] {
        match self {
            Self::Container => &["namespace", "pod", "container"],
            Self::Pod | Self::Interference => &["namespace", "pod"],
            Self::Node | Self::Agent => &[],
        }
    }
}

/// All metrics, in the order of the tables.
pub fn all() -> impl Iterator<Item = (Scope, &'static Descriptor)> {
    let containers = CONTAINER.iter().map(|metric| (Scope::Container, &metric.descriptor));
    let advice = ADVICE.iter().map(|metric| (Scope::Container, &metric.descriptor));
    let pods = POD.iter().map(|metric| (Scope::Pod, &metric.descriptor));
    let interference = INTERFERENCE.iter().map(|metric| (Scope::Interference, &metric.descriptor));
    let node = NODE.iter().map(|metric| (Scope::Node, &metric.descriptor));
    let agent = agent::AGENT.iter().map(|descriptor| (Scope::Agent, *descriptor));
    containers.chain(advice).chain(pods).chain(interference).chain(node).chain(agent)
}

/// Finds the metric of a sample name, including a histogram's `_bucket`, `_sum` and `_count`.
#[must_use]
pub fn find(sample_name: &str) -> Option<(Scope, &'static Descriptor)> {
    all().find(|(_, descriptor)| descriptor.sample_names().any(|name| name == sample_name))
}

/// A metric and the function that reads it from a row `R` of the snapshot.
pub(crate) struct Metric<R> {
    pub(crate) descriptor: Descriptor,
    /// Writes the row's samples; a `None` value writes nothing.
    pub(crate) read: fn(&R, &mut Samples<'_>),
}

/// A row of the snapshot with its own series.
pub(crate) trait Row {
    /// Labels of the scope, escaped, without braces.
    fn labels(&self) -> &str;
}

impl Row for ContainerRow {
    fn labels(&self) -> &str {
        &self.identity.labels
    }
}

impl Row for AdviceRow {
    fn labels(&self) -> &str {
        &self.identity.labels
    }
}

impl Row for PodRow {
    fn labels(&self) -> &str {
        &self.identity.labels
    }
}

impl Row for InterferenceRow {
    fn labels(&self) -> &str {
        &self.victim.labels
    }
}

impl Row for NodeSnapshot {
    fn labels(&self) -> &str {
        ""
    }
}

// Constructors of the tables' rows, with arguments in the order of the TYPE and HELP lines.

const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Descriptor {
    Descriptor { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Descriptor {
    Descriptor { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(name: &'static str, help: &'static str) -> Descriptor {
    Descriptor { name, kind: Kind::Histogram, labels: &[], help }
}

impl Descriptor {
    const fn read<R>(self, read: fn(&R, &mut Samples<'_>)) -> Metric<R> {
        Metric { descriptor: self, read }
    }
}
