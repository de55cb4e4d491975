//! Parallelism of a runtime, and the source of the number.

use api::{Language, Runtime};

/// The machine as the runtime sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Machine {
    /// Number of CPUs that the container may use (cpuset); `None` if unknown.
    pub cpus: Option<u32>,
    /// CPU limit of the container's own cgroup, cores; no other is visible in its cgroup namespace.
    pub limit_cores: Option<f64>,
    /// CPU limit when the process was first seen, cores: some runtimes choose only once, at the
    /// start.
    pub first_limit_cores: Option<f64>,
}

impl Machine {
    fn at_start(self) -> Self {
        Self { limit_cores: self.first_limit_cores, ..self }
    }
}

/// Further properties that affect the parallelism.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Traits<'a> {
    /// GODEBUG of the build.
    pub(crate) godebug: &'a str,
    /// Whether threads of Tokio's runtime were found.
    pub(crate) has_tokio: bool,
}

/// A number of threads and its source.
type Sourced = Option<(u32, String)>;

pub(crate) fn parallelism(runtime: &Runtime, traits: Traits<'_>, machine: Machine) -> Sourced {
    match runtime.language {
        Language::Go => {
            setting(runtime, &["GOMAXPROCS"]).or_else(|| go(runtime, traits.godebug, machine))
        }
        Language::Jvm => setting(runtime, &["ActiveProcessorCount"]).or_else(|| {
            match runtime.jvm_ignores_limits() {
                true => machine.cpus.map(|cpus| (cpus, CPUS.to_owned())),
                false => by_limit(machine, 1),
            }
        }),
        Language::Dotnet => setting(runtime, &["DOTNET_PROCESSOR_COUNT"])
            .or_else(|| by_limit(machine.at_start(), 1)),
        Language::Python => {
            setting(runtime, &["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"])
        }
        Language::Nodejs => Some((1, "one event loop".to_owned())),
        Language::Rust => setting(runtime, &["TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS"])
            .or_else(|| by_whole_limit(machine.at_start()).filter(|_| traits.has_tokio)),
        Language::Unknown => None,
    }
}

/// A setting with a positive number; runtimes ignore other values, too.
fn setting(runtime: &Runtime, names: &[&str]) -> Sourced {
    names.iter().find_map(|name| {
        let threads = runtime.settings.get(*name)?.parse().ok().filter(|&threads| threads > 0)?;
        Some((threads, (*name).to_owned()))
    })
}

/// Go 1.25 uses the limit, rounded up, at least 2, and follows its changes, unless GODEBUG or an
/// older go.mod disables that (runtime/cgroup_linux.go, `adjustCgroupGOMAXPROCS`; runtime/proc.go,
/// `sysmonUpdateGOMAXPROCS`).
fn go(runtime: &Runtime, godebug: &str, machine: Machine) -> Sourced {
    if runtime.automaxprocs && machine.first_limit_cores.is_some() {
        return by_whole_limit(machine.at_start());
    }
    match go_choice(runtime, godebug) {
        GoChoice::Cpus => machine.cpus.map(|cpus| (cpus, CPUS.to_owned())),
        GoChoice::FirstLimit => by_limit(machine.at_start(), 2),
        GoChoice::Limit => by_limit(machine, 2),
    }
}

/// The sources from which Go itself derives GOMAXPROCS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GoChoice {
    Cpus,
    /// The limit at the start.
    FirstLimit,
    /// The limit, followed when it changes.
    Limit,
}

/// Whether a Go program without GOMAXPROCS in its environment follows its limit. automaxprocs sets
/// the number once.
pub(crate) fn go_follows_limit(runtime: &Runtime, godebug: &str) -> bool {
    runtime.language == Language::Go
        && !runtime.automaxprocs
        && go_choice(runtime, godebug) == GoChoice::Limit
}

