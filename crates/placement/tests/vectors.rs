//! Every vector of `fixtures/pinning-vectors.json` is a test of its name. `PLACEMENT_VECTORS=FILE` runs another file of
//! the same form: `PLACEMENT_VECTORS=FILE cargo test -p placement vectors`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use kernel_text::CpuSet;
use libtest_mimic::{Arguments, Failed, Trial};
use placement::{
    Bind, BindPolicy, Cpu, ExclusivePolicy, Exclusivity, Grid, Hold, NumaStrategy, Numbering, Request, Taken, Topology,
    narrow, take,
};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vector {
    name: String,
    source: String,
    algorithm: String,
    topology: Shape,
    allocated: String,
    #[serde(default)]
    allocated_exclusive: BTreeMap<String, String>,
    #[serde(default)]
    allocated_ref_counts: BTreeMap<u32, u32>,
    max_ref_count: Option<u32>,
    request: usize,
    bind_policy: String,
    exclusive_policy: String,
    numa_strategy: String,
    #[serde(default)]
    required: bool,
    available: Option<String>,
    numa_affinity: Option<Vec<u32>>,
    /// `null`, or not there, is an error.
    expected: Option<String>,
}

#[derive(Deserialize)]
struct Shape {
    sockets: u32,
    nodes_per_socket: u32,
    cores_per_node: u32,
    threads_per_core: u32,
    numbering: String,
    /// CPU, core, NUMA node, socket.
    cpus: Option<Vec<(u32, u32, u32, u32)>>,
}

fn main() -> ExitCode {
    match vectors() {
        Ok(vectors) => {
            let trials = vectors.into_iter().map(|vector| {
                Trial::test(format!("vectors::{}", vector.name), move || vector.check().map_err(Failed::from))
            });
            libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The file of `PLACEMENT_VECTORS`, else the one that belongs to the crate.
#[expect(clippy::disallowed_methods, reason = "a test reads its own data")]
fn vectors() -> Result<Vec<Vector>, String> {
    let (file, text) = match std::env::var_os("PLACEMENT_VECTORS") {
        None => ("pinning-vectors.json".into(), include_str!("fixtures/pinning-vectors.json").to_owned()),
        Some(file) => {
            let name = file.to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&file).map_err(|error| format!("PLACEMENT_VECTORS={name}: {error}"))?;
            (name, text)
        }
    };
    let vectors: Vec<Vector> = serde_json::from_str(&text).map_err(|error| format!("{file}: {error}"))?;
    if vectors.is_empty() {
        return Err(format!("{file}: no vector in it"));
    }
    Ok(vectors)
}

impl Vector {
    fn check(&self) -> Result<(), String> {
        let topology = self.topology.build()?;
        let taken = self.taken()?;
        let answer = match self.algorithm.as_str() {
            "koordinator-take" | "koordinator-numa-hint" => {
                take(&topology, &taken, &self.request(&topology)?).map_err(|error| error.to_string())
            }
            "koordlet-be-suppress" => {
                let pool = topology.online().difference(&taken.cpus());
                Ok(narrow(&topology, &pool, self.request))
            }
            other => return Err(format!("unknown algorithm {other:?}")),
        };
        let expected = self.expected.as_deref().map(cpus).transpose()?;
        match (answer, expected) {
            (Ok(answer), Some(expected)) if answer == expected => Ok(()),
            (Err(_), None) => Ok(()),
            (answer, expected) => Err(format!("expected {expected:?}, got {answer:?} (source: {})", self.source)),
        }
    }

    fn request(&self, topology: &Topology) -> Result<Request, String> {
        let hint = self.numa_affinity.as_deref().unwrap_or_default();
        let hinted = hint.iter().filter_map(|node| topology.nodes().get(node)).fold(CpuSet::new(), |a, b| a.union(b));
        let available = self.available.as_deref().map(cpus).transpose()?;
        let strategy = match self.numa_strategy.as_str() {
            // Upstream splits over the nodes of a hint of several nodes, whatever the strategy is.
            _ if hint.len() > 1 => NumaStrategy::DistributeEvenly,
            "MostAllocated" => NumaStrategy::MostAllocated,
            "LeastAllocated" => NumaStrategy::LeastAllocated,
            "DistributeEvenly" => NumaStrategy::DistributeEvenly,
            other => return Err(format!("unknown NUMA strategy {other:?}")),
        };
        let policy = match self.bind_policy.as_str() {
            "" | "Default" | "FullPCPUs" => BindPolicy::FullPcpus,
            "SpreadByPCPUs" => BindPolicy::SpreadByPcpus,
            other => return Err(format!("unknown bind policy {other:?}")),
        };
        Ok(Request {
            cpus: self.request,
            bind: Bind { policy, required: self.required },
            exclusive: exclusivity(&self.exclusive_policy)?,
            strategy,
            allowed: available.or_else(|| (!hint.is_empty()).then_some(hinted)),
            max_holders: self.max_ref_count.unwrap_or(1),
        })
    }

    /// One hold for each exclusive set and each further reference of a CPU.
    fn taken(&self) -> Result<Taken, String> {
        let mut holds = Vec::new();
        let mut plain = cpus(&self.allocated)?;
        for (list, policy) in &self.allocated_exclusive {
            let held = cpus(list)?;
            plain = plain.difference(&held);
            holds.push(Hold { cpus: held, exclusive: exclusivity(policy)? });
        }
        holds.push(Hold { cpus: plain, exclusive: Exclusivity::default() });
        for (&cpu, &references) in &self.allocated_ref_counts {
            let again = Hold { cpus: CpuSet::from_iter([cpu]), exclusive: Exclusivity::default() };
            holds.extend((1..references).map(|_| again.clone()));
        }
        Ok(holds.into_iter().collect())
    }
}

impl Shape {
    fn build(&self) -> Result<Topology, String> {
        if let Some(cpus) = &self.cpus {
            let cpu = |&(id, core, node, socket)| Cpu { id, core, l3: None, die: None, node, socket, kind: None };
            return Topology::new(cpus.iter().map(cpu).collect()).map_err(|error| error.to_string());
        }
        let numbering = match self.numbering.as_str() {
            "sequential" => Numbering::Sequential,
            "thread-major" => Numbering::ThreadMajor,
            other => return Err(format!("unknown numbering {other:?}")),
        };
        let grid = Grid {
            sockets: self.sockets,
            nodes_per_socket: self.nodes_per_socket,
            cores_per_node: self.cores_per_node,
            threads_per_core: self.threads_per_core,
            numbering,
        };
        Topology::new(grid.cpus()).map_err(|error| error.to_string())
    }
}

fn cpus(list: &str) -> Result<CpuSet, String> {
    list.parse().map_err(|error| format!("{list:?}: {error}"))
}

fn exclusivity(policy: &str) -> Result<Exclusivity, String> {
    let policy = match policy {
        "" | "None" => ExclusivePolicy::None,
        "PCPULevel" => ExclusivePolicy::PcpuLevel,
        "NUMANodeLevel" => ExclusivePolicy::NumaNodeLevel,
        other => return Err(format!("unknown exclusive policy {other:?}")),
    };
    Ok(Exclusivity { policy, required: false })
}
