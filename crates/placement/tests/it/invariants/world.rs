//! A node with pods that arrive, leave, change their requests and lose CPUs.

use kernel_text::CpuSet;
use placement::{
    Authorization, Current, Kubelet, Node, NumaStrategy, PlacementSettings, Plan, PlanError, Pod,
    Profiles, QOS_CLASS_LABEL, Selector, Topology, plan,
};
use proptest::prelude::*;

use super::machine::{Machine, any_machine};

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(crate) reserved: CpuSet,
    pub(crate) kubelet: Kubelet,
    pub(crate) settings: PlacementSettings,
    pub(crate) pods: Vec<Pod>,
    pub(crate) current: Current,
    arrivals: u64,
}

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Arrive(Asks),
    Leave(usize),
    Resize(usize, u64),
    Relabel(usize, &'static str),
    Unplug(usize),
    Plug(usize),
    /// The kubelet assigns one more CPU exclusively to a container.
    KubeletTakes(usize),
}

/// The request of a pod.
#[derive(Debug, Clone)]
pub(crate) struct Asks {
    pub(crate) qos: &'static str,
    pub(crate) cpus: u64,
    pub(crate) spec: Option<String>,
    pub(crate) status: Option<String>,
}

impl World {
    /// A node with these pods and nothing reserved.
    pub(crate) fn of(machine: Machine, pods: Vec<Pod>) -> Self {
        let (kubelet, settings, current) =
            (Kubelet::default(), PlacementSettings::default(), Current::default());
        Self { machine, reserved: CpuSet::new(), kubelet, settings, pods, current, arrivals: 0 }
    }

    pub(crate) fn topology(&self) -> Topology {
        self.machine.topology()
    }

    /// Plans with every online CPU allowed.
    pub(crate) fn plan(&self) -> Result<Plan, PlanError> {
        let topology = self.topology();
        self.plan_within(&topology, topology.online())
    }

    pub(crate) fn plan_within(
        &self,
        topology: &Topology,
        allowed: &CpuSet,
    ) -> Result<Plan, PlanError> {
        let Self { reserved, kubelet, settings, .. } = self;
        let node = Node { topology, allowed, reserved, kubelet, settings };
        plan(&node, &self.pods, &Profiles::default(), &self.current)
    }

    pub(crate) fn happen(&mut self, event: &Event) {
        let many = self.pods.len().max(1);
        match event {
            Event::Arrive(asks) => self.arrive(asks),
            Event::Leave(n) if !self.pods.is_empty() => drop(self.pods.remove(n % many)),
            Event::Resize(n, cpus) => {
                if let Some(pod) = self.pods.get_mut(n % many) {
                    (pod.request_millis, pod.limit_millis) = (Some(cpus * 1000), Some(cpus * 1000));
                }
            }
            Event::Relabel(n, qos) => {
                if let Some(pod) = self.pods.get_mut(n % many) {
                    pod.labels.insert(QOS_CLASS_LABEL.into(), (*qos).into());
                }
            }
            Event::Unplug(n) => drop(self.machine.unplug(*n)),
            Event::Plug(n) => drop(self.machine.plug(*n)),
            Event::KubeletTakes(n) => {
                let cpu = self.machine.possible[n % self.machine.possible.len()].id;
                self.kubelet.exclusive = self.kubelet.exclusive.union(&CpuSet::from_iter([cpu]));
            }
            Event::Leave(_) => {}
        }
    }

    fn arrive(&mut self, asks: &Asks) {
        self.arrivals += 1;
        self.pods.push(Pod {
            uid: format!("pod-{:03}", (self.arrivals * 37) % 1000).into(),
            labels: [(QOS_CLASS_LABEL.to_owned(), asks.qos.to_owned())].into(),
            resource_spec: asks.spec.clone(),
            resource_status: asks.status.clone(),
            request_millis: Some(asks.cpus * 1000),
            limit_millis: Some(asks.cpus * 1000),
            namespace: format!("namespace-{}", self.arrivals % 2),
            best_effort: true,
            arrival: self.arrivals,
            ..Pod::default()
        });
    }
}

pub(crate) fn any_world() -> impl Strategy<Value = World> {
    let strategy = prop_oneof![
        Just(NumaStrategy::MostAllocated),
        Just(NumaStrategy::LeastAllocated),
        Just(NumaStrategy::DistributeEvenly)
    ];
    let most = prop_oneof![2 => Just(None), 1 => (0..6usize).prop_map(Some)];
    let cap = || prop_oneof![3 => Just(None), 1 => (0..8usize).prop_map(Some)];
    let reserved = prop::collection::vec(any::<usize>(), 0..3);
    (any_machine(), strategy, 0..4usize, any::<bool>(), most, reserved, (cap(), cap())).prop_map(
        |(
            machine,
            strategy,
            share_floor,
            trust_resource_status,
            best_effort_cpus,
            reserved,
            caps,
        )| {
            let id = |n: usize| machine.possible[n % machine.possible.len()].id;
            let reserved = reserved.into_iter().map(id).collect();
            let authorization = Authorization {
                required_exclusive: vec![Selector::default()],
                max_exclusive_cpus: caps.0,
                max_exclusive_cpus_per_namespace: caps.1,
                ..Authorization::default()
            };
            let settings = PlacementSettings {
                share_floor,
                strategy,
                trust_resource_status,
                best_effort_cpus,
                authorization,
            };
            World { reserved, settings, ..World::of(machine, Vec::new()) }
        },
    )
}

fn any_qos() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("LSE"), 4 => Just("LSR"), 1 => Just("LS"), 2 => Just("BE"), 1 => Just("SYSTEM"), 1 => Just("gold")]
}

fn any_spec() -> impl Strategy<Value = Option<String>> {
    let word = |strings: &'static [&'static str]| prop::sample::select(strings);
    let bind = (word(&["required", "preferred"]), word(&["FullPCPUs", "SpreadByPCPUs", "Default"]));
    let apart = (word(&["required", "preferred"]), word(&["None", "PCPULevel", "NUMANodeLevel"]));
    let spec = (bind, apart).prop_map(|((bind, policy), (apart, level))| {
        format!(r#"{{"{bind}CPUBindPolicy":"{policy}","{apart}CPUExclusivePolicy":"{level}"}}"#)
    });
    prop_oneof![2 => Just(None), 6 => spec.prop_map(Some), 1 => Just(Some("{".to_owned()))]
}

fn any_status() -> impl Strategy<Value = Option<String>> {
    let cpus = prop::collection::btree_set(0..24u32, 1..5).prop_map(|cpus| {
        Some(format!(r#"{{"cpuset":"{}"}}"#, cpus.into_iter().collect::<CpuSet>()))
    });
    prop_oneof![4 => Just(None), 1 => cpus]
}

pub(crate) fn any_asks() -> impl Strategy<Value = Asks> {
    (any_qos(), 1..=6u64, any_spec(), any_status()).prop_map(|(qos, cpus, spec, status)| Asks {
        qos,
        cpus,
        spec,
        status,
    })
}

pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let n = any::<usize>;
    prop_oneof![
        8 => any_asks().prop_map(Event::Arrive),
        3 => n().prop_map(Event::Leave),
        2 => (n(), 1..=6u64).prop_map(|(n, cpus)| Event::Resize(n, cpus)),
        1 => (n(), any_qos()).prop_map(|(n, qos)| Event::Relabel(n, qos)),
        2 => n().prop_map(Event::Unplug),
        1 => n().prop_map(Event::Plug),
        1 => n().prop_map(Event::KubeletTakes),
    ]
}