fn go_choice(runtime: &Runtime, godebug: &str) -> GoChoice {
    let minor = runtime.version.as_deref().and_then(|version| {
        let minor =
            version.strip_prefix("go1.")?.split(|letter: char| !letter.is_ascii_digit()).next()?;
        minor.parse::<u32>().ok()
    });
    // The environment's GODEBUG overrides the build's.
    let set = [runtime.settings.get("GODEBUG").map_or("", String::as_str), godebug];
    let is_off = |name: &str| {
        let value =
            |pair: &'_ str| pair.strip_prefix(name)?.strip_prefix('=').map(|value| value == "0");
        set.iter().find_map(|text| text.split(',').rev().find_map(value)).unwrap_or(false)
    };
    if minor.is_none_or(|minor| minor < 25) || is_off("containermaxprocs") {
        return GoChoice::Cpus;
    }
    if is_off("updatemaxprocs") { GoChoice::FirstLimit } else { GoChoice::Limit }
}

const CPUS: &str = "the CPUs it may use";

/// The limit, rounded down, at least 1: for automaxprocs and Rust's `available_parallelism`, which
/// Tokio uses.
fn by_whole_limit(machine: Machine) -> Sourced {
    let limited = machine.limit_cores.map(|limit| (limit.floor() as u32).max(1));
    lower(limited, machine.cpus, "the limit, rounded down")
}

/// The limit, rounded up, at least `at_least`.
fn by_limit(machine: Machine, at_least: u32) -> Sourced {
    let limited = machine.limit_cores.map(|limit| (limit.ceil() as u32).max(at_least));
    lower(limited, machine.cpus, "the limit, rounded up")
}

