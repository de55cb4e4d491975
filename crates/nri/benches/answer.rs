//! Time from a runtime's request to the plugin's answer, through a socket. Cases:
//!
//! - creation of a container with 64 variables, 30 annotations and 20 mounts, of which the handler
//!   sets the CPUs and four variables (target: p99 below 5 ms)
//! - synchronization of 250 pods with two such containers each (the runtime waits 2 s)
//!
//! `cargo bench -p nri --bench answer`

#[path = "../tests/plugin/runtime.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "shared with the tests")]
mod runtime;

use std::collections::HashSet;
use std::os::unix::net::UnixListener;
use std::thread;
use std::time::{Duration, Instant};

use nri::api::{
    Container, ContainerUpdate, CreateContainerRequest, CreateContainerResponse, Mount, PodSandbox,
    SynchronizeRequest, SynchronizeResponse,
};
use nri::{Creation, EventMask, Handler, Plugin, Stop};
use runtime::Runtime;

const CREATIONS: usize = 10_000;
const PODS: usize = 250;

/// Adds four variables unless the container has them, and sets the CPUs.
#[derive(Debug, Default)]
struct Adjust {
    containers: usize,
}

impl Handler for Adjust {
    fn events(&self) -> EventMask {
        EventMask::LIFECYCLE
    }

    fn synchronize(&mut self, _: Vec<PodSandbox>, known: Vec<Container>) -> Vec<ContainerUpdate> {
        self.containers = known.len();
        Vec::new()
    }

    fn create_container(&mut self, _pod: PodSandbox, container: Container) -> Creation {
        self.containers += 1;
        let keys = container.env.iter().filter_map(|variable| variable.split_once('='));
        let keys: HashSet<&str> = keys.map(|(key, _)| key).collect();
        let mut creation = Creation::default();
        for key in ["GOMAXPROCS", "GOMEMLIMIT", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"] {
            if !keys.contains(key) {
                creation.add_env(key, "2");
            }
        }
        creation.set_cpus("0-3,8-11");
        creation
    }
}

fn container(number: usize) -> Container {
    let text = |what: &str, number: usize| format!("{what}-{number}-{}", "x".repeat(30));
    let mount = |number| Mount {
        destination: text("/mnt", number),
        r#type: "bind".into(),
        source: text("/var/lib/kubelet", number),
        options: vec!["rbind".into(), "rprivate".into(), "rw".into()],
    };
    Container {
        id: text("id", number),
        pod_sandbox_id: text("sandbox", number / 2),
        name: text("name", number),
        env: (0..64).map(|number| format!("KEY_{number}={}", text("value", number))).collect(),
        annotations: (0..30).map(|number| (text("key", number), text("value", number))).collect(),
        mounts: (0..20).map(mount).collect(),
        ..Container::default()
    }
}

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let socket = directory.path().join("nri.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let plugin = Plugin::new("bench", 90, &socket, Adjust::default()).expect("a valid name");
    let stop = Stop::new();
    let stopped = stop.clone();
    let thread = thread::spawn(move || plugin.run(&stopped, |report| println!("{report}")));
    let mut runtime = Runtime::accept(&listener);
    runtime.register();
    runtime.configure("v2.4.2", "v0.12.3");
    synchronize(&mut runtime);
    create(&mut runtime);
    stop.stop();
    thread.join().expect("the plugin did not panic").expect("the plugin ran");
}

fn synchronize(runtime: &mut Runtime) {
    let pods = vec![runtime::pod(); PODS];
    let containers: Vec<_> = (0..2 * PODS).map(container).collect();
    let request = SynchronizeRequest { pods, containers, more: false };
    let start = Instant::now();
    let answer: SynchronizeResponse = runtime.call("Synchronize", &request);
    assert!(!answer.more);
    println!("synchronization of {} containers: {:?}", 2 * PODS, start.elapsed());
}

fn create(runtime: &mut Runtime) {
    let (pod, container) = (Some(runtime::pod()), Some(container(0)));
    let request = CreateContainerRequest { pod, container };
    let mut times: Vec<Duration> = (0..CREATIONS)
        .map(|_| {
            let start = Instant::now();
            let answer: CreateContainerResponse = runtime.call("CreateContainer", &request);
            let time = start.elapsed();
            assert_eq!(answer.adjust.map(|adjust| adjust.env.len()), Some(4));
            time
        })
        .collect();
    times.sort();
    let at = |share: f64| times[(share * (CREATIONS - 1) as f64) as usize];
    println!(
        "creation: p50 {:?}, p99 {:?}, max {:?} of {CREATIONS}; target: p99 below 5 ms",
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
