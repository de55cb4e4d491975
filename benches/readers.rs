//! Many readers at once on a node of 250 pods of two containers: 100 scrapers from as many
//! addresses, one page of /metrics per second each; 20 clients that read a page at 1 KiB per
//! second; 5 browsers, each with the event stream and the requests of the page (the history when it
//! is opened, again each 30 seconds; a pod and the matrix every 2 seconds; the advice every 5); and
//! 5 event streams that nobody reads. Needs root and writable cgroups. The agent's cgroup has the
//! highest weight; that of the readers does not.
//!
//! Printed, by the agent's own metrics over four minutes: the ticks and the bound below which 99 %
//! of them began after their deadline, before and with the readers; answers of the scrapers; the
//! time of a scrape; and the resident memory, before and every 30 seconds.
//!
//! Fails if with the readers 1 % of the ticks begin more than 50 ms late, if the largest resident
//! memory of the second half is more than 4 MiB above that of the first half (the history, which
//! fills up in ten minutes, accounts for 1.4 MiB), or if a kind of reader has no answers.

#![allow(dead_code, unused_imports, reason = "the tests' support, of which this uses a part")]
#![allow(clippy::unwrap_used, reason = "whatever fails ends the bench")]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::{Agent, Qos, RealTree};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

const PODS: usize = 250;
const SCRAPERS: u8 = 100;
const SLOW: u8 = 20;
const STREAMS: u8 = 5;
const SETTLE: Duration = Duration::from_secs(75);
const BEFORE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_secs(30);
const STEPS: usize = 8;
const SECOND: Duration = Duration::from_secs(1);

/// Lateness that 99 % of the ticks must not exceed, seconds.
const LATEST: f64 = 0.05;
/// Most growth of the resident memory in the second half, bytes.
const GROWTH: f64 = 4.0 * 1024.0 * 1024.0;

/// Requests of the page when it is opened.
const OPENED: [&str; 2] = [
    "/api/v1/history?seconds=60&measure=throttledOwn&measure=throttledAncestor&measure=neighbor\
     &measure=system&measure=contention",
    "/api/v1/history?seconds=60&measure=contention&aggressors=7",
];

/// Answers of the scrapers.
static SCRAPED: AtomicU64 = AtomicU64::new(0);
static REJECTED: AtomicU64 = AtomicU64::new(0);
static SCRAPE_MS: AtomicU64 = AtomicU64::new(0);
static FRAMES: AtomicU64 = AtomicU64::new(0);
/// Answers to the requests of the pages.
static ANSWERS: AtomicU64 = AtomicU64::new(0);
static UNANSWERED: AtomicU64 = AtomicU64::new(0);

fn main() {
    let tree = RealTree::new();
    let _containers: Vec<_> = (0..PODS).flat_map(|pod| containers(&tree, pod)).collect();
    let kubepods = format!("--kubepods={}", tree.kubepods().path().display());
    let options = ["--pod-source=none", "--sched-trace=off", &kubepods];
    let agent = Agent::start_in(&tree.above().child("agent"), &options);
    std::thread::sleep(SETTLE);
    let start = lateness(&agent);
    std::thread::sleep(BEFORE);
    let without_readers = lateness(&agent);
    println!("no readers: {}", Lateness::between(&start, &without_readers));
    resident(&agent);
    let runtime = start_readers(agent.address());
    let resident_after_step = |_| {
        std::thread::sleep(STEP);
        resident(&agent)
    };
    let resident: Vec<f64> = (0..STEPS).map(resident_after_step).collect();
    let lateness = Lateness::between(&without_readers, &lateness(&agent));
    drop(runtime);
    println!("with readers: {lateness}");
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let [scraped, frames, answers] = [&SCRAPED, &FRAMES, &ANSWERS].map(count);
    println!(
        "{scraped} pages, {} rejected, {:.0} ms per page; {frames} events; {answers} answers, {} \
         without",
        count(&REJECTED),
        count(&SCRAPE_MS) as f64 / scraped.max(1) as f64,
        count(&UNANSWERED),
    );
    assert!(scraped > 0 && frames > 0 && answers > 0, "a kind of reader has no answers");
    assert!(lateness.p99 <= LATEST, "ticks are late");
    let (first, second) = resident.split_at(STEPS / 2);
    let most = |half: &[f64]| half.iter().copied().fold(0.0, f64::max);
    let grown = most(second) - most(first);
    println!("grown by {grown} bytes in the second half");
    assert!(grown <= GROWTH, "the resident memory grows");
}

/// The readers, until the runtime is dropped.
fn start_readers(address: SocketAddr) -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    for number in 0..SCRAPERS {
        runtime.spawn(scrape(address, from(1, number)));
    }
    for number in 0..SLOW {
        runtime.spawn(read_slowly(address, from(2, number)));
    }
    for number in 0..2 * STREAMS {
        runtime.spawn(follow(address, from(3, number), number < STREAMS));
    }
    for number in 0..STREAMS {
        runtime.spawn(poll(address, from(3, number), number));
    }
    runtime
}

