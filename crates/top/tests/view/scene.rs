//! A node with a container of each kind of delay, and a screen to draw it on.

use api::{
    Bounds, CauseKind, Colocation, ContainerFrame, Contention, CpuFrame, Culprit, Frame,
    Interference, NodeFrame, PodName, Rates, SlowedReason, Trace, Verdict,
};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Modifier;
use top::{Advice, App, Change, Control, Look, Update};

pub(crate) const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];

/// Colors off: what the tests see is what a monochrome terminal shows.
const LOOK: Look = Look { color: false, unicode: true };

pub(crate) fn row(pod: &str, container: &str, limit: Option<f64>, rates: Rates) -> ContainerFrame {
    let (namespace, pod) = pod.split_once('/').unwrap();
    ContainerFrame {
        namespace: namespace.into(),
        pod: pod.into(),
        container: container.into(),
        uid: format!("uid-{pod}"),
        qos_class: "Burstable".into(),
        limit_cores: limit,
        request_cores: Some(0.2),
        cpus: Some(if pod == "db-0" { "2-3" } else { "0-1" }.into()),
        rates,
        ..ContainerFrame::default()
    }
}

fn pod(name: &str) -> PodName {
    let (namespace, pod) = name.split_once('/').unwrap_or((name, ""));
    PodName { namespace: namespace.into(), pod: pod.into() }
}

fn wait(victim: &str, aggressor: &str, wait: f64) -> Interference {
    Interference { victim: pod(victim), aggressor: pod(aggressor), wait }
}

fn rates(usage: f64, neighbor: f64, system: f64, own: f64) -> Rates {
    Rates {
        usage_cores: Some(usage),
        neighbor: Some(neighbor),
        system: Some(system),
        own: Some(own),
        smt: Some(0.125),
        ..Rates::default()
    }
}

/// A second of the node: the spinner loses most, by its own limit.
pub(crate) fn frame(second: u64) -> Frame {
    let spinner = Rates {
        throttled_share: Some(0.83),
        throttled_own: Some(0.79),
        ..rates(0.2, 0.011, 0.002, 0.0)
    };
    let ingest = Rates { throttled_ancestor: Some(0.68), ..rates(0.3, 0.02, 0.001, 0.0) };
    let cpu = |cpu: u32| CpuFrame {
        cpu,
        core: Some(cpu / 2 * 2),
        llc: Some(0),
        numa_node: Some(cpu / 4),
        socket: Some(0),
        busy: Some(f64::from(cpu) / 8.0),
    };
    Frame {
        at_ms: 1_700_000_000_000 + second * 1000,
        seconds: 1.0,
        node: NodeFrame {
            name: "worker-1".into(),
            trace: Trace { mode: "continuous".into(), reason: String::new() },
            pressure: Some(0.91),
            contention: Contention {
                node: Some(Bounds { lower: 0.37, upper: 0.78 }),
                ..Contention::default()
            },
            steal: Some(0.0),
            colocation: Colocation::default(),
            cpus: (0..8).map(cpu).collect(),
        },
        containers: vec![
            row("batch/encode", "neighbor-b", None, rates(0.25, 0.749, 0.001, 0.0)),
            row("data/ingest", "pod-quota", Some(0.3), ingest),
            row("shop/checkout-7d9f8b6c5d-x2x4v", "spinner", Some(0.2), spinner),
            row("shop/checkout-7d9f8b6c5d-x2x4v", "sidecar", None, rates(0.01, 0.0, 0.0, 0.0)),
            row("shop/db-0", "postgres", Some(2.0), rates(0.4, 0.0, 0.0, 0.0)),
        ],
        interference: vec![
            wait("batch/encode", "search/index", 0.7),
            wait("batch/encode", "shop/db-0", 0.05),
            wait("data/ingest", "system", 0.001),
        ],
        verdicts: Vec::new(),
    }
}

/// The same with verdicts: the pod that search/index slows, and one that several do.
pub(crate) fn judged(second: u64) -> Frame {
    let verdict = |name: &str, reason, cause, who: &str| {
        let (namespace, pod) = who.split_once('/').unwrap();
        let culprit = Culprit {
            namespace: namespace.into(),
            kind: "Pod".into(),
            name: pod.into(),
            ..Culprit::default()
        };
        let by = if cause == CauseKind::One { culprit.name() } else { "several: …".into() };
        Verdict {
            victim: self::pod(name),
            reason,
            cause,
            culprits: vec![culprit],
            summary: format!("slowed ×2.9 by {by}, 20 s of the last minute"),
            ..Verdict::default()
        }
    };
    let verdicts = vec![
        verdict("batch/encode", SlowedReason::Neighbor, CauseKind::One, "search/index"),
        verdict("shop/db-0", SlowedReason::Neighbor, CauseKind::Several, "search/index"),
        verdict(
            "shop/checkout-7d9f8b6c5d-x2x4v",
            SlowedReason::OwnLimit,
            CauseKind::Own,
            "search/index",
        ),
    ];
    Frame { verdicts, ..frame(second) }
}

