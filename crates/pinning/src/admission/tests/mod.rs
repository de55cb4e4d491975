use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernel_text::{CgroupVersion, CpuSet};
use placement::{
    Authorization, Class, Current, Grid, Holding, Kubelet, Numbering, PlacementSettings, Pod,
    QOS_CLASS_LABEL, Selector, Uid,
};

use super::state::{AdmissionState, InEffect};
use super::{Admission, Claim, ForeignContainer, Placed};
use crate::Machine;
use crate::planned::{PlanInputs, Planned, Rules};

mod sequences;

const MAX_AGE: Duration = Duration::from_secs(10);

fn machine(cpus: u32) -> Arc<Machine> {
    let grid = Grid {
        sockets: 1,
        nodes_per_socket: 1,
        cores_per_node: cpus,
        threads_per_core: 1,
        numbering: Numbering::Sequential,
    };
    let topology = grid.topology();
    let possible = topology.online().clone();
    let none = CpuSet::new();
    Arc::new(Machine { topology, possible, isolated: none.clone(), nohz_full: none })
}

fn pod(uid: &str, class: &str, cpus: u64) -> Pod {
    let millis = (cpus > 0).then_some(cpus * 1000);
    Pod {
        uid: uid.into(),
        labels: [(QOS_CLASS_LABEL.to_owned(), class.to_owned())].into(),
        best_effort: class == "BE",
        request_millis: millis,
        limit_millis: millis,
        ..Pod::default()
    }
}

/// Passes over pods that all have cgroups.
struct Passes {
    machine: Arc<Machine>,
    rules: Arc<Rules>,
    kubelet: Kubelet,
    /// Outcome of the last plan.
    current: Current,
    version: CgroupVersion,
    state: AdmissionState,
    now: Instant,
}

impl Passes {
    fn new(cpus: u32) -> Self {
        let settings = PlacementSettings { share_floor: 1, ..PlacementSettings::default() };
        Self {
            machine: machine(cpus),
            rules: Arc::new(Rules { settings, ..Rules::default() }),
            kubelet: Kubelet::default(),
            current: Current::default(),
            version: CgroupVersion::V1,
            state: AdmissionState::default(),
            now: Instant::now(),
        }
    }

    /// Plans as a pass does.
    fn plan(&mut self, mut claims: Vec<Pod>) -> Planned {
        let reserved = self.state.reservations(self.now).clone();
        for (uid, one) in &reserved {
            if claims.iter().all(|pod| pod.uid != *uid) {
                claims.push(Pod { arrival: u64::MAX, ..one.claim.clone() });
            }
        }
        self.state.apply_resizes(&mut claims, self.now);
        let mut current = self.current.clone();
        current.held.extend(reserved.into_iter().map(|(uid, one)| (uid, one.holding)));
        let ceiling = self.machine.possible.clone();
        let from = PlanInputs { claims, kubelet: self.kubelet.clone(), ceiling, current };
        let plan = from.plan(&self.machine, &self.rules).unwrap();
        self.current = plan.outcome();
        Planned { from: Arc::new(from), plan: Arc::new(plan) }
    }

    /// Publishes; `held` is what is in force before the writes.
    fn publish(
        &mut self,
        planned: &Planned,
        held: BTreeMap<Uid, Holding>,
        confined: BTreeMap<Uid, CpuSet>,
        seen: &BTreeSet<&Uid>,
    ) {
        let effect = InEffect {
            machine: Arc::clone(&self.machine),
            rules: Arc::clone(&self.rules),
            planned: planned.clone(),
            version: self.version,
            held,
            confined,
        };
        self.state.publish(effect, seen, self.now);
    }

    /// A whole pass over these pods.
    fn pass(&mut self, pods: &[Pod]) -> Planned {
        let held = self.current.held.clone();
        let planned = self.plan(pods.to_vec());
        let seen = pods.iter().map(|pod| &pod.uid).collect();
        self.publish(&planned, held, BTreeMap::new(), &seen);
        self.state.apply_results(&self.current.held, |_| None);
        planned
    }

