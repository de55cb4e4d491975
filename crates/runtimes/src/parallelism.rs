//! How many threads a runtime will run at once, and where the number is from.

use analysis::{Language, Runtime};

/// What the runtime sees of its machine when it starts.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Machine {
    /// CPUs that the container may use (cpuset); `None` while unknown.
    pub(crate) cpus: Option<u32>,
    /// CPU limit, cores.
    pub(crate) limit_cores: Option<f64>,
}

/// A number and where it is from.
type Sourced = Option<(u32, String)>;

pub(crate) fn parallelism(runtime: &Runtime, godebug: &str, machine: Machine) -> Sourced {
    match runtime.language {
        Language::Go => setting(runtime, &["GOMAXPROCS"]).or_else(|| go(runtime, godebug, machine)),
        Language::Jvm => setting(runtime, &["ActiveProcessorCount"]).or_else(|| by_limit(machine, 1)),
        Language::Dotnet => setting(runtime, &["DOTNET_PROCESSOR_COUNT"]).or_else(|| by_limit(machine, 1)),
        Language::Python => setting(runtime, &["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"]),
        Language::Nodejs => Some((1, "one event loop".to_owned())),
        Language::Rust => setting(runtime, &["TOKIO_WORKER_THREADS", "RAYON_NUM_THREADS"]),
        Language::Unknown => None,
    }
}

/// A setting that is a positive number; what is not is ignored by the runtimes too.
fn setting(runtime: &Runtime, names: &[&str]) -> Sourced {
    names.iter().find_map(|name| {
        let threads = runtime.settings.get(*name)?.parse().ok().filter(|&threads| threads > 0)?;
        Some((threads, (*name).to_owned()))
    })
}

/// Go 1.25 takes the limit, rounded up and never under 2, unless GODEBUG or an older go.mod switches that off
/// (runtime/cgroup_linux.go, `adjustCgroupGOMAXPROCS`). automaxprocs rounds down, never under 1.
fn go(runtime: &Runtime, godebug: &str, machine: Machine) -> Sourced {
    if let (true, Some(limit)) = (runtime.automaxprocs, machine.limit_cores) {
        return Some(((limit.floor() as u32).max(1), "automaxprocs: the limit, rounded down".to_owned()));
    }
    let minor = runtime.version.as_deref().and_then(|version| {
        let minor = version.strip_prefix("go1.")?.split(|letter: char| !letter.is_ascii_digit()).next()?;
        minor.parse::<u32>().ok()
    });
    // The environment's GODEBUG beats the build's.
    let set = [runtime.settings.get("GODEBUG").map_or("", String::as_str), godebug];
    let switch =
        set.iter().find_map(|text| text.split(',').rev().find_map(|pair| pair.strip_prefix("containermaxprocs=")));
    if minor.is_some_and(|minor| minor >= 25) && switch != Some("0") {
        return by_limit(machine, 2);
    }
    machine.cpus.map(|cpus| (cpus, "the CPUs it may use".to_owned()))
}

/// The limit, rounded up and at least so much, or the CPUs where that is fewer.
fn by_limit(machine: Machine, at_least: u32) -> Sourced {
    let limited = machine.limit_cores.map(|limit| (limit.ceil() as u32).max(at_least));
    match (limited, machine.cpus) {
        (Some(limited), cpus) if cpus.is_none_or(|cpus| limited < cpus) => {
            Some((limited, "the limit, rounded up".to_owned()))
        }
        (_, cpus) => cpus.map(|cpus| (cpus, "the CPUs it may use".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime(language: Language, version: &str, settings: &[(&str, &str)]) -> Runtime {
        let settings = settings.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        Runtime { language, version: Some(version.to_owned()), settings, ..Runtime::default() }
    }

    fn threads(runtime: &Runtime, limit_cores: Option<f64>) -> Option<u32> {
        parallelism(runtime, "", Machine { cpus: Some(16), limit_cores }).map(|(threads, _)| threads)
    }

    #[test]
    fn go_follows_the_limit_from_1_25_on_and_never_under_two() {
        let new = runtime(Language::Go, "go1.25.1", &[]);
        let limits = [Some(0.5), Some(1.0), Some(2.5), Some(40.0), None];
        assert_eq!(limits.map(|limit| threads(&new, limit)), [2, 2, 3, 16, 16].map(Some));
        assert_eq!(threads(&runtime(Language::Go, "go1.24.9", &[]), Some(1.0)), Some(16));
    }

    #[test]
    fn what_is_set_beats_what_go_would_choose_and_switches_switch() {
        assert_eq!(threads(&runtime(Language::Go, "go1.25.1", &[("GOMAXPROCS", "8")]), Some(1.0)), Some(8));
        assert_eq!(threads(&runtime(Language::Go, "go1.25.1", &[("GOMAXPROCS", "no")]), Some(1.0)), Some(2));
        let off = runtime(Language::Go, "go1.25.1", &[("GODEBUG", "x=1,containermaxprocs=0")]);
        assert_eq!(threads(&off, Some(1.0)), Some(16));
        let (on, machine) = (
            runtime(Language::Go, "go1.25.1", &[("GODEBUG", "containermaxprocs=1")]),
            Machine { cpus: Some(16), limit_cores: Some(1.0) },
        );
        assert_eq!(parallelism(&on, "containermaxprocs=0", machine).unwrap().0, 2);
        assert_eq!(parallelism(&runtime(Language::Go, "go1.25.1", &[]), "containermaxprocs=0", machine).unwrap().0, 16);
        let automatic = Runtime { automaxprocs: true, ..runtime(Language::Go, "go1.20", &[]) };
        assert_eq!([0.5, 2.9].map(|limit| threads(&automatic, Some(limit))), [Some(1), Some(2)]);
    }

    #[test]
    fn others_have_their_own_settings_and_what_nothing_tells_is_none() {
        assert_eq!(threads(&runtime(Language::Jvm, "", &[("ActiveProcessorCount", "3")]), Some(1.0)), Some(3));
        assert_eq!(threads(&runtime(Language::Jvm, "", &[]), Some(1.5)), Some(2));
        assert_eq!(threads(&runtime(Language::Nodejs, "", &[]), Some(4.0)), Some(1));
        assert_eq!(threads(&runtime(Language::Python, "", &[("MKL_NUM_THREADS", "6")]), None), Some(6));
        assert_eq!(threads(&runtime(Language::Python, "", &[]), Some(4.0)), None);
        assert_eq!(threads(&runtime(Language::Unknown, "", &[]), Some(4.0)), None);
    }
}
