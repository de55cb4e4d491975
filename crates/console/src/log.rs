//! Logging: lines to standard error, filtered and formatted as configured.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::flood::{JsonLines, RateLimit};
use crate::stderr::Stderr;

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text per event
    Text,
    /// One JSON object per event
    Json,
}

/// Log levels, from none to all.
const LEVELS: &[(&str, LevelFilter)] = &[
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];

/// Crates that log.
const MODULES: &[&str] = &[
    "advisor",
    "analysis",
    "aya",
    "cgroup_tree",
    "cgroupfs",
    "console",
    "cpuwarden",
    "creation",
    "demo",
    "endpoint",
    "h2",
    "hyper",
    "hyper_util",
    "kube",
    "kube_client",
    "kube_runtime",
    "kubelet_stub",
    "kubepods",
    "metrics",
    "pinning",
    "placement",
    "pod_sources",
    "reporting",
    "runtimes",
    "rustls",
    "sampler",
    "sched_trace",
    "tonic",
    "tower",
    "yielding",
];

/// Value of `--log`: a default level, and levels of modules.
#[derive(Debug, Clone)]
pub struct LogFilter {
    text: String,
    targets: Targets,
}

impl LogFilter {
    /// Parses a filter such as `info` or `sampler=debug,warn`. The default level is info.
    ///
    /// # Errors
    /// The part that is neither a level nor a module with a level.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut targets = Targets::new().with_default(LevelFilter::INFO);
        for part in text.split(',').map(str::trim) {
            targets = match part.split_once('=') {
                None => targets.with_default(level(part)?),
                Some((module, name)) => targets.with_target(module_of(module)?, level(name)?),
            };
        }
        Ok(Self { text: text.to_owned(), targets })
    }
}

impl LogFilter {
    /// A filter that logs errors only.
    #[must_use]
    pub fn errors() -> Self {
        Self { text: "error".to_owned(), targets: Targets::new().with_default(LevelFilter::ERROR) }
    }
}

impl fmt::Display for LogFilter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

fn level(name: &str) -> Result<LevelFilter, String> {
    let found = LEVELS.iter().find(|(level, _)| level.eq_ignore_ascii_case(name.trim()));
    found.map(|(_, level)| *level).ok_or_else(|| {
        let names: Vec<_> = LEVELS.iter().map(|(name, _)| *name).collect();
        format!(
            "{name:?} is not a level; use one of {}, or a level per module, e.g. sampler=debug",
            names.join(", ")
        )
    })
}

fn module_of(path: &str) -> Result<String, String> {
    let name = path.trim().split("::").next().unwrap_or_default();
    if MODULES.contains(&name) {
        return Ok(path.trim().to_owned());
    }
    Err(format!("unknown module {name:?}; use one of {}", MODULES.join(", ")))
}

/// Installs the process-wide subscriber.
pub fn install(filter: &LogFilter, format: LogFormat) {
    let lines = tracing_subscriber::fmt::layer().with_ansi(false);
    let registry =
        tracing_subscriber::registry().with(filter.targets.clone()).with(RateLimit::default());
    // A second installation, as in tests that share a process, keeps the first subscriber.
    let _ = match format {
        LogFormat::Text => registry.with(lines.with_writer(|| Stderr)).try_init(),
        LogFormat::Json => registry.with(lines.with_writer(|| JsonLines).json()).try_init(),
    };
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_and_modules_are_distinguished() {
        let enabled = |filter: &str, target: &str, level| {
            LogFilter::parse(filter).unwrap().targets.would_enable(target, &level)
        };
        assert!(enabled("info", "pods", Level::INFO) && !enabled("info", "pods", Level::DEBUG));
        assert!(enabled("WARN", "pods", Level::WARN) && !enabled("warn", "pods", Level::INFO));
        assert!(enabled("sampler=debug", "sampler::tree", Level::DEBUG));
        assert!(enabled("sampler=debug", "pods", Level::INFO), "what is not named stays at info");
        assert!(!enabled("sampler=debug, error", "pods", Level::WARN));
        assert!(!enabled("off", "pods", Level::ERROR));
    }

    #[test]
    fn filters_that_silence_everything_by_mistake_are_rejected() {
        for filter in [
            "warning",
            "loud",
            "",
            "info,",
            "smpler=debug",
            "sampler=loud",
            "=info",
            "info=debug",
            "3",
            "[x]=info",
        ] {
            let error = LogFilter::parse(filter).unwrap_err();
            assert!(error.contains("use one of"), "{filter}: {error}");
        }
    }
}