    fn start(&mut self, pod: &Pod) -> Option<Placed> {
        self.state.start(pod, "c", MAX_AGE, self.now).map(|(placed, _)| placed)
    }

    /// CPUs of a new container, as text.
    fn cpus(&mut self, pod: &Pod) -> Option<String> {
        self.start(pod).map(|placed| placed.cpus.to_string())
    }

    fn resize(&mut self, pod: &Pod) -> bool {
        self.state.resize(pod, MAX_AGE, self.now)
    }

    /// CPUs for an update of the container that started last, as text.
    fn kept(&mut self, pod: &Pod) -> Option<String> {
        let kept = self.state.keep(pod, "c", MAX_AGE, self.now);
        kept.map(|(placed, _)| placed.cpus.to_string())
    }
}

#[test]
fn containers_start_in_their_pods_cpus_or_outside_all_others() {
    let mut passes = Passes::new(6);
    let (own, reserved) = (pod("own", "LSE", 2), pod("reserved", "LSR", 1));
    passes.pass(&[own.clone(), reserved.clone(), pod("shared", "LS", 0)]);
    assert_eq!(passes.cpus(&own).as_deref(), Some("0-1"));
    assert_eq!(passes.cpus(&reserved).as_deref(), Some("2"));
    assert_eq!(passes.cpus(&pod("shared", "LS", 0)).as_deref(), Some("3-5"));
    assert_eq!(passes.cpus(&pod("new", "LS", 0)).as_deref(), Some("3-5"));
    assert_eq!(passes.cpus(&pod("batch", "BE", 0)).as_deref(), Some("2-5"));
    let refused = passes.start(&pod("refused", "LSE", 9)).unwrap();
    assert_eq!((refused.class, refused.cpus.to_string()), (Class::Share, "3-5".to_owned()));
}

#[test]
fn cpus_of_a_pod_that_no_pass_has_seen_are_reserved() {
    let mut passes = Passes::new(4);
    let shared = pod("shared", "LS", 0);
    passes.pass(std::slice::from_ref(&shared));
    let (first, second) = (pod("z", "LSE", 1), pod("a", "LSE", 1));
    assert_eq!(passes.cpus(&first).as_deref(), Some("0"));
    assert_eq!(passes.cpus(&shared).as_deref(), Some("1-3"), "though it runs on all CPUs");
    assert_eq!(passes.cpus(&second).as_deref(), Some("1"));
    assert_eq!(passes.cpus(&first).as_deref(), Some("0"), "its next container");
    // The pass has neither of them in its list of pods, and plans the second one first.
    let planned = passes.pass(std::slice::from_ref(&shared));
    let of = |uid: &str| planned.plan.placements[uid].cpus.to_string();
    assert_eq!([of("z"), of("a"), of("shared")], ["0", "1", "2-3"]);
}

#[test]
fn a_reservation_ends_with_its_pod_or_its_time() {
    let mut passes = Passes::new(4);
    let exclusive = |uid| pod(uid, "LSE", 2);
    passes.pass(&[]);
    assert_eq!(passes.cpus(&exclusive("first")).as_deref(), Some("0-1"));
    assert!(passes.state.pod_removed("first", "", passes.now));
    assert!(!passes.state.pod_removed("first", "", passes.now));
    assert_eq!(passes.cpus(&exclusive("second")).as_deref(), Some("0-1"));
    passes.now += Duration::from_secs(9);
    assert!(passes.pass(&[]).plan.placements.contains_key("second"));
    passes.now += Duration::from_secs(1);
    assert!(passes.pass(&[]).plan.placements.is_empty(), "it never appeared");
    // A pod that a pass has seen needs none.
    assert_eq!(passes.cpus(&exclusive("third")).as_deref(), Some("0-1"));
    passes.pass(&[exclusive("third")]);
    assert!(passes.state.reservations(passes.now).is_empty());
}

