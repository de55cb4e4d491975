//! Property tests: no counter decreases, nothing is counted twice and no time is lost. Arbitrary
//! sequences of counting, resets, vanishing, re-creation and renaming on a directory of files are
//! compared with a simple model.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

#[allow(dead_code, reason = "each test uses a part")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kubepods::model::{Container, Pod};
use kubepods::{PodIndex, PodNames};
use proptest::prelude::*;
use sampler::Sampler;
use snapshot::{NodeSnapshot, Published};

const UID: &str = "00000000-0000-4000-8000-000000000001";

/// Number of unlisted exited containers per pod that keep their own series.
const MAX_UNLISTED: u32 = 8;

/// Event between two ticks.
#[derive(Debug, Clone)]
enum Step {
    /// The running container uses CPU time and is throttled: microseconds and periods.
    Count { usage: u64, throttled: u64, periods: u64 },
    /// The pod's quota throttles the running container, microseconds.
    ThrottlePod(u64),
    /// The runtime kills the container and starts it again under another id.
    Restart,
    /// The same directory is created again: same name, other inode, counters from zero.
    Recreate,
    /// The container ends.
    Stop,
    /// The kubelet lists all runs of the container under its name, including the ended ones.
    Name,
    /// Nothing happens for this many ticks, after which nothing in the pod is read any more.
    Idle(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u64..3_000_000, 0u64..500_000, 0u64..20)
            .prop_map(|(usage, throttled, periods)| Step::Count { usage, throttled, periods }),
        1 => (0u64..500_000).prop_map(Step::ThrottlePod),
        1 => Just(Step::Restart),
        1 => Just(Step::Recreate),
        1 => Just(Step::Stop),
        1 => Just(Step::Name),
        1 => (1u32..20).prop_map(Step::Idle),
    ]
}

/// Names set by the test.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Arc<PodIndex>>>);

impl PodNames for Names {
    fn index(&self) -> Arc<PodIndex> {
        Arc::clone(&self.0.lock().unwrap())
    }

    fn ask(&self, _: &str, _: &str) {}

    fn may_answer(&self) -> bool {
        false
    }
}

impl Names {
    /// Lists every run so far of the one container, as entries with the same name, so that no run
    /// is lost.
    fn list(&self, ids: u32) {
        let id = |number| Some(format!("{number:064x}").into());
        let run = |number| Container { name: "app".into(), id: id(number), ..Container::default() };
        let containers = (1..=ids).map(run).collect();
        let pod = Pod {
            namespace: "ns".into(),
            name: "web".into(),
            uid: UID.into(),
            containers,
            ..Pod::default()
        };
        let mut index = self.0.lock().unwrap();
        *index = Arc::new(PodIndex::build(&index, vec![Arc::new(pod)], []));
    }
}

/// A pod with at most one container, as files and as numbers.
struct World {
    root: PathBuf,
    pod: PathBuf,
    ids: u32,
    /// Number of runs that the kubelet has listed.
    listed: u32,
    live: Option<(String, Counters)>,
    /// Counters of all runs of the container.
    truth: Counters,
}

/// Usage, time throttled by its own quota, periods, time throttled by the pod's quota; times in
/// microseconds.
type Counters = [u64; 4];

impl World {
    fn new(root: &Path) -> Self {
        fs::write(root.join("cgroup.controllers"), "cpu\n").unwrap();
        let pod = root.join(format!("kubepods/burstable/pod{UID}"));
        fs::create_dir_all(&pod).unwrap();
        fs::write(pod.join("cpu.max"), "40000 100000\n").unwrap();
        let world = Self {
            root: root.to_owned(),
            pod,
            ids: 0,
            listed: 0,
            live: None,
            truth: Counters::default(),
        };
        world.write_pod();
        world
    }

    fn write(&self) {
        let Some((id, [usage, throttled, periods, by_pod])) = &self.live else { return };
        let stat = format!(
            "usage_usec {usage}\nuser_usec {usage}\nsystem_usec 0\nnr_periods {periods}\nnr_throttled {periods}\n\
             throttled_usec {throttled}\n"
        );
        self.count(&self.pod.join(id), "cpu.stat", &stat);
        self.count(
            &self.pod.join(id),
            "cpu.stat.local",
            &format!("throttled_usec {}\n", throttled + by_pod),
        );
        self.write_pod();
    }

    /// Writes the pod's own file, which also counts ended containers.
    fn write_pod(&self) {
        let [usage, _, _, by_pod] = self.truth;
        let stat = format!(
            "usage_usec {usage}\nuser_usec {usage}\nsystem_usec 0\nnr_periods 1\nnr_throttled 1\n\
             throttled_usec {by_pod}\n"
        );
        self.count(&self.pod, "cpu.stat", &stat);
    }

    /// Writes like the kernel, which causes no inotify event: through a hard link that is not
    /// watched.
    fn count(&self, cgroup: &Path, file: &str, text: &str) {
        let path = cgroup.join(file);
        let unwatched = self.root.join(format!("{}-{file}", cgroup.file_name().unwrap().display()));
        if !path.exists() {
            fs::write(&path, "").unwrap();
            let _ = fs::remove_file(&unwatched);
            fs::hard_link(&path, &unwatched).unwrap();
        }
        fs::write(unwatched, text).unwrap();
    }

