//! Declarations of all metrics that cpuwarden exposes.
//!
//! A table row is a [`Descriptor`] with the function that reads its samples from a snapshot row.
//! HELP and TYPE, the exposition, the generated reference, and the checks of dashboards and alert
//! rules therefore always agree. Names are a public interface: changing one is a breaking change.
//! This module formats no number and holds no state.

mod advice;
pub(crate) mod agent;
pub(crate) mod best_effort;
pub(crate) mod burst;
pub(crate) mod cadvisor;
mod container;
pub(crate) mod injection;
mod interference;
mod node;
pub(crate) mod pinning;
mod pod;
mod preset;
mod reference;
mod selection;
mod slowed;

pub(crate) use advice::ADVICE;
pub(crate) use cadvisor::CADVISOR;
pub use cadvisor::CadvisorGroup;
pub(crate) use container::CONTAINER;
pub(crate) use interference::INTERFERENCE;
pub(crate) use node::NODE;
pub(crate) use pod::POD;
pub use preset::{Extent, Form, Preset};
pub use reference::{QUERY_ONLY, reference};
pub(crate) use selection::{FamilyId, Step, steps};
pub use selection::{Selection, UnknownMetric};
pub(crate) use slowed::SLOWED;

use std::sync::Arc;

use snapshot::{
    ContainerIdentity, ContainerRow, InterferenceRow, NodeSnapshot, PodIdentity, PodRow,
};

use crate::exposition::samples::Samples;
use crate::{AdviceRow, SlowedRow};

/// Prometheus metric type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows; the name ends in `_total`.
    Counter,
    /// Any value; also the constant 1 of an `_info` metric.
    Gauge,
    /// Cumulative buckets, their sum and count.
    Histogram,
}

impl MetricKind {
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
    pub kind: MetricKind,
    /// Labels beyond those of the scope, in the order of exposition.
    pub labels: &'static [&'static str],
    /// HELP text: the meaning, the unit unless it is in the name, the source file, and surprising
    /// properties.
    pub help: &'static str,
    /// Presets that include it.
    pub extent: Extent,
}

impl Descriptor {
    /// Name of the family in OpenMetrics, without `_total`.
    #[must_use]
    pub fn family(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            MetricKind::Gauge | MetricKind::Histogram => self.name,
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
            MetricKind::Counter | MetricKind::Gauge => &[""],
            MetricKind::Histogram => &["_bucket", "_sum", "_count"],
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

/// Tables of the catalogue, in the order of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CatalogueTable {
    Container,
    Advice,
    Pod,
    Slowed,
    Interference,
    Node,
    Agent,
}

impl CatalogueTable {
    pub(crate) const ALL: [Self; 7] = [
        Self::Container,
        Self::Advice,
        Self::Pod,
        Self::Slowed,
        Self::Interference,
        Self::Node,
        Self::Agent,
    ];

    /// Tables with a row per container, pod or pair of pods: their size grows with the node.
    pub(crate) const OF_ROWS: [Self; 5] =
        [Self::Container, Self::Advice, Self::Pod, Self::Slowed, Self::Interference];

    const fn scope(self) -> Scope {
        match self {
            Self::Container | Self::Advice => Scope::Container,
            Self::Pod | Self::Slowed => Scope::Pod,
            Self::Interference => Scope::Interference,
            Self::Node => Scope::Node,
            Self::Agent => Scope::Agent,
        }
    }
}

/// Families of a table, in its order.
pub(crate) fn families(table: CatalogueTable) -> Box<dyn Iterator<Item = &'static Descriptor>> {
    match table {
        CatalogueTable::Container => Box::new(CONTAINER.iter().map(|metric| &metric.descriptor)),
        CatalogueTable::Advice => Box::new(ADVICE.iter().map(|metric| &metric.descriptor)),
        CatalogueTable::Pod => Box::new(POD.iter().map(|metric| &metric.descriptor)),
        CatalogueTable::Slowed => Box::new(SLOWED.iter().map(|metric| &metric.descriptor)),
        CatalogueTable::Interference => {
            Box::new(INTERFERENCE.iter().map(|metric| &metric.descriptor))
        }
        CatalogueTable::Node => Box::new(NODE.iter().map(|metric| &metric.descriptor)),
        CatalogueTable::Agent => Box::new(agent::AGENT.iter().copied()),
    }
}

/// All metrics, in the order of the tables.
pub fn all() -> impl Iterator<Item = (Scope, &'static Descriptor)> {
    let of =
        |table: CatalogueTable| families(table).map(move |descriptor| (table.scope(), descriptor));
    CatalogueTable::ALL.into_iter().flat_map(of)
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

/// A row of a container or a pod.
pub(crate) trait NamedRow: Row {
    /// Type of its identity.
    type Identity;

    /// The identity that its labels are from.
    fn identity(&self) -> &Arc<Self::Identity>;
}

/// Implements both traits for rows of one type of identity.
macro_rules! named_rows {
    ($identity:ty: $($row:ty => $field:ident),+) => {$(
        impl Row for $row {
            fn labels(&self) -> &str {
                &self.$field.labels
            }
        }

        impl NamedRow for $row {
            type Identity = $identity;

            fn identity(&self) -> &Arc<$identity> {
                &self.$field
            }
        }
    )+};
}

named_rows!(ContainerIdentity: ContainerRow => identity, AdviceRow => identity);
named_rows!(PodIdentity: PodRow => identity, SlowedRow => pod, InterferenceRow => victim);

impl Row for NodeSnapshot {
    fn labels(&self) -> &str {
        ""
    }
}

// Constructors of the tables' rows, with arguments in the order of the TYPE and HELP lines. A
// family is in every preset unless `from` says otherwise.

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Descriptor {
    Descriptor { name, kind: MetricKind::Counter, labels, help, extent: Extent::ALWAYS }
}

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Descriptor {
    Descriptor { name, kind: MetricKind::Gauge, labels, help, extent: Extent::ALWAYS }
}

const fn histogram(name: &'static str, help: &'static str) -> Descriptor {
    Descriptor { name, kind: MetricKind::Histogram, labels: &[], help, extent: Extent::ALWAYS }
}

impl Descriptor {
    const fn read<R>(self, read: fn(&R, &mut Samples<'_>)) -> Metric<R> {
        Metric { descriptor: self, read }
    }
}