#[test]
fn during_the_writes_no_container_starts_on_cpus_that_are_leaving_or_coming() {
    let mut passes = Passes::new(4);
    let (old, new, shared) = (pod("old", "LSE", 2), pod("new", "LSE", 2), pod("shared", "LS", 0));
    passes.pass(&[old.clone(), shared.clone()]);
    let held = passes.current.held.clone();
    let planned = passes.plan(vec![new.clone(), shared.clone()]);
    assert_eq!(planned.plan.placements["new"].cpus.to_string(), "0-1", "the old one's CPUs");
    let confined = [("shared".into(), "2-3".parse().unwrap())].into();
    passes.publish(&planned, held, confined, &[&new.uid, &shared.uid].into());
    assert_eq!(passes.cpus(&shared).as_deref(), Some("2-3"));
    assert_eq!(passes.cpus(&new).as_deref(), Some("2-3"), "its CPUs are the old one's still");
    let held = passes.current.held.clone();
    passes.state.apply_results(&held, |_| None);
    assert_eq!(passes.cpus(&new).as_deref(), Some("0-1"));
}

#[test]
fn a_container_starts_within_the_cpus_of_its_pods_cgroup() {
    let mut passes = Passes::new(4);
    let shared = pod("shared", "LS", 0);
    let planned = passes.plan(vec![shared.clone()]);
    let confined = |cpus: &str| [("shared".into(), cpus.parse().unwrap())].into();
    passes.publish(&planned, BTreeMap::new(), confined("1"), &[&shared.uid].into());
    assert_eq!(passes.cpus(&shared).as_deref(), Some("1"));
    passes.state.apply_results(&BTreeMap::new(), |_| Some("0-3".parse().unwrap()));
    assert_eq!(passes.cpus(&shared).as_deref(), Some("0-3"));
    passes.publish(&planned, BTreeMap::new(), confined(""), &[&shared.uid].into());
    assert_eq!(passes.cpus(&shared), None);
}

#[test]
fn a_pod_that_grows_has_its_cpus_before_a_list_has_its_size() {
    let mut passes = Passes::new(6);
    let (small, large) = (pod("own", "LSE", 2), pod("own", "LSE", 4));
    let shared = pod("shared", "LS", 0);
    passes.pass(&[small.clone(), shared.clone()]);
    assert_eq!(passes.kept(&small), None, "not placed at its creation");
    assert_eq!(passes.cpus(&small).as_deref(), Some("0-1"));
    assert!(passes.resize(&large) && !passes.resize(&large), "reserved once");
    assert_eq!(passes.kept(&small).as_deref(), Some("0-3"));
    assert_eq!(passes.cpus(&small).as_deref(), Some("0-3"), "the list has the old size");
    assert_eq!(passes.cpus(&shared).as_deref(), Some("4-5"));
    let of_own = |planned: &Planned| planned.plan.placements["own"].cpus.to_string();
    assert_eq!(of_own(&passes.pass(&[small.clone(), shared.clone()])), "0-3");
    assert_eq!(of_own(&passes.pass(&[large, shared.clone()])), "0-3");
    assert_eq!(of_own(&passes.pass(&[small, shared])), "0-1", "the list is up to date again");
}

#[test]
fn a_resize_that_no_list_ever_has_ends() {
    let mut passes = Passes::new(6);
    let (small, large) = (pod("own", "LSE", 2), pod("own", "LSE", 4));
    passes.pass(std::slice::from_ref(&small));
    assert!(passes.resize(&large));
    passes.now += Duration::from_secs(9);
    let of_own = |planned: &Planned| planned.plan.placements["own"].cpus.len();
    assert_eq!(of_own(&passes.pass(std::slice::from_ref(&small))), 4);
    passes.now += Duration::from_secs(1);
    assert_eq!(of_own(&passes.pass(std::slice::from_ref(&small))), 2);
    assert!(passes.resize(&large));
    assert!(passes.state.pod_removed("own", "", passes.now));
    assert_eq!(passes.cpus(&small).as_deref(), Some("0-1"), "another pod of this UID");
}

