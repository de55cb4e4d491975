//! Figures and runtimes in words.

use std::collections::BTreeMap;

use crate::runtime::{Language, Runtime};

/// The figures behind a finding in words, such as `limit 0.2 cores`, `throttled 32 % of the periods`.
#[must_use]
pub fn figures_in_words(evidence: &BTreeMap<String, f64>) -> Vec<String> {
    let kernel = evidence.get("kernelMajor").zip(evidence.get("kernelMinor"));
    let linux = kernel.map(|(major, minor)| format!("Linux {major}.{minor}"));
    let is_other = |name: &&String| !["kernelMajor", "kernelMinor"].contains(&name.as_str());
    let others = evidence.keys().filter(is_other).map(|name| figure(name, evidence[name]));
    linux.into_iter().chain(others).collect()
}

fn figure(name: &str, value: f64) -> String {
    match name {
        "limitCores" => format!("limit {}", cores(value)),
        "specLimitCores" => format!("limit of the spec {}", cores(value)),
        "podLimitCores" => format!("limit of the pod {}", cores(value)),
        "recommendedLimitCores" => format!("recommended limit {}", cores(value)),
        "limitCoresWithTodaysHeap" => format!("limit with today's heap {}", cores(value)),
        "limitCoresWithLargerHeap" => format!("limit with the larger heap {}", cores(value)),
        "recommendedPodLimitCores" => format!("recommended limit of the pod {}", cores(value)),
        "recommendedBurstSeconds" => format!("recommended burst {} ms", rounded(value * 1e3)),
        "requestCores" => format!("request {}", cores(value)),
        "useP95Cores" => format!("uses {} (p95)", cores(value)),
        "lostCores" => format!("loses {} to others", cores(value)),
        "podUsedCores" => format!("pod uses {}", cores(value)),
        "podRequestCores" => format!("pod requests {}", cores(value)),
        "culpritUsedCores" => format!("culprit uses {}", cores(value)),
        "culpritRequestCores" => format!("culprit requests {}", cores(value)),
        "throttledShare" => format!("throttled {} of the periods", percent(value)),
        "throttledSecondsPerSecond" => format!("throttled {} s per second", rounded(value)),
        "slowedFactor" => format!("slowed ×{value:.1}"),
        "slowedSecondsOfLastMinute" => format!("slowed {value:.0} s of the last minute"),
        "lostShare" => format!("lost {} of the time", percent(value)),
        "memoryLimitBytes" => format!("memory limit {}", bytes(value)),
        "memoryRequestBytes" => format!("memory request {}", bytes(value)),
        "recommendedSoftLimitBytes" => format!("recommended heap limit {}", bytes(value)),
        "heapLiveBytes" => format!("live heap {}", bytes(value)),
        "heapGoalBytes" => format!("heap goal {}", bytes(value)),
        "heapLimitBytes" => format!("heap limit {}", bytes(value)),
        "gcShare" => format!("garbage collection takes {} of the CPU time", percent(value)),
        "gcShareThrottled" => format!("{} of it while throttled", percent(value)),
        "gcShareUnthrottled" => format!("{} of it while not throttled", percent(value)),
        "gcCores" => format!("garbage collection uses {}", cores(value)),
        "gcCyclesPerSecond" => format!("{} cycles per second", rounded(value)),
        "gogc" if value < 0.0 => "GOGC off".to_owned(),
        "gogc" => format!("GOGC {value}"),
        "recommendedGogc" => format!("recommended GOGC {value}"),
        "expectedCyclesFactor" => format!("expected cycles ×{value:.2}"),
        "expectedGcShare" => format!("expected share of garbage collection {}", percent(value)),
        "expectedCoresSaved" => format!("expected to save {}", cores(value)),
        "goMinorVersion" => format!("Go 1.{value}"),
        "parallelism" => counted(value, "thread"),
        "cpus" => counted(value, "CPU"),
        "staleVariables" => counted(value, "outdated variable"),
        _ => format!("{} {}", split(name), rounded(value)),
    }
}

/// Rounds to three decimals.
fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn cores(value: f64) -> String {
    counted(rounded(value), "core")
}

fn counted(value: f64, noun: &str) -> String {
    let plural = if value == 1.0 { "" } else { "s" };
    format!("{value} {noun}{plural}")
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent < 1.0 => format!("{percent:.2} %"),
        percent => format!("{percent:.0} %"),
    }
}

