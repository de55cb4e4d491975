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
mod tests {
    use super::*;
    use crate::memory::{HEAP_SHARE, MAX_HEAP_SHARE};

    const MIB: u64 = 1 << 20;

    fn cpu(own: Option<u64>, pod: Option<u64>) -> Limits {
        Limits { cpu_millis: own, pod_cpu_millis: pod, ..Limits::default() }
    }

    fn of(variable: Variable, limits: Limits) -> Option<String> {
        value(variable, &limits, &Known::default(), HEAP_SHARE)
    }

    #[test]
    fn threads_are_the_whole_cores_of_the_lowest_quota_and_at_least_one() {
        let cases = [
            (None, None, None),
            (Some(500), None, Some("1")),
            (Some(999), None, Some("1")),
            (Some(1000), None, Some("1")),
            (Some(1999), None, Some("1")),
            (Some(2000), None, Some("2")),
            (Some(2500), None, Some("2")),
            (Some(16_000), None, Some("16")),
            (None, Some(3500), Some("3")),
            (Some(4000), Some(2500), Some("2")),
            (Some(2500), Some(4000), Some("2")),
            // A quantity of 0 is no limit.
            (Some(0), None, None),
            (Some(2000), Some(0), Some("2")),
            (Some(u64::MAX), Some(400), Some("1")),
        ];
        for (own, pod, expected) in cases {
            for variable in Variable::ALL {
                let expected = match variable {
                    Variable::Gomemlimit | Variable::Gogc => None,
                    // Never fewer than without the variable.
                    Variable::Libuv => expected.filter(|n| *n == "16").map(str::to_owned),
                    Variable::Java => expected.map(|n| format!("-XX:ActiveProcessorCount={n}")),
                    _ => expected.map(str::to_owned),
                };
                assert_eq!(of(variable, cpu(own, pod)), expected, "{variable:?} {own:?} {pod:?}");
            }
        }
    }

    #[test]
    fn gomaxprocs_is_left_to_a_go_that_sets_it_right_and_follows_a_resize() {
        let known = Known { go_follows_limit: true, ..Known::default() };
        let cases = [
            // Go 1.25 rounds up: 3 threads under 2.5 cores are throttled.
            (Some(2500), None, Some("2")),
            // Its minimum is 2.
            (Some(1000), None, Some("1")),
            // It does not see the pod's quota.
            (Some(4000), Some(2000), Some("2")),
            (None, Some(2000), Some("2")),
            (Some(2000), None, None),
            (Some(4000), Some(4000), None),
        ];
        for (own, pod, expected) in cases {
            let limits = cpu(own, pod);
            assert_eq!(
                value(Variable::Gomaxprocs, &limits, &known, HEAP_SHARE).as_deref(),
                expected
            );
            let others = value(Variable::Rayon, &limits, &known, HEAP_SHARE);
            assert!(others.is_some(), "only Go follows its limit");
        }
    }

    #[test]
    fn no_more_threads_than_usable_cpus() {
        let cases = [
            (Some(16_000), None, 8, Some("8")),
            (None, Some(16_000), 8, Some("8")),
            (Some(3000), None, 8, Some("3")),
            (Some(500), None, 1, Some("1")),
            (Some(4000), None, 0, Some("1")),
            // Without a limit a runtime uses the same CPUs by itself.
            (None, None, 8, None),
        ];
        for (own, pod, cpus, expected) in cases {
            let limits = Limits { usable_cpus: Some(cpus), ..cpu(own, pod) };
            let value = of(Variable::Gomaxprocs, limits);
            assert_eq!(value.as_deref(), expected, "{own:?} {pod:?} {cpus}");
        }
    }

