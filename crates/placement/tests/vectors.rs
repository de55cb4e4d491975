//! Every vector of `fixtures/pinning-vectors.json` is a test with its name;
//! `fixtures/vector-forms.json` has the formats that other vector files may use.
//! `PLACEMENT_VECTORS=FILE` runs another file:
//! `PLACEMENT_VECTORS=FILE cargo test -p placement vectors`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use kernel_text::CpuSet;
use libtest_mimic::{Arguments, Failed, Trial};
use placement::{
    Bind, BindPolicy, Cpu, ExclusivePolicy, Exclusivity, Grid, Hold, NumaStrategy, Numbering,
    Request, Taken, Topology, narrow, take,
};
use serde::Deserialize;

/// A missing field is `null`: an empty set of CPUs, or the default of a policy.
#[derive(Deserialize)]
struct Vector {
    name: String,
    #[serde(default)]
    source: String,
    algorithm: String,
    topology: Shape,
    allocated: Option<String>,
    /// Policy of the holder, by CPU list.
    allocated_exclusive: Option<BTreeMap<String, Option<String>>>,
    /// Number of holders of each CPU, by CPU list.
    allocated_ref_counts: Option<BTreeMap<String, u32>>,
    max_ref_count: Option<u32>,
    request: usize,
    bind_policy: Option<String>,
    exclusive_policy: Option<String>,
    numa_strategy: Option<String>,
    required: Option<bool>,
    available: Option<String>,
    numa_affinity: Option<Vec<u32>>,
    /// `null` expects an error. The field is mandatory, so that a misspelled key is not taken as an
    /// expected error.
    #[serde(deserialize_with = "Option::deserialize")]
    expected: Option<String>,
}

#[derive(Deserialize)]
struct Shape {
    sockets: u32,
    nodes_per_socket: u32,
    cores_per_node: u32,
    threads_per_core: u32,
    numbering: String,
    /// CPU, core, NUMA node and socket of each CPU.
    cpus: Option<Vec<(u32, u32, u32, u32)>>,
}

fn main() -> ExitCode {
    match vectors() {
        Ok(vectors) => {
            let trials = vectors.into_iter().map(|vector| {
                Trial::test(format!("vectors::{}", vector.name), move || {
                    vector.check().map_err(Failed::from)
                })
            });
            libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Vectors of the file in `PLACEMENT_VECTORS`, else of the crate's own files.
fn vectors() -> Result<Vec<Vector>, String> {
    if let Some(file) = std::env::var_os("PLACEMENT_VECTORS") {
        let file = Path::new(&file);
        let text =
            read(file).map_err(|error| format!("PLACEMENT_VECTORS={}: {error}", file.display()))?;
        return parse(&file.display().to_string(), &text);
    }
    let mut vectors = parse("pinning-vectors.json", include_str!("fixtures/pinning-vectors.json"))?;
    vectors.extend(parse("vector-forms.json", include_str!("fixtures/vector-forms.json"))?);
    Ok(vectors)
}

/// Cargo runs a test in its crate's directory, so a relative path may also be relative to the
/// workspace root.
fn read(file: &Path) -> std::io::Result<String> {
    let from_root =
        || std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file));
    std::fs::read_to_string(file).or_else(|error| from_root().map_err(|_| error))
}

fn parse(file: &str, text: &str) -> Result<Vec<Vector>, String> {
    let vectors: Vec<Vector> =
        serde_json::from_str(text).map_err(|error| format!("{file}: {error}"))?;
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
                take(&topology, &taken, &self.request(&topology)?)
                    .map_err(|error| error.to_string())
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
            (answer, expected) => {
                Err(format!("expected {expected:?}, got {answer:?} (source: {})", self.source))
            }
        }
    }

    fn request(&self, topology: &Topology) -> Result<Request, String> {
        let hint = self.numa_affinity.as_deref().unwrap_or_default();
        let hinted = hint
            .iter()
            .filter_map(|node| topology.nodes().get(node))
            .fold(CpuSet::new(), |a, b| a.union(b));
        let available = self.available.as_deref().map(cpus).transpose()?;
        let strategy = match self.numa_strategy.as_deref().unwrap_or_default() {
            // Upstream splits over the nodes of a hint with several nodes, whatever the strategy
            // is.
            _ if hint.len() > 1 => NumaStrategy::DistributeEvenly,
            "" | "MostAllocated" => NumaStrategy::MostAllocated,
            "LeastAllocated" => NumaStrategy::LeastAllocated,
            "DistributeEvenly" => NumaStrategy::DistributeEvenly,
            other => return Err(format!("unknown NUMA strategy {other:?}")),
        };
        let policy = match self.bind_policy.as_deref().unwrap_or_default() {
            "" | "Default" | "FullPCPUs" => BindPolicy::FullPcpus,
            "SpreadByPCPUs" => BindPolicy::SpreadByPcpus,
            other => return Err(format!("unknown bind policy {other:?}")),
        };
        Ok(Request {
            cpus: self.request,
            bind: Bind { policy, required: self.required.unwrap_or(false) },
            exclusive: exclusivity(self.exclusive_policy.as_deref())?,
            strategy,
            allowed: available.or_else(|| (!hint.is_empty()).then_some(hinted)),
            max_holders: self.max_ref_count.unwrap_or(1),
        })
    }

    /// One hold per exclusive set, and one per further reference of a CPU.
    fn taken(&self) -> Result<Taken, String> {
        let mut holds = Vec::new();
        let mut plain = cpus(self.allocated.as_deref().unwrap_or_default())?;
        for (list, policy) in self.allocated_exclusive.iter().flatten() {
            let held = cpus(list)?;
            plain = plain.difference(&held);
            holds.push(Hold { cpus: held, exclusive: exclusivity(policy.as_deref())? });
        }
        holds.push(Hold { cpus: plain, exclusive: Exclusivity::default() });
        for (list, &references) in self.allocated_ref_counts.iter().flatten() {
            let again = Hold { cpus: cpus(list)?, exclusive: Exclusivity::default() };
            holds.extend((1..references).map(|_| again.clone()));
        }
        Ok(holds.into_iter().collect())
    }
}

impl Shape {
    fn build(&self) -> Result<Topology, String> {
        if let Some(cpus) = &self.cpus {
            let cpu = |&(id, core, node, socket)| Cpu {
                id,
                core,
                l3: None,
                die: None,
                node,
                socket,
                kind: None,
            };
            return Topology::new(cpus.iter().map(cpu).collect())
                .map_err(|error| error.to_string());
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

fn exclusivity(policy: Option<&str>) -> Result<Exclusivity, String> {
    let policy = match policy.unwrap_or_default() {
        "" | "None" => ExclusivePolicy::None,
        "PCPULevel" => ExclusivePolicy::PcpuLevel,
        "NUMANodeLevel" => ExclusivePolicy::NumaNodeLevel,
        other => return Err(format!("unknown exclusive policy {other:?}")),
    };
    Ok(Exclusivity { policy, required: false })
}
