//! Scheduler events of a phase, from the kernel's tracepoints. `cargo bench -p analysis --bench blame`
//! compares methods on them.
//!
//! A file begins with lines of text: the scenario, its cause by removal, pods, containers and threads. After an
//! empty line follow the events: a byte (kind, CPU, and whether the thread that leaves is still
//! runnable), then as LEB128 the microseconds since the event before and the threads. All threads outside of the
//! pods are one, as in the methods. The tracepoints do not show when a quota closes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use testkit::Cgroup;

use crate::model::Scenario;

const INSTANCES: &str = "/sys/kernel/tracing/instances";
const EVENTS: [&str; 5] = [
    "sched_switch",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_migrate_task",
    "sched_process_fork",
];
/// Memory for the events of each CPU, KiB.
const BUFFER_KIB: u32 = 16_384;
/// The thread that stands for all outside of the pods.
const HOST: usize = 0;

/// A container whose threads are known by name.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) pod: String,
    pub(crate) workload: &'static str,
    pub(crate) container: &'static str,
    /// CPU request of the pod, millicores; `None` for best effort.
    pub(crate) request: Option<u64>,
    pub(crate) is_victim: bool,
    pub(crate) cgroup: Cgroup,
}

/// The tracepoints of one phase; disabled on drop.
pub(crate) struct Recorder {
    instance: PathBuf,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let instance =
            Path::new(INSTANCES).join(format!("cpuwarden-verdict-{}", std::process::id()));
        fs::create_dir(&instance).unwrap_or_else(|error| panic!("{}: {error}", instance.display()));
        let recorder = Self { instance };
        recorder.write("trace_clock", "mono");
        recorder.write("buffer_size_kb", &BUFFER_KIB.to_string());
        EVENTS
            .iter()
            .for_each(|event| recorder.write(&format!("events/sched/{event}/enable"), "1"));
        recorder
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.instance.join(file), text).unwrap();
    }

    /// The events so far, as the kernel prints them.
    pub(crate) fn end(self) -> String {
        self.write("tracing_on", "0");
        let text = fs::read(self.instance.join("trace")).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!text.contains(" EVENTS] "), "events were lost");
        text
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.instance) {
            eprintln!("{}: {error}", self.instance.display());
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Sleeps,
    Waits,
    Runs,
}

/// Kinds of events, as in the files.
const SWITCH: u8 = 0;
const WAKEUP: u8 = 1;
const MIGRATE: u8 = 2;
const IS_SECOND_CPU: u8 = 4;
const STAYS: u8 = 8;

/// Turns the kernel's lines into events of known threads.
struct Converter {
    /// Container of each thread; `HOST` is the first.
    threads: Vec<(usize, State)>,
    known: HashMap<u32, usize>,
    current: [Option<usize>; 2],
    began: Option<u64>,
    last: u64,
    count: usize,
    bytes: Vec<u8>,
}

/// The cause for which the scenario is made; `None` where a limit is it.
pub(crate) fn cause(scenario: &Scenario) -> Option<&'static str> {
    match scenario.made_for {
        "nobody" => Some("no other"),
        name => (!name.contains("limit")).then_some(name),
    }
}

/// The file of a phase.
pub(crate) fn file(scenario: &Scenario, cause: &str, traced: &[Traced], trace: &str) -> Vec<u8> {
    let mut converter = Converter {
        threads: vec![(HOST, State::Sleeps)],
        known: HashMap::new(),
        current: [None; 2],
        began: None,
        last: 0,
        count: 0,
        bytes: Vec::new(),
    };
    for (at, of) in traced.iter().enumerate() {
        for line in of.cgroup.read("cpu", tasks(&of.cgroup)).lines() {
            converter.learn(line.parse().unwrap(), at + 1);
        }
    }
    trace.lines().filter(|line| !line.starts_with('#')).for_each(|line| converter.read(line));
    let mut head = format!("scenario {}\ncause {cause}\n", scenario.name);
    for of in traced {
        let request = of.request.map_or("best-effort".to_owned(), |milli| milli.to_string());
        let victim = if of.is_victim { " victim" } else { "" };
        writeln!(head, "container {} {} {} {request}{victim}", of.pod, of.workload, of.container)
            .unwrap();
    }
    let groups: Vec<String> =
        converter.threads.iter().map(|(group, _)| group.to_string()).collect();
    writeln!(head, "threads {}", groups.join(" ")).unwrap();
    writeln!(
        head,
        "events {} {}\n",
        converter.count,
        converter.last - converter.began.unwrap_or(0)
    )
    .unwrap();
    [head.into_bytes(), converter.bytes].concat()
}

