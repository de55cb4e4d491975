//! Streams of a real kernel: `cargo bench --bench verdict -- --record DIR` writes the files of
//! `benches/blame/streams`, and says in `recorder.rs` what they contain.

use std::path::Path;

use super::answer::Truth;
use super::scene::{Event, Group, Kind, Load, Ns, Pod, SECOND, SYSTEM, Scene, Thread};
use super::scenes::Case;

const STREAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/blame/streams");
const NS_PER_US: Ns = 1_000;

/// All recorded cases with their events, by name.
pub(crate) fn cases() -> Vec<(Case, Vec<Event>)> {
    let files = std::fs::read_dir(Path::new(STREAMS)).unwrap();
    let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "stream"));
    paths.sort();
    paths.iter().map(|path| read(&std::fs::read(path).unwrap())).collect()
}

fn read(file: &[u8]) -> (Case, Vec<Event>) {
    let end = file.windows(2).position(|two| two == b"\n\n").expect("an empty line ends the head");
    let head = String::from_utf8(file[..end].to_vec()).unwrap().leak();
    let mut scene = Scene::new(2);
    let (mut name, mut truth, mut count) = ("", Truth::NoOther, 0);
    for line in head.lines() {
        let (key, value) = line.split_once(' ').unwrap();
        match key {
            "scenario" => name = value,
            "cause" => truth = cause(value),
            "container" => add_container(&mut scene, value),
            "threads" => add_threads(&mut scene, value),
            "events" => {
                let (events, length) = value.split_once(' ').unwrap();
                count = events.parse().unwrap();
                let length = length.parse::<Ns>().unwrap() * NS_PER_US;
                scene.length = length / SECOND * SECOND;
            }
            other => panic!("{other}"),
        }
    }
    let mut events = Reader { bytes: &file[end + 2..], at: 0 };
    let mut events: Vec<Event> = (0..count).map(|_| events.event()).collect();
    // What ran on a CPU without pods belongs to the machine, not to the scenario.
    let has_pods: Vec<bool> =
        (0..scene.cpus).map(|cpu| events.iter().any(|event| event.runs_pod(cpu))).collect();
    events.retain(|event| event.at < scene.length && has_pods[event.cpu]);
    (Case { name, truth, scene }, events)
}

fn cause(name: &'static str) -> Truth {
    match name {
        "no other" => Truth::NoOther,
        "several" => Truth::Several,
        name => Truth::One(name),
    }
}

/// `pod workload container request`, and `victim`.
fn add_container(scene: &mut Scene, line: &'static str) {
    let words: Vec<&'static str> = line.split(' ').collect();
    let [name, workload, container, request, rest @ ..] = &words[..] else { panic!("{line}") };
    let known = scene.pods.iter().position(|pod| pod.name == *name);
    let pod = known.unwrap_or_else(|| {
        let milli: Option<u64> = request.parse().ok();
        scene.pods.push(Pod {
            name,
            workload,
            request: milli.unwrap_or(0) as f64 / 1000.0,
            best_effort: milli.is_none(),
            has_quota: false,
        });
        scene.last()
    });
    let (weight, quota) = (1024, None);
    let (pod_of, parent, is_idle) = (Some(pod), None, false);
    scene.groups.push(Group { name: container, pod: pod_of, parent, weight, quota, is_idle });
    if rest.contains(&"victim") {
        scene.victim = pod;
    }
}

/// The container of each thread; 0 is the host.
fn add_threads(scene: &mut Scene, line: &str) {
    let thread = |group: &str| Thread {
        group: group.parse().unwrap(),
        load: Load::Spin,
        cpus: 0,
        begins: 0,
        ends: 0,
        moved_every: None,
    };
    scene.threads = line.split(' ').map(thread).collect();
    assert_eq!(scene.pod_of(scene.threads[0].group), SYSTEM);
}

impl Event {
    /// Whether a thread of a pod begins to run on this CPU.
    fn runs_pod(&self, cpu: usize) -> bool {
        self.cpu == cpu && matches!(self.kind, Kind::Switch { next: Some(next), .. } if next > 0)
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: Ns,
}

impl Reader<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.bytes.split_first().expect("the file has all events");
        self.bytes = rest;
        *first
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn event(&mut self) -> Event {
        let flags = self.byte();
        self.at += self.number() * NS_PER_US;
        let kind = match flags & 3 {
            0 => {
                let [prev, next] = [(); 2].map(|()| (self.number() as usize).checked_sub(1));
                Kind::Switch { prev, next, stays: flags & 8 != 0 }
            }
            1 => Kind::Wakeup { thread: self.number() as usize },
            _ => Kind::Migrate { thread: self.number() as usize },
        };
        Event { at: self.at, cpu: usize::from(flags & 4 != 0), kind }
    }
}
