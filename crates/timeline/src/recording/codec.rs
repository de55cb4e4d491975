//! A frame as the changes since the previous one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use api::{
    Bounds, ContainerFrame, Contention, CpuFrame, Frame, Interference, Measure, NodeFrame, Rates,
    Verdict,
};

use super::table::{Row, RowTable};
use super::wire::{Input, put};

/// Names of the columns of each table, in the order of the file.
pub(crate) type Columns = BTreeMap<String, Vec<String>>;

/// Names of the tables, in the order of a record.
const TABLES: [&str; 4] = ["node", "cpus", "containers", "interference"];

/// The columns that this version writes.
pub(crate) fn columns() -> Columns {
    fn of<R: Row>() -> Vec<String> {
        (0..R::WIDTH).map(R::column).collect()
    }
    let columns =
        [of::<NodeFrame>(), of::<CpuFrame>(), of::<ContainerFrame>(), of::<Interference>()];
    TABLES.into_iter().map(str::to_owned).zip(columns).collect()
}

/// The tables of the previous frame.
struct Tables {
    node: RowTable<NodeFrame>,
    cpus: RowTable<CpuFrame>,
    containers: RowTable<ContainerFrame>,
    interference: RowTable<Interference>,
}

/// Writes frames.
pub(crate) struct Encoder(Tables);

impl Encoder {
    pub(crate) fn new() -> Self {
        Self(Tables {
            node: RowTable::new(NodeFrame::WIDTH),
            cpus: RowTable::new(CpuFrame::WIDTH),
            containers: RowTable::new(ContainerFrame::WIDTH),
            interference: RowTable::new(Interference::WIDTH),
        })
    }

    /// Appends the changes since the previous frame. The time is in the record's head.
    pub(crate) fn encode(&mut self, frame: &Frame, into: &mut Vec<u8>) -> serde_json::Result<()> {
        // Negative and infinite lengths become zero and the maximum.
        put((frame.seconds * 1e6).round() as u64, into);
        let node = NodeFrame { cpus: Vec::new(), ..frame.node.clone() };
        self.0.node.encode([&node], into)?;
        self.0.cpus.encode(&frame.node.cpus, into)?;
        self.0.containers.encode(&frame.containers, into)?;
        self.0.interference.encode(&frame.interference, into)?;
        if !frame.verdicts.is_empty() {
            let json = serde_json::to_vec(&frame.verdicts)?;
            put(json.len() as u64, into);
            into.extend_from_slice(&json);
        }
        Ok(())
    }
}

/// Sums over the containers of a frame.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FrameTotals {
    /// End of the frame, milliseconds since the epoch.
    pub at_ms: u64,
    /// Length of the frame, seconds.
    pub seconds: f64,
    /// Time lost to limits, neighbors and the system, seconds per second.
    pub lost: f64,
    /// CPU use, cores; `None` if no container has one.
    pub usage_cores: Option<f64>,
    /// Share of the time in which some thread waited for a CPU, 0 to 1.
    pub pressure: Option<f64>,
}

impl FrameTotals {
    /// The sums of a frame.
    #[must_use]
    pub fn of(frame: &Frame) -> Self {
        let used = frame.containers.iter().filter_map(|row| row.rates.usage_cores);
        Self {
            at_ms: frame.at_ms,
            seconds: frame.seconds,
            lost: frame.containers.iter().map(|row| row.rates.lost()).sum(),
            usage_cores: used.reduce(|sum, used| sum + used),
            pressure: frame.node.pressure,
        }
    }
}

/// Reads frames.
pub(crate) struct Decoder {
    tables: Tables,
    /// Place of each column of the file, per table.
    places: [Vec<Option<usize>>; 4],
}

impl Decoder {
    pub(crate) fn new(columns: &Columns) -> Self {
        fn places<R: Row>(names: &[String]) -> Vec<Option<usize>> {
            names.iter().map(|name| (0..R::WIDTH).find(|at| R::column(*at) == *name)).collect()
        }
        let names = TABLES.map(|table| columns.get(table).map_or(&[][..], Vec::as_slice));
        let [node, cpus, containers, interference] = names;
        Self {
            tables: Tables {
                node: RowTable::new(node.len()),
                cpus: RowTable::new(cpus.len()),
                containers: RowTable::new(containers.len()),
                interference: RowTable::new(interference.len()),
            },
            places: [
                places::<NodeFrame>(node),
                places::<CpuFrame>(cpus),
                places::<ContainerFrame>(containers),
                places::<Interference>(interference),
            ],
        }
    }

