//! Environment variables for a new container, from the limits of the container and its pod.
//!
//! Language runtimes size their threads and heap by the machine or by the container's own limit,
//! once, at the start. These rules give the values; they never replace a variable that the
//! container has.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::facts::Place;
use crate::memory::soft_limit;

mod record;

pub use record::{Injections, Record};

/// Annotation of a pod with the variables for its containers: `true`, `false`, or a list of names.
pub const VARIABLES_ANNOTATION: &str = "cpuwarden.io/inject-env";
/// Annotation of a pod with the names of the containers that get variables, by default the app
/// containers.
pub const CONTAINERS_ANNOTATION: &str = "cpuwarden.io/inject-env-containers";
/// Annotation of a container at its runtime, with the injected variables and the limits at that
/// time: an agent that starts again reads it.
pub const RECORD_ANNOTATION: &str = "cpuwarden.io/injected-env";

/// Knowledge by namespace, container name and image.
pub type KnownWorkloads = BTreeMap<(String, String, String), Known>;

/// A variable that can be injected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Variable {
    /// Threads that run Go code.
    Gomaxprocs,
    /// Soft memory limit of Go's runtime.
    Gomemlimit,
    /// Growth of Go's heap between two garbage collections.
    Gogc,
    /// Threads of OpenMP.
    Omp,
    /// Threads of OpenBLAS.
    OpenBlas,
    /// Threads of Intel's MKL.
    Mkl,
    /// Threads of Rayon (Rust).
    Rayon,
    /// Threads of libuv's pool (Node.js).
    Libuv,
    /// Number of processors that .NET sees.
    Dotnet,
    /// Number of processors that the JVM sees, by `-XX:ActiveProcessorCount`.
    Java,
}

impl Variable {
    /// Every variable.
    pub const ALL: [Self; 10] = [
        Self::Gomaxprocs,
        Self::Gomemlimit,
        Self::Gogc,
        Self::Omp,
        Self::OpenBlas,
        Self::Mkl,
        Self::Rayon,
        Self::Libuv,
        Self::Dotnet,
        Self::Java,
    ];

    /// Variables that are injected unless others are named. Programs in other languages ignore
    /// them.
    pub const DEFAULT: [Self; 2] = [Self::Gomaxprocs, Self::Gomemlimit];

    /// Name of the variable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gomaxprocs => "GOMAXPROCS",
            Self::Gomemlimit => "GOMEMLIMIT",
            Self::Gogc => "GOGC",
            Self::Omp => "OMP_NUM_THREADS",
            Self::OpenBlas => "OPENBLAS_NUM_THREADS",
            Self::Mkl => "MKL_NUM_THREADS",
            Self::Rayon => "RAYON_NUM_THREADS",
            Self::Libuv => "UV_THREADPOOL_SIZE",
            Self::Dotnet => "DOTNET_PROCESSOR_COUNT",
            Self::Java => "JAVA_TOOL_OPTIONS",
        }
    }

    /// The variable with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|variable| variable.name() == name)
    }
}

/// Limits of a container at its creation. `None` means no limit, or unknown; so does a limit of 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Quota of the container, thousandths of a core.
    pub cpu_millis: Option<u64>,
    /// Quota of the pod, thousandths of a core.
    pub pod_cpu_millis: Option<u64>,
    /// Memory limit: the lower one of the container and its pod, bytes.
    pub memory_bytes: Option<u64>,
    /// Number of CPUs that the container may use at its start.
    pub usable_cpus: Option<u64>,
    /// CPU request times the configured factor, thousandths of a core: the threads of a container
    /// without a quota.
    pub scaled_request_millis: Option<u64>,
}

impl Limits {
    /// Whole cores of the lowest quota, at least 1: with more running threads than that, the quota
    /// throttles them. Without a quota the scaled request, rounded up. At most the usable CPUs: no
    /// more threads run at once.
    fn cores(&self) -> Option<u64> {
        let quotas = self.cpu_millis.into_iter().chain(self.pod_cpu_millis);
        let of_quota = quotas.filter(|&millis| millis > 0).min().map(|millis| millis / 1000);
        let of_request = || self.scaled_request_millis.map(|millis| millis.div_ceil(1000));
        Some(self.usable(of_quota.or_else(of_request)?.max(1)))
    }

    fn usable(&self, cores: u64) -> u64 {
        self.usable_cpus.map_or(cores, |cpus| cores.min(cpus.max(1)))
    }

    /// Whether Go since 1.25 uses the same number: it rounds the container's own limit up, to at
    /// least 2 and at most the usable CPUs, and follows its changes, which a fixed number does not.
    fn go_is_right(&self) -> bool {
        let own = self.cpu_millis.filter(|&millis| millis > 0);
        let rounded_up = own.map(|millis| millis.div_ceil(1000).max(2));
        let of_go = rounded_up.map(|cores| self.usable(cores)).or(self.usable_cpus);
        of_go == self.cores()
    }
}

