//! The endpoint under floods: probes are answered, memory and descriptors stay bounded, and
//! sampling is unaffected.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::support::{
    Agent, Cgroup, Exposition, OnStage, READY, RealTree, Running, eventually, http, poll, turn,
};

const OPTIONS: [&str; 2] = ["--pod-source=none", "--sched-trace=off"];
const CUT: &str = "cpuwarden_http_connections_cut_total";
/// Maximum growth of the agent's resident memory, bytes. A debug build starts with twice the memory
/// of a release build.
const GROWTH: u64 = 16 << 20;

/// Lets this process open thousands of connections.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn resident_bytes(agent: &Agent) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", agent.pid())).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

fn descriptors(agent: &Agent) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap().count()
}

fn cut(page: &Exposition, reason: &str) -> f64 {
    page.value(CUT, &[("reason", reason)]).unwrap_or(0.0)
}

/// Opens a connection and sends this text; reads nothing.
fn sent(agent: &Agent, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(agent.address()).unwrap();
    // The agent may already have closed the connection.
    let _ = stream.write_all(text.as_bytes());
    stream
}

/// Bytes that have arrived and that nothing has read.
fn unread_bytes(stream: &TcpStream) -> u64 {
    rustix::io::ioctl_fionread(stream).unwrap()
}

#[test]
fn probes_are_answered_beside_thousands_of_connections() {
    raise_descriptor_limit();
    let agent = Agent::start(&OPTIONS);
    agent.after_ticks(1);
    let before = descriptors(&agent);
    let halves = ["", "GET /metrics HTTP/1.1\r\nHost: a\r\n", "G"];
    let _connections: Vec<TcpStream> =
        (0..2_100).map(|number| sent(&agent, halves[number % 3])).collect();
    assert_eq!(agent.get("/healthz"), (200, "ok\n".to_owned()));
    print_probes("beside 2,100 connections", &probe_times(&agent, 100));
    assert!(
        descriptors(&agent) < before + 150,
        "{} descriptors, {before} before",
        descriptors(&agent)
    );
    // A page has the counts of before its snapshot: the first one after the flood may be older than
    // the flood.
    eventually("connections that were cut are counted", || {
        cut(&agent.metrics(), "waiting") >= 1_900.0
    });
}

#[test]
fn a_header_that_never_ends_is_given_up_after_five_seconds() {
    let agent = Agent::start(&OPTIONS);
    let mut dribble = sent(&agent, "GET /metrics HTTP/1.1\r\n");
    let began = Instant::now();
    let ended = loop {
        std::thread::sleep(Duration::from_millis(100));
        if dribble.write_all(b"a: b\r\n").is_err() {
            break began.elapsed();
        }
        assert!(began.elapsed() < Duration::from_secs(60), "it is still open");
    };
    // The lower bound is no promise of speed; it shows that the limit closed the connection.
    assert!(ended > Duration::from_secs(3), "{ended:?}");
}