    fn stop(&mut self) -> Option<String> {
        let (id, _) = self.live.take()?;
        fs::remove_dir_all(self.pod.join(&id)).unwrap();
        Some(id)
    }

    fn start(&mut self, id: String) {
        let cgroup = self.pod.join(&id);
        fs::create_dir(&cgroup).unwrap();
        fs::write(cgroup.join("cpu.max"), "20000 100000\n").unwrap();
        self.live = Some((id, Counters::default()));
        self.write();
    }

    fn fresh_id(&mut self) -> String {
        self.ids += 1;
        format!("{:064x}", self.ids)
    }

    fn apply(&mut self, step: &Step, names: &Names) {
        match step {
            Step::Count { usage, throttled, periods } => {
                if self.live.is_none() {
                    let id = self.fresh_id();
                    self.start(id);
                }
                let (_, counters) = self.live.as_mut().unwrap();
                add(counters, [*usage, *throttled, *periods, 0]);
                add(&mut self.truth, [*usage, *throttled, *periods, 0]);
                self.write();
            }
            Step::ThrottlePod(by_pod) => {
                // A throttled container ran before, and will run again.
                let Some((_, counters)) = &mut self.live else { return };
                add(counters, [1, 0, 0, *by_pod]);
                add(&mut self.truth, [1, 0, 0, *by_pod]);
                self.write();
            }
            Step::Restart => {
                self.stop();
                let id = self.fresh_id();
                self.start(id);
            }
            Step::Recreate => {
                if let Some(id) = self.stop() {
                    self.start(id);
                }
            }
            Step::Stop => drop(self.stop()),
            Step::Name => self.list(names),
            Step::Idle(_) => {}
        }
        // With more unlisted exits, the oldest lose their names.
        if self.ids - self.listed > MAX_UNLISTED {
            self.list(names);
        }
    }

    fn list(&mut self, names: &Names) {
        names.list(self.ids);
        self.listed = self.ids;
    }
}

fn add(counters: &mut Counters, more: Counters) {
    counters.iter_mut().zip(more).for_each(|(counter, more)| *counter += more);
}

/// What a reader of the exposition adds up: the growth of each series from its first value. That of
/// the container's name counts, too.
#[derive(Default)]
struct Scraper {
    last: BTreeMap<String, Counters>,
    growth: Counters,
}

impl Scraper {
    fn read(&mut self, published: &Published<NodeSnapshot>) {
        let snapshot = published.latest();
        let mut last = std::mem::take(&mut self.last);
        for row in &snapshot.containers {
            let cfs = row.cfs.unwrap_or_default();
            let now = [
                (row.user_ns.unwrap_or(0) + row.system_ns.unwrap_or(0)) / 1000,
                cfs.throttled_ns / 1000,
                cfs.periods,
                row.throttled_ancestor_ns.unwrap_or(0) / 1000,
            ];
            let name = row.identity.container.clone();
            let first = if name == "app" { Counters::default() } else { now };
            let before = last.remove(&name).unwrap_or(first);
            for at in 0..now.len() {
                self.growth[at] += now[at].checked_sub(before[at]).expect("no counter falls");
            }
            self.last.insert(name, now);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn totals_are_what_all_containers_ever_counted(steps in proptest::collection::vec(step(), 1..40)) {
        let root = tempfile::tempdir().unwrap();
        let mut world = World::new(root.path());
        let names = Names::default();
        let config = support::config(root.path());
        let mut sampler = Sampler::new(config, Box::new(names.clone())).unwrap();
        let published = sampler.published();
        let mut now = Instant::now();
        sampler.tick(now);
        let mut scraper = Scraper::default();
        for step in steps.iter().chain([&Step::Name]) {
            world.apply(step, &names);
            let ticks = if let Step::Idle(ticks) = step { *ticks } else { 1 };
            for _ in 0..ticks {
                now += Duration::from_secs(1);
                sampler.tick(now);
                scraper.read(&published);
            }
            // Unnamed counts are not shown yet; nothing is counted twice.
            let bounded = scraper.growth.iter().zip(world.truth).all(|(shown, truth)| *shown <= truth);
            prop_assert!(bounded, "{:?} of {:?}, at {:?}", scraper.growth, world.truth, step);
        }
        prop_assert_eq!(scraper.growth, world.truth, "every second has its name now");
        for _ in 0..2 {
            now += Duration::from_secs(120);
            sampler.tick(now);
        }
        let rows = &published.latest().containers;
        prop_assert!(rows.len() <= 1 && rows.iter().all(|row| row.identity.container == "app"), "one series");
        // The pod ends, and all its series with it.
        world.stop();
        fs::remove_dir_all(&world.pod).unwrap();
        for _ in 0..2 {
            now += Duration::from_secs(1);
            sampler.tick(now);
        }
        prop_assert!(published.latest().containers.is_empty());
    }
}