/// Knowledge of earlier containers of the same workload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// Lowest memory after a garbage collection, bytes.
    pub live_set_bytes: Option<u64>,
    /// Whether the program is built with a Go that follows the limit (1.25 and later).
    pub go_follows_limit: bool,
}

/// Value of a variable under these limits, with this share of the memory limit for the heap; `None`
/// where there is nothing to derive it from, and where the runtime's own choice is better.
#[must_use]
pub fn value(
    variable: Variable,
    limits: &Limits,
    known: &Known,
    memory_share: f64,
) -> Option<String> {
    match variable {
        Variable::Gomaxprocs if known.go_follows_limit && limits.go_is_right() => None,
        Variable::Gomemlimit => {
            let live_set = known.live_set_bytes.unwrap_or(0);
            let limit = limits.memory_bytes.filter(|&bytes| bytes > 0)?;
            soft_limit(limit, live_set, memory_share).map(go_bytes)
        }
        // The heap grows up to GOMEMLIMIT before it is collected.
        Variable::Gogc => {
            value(Variable::Gomemlimit, limits, known, memory_share).map(|_limit| "off".to_owned())
        }
        // Also the calls that wait for files and name resolution share the pool.
        Variable::Libuv => {
            let threads = limits.cores().filter(|&cores| cores >= LIBUV_DEFAULT)?;
            Some(threads.to_string())
        }
        Variable::Java => limits.cores().map(|cores| format!("-XX:ActiveProcessorCount={cores}")),
        _ => limits.cores().map(|cores| cores.to_string()),
    }
}

/// Threads of libuv's pool without UV_THREADPOOL_SIZE (libuv, src/threadpool.c).
const LIBUV_DEFAULT: u64 = 4;

/// A number of bytes for GOMEMLIMIT, in whole MiB if there is at least one.
fn go_bytes(bytes: u64) -> String {
    match bytes >> 20 {
        0 => bytes.to_string(),
        mebibytes => format!("{mebibytes}MiB"),
    }
}

/// The variables that a container gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Variables, each of them once.
    pub variables: Vec<Variable>,
    /// Names of the containers; `None`: the app containers.
    pub containers: Option<Vec<String>>,
}

/// Values of an annotation or profile that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVariable(pub String);

impl fmt::Display for UnknownVariable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Variable::ALL.map(Variable::name).join(", ");
        write!(out, "{:?}: expected true, false, or a list of {names}", self.0)
    }
}

impl std::error::Error for UnknownVariable {}

impl Request {
    /// Reads `true`, `false`, or the names of variables separated by commas, and the names of
    /// containers. `None` for `false`.
    ///
    /// # Errors
    /// The first name that is not a variable.
    pub fn parse(
        variables: &str,
        containers: Option<&str>,
    ) -> Result<Option<Self>, UnknownVariable> {
        let mut variables = match variables.trim() {
            "false" => return Ok(None),
            "true" => Variable::DEFAULT.to_vec(),
            list => names(list)
                .map(|name| Variable::by_name(name).ok_or_else(|| UnknownVariable(name.to_owned())))
                .collect::<Result<Vec<_>, _>>()?,
        };
        // A runtime fails a container that gets a variable twice.
        let mut seen = BTreeSet::new();
        variables.retain(|variable| seen.insert(*variable));
        if variables.is_empty() {
            return Err(UnknownVariable(String::new()));
        }
        let containers = containers.map(|list| names(list).map(str::to_owned).collect());
        Ok(Some(Self { variables, containers }))
    }

    /// Whether a container gets variables. Without names only those of `spec.containers` do; while
    /// the pod's spec is unknown (`place` is `None`), only a name decides.
    #[must_use]
    pub fn selects(&self, container: &str, place: Option<Place>) -> bool {
        match &self.containers {
            Some(names) => names.iter().any(|name| name == container),
            None => place == Some(Place::Containers),
        }
    }

    /// The requested variables that have a value and that the container does not have. GOGC only
    /// together with GOMEMLIMIT: without a limit (also `GOMEMLIMIT=off` in the image) the heap
    /// would never be collected.
    #[must_use]
    pub fn missing(
        &self,
        has: impl Fn(&str) -> bool,
        limits: &Limits,
        known: &Known,
        memory_share: f64,
    ) -> Vec<(Variable, String)> {
        let absent = self.variables.iter().filter(|variable| !has(variable.name()));
        let with_value =
            |&variable| Some((variable, value(variable, limits, known, memory_share)?));
        let mut missing: Vec<_> = absent.filter_map(with_value).collect();
        if !missing.iter().any(|(variable, _)| *variable == Variable::Gomemlimit) {
            missing.retain(|(variable, _)| *variable != Variable::Gogc);
        }
        missing
    }
}

fn names(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests;
