//! Language runtime of a container's first process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A language runtime, classified by its way of choosing the parallelism.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Go.
    Go,
    /// A Java virtual machine.
    Jvm,
    /// Node.js.
    Nodejs,
    /// Python.
    Python,
    /// .NET.
    Dotnet,
    /// Rust, Tokio included.
    Rust,
    /// Anything else.
    #[default]
    Unknown,
}

impl Language {
    /// Value of the label `runtime`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Jvm => "jvm",
            Self::Nodejs => "nodejs",
            Self::Python => "python",
            Self::Dotnet => "dotnet",
            Self::Rust => "rust",
            Self::Unknown => "unknown",
        }
    }
}

/// The runtime of a container's first process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    /// Language of the runtime.
    pub language: Language,
    /// Version as the runtime writes it (`go1.24.4`); `None` if unknown.
    pub version: Option<String>,
    /// The program's module path (Go).
    pub module: Option<String>,
    /// Whether the binary contains go.uber.org/automaxprocs.
    pub automaxprocs: bool,
    /// Whether the binary contains github.com/KimMachineGun/automemlimit.
    #[serde(default)]
    pub automemlimit: bool,
    /// Whether the DRA CPU driver gave the container exclusive CPUs of a claim.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub claims_cpus: bool,
    /// Whether it is a Go program that would follow its CPU limit without GOMAXPROCS in its
    /// environment. Not part of the JSON API.
    #[serde(skip)]
    pub go_follows_limit: bool,
    /// Number of threads the runtime runs in parallel; `None` if unknown.
    pub parallelism: Option<u32>,
    /// Source of `parallelism`.
    pub parallelism_source: Option<String>,
    /// Only those settings of the initial environment and command line that affect CPU and memory.
    pub settings: BTreeMap<String, String>,
}

impl Runtime {
    /// Whether it is a JVM that sizes its threads and heap by the node instead of the container's
    /// limits: by `-XX:-UseContainerSupport`, or because it is older than 8u191 or 10 (JDK-8146115).
    #[must_use]
    pub fn jvm_ignores_limits(&self) -> bool {
        let is_off = self.settings.get("UseContainerSupport").is_some_and(|value| value == "false");
        self.language == Language::Jvm
            && (is_off || self.version.as_deref().is_some_and(is_jvm_without_containers))
    }
}

/// Versions are `1.8.0_181` up to 8, and `9.0.4`, `17.0.15` from 9 on.
fn is_jvm_without_containers(version: &str) -> bool {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(1)), Some(Ok(8)), _, update) => update.is_some_and(|n| n.is_ok_and(|n| n < 191)),
        (Some(Ok(1)), Some(Ok(minor)), ..) => minor < 8,
        (Some(Ok(9)), ..) => true,
        _ => false,
    }
}
