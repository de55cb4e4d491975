//! Faults around the agent: a blocked standard error, signals, a hanging thread.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use tempfile::TempDir;

use crate::support::{Agent, Exposition, binary, end_of, eventually, http, poll};

/// An agent whose standard error is not read.
struct Unheard {
    child: Child,
    address: SocketAddr,
}

impl Unheard {
    fn start(stderr: impl Into<Stdio>, more: &[&str]) -> Self {
        let address = http::free_address();
        let mut command = Command::new(binary());
        command
            .args(["run", "--pod-source=none", "--sched-trace=off", &format!("--listen={address}")])
            .args(more);
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        let agent = Self { child, address };
        eventually("the agent answers", || {
            http::get(address, "/readyz").is_ok_and(|(status, _)| status == 200)
        });
        agent
    }

    fn ticks(&self) -> u64 {
        Exposition::new(http::get(self.address, "/metrics").unwrap().1).ticks()
    }

    /// Numbers of the open descriptors.
    fn descriptors(&self) -> BTreeSet<u64> {
        let open = fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap();
        open.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
    }

    /// The descriptor in reserve for a connection: `/dev/null`, as its standard streams are.
    fn reserve(&self) -> Option<u64> {
        let is_null = |number: &u64| {
            let link = fs::read_link(format!("/proc/{}/fd/{number}", self.child.id()));
            link.is_ok_and(|link| link == Path::new("/dev/null"))
        };
        self.descriptors().into_iter().rfind(is_null).filter(|number| *number > 2)
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Exit status after SIGTERM.
    fn end(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        end_of(&mut self.child, Duration::from_secs(30))
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

/// A full pipe whose reader does not read.
fn blocked() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let mut file = File::from(writer.try_clone().unwrap());
    rustix::io::ioctl_fionbio(&file, true).unwrap();
    while std::io::Write::write(&mut file, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&file, false).unwrap();
    (reader, writer)
}

fn broken() -> OwnedFd {
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    writer
}

#[test]
fn exit_codes_do_not_depend_on_standard_error() {
    let empty = TempDir::new().unwrap();
    let no_hierarchy = format!("--cgroup-root={}", empty.path().display());
    let cases: [(&[&str], i32); 4] = [
        (&["run", "--no-such-flag"], 64),
        (&["run", "--sample-interval=1ms"], 64),
        (&["run", "--pod-source=none", "--listen=127.0.0.1:0", &no_hierarchy], 72),
        (&["advise", "--address=127.0.0.1:1"], 69),
    ];
    let (_reader, blocked) = blocked();
    for (args, code) in cases {
        let stderrs: [(&str, Stdio); 3] = [
            ("full", full().into()),
            ("broken", broken().into()),
            ("blocked", blocked.try_clone().unwrap().into()),
        ];
        for (name, stderr) in stderrs {
            let mut child = Command::new(binary())
                .args(args)
                .stdout(Stdio::null())
                .stderr(stderr)
                .spawn()
                .unwrap();
            let status = end_of(&mut child, Duration::from_secs(30));
            assert_eq!(status.code(), Some(code), "{args:?}, standard error {name}: {status}");
        }
    }
}

#[test]
fn an_agent_does_not_depend_on_standard_error() {
    let (_reader, blocked) = blocked();
    for stderr in [Stdio::from(full()), broken().into(), blocked.into()] {
        let mut agent = Unheard::start(stderr, &["--log=trace", "--sample-interval=100ms"]);
        let before = agent.ticks();
        eventually("ticks go on", || agent.ticks() >= before + 5);
        assert_eq!(agent.end().code(), Some(0));
    }
}

#[test]
fn a_hangup_ends_nothing() {
    let mut agent = Unheard::start(Stdio::null(), &["--sample-interval=100ms"]);
    let before = agent.ticks();
    agent.signal(Signal::HUP);
    eventually("ticks go on", || agent.ticks() >= before + 5);
    assert_eq!(agent.end().code(), Some(0));
}

#[test]
fn signals_that_mean_nothing_to_the_agent_end_nothing() {
    let agent = Unheard::start(Stdio::null(), &[]);
    let signals = [Signal::USR1, Signal::USR2, Signal::ALARM, Signal::XFSZ, Signal::XCPU];
    signals.into_iter().for_each(|signal| agent.signal(signal));
    let before = agent.ticks();
    eventually("more ticks", || agent.ticks() > before);
}

/// Containers, timers and views open files; the probes must be answered also if no descriptor is
/// left.
#[test]
fn probes_are_answered_without_a_free_descriptor() {
    let agent = Unheard::start(Stdio::null(), &[]);
    // The limit is one of numbers, and the descriptor in reserve must be below it: free numbers below
    // that one are taken by clients that send nothing.
    let mut idle = Vec::new();
    let mut first_free = None;
    eventually("no number is free below the reserve", || {
        let open = agent.descriptors();
        first_free = (0..).find(|number| !open.contains(number));
        let reserve = agent.reserve();
        let is_above = reserve.is_some() && first_free > reserve;
        if reserve.is_some() && !is_above {
            idle.push(TcpStream::connect(agent.address).unwrap());
        }
        is_above && agent.descriptors() == open
    });
    let all = Rlimit { current: first_free, maximum: first_free };
    prlimit(Some(Pid::from_child(&agent.child)), Resource::Nofile, all).unwrap();
    // The agent has accepted the connection long before the request comes.
    const PAUSES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(20)];
    for pause in PAUSES.repeat(5) {
        assert_eq!(status_of_probe(agent.address, pause), "200", "{pause:?}");
    }
    idle.extend((0..20).map(|_| TcpStream::connect(agent.address).unwrap()));
    for pause in PAUSES {
        assert_eq!(status_of_probe(agent.address, pause), "200", "{pause:?}");
    }
}

/// Status of the answer to a request that comes so long after its connection.
fn status_of_probe(address: SocketAddr, pause: Duration) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    std::thread::sleep(pause);
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn a_hangup_takes_over_the_profiles_and_no_bad_configuration() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("cpuwarden.yaml");
    let profiles = |class: &str| {
        format!("profiles: [{{name: a, selector: {{namespaces: [a]}}, qosClass: {class}}}]\n")
    };
    fs::write(&file, profiles("LSR")).unwrap();
    let agent = Agent::start(&[
        "--pod-source=none",
        "--sched-trace=off",
        &format!("--config={}", file.display()),
    ]);
    let hang_up = || kill_process(Pid::from_raw(agent.pid() as i32).unwrap(), Signal::HUP).unwrap();
    hang_up();
    eventually("the profiles are read again", || {
        agent.log().contains("reloaded the certificate and profiles")
    });
    fs::write(&file, profiles("BEST")).unwrap();
    hang_up();
    let place = format!("{}:1", file.display());
    eventually("the log names the place", || {
        agent.log().contains(&place) && agent.log().contains("invalid configuration")
    });
    assert_eq!(agent.get("/healthz").0, 200);
}