    #[test]
    fn threads_come_from_the_scaled_request_only_without_a_quota() {
        let known = Known { go_follows_limit: true, ..Known::default() };
        let cases = [
            (None, None, Some(500), Some("1")),
            (None, None, Some(2000), Some("2")),
            (None, None, Some(2001), Some("3")),
            (None, None, Some(64_000), Some("8")),
            (Some(0), None, Some(2000), Some("2")),
            (Some(4000), None, Some(2000), Some("4")),
            (None, Some(1500), Some(4000), Some("1")),
            (None, None, None, None),
        ];
        for (own, pod, scaled_request_millis, expected) in cases {
            let limits = Limits { usable_cpus: Some(8), scaled_request_millis, ..cpu(own, pod) };
            let value = of(Variable::Gomaxprocs, limits);
            assert_eq!(value.as_deref(), expected, "{own:?} {pod:?} {scaled_request_millis:?}");
        }
        // Go 1.25 knows limits, not requests.
        let limits =
            Limits { usable_cpus: Some(8), scaled_request_millis: Some(2000), ..cpu(None, None) };
        let new_go = value(Variable::Gomaxprocs, &limits, &known, HEAP_SHARE);
        assert_eq!(new_go.as_deref(), Some("2"));
    }

    #[test]
    fn go_that_follows_its_limit_is_right_on_few_cpus() {
        let known = Known { go_follows_limit: true, ..Known::default() };
        let cases = [
            // Rounded up, 3 threads, but no more than 2 run.
            (Some(2500), None, 2, None),
            (Some(1000), None, 1, None),
            (Some(1000), None, 2, Some("1")),
            (Some(16_000), None, 8, None),
            // Without a limit of its own Go uses all CPUs.
            (None, Some(16_000), 8, None),
            (None, Some(4000), 8, Some("4")),
        ];
        for (own, pod, cpus, expected) in cases {
            let limits = Limits { usable_cpus: Some(cpus), ..cpu(own, pod) };
            let value = value(Variable::Gomaxprocs, &limits, &known, HEAP_SHARE);
            assert_eq!(value.as_deref(), expected, "{own:?} {pod:?} {cpus}");
        }
    }

    #[test]
    fn gomemlimit_is_70_percent_of_the_limit_or_what_the_live_set_needs() {
        let cases = [
            (None, None, None),
            (Some(512 * MIB), None, Some("358MiB")),
            (Some(1024 * MIB), Some(0), Some("716MiB")),
            (Some(100 * MIB), Some(50 * MIB), Some("70MiB")),
            // 1.25 times 64 MiB.
            (Some(100 * MIB), Some(64 * MIB), Some("80MiB")),
            // 1.25 times 80 MiB would be over 90 % of the limit: the limit is too low for any.
            (Some(100 * MIB), Some(80 * MIB), None),
            (Some(1_000_000), None, Some("700000")),
            (Some(0), None, None),
        ];
        for (memory_bytes, live_set_bytes, expected) in cases {
            let limits = Limits { memory_bytes, ..Limits::default() };
            let known = Known { live_set_bytes, go_follows_limit: true };
            let value = value(Variable::Gomemlimit, &limits, &known, HEAP_SHARE);
            assert_eq!(value.as_deref(), expected, "{memory_bytes:?} {live_set_bytes:?}");
        }
    }

    #[test]
    fn another_share_of_the_memory_limit_gives_another_gomemlimit() {
        let limits = Limits { memory_bytes: Some(100 * MIB), ..Limits::default() };
        let of = |live_set_bytes, share| {
            let known = Known { live_set_bytes, ..Known::default() };
            value(Variable::Gomemlimit, &limits, &known, share)
        };
        assert_eq!(of(None, 0.5).as_deref(), Some("50MiB"));
        assert_eq!(of(Some(64 * MIB), 0.5).as_deref(), Some("80MiB"), "what the live set needs");
        assert_eq!(of(None, MAX_HEAP_SHARE).as_deref(), Some("90MiB"));
    }