/// The limit if it is below the number of CPUs, otherwise that number.
fn lower(limited: Option<u32>, cpus: Option<u32>, source: &str) -> Sourced {
    match limited {
        Some(limited) if cpus.is_none_or(|cpus| limited < cpus) => {
            Some((limited, source.to_owned()))
        }
        _ => cpus.map(|cpus| (cpus, CPUS.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(language: Language, version: &str, settings: &[(&str, &str)]) -> Runtime {
        let settings =
            settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Runtime { language, version: Some(version.to_owned()), settings, ..Runtime::default() }
    }

    fn threads(runtime: &Runtime, limit_cores: Option<f64>) -> Option<u32> {
        resized(runtime, "", limit_cores, limit_cores)
    }

    fn resized(
        runtime: &Runtime,
        godebug: &str,
        first: Option<f64>,
        now: Option<f64>,
    ) -> Option<u32> {
        let machine = Machine { cpus: Some(16), limit_cores: now, first_limit_cores: first };
        parallelism(runtime, Traits { godebug, has_tokio: true }, machine)
            .map(|(threads, _)| threads)
    }

    #[test]
    fn go_follows_the_limit_from_1_25_on_and_never_under_two() {
        let new = runtime(Language::Go, "go1.25.1", &[]);
        let limits = [Some(0.5), Some(1.0), Some(2.5), Some(40.0), None];
        assert_eq!(limits.map(|limit| threads(&new, limit)), [2, 2, 3, 16, 16].map(Some));
        assert_eq!(threads(&runtime(Language::Go, "go1.24.9", &[]), Some(1.0)), Some(16));
    }

    #[test]
    fn gomaxprocs_does_not_change_whether_go_follows_its_limit() {
        let go = |version: &str, settings: &[(&str, &str)]| {
            go_follows_limit(&runtime(Language::Go, version, settings), "")
        };
        assert!(go("go1.25.1", &[]) && go("go1.26", &[("GOMAXPROCS", "1")]));
        assert!(!go("go1.24.9", &[]) && !go("devel", &[]));
        assert!(!go("go1.25.1", &[("GODEBUG", "containermaxprocs=0")]));
        assert!(!go("go1.25.1", &[("GODEBUG", "updatemaxprocs=0")]));
        let new = runtime(Language::Go, "go1.25.1", &[]);
        assert!(!go_follows_limit(&new, "containermaxprocs=0"), "as an older go.mod builds it");
        let automatic = Runtime { automaxprocs: true, ..new.clone() };
        assert!(!go_follows_limit(&automatic, ""));
        assert!(!go_follows_limit(&Runtime { language: Language::Rust, ..new }, ""));
    }

    #[test]
    fn settings_override_the_default_parallelism_of_go() {
        assert_eq!(
            threads(&runtime(Language::Go, "go1.25.1", &[("GOMAXPROCS", "8")]), Some(1.0)),
            Some(8)
        );
        assert_eq!(
            threads(&runtime(Language::Go, "go1.25.1", &[("GOMAXPROCS", "no")]), Some(1.0)),
            Some(2)
        );
        let off = runtime(Language::Go, "go1.25.1", &[("GODEBUG", "x=1,containermaxprocs=0")]);
        assert_eq!(threads(&off, Some(1.0)), Some(16));
        let on = runtime(Language::Go, "go1.25.1", &[("GODEBUG", "containermaxprocs=1")]);
        let build_off = |runtime| resized(runtime, "containermaxprocs=0", Some(1.0), Some(1.0));
        assert_eq!(build_off(&on), Some(2));
        assert_eq!(build_off(&runtime(Language::Go, "go1.25.1", &[])), Some(16));
        let automatic = Runtime { automaxprocs: true, ..runtime(Language::Go, "go1.20", &[]) };
        assert_eq!([0.5, 2.9].map(|limit| threads(&automatic, Some(limit))), [Some(1), Some(2)]);
    }

    #[test]
    fn other_runtimes_use_their_own_settings_or_none() {
        assert_eq!(
            threads(&runtime(Language::Jvm, "", &[("ActiveProcessorCount", "3")]), Some(1.0)),
            Some(3)
        );
        assert_eq!(threads(&runtime(Language::Jvm, "", &[]), Some(1.5)), Some(2));
        let off = runtime(Language::Jvm, "17.0.15", &[("UseContainerSupport", "false")]);
        assert_eq!(threads(&off, Some(1.5)), Some(16), "the CPUs instead of the limit");
        assert_eq!(threads(&runtime(Language::Jvm, "1.8.0_181", &[]), Some(1.5)), Some(16));
        assert_eq!(threads(&runtime(Language::Nodejs, "", &[]), Some(4.0)), Some(1));
        assert_eq!(
            threads(&runtime(Language::Python, "", &[("MKL_NUM_THREADS", "6")]), None),
            Some(6)
        );
        assert_eq!(threads(&runtime(Language::Python, "", &[]), Some(4.0)), None);
        assert_eq!(threads(&runtime(Language::Unknown, "", &[]), Some(4.0)), None);
    }

    #[test]
    fn a_changed_limit_moves_only_what_follows_it() {
        let grown = |runtime: &Runtime| resized(runtime, "", Some(2.0), Some(4.0));
        for (language, version, threads) in [
            (Language::Go, "go1.25.1", 4),
            (Language::Go, "go1.24.1", 16),
            (Language::Jvm, "17.0.15", 4),
            (Language::Dotnet, "8.0.11", 2),
            (Language::Rust, "1.95.0", 2),
        ] {
            assert_eq!(
                grown(&runtime(language, version, &[])),
                Some(threads),
                "{language:?} {version}"
            );
        }
        let fixed = [
            Runtime { automaxprocs: true, ..runtime(Language::Go, "go1.25.1", &[]) },
            runtime(Language::Go, "go1.25.1", &[("GODEBUG", "updatemaxprocs=0")]),
        ];
        assert_eq!(fixed.each_ref().map(grown), [Some(2); 2]);
    }

    #[test]
    fn no_more_threads_run_than_there_are_cpus() {
        assert_eq!(threads(&runtime(Language::Rust, "", &[]), Some(99.0)), Some(16));
        let automatic = Runtime { automaxprocs: true, ..runtime(Language::Go, "go1.20", &[]) };
        assert_eq!(threads(&automatic, Some(99.0)), Some(16));
    }
}