/// File with the threads of a cgroup.
fn tasks(cgroup: &Cgroup) -> &'static str {
    let is_v2 = cgroup.dir("cpu").join("cgroup.threads").exists();
    if is_v2 { "cgroup.threads" } else { "tasks" }
}

/// The value of a field of an event.
fn field<'a>(event: &'a str, name: &str) -> &'a str {
    let rest =
        event.rsplit_once(&format!("{name}=")).unwrap_or_else(|| panic!("{name}: {event}")).1;
    rest.split_whitespace().next().unwrap_or_default()
}

impl Converter {
    fn learn(&mut self, id: u32, group: usize) {
        self.known.insert(id, self.threads.len());
        self.threads.push((group, State::Sleeps));
    }

    /// `None` is the idle thread.
    fn thread(&self, id: &str) -> Option<usize> {
        let id: u32 = id.parse().unwrap();
        (id != 0).then(|| self.known.get(&id).copied().unwrap_or(HOST))
    }

    fn read(&mut self, line: &str) {
        let (head, event) = line.split_once(": sched_").unwrap_or_else(|| panic!("{line}"));
        let cpu: usize =
            head.rsplit_once('[').unwrap().1.split(']').next().unwrap().parse().unwrap();
        let (seconds, micros) = head.rsplit_once(' ').unwrap().1.split_once('.').unwrap();
        let at = seconds.parse::<u64>().unwrap() * 1_000_000 + micros.parse::<u64>().unwrap();
        match event.split(':').next().unwrap() {
            "switch" => {
                let (prev, next) = (field(event, "prev_pid"), field(event, "next_pid"));
                let stays = field(event, "prev_state").starts_with('R');
                self.switch(at, cpu, [self.thread(prev), self.thread(next)], stays);
            }
            "process_fork" => {
                let of = self.thread(field(event, " pid")).map_or(HOST, |of| self.threads[of].0);
                if of != HOST {
                    self.learn(field(event, "child_pid").parse().unwrap(), of);
                }
            }
            "migrate_task" => {
                let Some(of) = self.thread(field(event, " pid")) else { return };
                if of != HOST && self.threads[of].1 == State::Waits {
                    self.push(at, MIGRATE, field(event, "dest_cpu").parse().unwrap(), &[of]);
                }
            }
            _ => {
                let Some(of) = self.thread(field(event, " pid")) else { return };
                // A thread that is woken before it sleeps has not waited.
                if of != HOST && self.threads[of].1 == State::Sleeps {
                    self.threads[of].1 = State::Waits;
                    self.push(at, WAKEUP, field(event, "target_cpu").parse().unwrap(), &[of]);
                }
            }
        }
    }

    fn switch(&mut self, at: u64, cpu: usize, [prev, next]: [Option<usize>; 2], stays: bool) {
        if let Some(prev) = prev {
            self.threads[prev].1 = if stays { State::Waits } else { State::Sleeps };
        }
        if let Some(next) = next {
            self.threads[next].1 = State::Runs;
        }
        // The thread that ran when the recording began is known now; threads of the host are one.
        let before = std::mem::replace(&mut self.current[cpu], next);
        if prev == next && before == prev && prev == Some(HOST) {
            return;
        }
        let flags = SWITCH | if stays && prev.is_some() { STAYS } else { 0 };
        let numbers = [prev, next].map(|thread| thread.map_or(0, |thread| thread + 1));
        self.push(at, flags, cpu, &numbers);
    }

    fn push(&mut self, at: u64, flags: u8, cpu: usize, numbers: &[usize]) {
        assert!(cpu < 2, "only two CPUs have a place in the file");
        self.bytes.push(flags | if cpu == 1 { IS_SECOND_CPU } else { 0 });
        let since = at - self.began.map_or(at, |_| self.last);
        self.began.get_or_insert(at);
        self.last = at;
        self.count += 1;
        std::iter::once(since).chain(numbers.iter().map(|number| *number as u64)).for_each(
            |number| {
                let mut rest = number;
                while rest >= 0x80 {
                    self.bytes.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                self.bytes.push(rest as u8);
            },
        );
    }
}
