//! The processes of a scenario, and the latencies that services record.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use testkit::load::{spin, use_cpu};
use testkit::{READY, Running};

use super::model::Load;
use super::truth::Latency;

const ROLE: &str = "CPUWARDEN_BENCH_ROLE";
/// Directory of the latencies and of the socket for calls.
const DIRECTORY: &str = "CPUWARDEN_BENCH_DIRECTORY";
/// Part of each interval by which the loads begin later.
const OFFSET: &str = "CPUWARDEN_BENCH_OFFSET";
const LATENCIES: &str = "latencies";
const SOCKET: &str = "calls";
/// Age of a request from which on it is not answered. Its age is recorded as its latency.
const SHED: u64 = 400_000;
/// Interval between the moves of a thread.
const MOVES: u64 = 7_000;

/// Microseconds of a clock that all processes share.
pub(crate) fn now() -> u64 {
    let time = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    u64::try_from(time.as_micros()).unwrap()
}

/// Makes the command the process of these loads, and starts it.
pub(crate) fn start(
    mut command: Command,
    loads: &[Load],
    directory: &Path,
    offset: f64,
) -> Running {
    command.env(ROLE, serde_json::to_string(loads).unwrap());
    command.env(DIRECTORY, directory).env(OFFSET, offset.to_string());
    Running::start(command, |line| line == READY).0
}

/// Runs the loads of this process, if it has some; then it does not return.
pub(crate) fn run_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let loads: Vec<Load> = serde_json::from_str(&role).unwrap();
    if let [Load::Once { work }] = loads[..] {
        use_cpu(Duration::from_micros(work));
        std::process::exit(0);
    }
    let directory = std::env::var(DIRECTORY).unwrap();
    let offset: f64 = std::env::var(OFFSET).unwrap().parse().unwrap();
    let record = Arc::new(Mutex::new(None));
    println!("{READY}");
    for load in loads {
        begin(load, Path::new(&directory), offset, &record);
    }
    // Exits with the bench that started it, however the bench ends.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

type Record = Arc<Mutex<Option<File>>>;

fn begin(load: Load, directory: &Path, offset: f64, record: &Record) {
    let each = |threads: u32, every: u64, work: Arc<dyn Fn() + Send + Sync>| {
        for _ in 0..threads {
            let work = Arc::clone(&work);
            std::thread::spawn(move || repeat(every, offset, &*work));
        }
    };
    let cpu = Duration::from_micros;
    match load {
        Load::Service { threads, work, every } => {
            open(directory, record);
            for _ in 0..threads {
                let record = Arc::clone(record);
                std::thread::spawn(move || serve(cpu(work), every, &record));
            }
        }
        Load::Moving { work, every } => {
            open(directory, record);
            let record = Arc::clone(record);
            std::thread::spawn(move || {
                let thread = gettid();
                std::thread::spawn(move || move_around(thread));
                serve(cpu(work), every, &record);
            });
        }
        Load::Answers { work } => {
            open(directory, record);
            let socket = UnixDatagram::bind(directory.join(SOCKET)).unwrap();
            let record = Arc::clone(record);
            std::thread::spawn(move || answer(&socket, cpu(work), &record));
        }
        Load::Calls { every } => {
            let (socket, to) = (UnixDatagram::unbound().unwrap(), directory.join(SOCKET));
            socket.set_nonblocking(true).unwrap();
            // A full queue loses the call.
            each(1, every, Arc::new(move || drop(socket.send_to(&[0], &to))));
        }
        Load::Spin { threads } => (0..threads).for_each(|_| drop(std::thread::spawn(|| spin()))),
        Load::Periodic { threads, work, every } => {
            each(threads, every, Arc::new(move || use_cpu(cpu(work))));
        }
        Load::Threads { work, every } => each(
            1,
            every,
            Arc::new(move || std::thread::spawn(move || use_cpu(cpu(work))).join().unwrap()),
        ),
        Load::Forks { work, every } => each(1, every, Arc::new(move || fork(work))),
        Load::Once { .. } => unreachable!("the process of one piece of work"),
        Load::Reads { work, every } => each(1, every, Arc::new(move || read_zeros(cpu(work)))),
        Load::Packets { work, every } => each(1, every, Arc::new(move || send_packets(cpu(work)))),
    }
}