fn bytes(value: f64) -> String {
    let units = [("GiB", 1024.0 * 1024.0 * 1024.0), ("MiB", 1024.0 * 1024.0), ("KiB", 1024.0)];
    match units.into_iter().find(|(_, size)| value >= *size) {
        Some((unit, size)) => format!("{} {unit}", (value / size * 10.0).round() / 10.0),
        None => format!("{value} B"),
    }
}

/// `someFigure` as `some figure`.
fn split(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            words.push(' ');
        }
        words.push(letter.to_ascii_lowercase());
    }
    words
}

impl Language {
    /// The name of the language as its users write it; `None` if it is unknown.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Go => Some("Go"),
            Self::Jvm => Some("Java"),
            Self::Nodejs => Some("Node.js"),
            Self::Python => Some("Python"),
            Self::Dotnet => Some(".NET"),
            Self::Rust => Some("Rust"),
            Self::Unknown => None,
        }
    }
}

impl Runtime {
    /// The language with the version, and the number of threads: `Go 1.24.4, 8 threads`; `None` if
    /// nothing is known.
    #[must_use]
    pub fn in_words(&self) -> Option<String> {
        let version = self.version.as_deref().map(|version| {
            version.strip_prefix("go").or_else(|| version.strip_prefix('v')).unwrap_or(version)
        });
        let language = [self.language.name(), version].into_iter().flatten();
        let language = language.collect::<Vec<_>>().join(" ");
        let threads = self.parallelism.map(|threads| counted(f64::from(threads), "thread"));
        let parts = Some(language).filter(|text| !text.is_empty()).into_iter().chain(threads);
        let text = parts.collect::<Vec<_>>().join(", ");
        (!text.is_empty()).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_words_with_units() {
        let words = |name: &str, value: f64| {
            figures_in_words(&[(name.to_owned(), value)].into()).join(", ")
        };
        for (name, value, expected) in [
            ("limitCores", 0.2, "limit 0.2 cores"),
            ("requestCores", 1.0, "request 1 core"),
            ("throttledShare", 0.318_176, "throttled 32 % of the periods"),
            ("throttledShare", 0.001, "throttled 0.10 % of the periods"),
            ("recommendedBurstSeconds", 0.05, "recommended burst 50 ms"),
            ("memoryLimitBytes", 268_435_456.0, "memory limit 256 MiB"),
            ("recommendedSoftLimitBytes", 1_610_612_736.0, "recommended heap limit 1.5 GiB"),
            ("memoryRequestBytes", 12.0, "memory request 12 B"),
            ("parallelism", 8.0, "8 threads"),
            ("staleVariables", 1.0, "1 outdated variable"),
            ("slowedFactor", 2.402_9, "slowed ×2.4"),
            ("goMinorVersion", 22.0, "Go 1.22"),
            ("gcShare", 0.25, "garbage collection takes 25 % of the CPU time"),
            ("gogc", -1.0, "GOGC off"),
            ("heapLiveBytes", 67_108_864.0, "live heap 64 MiB"),
            ("ofALaterAgent", 0.123_456, "of a later agent 0.123"),
        ] {
            assert_eq!(words(name, value), expected);
        }
        let kernel = [("kernelMajor".to_owned(), 5.0), ("kernelMinor".to_owned(), 3.0)].into();
        assert_eq!(figures_in_words(&kernel), ["Linux 5.3"]);
    }

    #[test]
    fn a_runtime_is_named_by_its_language() {
        let words = |language, version: Option<&str>, parallelism| {
            let version = version.map(str::to_owned);
            Runtime { language, version, parallelism, ..Runtime::default() }.in_words()
        };
        let text = words(Language::Go, Some("go1.24.4"), Some(8));
        assert_eq!(text.as_deref(), Some("Go 1.24.4, 8 threads"));
        assert_eq!(words(Language::Jvm, Some("17.0.2"), None).as_deref(), Some("Java 17.0.2"));
        assert_eq!(
            words(Language::Nodejs, Some("v20.1.0"), None).as_deref(),
            Some("Node.js 20.1.0")
        );
        assert_eq!(words(Language::Dotnet, None, Some(1)).as_deref(), Some(".NET, 1 thread"));
        assert_eq!(words(Language::Unknown, None, None), None);
    }
}