#[test]
fn memory_stays_bounded_through_header_bombs_and_unread_pages() {
    raise_descriptor_limit();
    let agent = Agent::start(&OPTIONS);
    agent.after_ticks(1);
    let idle = resident_bytes(&agent);
    let bomb =
        format!("GET /metrics HTTP/1.1\r\n{}", format!("x: {}\r\n", "y".repeat(8_000)).repeat(100));
    let address = agent.address();
    let bombs: Vec<_> = (0..300)
        .map(|_| {
            let bomb = bomb.clone();
            std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
                let mut stream = TcpStream::connect(address).unwrap();
                let _ = stream.write_all(bomb.as_bytes());
                stream
            })
        })
        .collect();
    let _bombs: Vec<TcpStream> =
        bombs.into_iter().map(|thread| thread.unwrap().join().unwrap()).collect();
    let after_bombs = resident_bytes(&agent);
    let unread: Vec<TcpStream> = (0..100)
        .map(|_| sent(&agent, &"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50)))
        .collect();
    let mut answered = 0;
    let what = || "the agent fills the buffers of the connections".to_owned();
    poll(Duration::from_millis(200), Duration::from_secs(60), what, || {
        let before = std::mem::replace(&mut answered, unread.iter().map(unread_bytes).sum());
        answered > 0 && answered == before
    });
    let after_pages = resident_bytes(&agent);
    let resident = [idle, after_bombs, after_pages];
    println!(
        "resident KiB idle, after 300 header bombs, and 100 unread pages: {:?}",
        resident.map(|bytes| bytes >> 10)
    );
    assert!(after_bombs.max(after_pages) < idle + GROWTH, "{resident:?} bytes");
    assert_eq!(agent.get("/healthz").0, 200);
    drop(unread);
    eventually("readers find places again", || {
        http::get(address, "/metrics").is_ok_and(|(status, _)| status == 200)
    });
}

#[test]
fn a_header_above_16_kib_is_refused() {
    let agent = Agent::start(&OPTIONS);
    let mut answer = String::new();
    let mut stream = sent(
        &agent,
        &format!("GET /healthz HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n", "y".repeat(17 << 10)),
    );
    let _ = stream.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let allowed =
        format!("GET /healthz HTTP/1.1\r\nHost: a\r\nx: {}\r\n\r\n", "y".repeat(12 << 10));
    let mut answer = String::new();
    sent(&agent, &allowed).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

/// Number of ticks that began more than 50 ms late, and of all ticks.
fn late_ticks(page: &Exposition) -> (f64, f64) {
    let name = "cpuwarden_sample_lateness_seconds";
    let in_time = page.value(&format!("{name}_bucket"), &[("le", "0.05")]).unwrap();
    let all = page.value(&format!("{name}_count"), &[]).unwrap();
    (all - in_time, all)
}

/// Address that the scraping process reads, and its number of clients.
const SCRAPED: [&str; 2] = ["CPUWARDEN_IT_SCRAPED", "CPUWARDEN_IT_CLIENTS"];

/// Starts a process in the cgroup whose threads read the agent's metrics without a pause.
fn scrape_from(cgroup: &Cgroup, clients: u32, address: SocketAddr) -> Running {
    let mut command = cgroup.command(std::env::current_exe().unwrap());
    command.args(["floods::scraping_process", "--exact", "--ignored", "--nocapture"]);
    command.envs(SCRAPED.into_iter().zip([address.to_string(), clients.to_string()]));
    Running::start(command, |line| line == READY).0
}

#[test]
#[ignore = "not a test: the clients of a flood"]
fn scraping_process() {
    let [address, clients] = SCRAPED.map(|name| std::env::var(name).unwrap());
    let (address, clients): (SocketAddr, u32) =
        (address.parse().unwrap(), clients.parse().unwrap());
    let scrape = move || loop {
        // The test judges the answers by the agent's own counters.
        let _ = http::get(address, "/metrics");
    };
    (0..clients).for_each(|_| drop(std::thread::spawn(scrape)));
    println!("\n{READY}");
    // Ends with the test that started it, however that ends.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// CPU budget under a flood, in cores: more than a debug build samples with on a busy machine, less
/// than the flood takes.
const BUDGET: f64 = 0.05;

#[test]
fn a_flood_of_scrapes_does_not_slow_sampling() {
    // The governor observes for ten seconds before it acts.
    assert_a_flood_does_not_slow_sampling(3, 60);
}

#[test]
#[ignore = "only in `cargo xtask test --all`: more clients, for longer"]
fn a_long_flood_of_scrapes_does_not_slow_sampling() {
    assert_a_flood_does_not_slow_sampling(6, 120);
}

/// With this number of clients for this number of ticks, 200 ms each.
fn assert_a_flood_does_not_slow_sampling(clients: u32, length: u64) {
    let tree = RealTree::new();
    let budget = format!("--cpu-budget={BUDGET}");
    let options = ["--pod-source=none", "--sched-trace=off", "--sample-interval=200ms", &budget];
    // Other load on this machine must not make ticks late: the cgroup has the highest weight.
    let agent = Agent::start_in(&tree.above().child("agent"), &options);
    let idle = agent.after_ticks(55);
    // With the same weight: on a busy machine, clients without CPU time are no flood.
    let _clients = scrape_from(&tree.above().child("clients"), clients, agent.address());
    let flooded = agent.after_ticks(length);
    let ((late_idle, ticks_idle), (late, ticks)) = (late_ticks(&idle), late_ticks(&flooded));
    let (late_flooded, ticks_flooded) = (late - late_idle, ticks - ticks_idle);
    println!(
        "late ticks: {late_idle} of {ticks_idle} idle, {late_flooded} of {ticks_flooded} under a flood"
    );
    let share = |late: f64, ticks: f64| late / ticks;
    assert!(
        share(late_flooded, ticks_flooded) <= share(late_idle, ticks_idle) + 0.05,
        "the flood makes ticks late"
    );
    let interval = flooded
        .value("cpuwarden_feature_enabled", &[("feature", "sample_interval"), ("reason", "")]);
    assert_eq!(interval, Some(1.0), "the interval follows the flood");
    let cpu_seconds = |page: &Exposition| page.value("process_cpu_seconds_total", &[]).unwrap();
    let (spent, wall) = (cpu_seconds(&flooded) - cpu_seconds(&idle), ticks_flooded * 0.2);
    assert!(
        spent > 2.0 * BUDGET * wall,
        "{spent} s of CPU in {wall} s are within the budget: no flood"
    );
    let renders = flooded.value("cpuwarden_page_renders_total", &[("page", "metrics")]).unwrap();
    assert!(renders <= ticks + 2.0, "{renders} renderings in {ticks} ticks");
}

/// Answer times of probes, in ascending order.
fn probe_times(agent: &Agent, count: usize) -> Vec<Duration> {
    let probe = |_| {
        let began = Instant::now();
        assert_eq!(agent.get("/healthz").0, 200);
        began.elapsed()
    };
    let mut times: Vec<Duration> = (0..count).map(probe).collect();
    times.sort();
    times
}

fn print_probes(condition: &str, times: &[Duration]) {
    let (median, last) = (times[times.len() / 2], times.len() - 1);
    println!(
        "{} probes {condition}: median {median:?}, p99 {:?}, maximum {:?}",
        last + 1,
        times[last * 99 / 100],
        times[last]
    );
}

/// Prints the histogram bucket of the 99th percentile of lateness, between two pages.
fn print_lateness(condition: &str, before: &Exposition, after: &Exposition) {
    let name = "cpuwarden_sample_lateness_seconds_bucket";
    let buckets = |page: &Exposition| -> Vec<(String, f64)> {
        page.with_prefix(name).map(|sample| (sample.label("le").to_owned(), sample.value)).collect()
    };
    let gained: Vec<(String, f64)> = buckets(before)
        .into_iter()
        .zip(buckets(after))
        .map(|((le, old), (_, new))| (le, new - old))
        .collect();
    let ticks = gained.last().unwrap().1;
    let p99 = gained.iter().find(|(_, count)| *count >= ticks * 0.99).unwrap();
    println!(
        "{ticks} ticks {condition}: p99 of lateness at most {} s, by bucket {gained:?}",
        p99.0
    );
}

/// Scrapes with this number of clients until `until` returns a page; returns that page and the
/// number of pages read.
fn scraped(agent: &Agent, clients: usize, until: impl FnOnce() -> Exposition) -> (Exposition, u64) {
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let page = std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let is_page = http::get(agent.address(), "/metrics")
                        .is_ok_and(|(status, _)| status == 200);
                    answered.fetch_add(u64::from(is_page), Ordering::Relaxed);
                }
            });
        }
        let page = until();
        stop.store(true, Ordering::Relaxed);
        page
    });
    (page, answered.into_inner())
}

