//! A synthetic node: 250 pods with 330 containers on 64 CPUs. The same for each run.

use api::{
    BestEffort, Bounds, Colocation, ContainerFrame, Contention, CpuFrame, Frame, Interference,
    NodeFrame, PodName, Rates, Trace,
};
use timeline::recording::Origin;

/// Start of the synthetic recordings.
pub(crate) const START_MS: u64 = 1_763_800_000_000;

/// Pseudo-random numbers, see splitmix64.
pub(crate) struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to 1.
    fn share(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The node. Every `busy_every`th container works, with waits in all columns; each other one uses
/// some CPU now and then.
pub(crate) struct Node {
    random: Random,
    containers: Vec<ContainerFrame>,
    busy_every: usize,
    /// Number of pods for which each busy container waits.
    aggressors: usize,
    frame: u64,
}

impl Node {
    pub(crate) fn new(busy_every: usize) -> Self {
        let mut random = Random(17);
        let mut containers = Vec::new();
        for pod in 0..250 {
            let (high, low) = (random.bits(), random.bits());
            let uid =
                format!("{:08x}-{:04x}-4{:03x}", high as u32, low as u16, high as u16 & 0xfff);
            let uid = format!("{uid}-b{:03x}-{:012x}", high as u16 & 0xfff, low >> 16);
            let name =
                format!("service-{}-{:09x}-{:05x}", pod % 40, random.bits() >> 28, low >> 44);
            // 80 pods have a sidecar.
            for container in ["app", "proxy"].iter().take(if pod < 80 { 2 } else { 1 }) {
                containers.push(ContainerFrame {
                    namespace: format!("team-{}", pod % 12),
                    pod: name.clone(),
                    container: (*container).to_owned(),
                    uid: uid.clone(),
                    qos_class: "Burstable".to_owned(),
                    cpu_qos: String::new(),
                    limit_cores: Some(0.5),
                    request_cores: Some(0.1),
                    cpus: Some("0-63".to_owned()),
                    gc: None,
                    rates: Rates::default(),
                });
            }
        }
        let name = |row: &ContainerFrame| (row.namespace.clone(), row.pod.clone());
        containers.sort_by_key(name);
        Self { random, containers, busy_every, aggressors: 1, frame: 0 }
    }

    /// Each busy container waits for this number of others.
    #[allow(dead_code, reason = "only for some tests")]
    pub(crate) fn with_aggressors(self, aggressors: usize) -> Self {
        Self { aggressors, ..self }
    }

    /// The next second.
    pub(crate) fn frame(&mut self) -> Frame {
        self.frame += 1;
        let (random, busy_every) = (&mut self.random, self.busy_every);
        let mut containers = self.containers.clone();
        for (at, row) in containers.iter_mut().enumerate() {
            row.rates = rates(random, at % busy_every == 0);
        }
        let mut interference = Vec::new();
        for (victim, aggressor) in pairs(&containers, busy_every, self.aggressors) {
            let [victim, aggressor] = [victim, aggressor]
                .map(|row| PodName { namespace: row.namespace.clone(), pod: row.pod.clone() });
            let wait = random.share() / 10.0;
            // A pair waits in two of three frames.
            if wait > 0.033 {
                interference.push(Interference { victim, aggressor, wait });
            }
        }
        interference.sort_by(|a, b| b.wait.total_cmp(&a.wait));
        let node = NodeFrame {
            name: "node-1".to_owned(),
            trace: Trace { mode: "continuous".to_owned(), reason: String::new() },
            pressure: Some(random.share()),
            contention: Contention {
                // Absent in every other frame. Not random: the other values are those of the
                // fixture.
                node: self.frame.is_multiple_of(2).then(|| Bounds {
                    lower: 1.0 / (7.0 + self.frame as f64),
                    upper: 1.0 / (3.0 + self.frame as f64),
                }),
                ..Contention::default()
            },
            steal: Some(0.0),
            colocation: Colocation {
                best_effort: Some(BestEffort {
                    step: (self.frame / 40 % 4) as u8,
                    enforcing: true,
                }),
                ..Colocation::default()
            },
            cpus: (0..64).map(|cpu| cpu_frame(cpu, random.share())).collect(),
        };
        let at_ms = START_MS + 1000 * self.frame;
        let verdicts = Vec::new();
        Frame { at_ms, seconds: 1.0, node, containers, interference, verdicts }
    }
}

/// Victims and their aggressors.
fn pairs(
    containers: &[ContainerFrame],
    busy_every: usize,
    aggressors: usize,
) -> impl Iterator<Item = (&ContainerFrame, &ContainerFrame)> {
    (0..aggressors).flat_map(move |number| {
        let victims = containers.iter().step_by(busy_every);
        victims.zip(containers.iter().skip(1 + 40 * number).step_by(busy_every))
    })
}

fn rates(random: &mut Random, is_busy: bool) -> Rates {
    if !is_busy {
        let used = if random.share() < 0.3 { random.share() / 1000.0 } else { 0.0 };
        let zero = Some(0.0);
        return Rates {
            usage_cores: Some(used),
            throttled_share: zero,
            throttled_own: zero,
            throttled_ancestor: zero,
            neighbor: zero,
            own: zero,
            system: zero,
            smt: zero,
            contention: None,
        };
    }
    let mut some = || Some(random.share() / 2.0);
    Rates {
        usage_cores: some(),
        throttled_share: some(),
        throttled_own: some(),
        throttled_ancestor: Some(0.0),
        neighbor: some(),
        own: some(),
        system: some(),
        smt: some(),
        contention: None,
    }
}

fn cpu_frame(cpu: u32, busy: f64) -> CpuFrame {
    CpuFrame {
        cpu,
        core: Some(cpu / 2 * 2),
        llc: Some(cpu / 16),
        numa_node: Some(cpu / 32),
        socket: Some(cpu / 32),
        busy: Some(busy),
    }
}

pub(crate) fn origin() -> Origin {
    Origin { node: "node-1".to_owned(), agent: "0.1.0".to_owned() }
}
