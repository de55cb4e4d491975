//! Scrapes with gzip, each of another snapshot than the last: the counters of all busy containers
//! have grown. Cold: after a pause in which the caches were filled with other data, as between the
//! scrapes of a real agent.

use std::cell::RefCell;
use std::hint::black_box;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use api::AdviceReport;
use endpoint::{AgentStatus, Parts, Serving, Sources};
use metrics::catalogue::{Preset, Selection};
use metrics::{AgentMetrics, Exposition, Format};
use snapshot::{ContainerRow, ContainerWaits, NodeSnapshot, NodeWaits, Published, WindowHistogram};

use crate::support::{Case, interleaved, print};
use crate::{series, snapshots};

/// Memory that is written before a cold scrape: more than the caches of a core hold.
const COLD_BYTES: usize = 64 << 20;
/// Pause before a cold scrape, in which the server's threads sleep.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) fn run() {
    measure("500 pods asleep, not traced", [asleep(1_000), asleep(1_000)]);
    measure("250 busy pods, traced", [busy(500, 0), busy(500, 1)]);
}

fn measure(name: &str, mut snapshots: [NodeSnapshot; 2]) {
    let [first, second] = &mut snapshots;
    for (row, other) in first.containers.iter().zip(&mut second.containers) {
        other.identity = Arc::clone(&row.identity);
    }
    for (row, other) in first.pods.iter().zip(&mut second.pods) {
        other.identity = Arc::clone(&row.identity);
    }
    let snapshots = snapshots.map(Arc::new);
    let (agent, server) = (agent(), Server::start());
    let [mut whole, mut kept] = [exposition(), exposition()];
    let page = whole.render(&snapshots[0], &agent, Format::Text).to_vec();
    let (bytes, compressed) = (page.len(), whole.compress(&page).len());
    let in_pieces = kept.render_compressed(&snapshots[0], &agent, Format::Text).len();
    let series = series(&String::from_utf8(page).expect("a page is UTF-8"));
    println!(
        "{name}: {series} series, {bytes} bytes, compressed {compressed}, in pieces {in_pieces}"
    );
    let [mut first, mut second, third] = [0; 3].map(|at| Turns { snapshots: &snapshots, at });
    let (mut same, mut empty, no_rows) = (exposition(), exposition(), snapshots::node(0));
    let third = RefCell::new(third);
    let at_the_socket = || {
        server.published.replace(third.borrow_mut().next());
        black_box(server.scrape());
    };
    let mut cold = vec![0_u64; COLD_BYTES / 8];
    let measured = interleaved(vec![
        Case::new("whole", || whole_page(&mut whole, &first.next(), &agent)),
        Case::new("changed pieces", || compressed_page(&mut kept, &second.next(), &agent)),
        Case::new("nothing changed", || compressed_page(&mut same, &snapshots[0], &agent)),
        Case::new("no rows", || compressed_page(&mut empty, &no_rows, &agent)),
        Case::new("the last page again, at the socket", || drop(black_box(server.scrape()))),
        Case::new("changed pieces, at the socket", at_the_socket),
        Case::new("the same, cold", at_the_socket).after(|| {
            cold.iter_mut().for_each(|word| *word = word.wrapping_add(1));
            black_box(&cold);
            std::thread::sleep(PAUSE);
        }),
    ]);
    print(&measured, "series", series);
    println!("  changed pieces / whole = {:.2}", measured[1].ratio_to(&measured[0]));
    let compared = measured[2].median_ns() - measured[3].median_ns();
    println!("  comparison of all rows: {:.3} ms", compared / 1e6);
}

/// Two snapshots in turn.
struct Turns<'s> {
    snapshots: &'s [Arc<NodeSnapshot>; 2],
    at: usize,
}

impl Turns<'_> {
    fn next(&mut self) -> Arc<NodeSnapshot> {
        self.at ^= 1;
        Arc::clone(&self.snapshots[self.at])
    }
}

fn compressed_page(exposition: &mut Exposition, snapshot: &NodeSnapshot, agent: &AgentMetrics) {
    exposition.render_compressed(snapshot, agent, Format::Text);
    black_box(exposition.take_compressed());
}