    /// Size of the last frame in memory, bytes, at most.
    pub(crate) fn frame_bytes(&self) -> usize {
        let Tables { node, cpus, containers, interference } = &self.tables;
        node.bytes() + cpus.bytes() + containers.bytes() + interference.bytes()
    }

    /// The sums over the frame with these changes; `None` if they do not encode changes.
    pub(crate) fn totals(&mut self, at_ms: u64, bytes: &[u8]) -> Option<FrameTotals> {
        let mut input = Input(bytes);
        let seconds = input.number()? as f64 / 1e6;
        let (tables, [node, _, containers, _]) = (&mut self.tables, &self.places);
        tables.node.update(&mut input)?;
        tables.cpus.update(&mut input)?;
        tables.containers.update(&mut input)?;
        tables.interference.update(&mut input)?;
        let sum = |measure: Measure| {
            let column = (0..ContainerFrame::WIDTH).find(|at| rate(*at) == measure)?;
            tables.containers.sum(containers, column)
        };
        let rates = Rates {
            throttled_own: sum(Measure::ThrottledOwn),
            throttled_ancestor: sum(Measure::ThrottledAncestor),
            neighbor: sum(Measure::Neighbor),
            system: sum(Measure::System),
            contention: sum(Measure::Contention),
            ..Rates::default()
        };
        let pressure = tables.node.sum(node, 0);
        let usage_cores = sum(Measure::UsageCores);
        Some(FrameTotals { at_ms, seconds, lost: rates.lost(), usage_cores, pressure })
    }

    /// The frame with these changes; `None` if they do not encode changes. Later versions may
    /// append to them.
    pub(crate) fn decode(&mut self, at_ms: u64, bytes: &[u8]) -> Option<Frame> {
        let mut input = Input(bytes);
        let seconds = input.number()? as f64 / 1e6;
        let (tables, [node, cpus, containers, interference]) = (&mut self.tables, &self.places);
        let mut node = tables.node.decode(&mut input, node)?.pop()?;
        node.cpus = tables.cpus.decode(&mut input, cpus)?;
        let containers = tables.containers.decode(&mut input, containers)?;
        let mut interference = tables.interference.decode(&mut input, interference)?;
        interference.sort_by(|a, b| b.wait.total_cmp(&a.wait));
        let verdicts = verdicts(&mut input).unwrap_or_default();
        Some(Frame { at_ms, seconds, node, containers, interference, verdicts })
    }
}

/// The verdicts at the end of a record, as JSON; `None` if there are none, or if those of a later
/// version cannot be read.
fn verdicts(input: &mut Input<'_>) -> Option<Vec<Verdict>> {
    let length = input.size()?;
    serde_json::from_slice(input.bytes(length)?).ok()
}

/// The bounds of one scope of contention.
type OfScope = fn(&mut Contention) -> &mut Option<Bounds>;

/// Scopes of the columns of contention, a lower and an upper bound each.
const CONTENTION: [(OfScope, &str); 4] = [
    (|contention| &mut contention.node, "contention.node"),
    (|contention| &mut contention.guaranteed, "contention.guaranteed"),
    (|contention| &mut contention.burstable, "contention.burstable"),
    (|contention| &mut contention.best_effort, "contention.bestEffort"),
];

