//! Many readers at once on a node of 250 pods of two containers: 100 scrapers from as many
//! addresses, one page of /metrics per second each; 20 clients that read a page at 1 KiB per second;
//! 5 event streams that are read and 5 that are not. Needs root and writable cgroups.
//!
//! Printed, by the agent's own metrics over two minutes: the ticks and the bound below which 99 % of
//! them began after their deadline (target: 50 ms), before and with the readers; answers of the
//! scrapers; the time of a scrape; and the resident memory every 20 seconds.

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
const STEP: Duration = Duration::from_secs(20);
const STEPS: usize = 6;
const SECOND: Duration = Duration::from_secs(1);

/// Answers of the scrapers.
static SCRAPED: AtomicU64 = AtomicU64::new(0);
static REJECTED: AtomicU64 = AtomicU64::new(0);
static SCRAPE_MS: AtomicU64 = AtomicU64::new(0);
static FRAMES: AtomicU64 = AtomicU64::new(0);

fn main() {
    let tree = RealTree::new();
    let _containers: Vec<_> = (0..PODS).flat_map(|pod| containers(&tree, pod)).collect();
    let kubepods = format!("--kubepods={}", tree.kubepods().path().display());
    let agent = Agent::start(&["--pod-source=none", "--sched-trace=off", &kubepods]);
    std::thread::sleep(SETTLE);
    let start = lateness(&agent);
    std::thread::sleep(BEFORE);
    let quiet = lateness(&agent);
    println!("no readers: {}", p99(&start, &quiet));
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let address = agent.address();
    for number in 0..SCRAPERS {
        runtime.spawn(scrape(address, from(1, number)));
    }
    for number in 0..SLOW {
        runtime.spawn(read_slowly(address, from(2, number)));
    }
    for number in 0..2 * STREAMS {
        runtime.spawn(follow(address, from(3, number), number < STREAMS));
    }
    for _ in 0..STEPS {
        std::thread::sleep(STEP);
        let page = agent.metrics();
        let resident = page.with_prefix("process_resident_memory_bytes").next().unwrap().value;
        println!("resident {:.1} MiB", resident / f64::from(1 << 20));
    }
    println!("with readers: {}", p99(&quiet, &lateness(&agent)));
    let scraped = SCRAPED.load(Ordering::Relaxed);
    println!(
        "{scraped} pages, {} rejected, {:.0} ms per page; {} events",
        REJECTED.load(Ordering::Relaxed),
        SCRAPE_MS.load(Ordering::Relaxed) as f64 / scraped.max(1) as f64,
        FRAMES.load(Ordering::Relaxed),
    );
}

fn containers(tree: &RealTree, pod: usize) -> Vec<support::Cgroup> {
    let uid = format!("{pod:08x}-0000-4000-8000-000000000000");
    let parent = tree.pod(Qos::Burstable, &uid);
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
    let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
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

/// Ticks by upper bound of their lateness, cumulative.
fn lateness(agent: &Agent) -> Vec<(f64, f64)> {
    let page = agent.metrics();
    let buckets = page.with_prefix("cpuwarden_sample_lateness_seconds_bucket");
    buckets.map(|sample| (sample.label("le").parse().unwrap(), sample.value)).collect()
}

fn p99(before: &[(f64, f64)], after: &[(f64, f64)]) -> String {
    let ticks: Vec<(f64, f64)> =
        before.iter().zip(after).map(|((bound, from), (_, to))| (*bound, to - from)).collect();
    let all = ticks.last().unwrap().1;
    let (bound, _) = ticks.iter().find(|(_, ticks)| *ticks >= 0.99 * all).unwrap();
    format!("{all} ticks, 99 % less than {:.0} ms late", bound * 1000.0)
}