#[test]
fn a_pinning_thread_that_hangs_fails_healthz_and_claims_nothing() {
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("cpu_manager_state");
    fs::write(&state, r#"{"policyName":"none"}"#).unwrap();
    // A pass reads that file only if there is a kubepods cgroup.
    let kubepods = directory.path().join("cgroup/kubepods");
    fs::create_dir_all(&kubepods).unwrap();
    fs::write(directory.path().join("cgroup/cgroup.controllers"), "cpu cpuset memory\n").unwrap();
    fs::write(kubepods.join("cpuset.cpus"), "\n").unwrap();
    fs::write(kubepods.join("cpuset.cpus.effective"), "0-1\n").unwrap();
    let agent = Agent::start(&[
        format!("--cgroup-root={}", directory.path().join("cgroup").display()),
        "--pod-source=none".to_owned(),
        "--sched-trace=off".to_owned(),
        "--pinning=observe".to_owned(),
        format!("--cpu-manager-state={}", state.display()),
        format!("--state-dir={}", directory.path().join("state").display()),
    ]);
    let reasons = || {
        let page = agent.metrics();
        let found = page.with_prefix("cpuwarden_pinning_enforcing");
        found.map(|sample| sample.label("reason").to_owned()).collect::<Vec<_>>()
    };
    eventually("a first pass", || !reasons().is_empty());
    assert_eq!(agent.get("/healthz").0, 200);
    // Opening a FIFO blocks until there is a writer.
    let fifo = directory.path().join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
    fs::rename(&fifo, &state).unwrap();
    // No progress for a minute.
    let (every, limit) = (Duration::from_millis(500), Duration::from_secs(150));
    poll(every, limit, || "a fault".to_owned(), || agent.get("/healthz").0 != 200);
    let (status, text) = agent.get("/healthz");
    assert!(status == 503 && text.contains("pinning has made no progress"), "{status}: {text}");
    assert!(!text.contains("sampler"), "{text}");
    eventually("its gauge says so", || reasons() == ["the pinning thread is stalled"]);
    let up = |name: &str| agent.metrics().value("cpuwarden_subsystem_up", &[("subsystem", name)]);
    assert_eq!((up("pinning"), up("sampler")), (Some(0.0), Some(1.0)));
    eventually("the log names it", || agent.log().contains("pinning has made no progress"));
    // A writer unblocks it.
    fs::write(directory.path().join("regular"), r#"{"policyName":"none"}"#).unwrap();
    let writer = OpenOptions::new().write(true).open(&state).unwrap();
    fs::rename(directory.path().join("regular"), &state).unwrap();
    drop(writer);
    eventually("it recovers", || agent.get("/healthz").0 == 200);
}