/// The page after a minute of ticks at 200 ms.
fn a_minute(agent: &Agent) -> Exposition {
    (0..2).for_each(|_| drop(agent.after_ticks(100)));
    agent.after_ticks(100)
}

/// Prints the figures of benches/README.md, which has the command; needs a release build.
#[test]
#[ignore = "takes three minutes, to print figures"]
fn figures_beside_idle() {
    let (_turn, _stage) = (turn(), OnStage::enter());
    raise_descriptor_limit();
    let agent =
        Agent::start(&["--pod-source=none", "--sched-trace=off", "--sample-interval=200ms"]);
    // The governor observes for ten seconds before it acts.
    let start = agent.after_ticks(60);
    let idle = a_minute(&agent);
    print_lateness("in an idle minute", &start, &idle);
    let (flooded, answered) = scraped(&agent, 6, || a_minute(&agent));
    print_lateness("in a minute of six clients that scrape", &idle, &flooded);
    let interval = flooded
        .value("cpuwarden_feature_enabled", &[("feature", "sample_interval"), ("reason", "")]);
    println!(
        "{answered} pages were read; the interval is as configured: {}",
        interval == Some(1.0)
    );
    assert_eq!(interval, Some(1.0), "the interval follows the flood");
    let resident = resident_bytes(&agent);
    print_probes("of an idle agent", &probe_times(&agent, 500));
    let halves = ["", "GET /metrics HTTP/1.1\r\nHost: a\r\n", "G"];
    let connections: Vec<TcpStream> =
        (0..2_100).map(|number| sent(&agent, halves[number % 3])).collect();
    let beside = probe_times(&agent, 500);
    print_probes("beside 2,100 connections", &beside);
    drop(connections);
    println!(
        "resident KiB before and after them: {:?}",
        [resident, resident_bytes(&agent)].map(|bytes| bytes >> 10)
    );
}