/// The same without the trace.
pub(crate) fn untraced(second: u64) -> Frame {
    let mut frame = frame(second);
    let reason = "no permission to load eBPF programs: add the capabilities BPF and PERFMON".into();
    frame.node.trace = Trace { mode: "off".into(), reason };
    frame.node.contention = Contention::default();
    frame.interference.clear();
    for row in &mut frame.containers {
        let rates = &mut row.rates;
        rates.contention = rates.neighbor;
        (rates.neighbor, rates.own, rates.system, rates.smt) = (None, None, None, None);
    }
    frame
}

pub(crate) fn advice() -> Advice {
    let change = Change {
        is_warning: true,
        finding: "throttled-by-own-quota".into(),
        change: "resources.limits.cpu: 1200m".into(),
    };
    Advice {
        namespace: "shop".into(),
        pod: "checkout-7d9f8b6c5d-x2x4v".into(),
        container: "spinner".into(),
        changes: vec![change],
        pending: "lower requests from 24 h".into(),
    }
}

/// A view and the terminal that shows it.
pub(crate) struct Screen {
    pub(crate) app: App,
    terminal: Terminal<TestBackend>,
}

impl Screen {
    /// After two minutes of the node.
    pub(crate) fn new(size: (u16, u16)) -> Self {
        let mut screen = Self::empty(size);
        (0..120).for_each(|second| screen.show(frame(second)));
        screen.app.apply(Update::Advice(vec![advice()]));
        screen
    }

    pub(crate) fn empty(size: (u16, u16)) -> Self {
        Self::with(LOOK, size)
    }

    /// Empty, with colors.
    pub(crate) fn colored(size: (u16, u16)) -> Self {
        Self::with(Look { color: true, ..LOOK }, size)
    }

    fn with(look: Look, (width, height): (u16, u16)) -> Self {
        let terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        Self { app: App::new(look), terminal }
    }

    pub(crate) fn show(&mut self, frame: Frame) {
        self.app.apply(Update::Frame(Box::new(frame)));
    }

    /// Presses a key on the screen as it is drawn.
    pub(crate) fn press(&mut self, code: KeyCode) -> Option<Control> {
        self.lines();
        self.app.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    pub(crate) fn write(&mut self, keys: &str) {
        for key in keys.chars() {
            self.press(KeyCode::Char(key));
        }
    }

    /// The lines on the terminal.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        let text = |line: Vec<Cell>| line.iter().map(Cell::symbol).collect::<String>();
        let lines = self.cells().into_iter().map(text);
        lines.map(|line| line.trim_end().to_owned()).collect()
    }

    /// The cells of each line on the terminal.
    pub(crate) fn cells(&mut self) -> Vec<Vec<Cell>> {
        let app = &mut self.app;
        self.terminal
            .draw(|frame| {
                let area = frame.area();
                app.render(area, frame.buffer_mut());
            })
            .unwrap();
        let buffer = self.terminal.backend().buffer();
        let width = usize::from(buffer.area.width);
        buffer.content.chunks(width).map(<[Cell]>::to_vec).collect()
    }

    /// Number of reversed cells on each line that shows any.
    pub(crate) fn reversed(&mut self) -> Vec<usize> {
        self.lines();
        let buffer = self.terminal.backend().buffer();
        let is_reversed = |cell: &&Cell| cell.modifier.contains(Modifier::REVERSED);
        let lines = buffer.content.chunks(usize::from(buffer.area.width));
        let counts = lines.map(|line| line.iter().filter(is_reversed).count());
        counts.filter(|count| *count > 0).collect()
    }

    pub(crate) fn text(&mut self) -> String {
        self.lines().join("\n")
    }

    /// The rows of the table: the lines below its titles.
    pub(crate) fn rows(&mut self) -> Vec<String> {
        let lines = self.lines();
        let title = lines.iter().position(|line| line.contains("LAST MINUTE")).unwrap();
        let rows = lines[title + 1..lines.len() - 1].iter();
        rows.filter(|line| !line.is_empty()).cloned().collect()
    }
}