#[test]
fn cpus_of_a_pod_that_shrinks_are_its_own_until_a_pass_has_narrowed_it() {
    let (small, large) = (pod("own", "LSE", 2), pod("own", "LSE", 4));
    let (other, shared) = (pod("other", "LSE", 2), pod("shared", "LS", 0));
    for is_seen in [true, false] {
        let mut passes = Passes::new(6);
        let seen = [large.clone(), shared.clone()];
        passes.pass(if is_seen { &seen[..] } else { &seen[1..] });
        assert_eq!(passes.cpus(&large).as_deref(), Some("0-3"));
        assert!(passes.resize(&small));
        assert_eq!(passes.kept(&large).as_deref(), Some("0-1"), "the runtime narrows it");
        assert_eq!(passes.cpus(&other).as_deref(), Some("4-5"), "its CPUs are still taken");
        assert_eq!(passes.cpus(&shared).as_deref(), Some("4-5"));
        let planned = passes.pass(&seen);
        let of = |uid: &str| planned.plan.placements[uid].cpus.to_string();
        assert_eq!([of("own"), of("other"), of("shared")], ["0-1", "2-3", "4-5"]);
    }
}

#[test]
fn an_update_may_exceed_the_cpus_of_the_pods_cgroup_on_v2() {
    let (small, large) = (pod("own", "LSE", 2), pod("own", "LSE", 4));
    for (version, expected) in [(CgroupVersion::V1, "0-1"), (CgroupVersion::V2, "0-3")] {
        let mut passes = Passes { version, ..Passes::new(6) };
        let planned = passes.plan(vec![small.clone()]);
        let confined = [("own".into(), "0-1".parse().unwrap())].into();
        passes.publish(&planned, BTreeMap::new(), confined, &[&small.uid].into());
        assert_eq!(passes.cpus(&small).as_deref(), Some("0-1"));
        assert!(passes.resize(&large));
        assert_eq!(passes.kept(&small).as_deref(), Some(expected), "{version:?}");
        assert_eq!(passes.cpus(&small).as_deref(), Some("0-1"), "a new container");
    }
}

#[test]
fn a_pod_of_another_size_that_gets_no_cpus_is_resized_by_the_passes() {
    let mut passes = Passes::new(4);
    let small = pod("own", "LSE", 2);
    passes.pass(std::slice::from_ref(&small));
    assert_eq!(passes.cpus(&small).as_deref(), Some("0-1"));
    assert!(!passes.resize(&pod("own", "LSE", 9)), "nothing is reserved");
    assert_eq!(passes.kept(&small).as_deref(), Some("0-3"), "the shared pool, with its own");
    assert_eq!(passes.cpus(&pod("shared", "LS", 0)).as_deref(), Some("2-3"));
    passes.state.suspend();
    assert!(!passes.resize(&small));
    let mut claims = [pod("own", "LSE", 1)];
    passes.state.apply_resizes(&mut claims, passes.now);
    assert_eq!(claims[0].request_millis, Some(1000), "pinning was not in effect");
}

#[test]
fn nothing_is_placed_without_a_recent_plan_in_effect() {
    let mut passes = Passes::new(4);
    let shared = pod("shared", "LS", 0);
    assert_eq!(passes.cpus(&shared), None, "no pass yet");
    passes.pass(&[]);
    assert!(passes.cpus(&shared).is_some());
    passes.now += MAX_AGE + Duration::from_millis(1);
    assert_eq!(passes.cpus(&shared), None, "the plan is too old");
    passes.pass(&[]);
    assert!(passes.cpus(&shared).is_some());
    passes.state.suspend();
    assert_eq!(passes.cpus(&shared), None);
}