    #[test]
    fn only_variables_that_the_container_lacks_are_injected() {
        let request = Request::parse("true", None).unwrap().unwrap();
        let limits = Limits { memory_bytes: Some(100 * MIB), ..cpu(Some(2000), None) };
        let missing = |present: &str| {
            let missing =
                request.missing(|name| name == present, &limits, &Known::default(), HEAP_SHARE);
            missing.into_iter().map(|(variable, _)| variable).collect::<Vec<_>>()
        };
        assert_eq!(missing("PATH"), [Variable::Gomaxprocs, Variable::Gomemlimit]);
        assert_eq!(missing("GOMAXPROCS"), [Variable::Gomemlimit]);
        assert_eq!(missing("GOMEMLIMIT"), [Variable::Gomaxprocs]);
        let none = request.missing(|_| false, &Limits::default(), &Known::default(), HEAP_SHARE);
        assert!(none.is_empty(), "{none:?}");
    }

    #[test]
    fn gogc_is_off_only_together_with_an_injected_gomemlimit() {
        let limits = Limits { memory_bytes: Some(100 * MIB), ..cpu(Some(2000), None) };
        let values = |request: &str, present: &str, limits: &Limits, live_set: u64| {
            let request = Request::parse(request, None).unwrap().unwrap();
            let known = Known { live_set_bytes: Some(live_set), ..Known::default() };
            let missing = request.missing(|name| name == present, limits, &known, HEAP_SHARE);
            let pair = |(variable, value): (Variable, String)| (variable.name(), value);
            missing.into_iter().map(pair).collect::<Vec<_>>()
        };
        let both = [("GOGC", "off".to_owned()), ("GOMEMLIMIT", "70MiB".to_owned())];
        assert_eq!(values("GOGC,GOMEMLIMIT", "PATH", &limits, 0), both);
        assert_eq!(values("GOGC,GOMEMLIMIT", "GOGC", &limits, 0), both[1..]);
        assert_eq!(values("GOGC,GOMEMLIMIT", "GOMEMLIMIT", &limits, 0), []);
        assert_eq!(values("GOGC", "PATH", &limits, 0), []);
        assert_eq!(values("GOGC,GOMEMLIMIT", "PATH", &Limits::default(), 0), []);
        let too_large = 80 * MIB;
        assert_eq!(values("GOGC,GOMEMLIMIT", "PATH", &limits, too_large), []);
    }

    #[test]
    fn init_and_ephemeral_containers_are_meant_only_by_name() {
        let all = Request::parse("true", None).unwrap().unwrap();
        let named = Request::parse("true", Some("setup, debug")).unwrap().unwrap();
        let cases = [
            ("app", Some(Place::Containers), true, false),
            ("setup", Some(Place::InitContainers), false, true),
            ("debug", Some(Place::Ephemeral), false, true),
            ("setup", None, false, true),
            ("app", None, false, false),
        ];
        for (name, place, by_all, by_name) in cases {
            assert_eq!(all.selects(name, place), by_all, "{name} {place:?}");
            assert_eq!(named.selects(name, place), by_name, "{name} {place:?}");
        }
    }

    #[test]
    fn a_request_is_true_false_or_a_list_of_known_names() {
        let variables =
            |text| Request::parse(text, None).map(|request| request.map(|r| r.variables));
        assert_eq!(variables("false"), Ok(None));
        assert_eq!(variables(" true "), Ok(Some(Variable::DEFAULT.to_vec())));
        let list = vec![Variable::Java, Variable::Omp];
        assert_eq!(variables("JAVA_TOOL_OPTIONS, OMP_NUM_THREADS,"), Ok(Some(list)));
        let twice = variables("GOMAXPROCS,RAYON_NUM_THREADS,GOMAXPROCS");
        assert_eq!(twice, Ok(Some(vec![Variable::Gomaxprocs, Variable::Rayon])));
        assert_eq!(variables("GOMAXPROCS,PATH"), Err(UnknownVariable("PATH".into())));
        let text = variables("yes").unwrap_err().to_string();
        assert!(text.starts_with("\"yes\": expected true, false, or a list of GOMAXPROCS, "));
        assert!(variables("").is_err() && variables(",").is_err());
        for variable in Variable::ALL {
            assert_eq!(Variable::by_name(variable.name()), Some(variable));
        }
    }
}