fn open(directory: &Path, record: &Record) {
    let file = || File::create(directory.join(LATENCIES)).unwrap();
    record.lock().unwrap().get_or_insert_with(file);
}

fn write(record: &Record, due: u64, latency: &str) {
    let line = format!("{due} {latency}.\n");
    record.lock().unwrap().as_mut().unwrap().write_all(line.as_bytes()).unwrap();
}

fn sleep_until(due: u64) {
    std::thread::sleep(Duration::from_micros(due.saturating_sub(now())));
}

/// Runs the work at the start of each interval. If it comes late, the next one starts at once, and
/// whole intervals are left out: pods that were frozen together do not run in step afterwards.
fn repeat(every: u64, offset: f64, work: &dyn Fn()) -> ! {
    let mut due = (now() / every + 1) * every + (every as f64 * offset) as u64;
    loop {
        sleep_until(due);
        work();
        due += every;
        due += now().saturating_sub(due) / every * every;
    }
}

/// Answers a request at each interval, however late the last one was.
fn serve(work: Duration, every: u64, record: &Record) -> ! {
    let mut due = now();
    loop {
        due += every;
        sleep_until(due);
        if now() - due < SHED {
            use_cpu(work);
        }
        write(record, due, &(now() - due).to_string());
    }
}

/// Answers calls. They count as requests, but their latencies depend on the caller.
fn answer(socket: &UnixDatagram, work: Duration, record: &Record) -> ! {
    loop {
        socket.recv(&mut [0; 8]).unwrap();
        use_cpu(work);
        write(record, now(), "call");
    }
}

fn move_around(thread: Pid) -> ! {
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
    for cpu in cpus.iter().cycle() {
        let mut one = CpuSet::new();
        one.set(*cpu);
        sched_setaffinity(Some(thread), &one).unwrap();
        std::thread::sleep(Duration::from_micros(MOVES));
    }
    unreachable!("there is a CPU")
}

fn fork(work: u64) {
    let mut child = Command::new("/proc/self/exe");
    child.env(ROLE, serde_json::to_string(&[Load::Once { work }]).unwrap());
    child.stdin(Stdio::null()).stdout(Stdio::null());
    let _ = child.spawn().unwrap().wait();
}

/// CPU time of the kernel in the context of this thread.
fn read_zeros(cpu: Duration) {
    let mut buffer = vec![0; 256 * 1024];
    let mut zeros = File::open("/dev/zero").unwrap();
    until_used(cpu, || zeros.read_exact(&mut buffer).unwrap());
}

/// Nobody reads: once the queue is full, packets are dropped in the softirq.
fn send_packets(cpu: Duration) {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let packet = [0; 1024];
    until_used(cpu, || drop(sender.send(&packet)));
}

fn until_used(cpu: Duration, mut work: impl FnMut()) {
    let used = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let start = used();
    while used() - start < cpu {
        work();
    }
}

/// Latencies of the requests that were due between two times of [`now`].
pub(crate) fn latency(directory: &Path, from: u64, to: u64) -> Latency {
    let text = std::fs::read_to_string(directory.join(LATENCIES)).unwrap();
    // The last line may be incomplete.
    let lines = text.lines().filter_map(|line| {
        let (due, latency) = line.strip_suffix('.')?.split_once(' ')?;
        due.parse().ok().filter(|due| (from..to).contains(due)).map(|_| latency.parse().ok())
    });
    let all: Vec<Option<u64>> = lines.collect();
    let mut latencies: Vec<u64> = all.iter().flatten().copied().collect();
    latencies.sort_unstable();
    let at = (latencies.len() as f64 * 0.99) as usize;
    let sum: u64 = latencies.iter().sum();
    Latency {
        mean_ms: sum as f64 / latencies.len().max(1) as f64 / 1000.0,
        p99_ms: latencies.get(at).map_or(f64::NAN, |usec| *usec as f64 / 1000.0),
        requests: all.len() as f64 * 1e6 / (to - from) as f64,
    }
}