#[test]
fn pods_of_the_kubelet_and_paused_pods_are_left_alone() {
    let mut passes = Passes::new(4);
    let shared = pod("shared", "LS", 0);
    passes.current.withheld.insert("paused".into());
    passes.kubelet.pods.insert("kubelets".into());
    passes.pass(&[pod("paused", "LSE", 1)]);
    assert_eq!(passes.cpus(&pod("paused", "LSE", 1)), None);
    assert_eq!(passes.cpus(&pod("kubelets", "LS", 0)), None);
    assert!(passes.cpus(&shared).is_some());
    passes.kubelet.static_policy = true;
    passes.pass(&[]);
    assert_eq!(passes.cpus(&shared), None);
}

fn foreign(pod: &str, has_cpus: bool) -> ForeignContainer {
    let name = format!("shop/{pod}/app");
    ForeignContainer { pod: pod.into(), name, has_cpus, ..ForeignContainer::default() }
}

/// Pods whose cpusets are not written, if the kubelet confirms their claims.
fn left_alone(admission: &Admission) -> BTreeSet<Uid> {
    let confirmed = |_: &ForeignContainer| Claim::Confirmed;
    admission.lock().foreign().pods(&Authorization::default(), confirmed)
}

#[test]
fn a_container_with_a_claim_by_variable_starts_outside_the_cpus_of_others() {
    let mut passes = Passes::new(4);
    let own = pod("own", "LSE", 2);
    passes.pass(std::slice::from_ref(&own));
    let claimed = ForeignContainer { is_claimed: true, ..foreign("claimed", false) };
    passes.state.start_foreign("c", claimed, passes.now);
    assert_eq!(passes.cpus(&pod("claimed", "LS", 0)).as_deref(), Some("2-3"));
}

#[test]
fn a_pod_that_may_preserve_its_cpus_is_not_placed() {
    for (selectors, expected) in [(vec![], Some("0-3")), (vec![Selector::default()], None)] {
        let mut passes = Passes::new(4);
        let authorization = Authorization { preserve_cpus: selectors, ..Authorization::default() };
        let settings =
            PlacementSettings { share_floor: 1, authorization, ..PlacementSettings::default() };
        passes.rules = Arc::new(Rules { settings, ..Rules::default() });
        passes.pass(&[]);
        let preserved = pod("preserved", "LS", 0);
        let container =
            ForeignContainer { preserved: Some(preserved.clone()), ..foreign("preserved", false) };
        passes.state.start_foreign("c", container, passes.now);
        assert_eq!(passes.cpus(&preserved).as_deref(), expected);
    }
}

#[test]
fn nothing_is_placed_beside_another_program_that_sets_cpus() {
    let admission = Admission::new(Duration::from_secs(1)).unwrap();
    assert!(admission.awaits_report(), "the runtime has not connected yet");
    admission.synchronized(["s".to_owned()].into(), BTreeSet::new(), BTreeMap::new());
    assert!(!admission.awaits_report() && admission.take_wake());
    let mut passes = Passes::new(2);
    passes.pass(&[]);
    admission.lock().publish_of(&mut passes.state);
    let shared = pod("shared", "LS", 0);
    let claimed = ForeignContainer { is_claimed: true, ..foreign("claimed", false) };
    admission.start_foreign("1", claimed);
    assert!(admission.start(&shared, "c").is_some(), "only that pod is left alone");
    assert!(admission.take_wake());
    admission.start_foreign("2", foreign("other", true));
    assert_eq!(admission.start(&shared, "c"), None);
    assert!(admission.take_wake());
    admission.container_stopped("2");
    assert!(admission.take_wake() && admission.lock().foreign().obstacle().is_none());
    admission.container_removed("2");
    assert!(!admission.take_wake(), "nothing has changed");
    admission.pod_removed("claimed", "s");
    assert!(admission.lock().sandboxes().is_empty());
    assert!(admission.take_wake() && left_alone(&admission).is_empty());
}