/// Resident memory of the agent, bytes.
fn resident(agent: &Agent) -> f64 {
    let page = agent.metrics();
    let resident = page.with_prefix("process_resident_memory_bytes").next().unwrap().value;
    println!("resident {:.1} MiB", resident / f64::from(1 << 20));
    resident
}

fn uid(pod: usize) -> String {
    format!("{pod:08x}-0000-4000-8000-000000000000")
}

fn containers(tree: &RealTree, pod: usize) -> Vec<support::Cgroup> {
    let parent = tree.pod(Qos::Burstable, &uid(pod));
    (0..2).map(|container| parent.child(&format!("{:064x}", 2 * pod + container))).collect()
}

fn from(group: u8, number: u8) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, group, number + 1)), 0)
}

async fn connect(to: SocketAddr, from: SocketAddr, path: &str) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    // Otherwise the kernel takes the pages, and no reader is slow.
    socket.set_recv_buffer_size(4096)?;
    socket.bind(from)?;
    let mut stream = socket.connect(to).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

async fn scrape(to: SocketAddr, from: SocketAddr) {
    let mut every = tokio::time::interval(SECOND);
    loop {
        every.tick().await;
        let (began, mut page) = (Instant::now(), Vec::new());
        let Ok(mut stream) = connect(to, from, "/metrics").await else { continue };
        let read = stream.read_to_end(&mut page).await;
        if read.is_ok() && page.starts_with(b"HTTP/1.1 200") {
            SCRAPED.fetch_add(1, Ordering::Relaxed);
            let took = u64::try_from(began.elapsed().as_millis()).unwrap();
            SCRAPE_MS.fetch_add(took, Ordering::Relaxed);
        } else {
            REJECTED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn read_slowly(to: SocketAddr, from: SocketAddr) {
    loop {
        tokio::time::sleep(SECOND).await;
        let Ok(mut stream) = connect(to, from, "/metrics").await else { continue };
        while stream.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {
            tokio::time::sleep(SECOND).await;
        }
    }
}

async fn follow(to: SocketAddr, from: SocketAddr, reads: bool) {
    loop {
        let Ok(mut stream) = connect(to, from, "/api/v1/stream").await else { continue };
        let mut buffer = vec![0; 64 << 10];
        if !reads {
            tokio::time::sleep(Duration::from_secs(600)).await;
        }
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            let events = buffer[..read].windows(7).filter(|bytes| bytes == b"event: ").count();
            FRAMES.fetch_add(events as u64, Ordering::Relaxed);
        }
        tokio::time::sleep(SECOND).await;
    }
}

/// Sends the requests of a page.
async fn poll(to: SocketAddr, from: SocketAddr, number: u8) {
    let pod = format!("/api/v1/pods/{}?seconds=300", uid(number.into()));
    let mut every = tokio::time::interval(SECOND);
    for second in 0_u32.. {
        every.tick().await;
        let due = [
            (30, OPENED[0]),
            (30, OPENED[1]),
            (2, pod.as_str()),
            (2, "/api/v1/interference?seconds=60"),
            (5, "/api/v1/advice"),
        ];
        for (_, path) in due.iter().filter(|(seconds, _)| second % seconds == 0) {
            let mut answer = Vec::new();
            let Ok(mut stream) = connect(to, from, path).await else { continue };
            let read = stream.read_to_end(&mut answer).await;
            let is_answered = read.is_ok() && answer.starts_with(b"HTTP/1.1 200");
            let counter = if is_answered { &ANSWERS } else { &UNANSWERED };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Ticks by upper bound of their lateness, cumulative.
fn lateness(agent: &Agent) -> Vec<(f64, f64)> {
    let page = agent.metrics();
    let buckets = page.with_prefix("cpuwarden_sample_lateness_seconds_bucket");
    buckets.map(|sample| (sample.label("le").parse().unwrap(), sample.value)).collect()
}

/// Number of ticks, and the bound below which 99 % of them began after their deadline.
struct Lateness {
    ticks: f64,
    /// Seconds.
    p99: f64,
}

impl Lateness {
    fn between(before: &[(f64, f64)], after: &[(f64, f64)]) -> Self {
        let ticks: Vec<(f64, f64)> =
            before.iter().zip(after).map(|((bound, from), (_, to))| (*bound, to - from)).collect();
        let all = ticks.last().unwrap().1;
        let (p99, _) = *ticks.iter().find(|(_, ticks)| *ticks >= 0.99 * all).unwrap();
        Self { ticks: all, p99 }
    }
}

impl std::fmt::Display for Lateness {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} ticks, 99 % less than {:.0} ms late", self.ticks, self.p99 * 1000.0)
    }
}
