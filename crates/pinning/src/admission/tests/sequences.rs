//! Random sequences of starts, passes and removals on a node.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError};

use super::*;

const SLOTS: usize = 8;

/// Number of cases that a slow machine runs in seconds; `PROPTEST_CASES` scales it (256 means 1×).
fn cases(cases: u32) -> Config {
    let config = Config::default();
    Config { cases: (config.cases * cases / 256).max(1), failure_persistence: None, ..config }
}

#[derive(Debug, Clone)]
enum Event {
    /// The runtime creates a container of the slot's pod, which it creates before if there is none.
    Start(usize),
    /// The pod's cgroup is found.
    Appear(usize),
    /// The kubelet lists the pod, with or without a container.
    List(usize),
    /// A pass plans and publishes; its index of the pods may be as old as the last pass.
    Plan {
        old_index: bool,
    },
    /// The pass has carried out its plan.
    Settle,
    Remove(usize),
    Wait(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let slot = || 0..SLOTS;
    prop_oneof![
        6 => slot().prop_map(Event::Start),
        4 => slot().prop_map(Event::Appear),
        2 => slot().prop_map(Event::List),
        4 => any::<bool>().prop_map(|old_index| Event::Plan { old_index }),
        4 => Just(Event::Settle),
        2 => slot().prop_map(Event::Remove),
        1 => (1..6_u64).prop_map(Event::Wait),
    ]
}

/// Class and request of the pods of each slot. A pod never changes either.
fn any_pods() -> impl Strategy<Value = Vec<(&'static str, u64)>> {
    let class = prop_oneof![
        3 => Just("LSE"), 2 => Just("LSR"), 3 => Just("LS"), 1 => Just("BE"),
    ];
    prop::collection::vec((class, 0..4_u64), SLOTS)
}

/// A container, in the CPUs that it runs on.
#[derive(Debug, Clone)]
struct Running {
    uid: Uid,
    class: Class,
    cpus: CpuSet,
}

/// The pod of a slot.
#[derive(Debug, Clone)]
struct Live {
    claim: Pod,
    since: Instant,
    /// Whether its cgroup is found.
    has_cgroup: bool,
    /// Whether the index has it: listed, or reported by the runtime.
    is_known: bool,
}

struct Node {
    passes: Passes,
    pods: Vec<(&'static str, u64)>,
    live: Vec<Option<Live>>,
    created: usize,
    running: Vec<Running>,
    /// Grants in force.
    held: BTreeMap<Uid, Holding>,
    /// Pods that the index had at the end of the last pass.
    old_index: BTreeSet<Uid>,
    /// CPUs of the cgroups of pods that a pass has written.
    confined: BTreeMap<Uid, CpuSet>,
    /// The plan that is being carried out, its pods, and the containers that it moves.
    pending: Option<(Planned, BTreeSet<Uid>, usize)>,
}

type Checked = Result<(), TestCaseError>;

impl Node {
    fn new(cpus: u32, pods: Vec<(&'static str, u64)>) -> Self {
        Self {
            passes: Passes::new(cpus),
            live: vec![None; pods.len()],
            pods,
            created: 0,
            running: Vec::new(),
            held: BTreeMap::new(),
            old_index: BTreeSet::new(),
            confined: BTreeMap::new(),
            pending: None,
        }
    }

    fn happen(&mut self, event: &Event) -> Checked {
        match *event {
            Event::Start(slot) => self.start(slot)?,
            Event::Appear(slot) => {
                self.live[slot].iter_mut().for_each(|pod| pod.has_cgroup = true);
            }
            Event::List(slot) => self.live(slot).is_known = true,
            Event::Plan { old_index } => self.plan(old_index),
            Event::Settle => self.settle()?,
            Event::Remove(slot) => self.remove(slot, true),
            Event::Wait(seconds) => self.wait(seconds)?,
        }
        self.exclusive_pods_share_no_cpu()
    }

    /// The slot's pod; a new one if it has none.
    fn live(&mut self, slot: usize) -> &mut Live {
        let (class, cpus) = self.pods[slot];
        let (created, since) = (&mut self.created, self.passes.now);
        self.live[slot].get_or_insert_with(|| {
            *created += 1;
            let claim = pod(&format!("{class}-{created}"), class, cpus);
            Live { claim, since, has_cgroup: false, is_known: false }
        })
    }

    fn start(&mut self, slot: usize) -> Checked {
        let now = self.passes.now;
        let live = self.live(slot);
        (live.is_known, live.since) = (true, now);
        let claim = live.claim.clone();
        let Some(placed) = self.passes.start(&claim) else {
            prop_assert!(
                self.passes.state.is_suspended() || self.pending.is_some(),
                "no CPUs for {claim:?}"
            );
            return Ok(());
        };
        let Placed { class, cpus } = placed;
        for (uid, held) in self.held.iter().filter(|(uid, _)| **uid != claim.uid) {
            prop_assert!(
                class.may_share_with(held.class) || cpus.is_disjoint(&held.cpus),
                "{} starts in {cpus} of {uid}'s {held:?}",
                claim.uid
            );
        }
        for other in self.running.iter().filter(|other| other.uid != claim.uid) {
            prop_assert!(
                !other.class.is_exclusive()
                    || class.may_share_with(other.class)
                    || !self.owns(other)
                    || cpus.is_disjoint(&other.cpus),
                "{} starts in {cpus} of {other:?}",
                claim.uid
            );
        }
        self.running.push(Running { uid: claim.uid, class, cpus });
        Ok(())
    }

    /// Whether a container runs in its pod's own CPUs: during the writes it may have started in the
    /// shared pool.
    fn owns(&self, one: &Running) -> bool {
        let held = self.passes.state.held(&one.uid);
        one.class.is_exclusive() && held.is_some_and(|held| one.cpus.is_subset(&held.cpus))
    }

    fn plan(&mut self, old_index: bool) {
        if self.pending.is_some() {
            return;
        }
        let live: Vec<Live> =
            self.live.iter().flatten().filter(|pod| pod.has_cgroup).cloned().collect();
        let reserved = self.passes.state.reservations(self.passes.now).clone();
        let claim = |pod: &Live| {
            let uid = &pod.claim.uid;
            let is_known = pod.is_known && (!old_index || self.old_index.contains(uid));
            let unknown = Pod { uid: uid.clone(), ..Pod::default() };
            let known = is_known || reserved.contains_key(uid);
            if known { pod.claim.clone() } else { unknown }
        };
        let claims: Vec<Pod> = live.iter().map(claim).collect();
        let planned = self.passes.plan(claims);
        let seen: BTreeSet<Uid> = live.iter().map(|pod| pod.claim.uid.clone()).collect();
        let all = self.passes.machine.possible.clone();
        let confined = seen.iter().map(|uid| {
            let before = self.confined.get(uid).unwrap_or(&all);
            (uid.clone(), before.intersection(&planned.plan.placements[uid].cpus))
        });
        let confined = confined.collect();
        self.passes.publish(&planned, self.held.clone(), confined, &seen.iter().collect());
        self.pending = Some((planned, seen, self.running.len()));
    }

    fn settle(&mut self) -> Checked {
        let Some((planned, seen, count)) = self.pending.take() else { return Ok(()) };
        let placements = &planned.plan.placements;
        let moved = self.running.iter_mut().take(count).filter(|one| seen.contains(&one.uid));
        for one in moved {
            let placement = &placements[&one.uid];
            (one.class, one.cpus) = (placement.class, placement.cpus.clone());
        }
        for uid in &seen {
            self.confined.insert(uid.clone(), placements[uid].cpus.clone());
        }
        self.held = planned.plan.outcome().held;
        let confined = &self.confined;
        self.passes.state.apply_results(&self.held, |uid| confined.get(uid).cloned());
        let known = self.live.iter().flatten().filter(|pod| pod.is_known);
        self.old_index = known.map(|pod| pod.claim.uid.clone()).collect();
        // From here on the containers of all pods that the pass has seen are where they belong.
        for one in self.running.iter().take(count).filter(|one| seen.contains(&one.uid)) {
            for (uid, held) in self.held.iter().filter(|(uid, _)| **uid != one.uid) {
                prop_assert!(
                    one.class.may_share_with(held.class) || one.cpus.is_disjoint(&held.cpus),
                    "{one:?} is on {uid}'s {held:?}"
                );
            }
        }
        Ok(())
    }

    fn remove(&mut self, slot: usize, is_reported: bool) {
        let Some(pod) = self.live[slot].take() else { return };
        let uid = pod.claim.uid;
        // Containers that a pass is moving stay in its count.
        self.running.iter_mut().filter(|one| one.uid == uid).for_each(|one| {
            (one.class, one.cpus) = (Class::Share, CpuSet::new());
        });
        if is_reported {
            self.passes.state.pod_removed(&uid, "", self.passes.now);
        }
        if let Some((_, seen, _)) = &mut self.pending {
            seen.remove(&uid);
        }
    }

    /// Passes go on meanwhile. A pod whose cgroup does not appear within the time of a reservation
    /// never does.
    fn wait(&mut self, seconds: u64) -> Checked {
        self.settle()?;
        self.plan(false);
        self.settle()?;
        self.passes.now += Duration::from_secs(seconds);
        for slot in 0..self.live.len() {
            let is_late = |pod: &Live| self.passes.now - pod.since >= Duration::from_secs(10);
            if self.live[slot].as_ref().is_some_and(|pod| !pod.has_cgroup && is_late(pod)) {
                self.remove(slot, false);
            }
        }
        self.plan(false);
        self.settle()
    }

    fn exclusive_pods_share_no_cpu(&self) -> Checked {
        let own: Vec<&Running> = self.running.iter().filter(|one| self.owns(one)).collect();
        for (at, one) in own.iter().enumerate() {
            for other in own[at + 1..].iter().filter(|other| other.uid != one.uid) {
                prop_assert!(one.cpus.is_disjoint(&other.cpus), "{one:?} and {other:?}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn any_sequence_of_starts_and_passes_keeps_exclusive_cpus_exclusive(
        cpus in 2..9_u32, pods in any_pods(), events in prop::collection::vec(any_event(), 1..60),
    ) {
        let mut node = Node::new(cpus, pods);
        node.plan(false);
        node.settle()?;
        for event in &events {
            node.happen(event)?;
        }
    }
}