/// The bound of contention in a column after the first two: its scope, and whether it is the upper
/// one.
fn bound(column: usize) -> ((OfScope, &'static str), bool) {
    (CONTENTION[(column - 2) / 2], column % 2 == 1)
}

impl Row for NodeFrame {
    const WIDTH: usize = 2 + 2 * CONTENTION.len();

    fn column(column: usize) -> String {
        match column {
            0 => "pressure".to_owned(),
            1 => "steal".to_owned(),
            column => {
                let ((_, name), is_upper) = bound(column);
                format!("{name}.{}", if is_upper { "upper" } else { "lower" })
            }
        }
    }

    fn order(&self, other: &Self) -> Ordering {
        // Lists all fields, so that a new one is not forgotten; the CPUs have their own table.
        let Self { name, trace, pressure: _, contention: _, steal: _, colocation, cpus: _ } = self;
        let key = (name, &trace.mode, &trace.reason, colocation);
        key.cmp(&(&other.name, &other.trace.mode, &other.trace.reason, &other.colocation))
    }

    fn value(&self, column: usize) -> Option<f64> {
        match column {
            0 => self.pressure,
            1 => self.steal,
            column => {
                let ((of_scope, _), is_upper) = bound(column);
                let mut contention = self.contention;
                let bounds = (*of_scope(&mut contention))?;
                Some(if is_upper { bounds.upper } else { bounds.lower })
            }
        }
    }

    fn set(&mut self, column: usize, value: Option<f64>) {
        match column {
            0 => self.pressure = value,
            1 => self.steal = value,
            column => {
                let ((of_scope, _), is_upper) = bound(column);
                let bounds = of_scope(&mut self.contention);
                match value {
                    // Both bounds are there, or neither.
                    None => *bounds = None,
                    Some(value) if is_upper => bounds.get_or_insert_default().upper = value,
                    Some(value) => bounds.get_or_insert_default().lower = value,
                }
            }
        }
    }
}

impl Row for CpuFrame {
    const WIDTH: usize = 1;

    fn column(_: usize) -> String {
        "busy".to_owned()
    }

    fn order(&self, other: &Self) -> Ordering {
        let Self { cpu, core, llc, numa_node, socket, busy: _ } = self;
        let key = (cpu, core, llc, numa_node, socket);
        key.cmp(&(&other.cpu, &other.core, &other.llc, &other.numa_node, &other.socket))
    }

    fn value(&self, _: usize) -> Option<f64> {
        self.busy
    }

    fn set(&mut self, _: usize, value: Option<f64>) {
        self.busy = value;
    }
}

/// The measures of a container. The limit is in the head, with all its digits.
fn rate(column: usize) -> Measure {
    let mut rates = Measure::ALL.into_iter().filter(|measure| *measure != Measure::LimitCores);
    rates.nth(column).unwrap_or(Measure::UsageCores)
}

impl Row for ContainerFrame {
    const WIDTH: usize = Measure::ALL.len() - 1;

    fn column(column: usize) -> String {
        let name = serde_json::to_value(rate(column)).ok();
        name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
    }

    fn order(&self, other: &Self) -> Ordering {
        let Self {
            namespace,
            pod,
            container,
            uid,
            qos_class,
            cpu_qos,
            limit_cores,
            request_cores,
            cpus,
            gc: _,
            rates: _,
        } = self;
        let bits = |cores: &Option<f64>| cores.map(f64::to_bits);
        namespace
            .cmp(&other.namespace)
            .then_with(|| pod.cmp(&other.pod))
            .then_with(|| container.cmp(&other.container))
            .then_with(|| uid.cmp(&other.uid))
            .then_with(|| qos_class.cmp(&other.qos_class))
            .then_with(|| cpu_qos.cmp(&other.cpu_qos))
            .then_with(|| bits(limit_cores).cmp(&bits(&other.limit_cores)))
            .then_with(|| bits(request_cores).cmp(&bits(&other.request_cores)))
            .then_with(|| cpus.cmp(&other.cpus))
    }

    fn value(&self, column: usize) -> Option<f64> {
        rate(column).of(&self.rates, None)
    }

    fn set(&mut self, column: usize, value: Option<f64>) {
        rate(column).set(self, value);
    }

    fn head(&self) -> Self {
        Self { rates: Rates::default(), gc: None, ..self.clone() }
    }
}

impl Row for Interference {
    const WIDTH: usize = 1;

    fn column(_: usize) -> String {
        "wait".to_owned()
    }

    fn order(&self, other: &Self) -> Ordering {
        let Self { victim, aggressor, wait: _ } = self;
        (victim, aggressor).cmp(&(&other.victim, &other.aggressor))
    }

    fn value(&self, _: usize) -> Option<f64> {
        Some(self.wait)
    }

    fn set(&mut self, _: usize, value: Option<f64>) {
        self.wait = value.unwrap_or_default();
    }
}