#[test]
fn creations_that_fail_with_cpus_stop_placement_only_of_their_pod() {
    let admission = Admission::new(Duration::from_secs(1)).unwrap();
    let mut passes = Passes::new(2);
    passes.pass(&[]);
    admission.lock().publish_of(&mut passes.state);
    let create = |uid: &str, namespace: &str, id: &str| {
        let (pod, name) = (pod(uid, "LS", 0), format!("{namespace}/{uid}/app"));
        let placed = admission.start(&pod, id).is_some();
        admission.creation_began(uid, &name, id, placed) && placed
    };
    assert!(["1", "2", "3"].into_iter().all(|id| create("broken", "shop", id)));
    assert!(!create("broken", "shop", "4"), "no CPUs");
    assert_eq!(admission.keep(&pod("broken", "LS", 0), "4"), None);
    admission.creation_ended("broken", "shop/broken/app");
    assert!(!admission.take_wake() && admission.lock().obstacle(Instant::now()).is_none());
    assert!(create("other", "shop", "5"), "placement continues");
    // The same in another namespace is evidence about the node.
    assert!(["6", "7", "8"].into_iter().all(|id| create("index", "jobs", id)));
    assert!(!create("index", "jobs", "9") && !admission.take_wake());
    admission.creation_ended("index", "jobs/index/app");
    assert!(admission.take_wake() && admission.lock().obstacle(Instant::now()).is_some());
    passes.pass(&[]);
    assert_eq!(admission.start(&pod("other", "LS", 0), "c"), None, "of no pod");
    admission.pod_removed("broken", "");
    assert!(admission.take_wake() && admission.lock().obstacle(Instant::now()).is_none());
}

#[test]
fn after_a_panic_nothing_is_placed_until_the_next_plan() {
    let admission = Admission::new(Duration::from_secs(1)).unwrap();
    let mut passes = Passes::new(2);
    passes.pass(&[]);
    *admission.lock() = std::mem::take(&mut passes.state);
    let shared = pod("shared", "LS", 0);
    assert!(admission.start(&shared, "c").is_some());
    let claimed = ForeignContainer { is_claimed: true, ..foreign("web", false) };
    admission.start_foreign("f", claimed);
    admission.sandbox_started("s");
    let other = admission.clone();
    let panicked = std::thread::spawn(move || {
        let _state = other.lock();
        panic!("while planning");
    });
    assert!(panicked.join().is_err());
    assert_eq!(admission.start(&shared, "c"), None);
    assert!(admission.lock().placed().is_empty(), "a new state");
    assert_eq!(left_alone(&admission), ["web".into()].into(), "reported only once");
    assert_eq!(admission.lock().sandboxes().len(), 1, "reported only once");
    assert_eq!(admission.start(&shared, "c"), None);
}

#[test]
fn a_reservation_wakes_the_passes_once() {
    let admission = Admission::new(Duration::from_secs(1)).unwrap();
    let mut passes = Passes::new(2);
    passes.pass(&[]);
    *admission.lock() = std::mem::take(&mut passes.state);
    assert!(admission.start(&pod("shared", "LS", 0), "c").is_some());
    assert!(!admission.take_wake());
    let exclusive = pod("own", "LSE", 1);
    for expected in [true, false] {
        assert!(admission.start(&exclusive, "c").is_some());
        assert_eq!(admission.take_wake(), expected);
    }
    let shrunk = pod("own", "LSE", 0);
    admission.resize(&shrunk);
    assert!(!admission.take_wake(), "nothing was reserved");
    assert!(admission.keep(&exclusive, "c").is_some());
    admission.resize(&exclusive);
    assert!(!admission.take_wake(), "it has these CPUs");
}