/// The page as the agent rendered it without pieces.
fn whole_page(exposition: &mut Exposition, snapshot: &NodeSnapshot, agent: &AgentMetrics) {
    exposition.render(snapshot, agent, Format::Text);
    let page = exposition.take_page();
    black_box(exposition.compress(&page).to_vec());
}

fn exposition() -> Exposition {
    Exposition::with_selection(usize::MAX, Selection::preset(Preset::Standard))
}

fn agent() -> AgentMetrics {
    let agent = snapshots::agent();
    agent.advice().set(Vec::new());
    agent
}

/// The agent's server.
struct Server {
    published: Published<NodeSnapshot>,
    address: SocketAddr,
    _serving: Serving,
    _runtime: tokio::runtime::Runtime,
}

struct Works;

impl AgentStatus for Works {}

impl Server {
    fn start() -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("this machine has threads");
        let inside = runtime.enter();
        let listener = endpoint::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        drop(inside);
        let address = listener.local_addr().expect("a bound socket has an address");
        let published = Published::default();
        let sources = Sources {
            published: published.clone(),
            metrics: Arc::new(agent()),
            advice: Arc::new(AdviceReport::default),
            status: Arc::new(Works),
        };
        let serving = Serving::start(Parts {
            listener,
            identity: None,
            auth: None,
            cadvisor: false,
            allowed_hosts: Vec::new(),
            sources,
            new_exposition: Box::new(exposition),
            interval: Duration::from_secs(1),
            ui: None,
            beat: Box::new(|_| ()),
        });
        let _serving = serving.expect("this machine has threads");
        Self { published, address, _serving, _runtime: runtime }
    }

    /// The response to a scrape with gzip.
    fn scrape(&self) -> Vec<u8> {
        let request = b"GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n";
        let mut response = Vec::new();
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        stream.write_all(request).expect("the server reads");
        stream.read_to_end(&mut response).expect("the server answers");
        response
    }
}

/// Containers in which nothing has run since the agent started.
fn asleep(containers: usize) -> NodeSnapshot {
    let mut snapshot = snapshots::node(containers);
    for row in &mut snapshot.containers {
        let (identity, cpu_limit, bandwidth) =
            (Arc::clone(&row.identity), row.cpu_limit, row.bandwidth);
        *row =
            ContainerRow { identity, live: true, cpu_limit, bandwidth, ..ContainerRow::default() };
    }
    snapshot
}

/// Containers that run ten times a second below their quotas, at one of two times.
fn busy(containers: usize, second: u64) -> NodeSnapshot {
    let mut snapshot = snapshots::node(containers);
    snapshot.pods = (0..containers / 2).map(snapshots::pod).collect();
    let waits = NodeWaits { interference: Vec::new(), ..(*snapshots::maximal().waits).clone() };
    snapshot.waits = Arc::new(waits);
    for (row, n) in snapshot.containers.iter_mut().zip(0..) {
        let grown = |every_ns: u64| (n * 7_919 % 1_000 + second) * every_ns;
        (row.user_ns, row.system_ns) = (Some(grown(1_000_000)), Some(grown(333_000)));
        (row.request_cores, row.throttled_ancestor_ns) = (None, Some(0));
        row.windows.insert(WindowHistogram::default()).counts[0] = 600 + second;
        if let Some(cfs) = &mut row.cfs {
            (cfs.periods, cfs.throttled_periods, cfs.throttled_ns) = (6_000 + 10 * second, 0, 0);
        }
        row.waits = row.waits.as_deref().map(|waits| {
            let (neighbor_ns, self_ns) = (grown(1_234_567), grown(12_345));
            let (throttled_ns, system_ns) = (0, grown(123_953));
            Arc::new(ContainerWaits { throttled_ns, neighbor_ns, self_ns, system_ns, ..*waits })
        });
    }
    for pod in &mut snapshot.pods {
        pod.cfs.periods += 10 * second;
    }
    snapshot
}
