//! The initial environment, filtered by a list of names.

use std::collections::BTreeMap;

use cgroupfs::bounded;

use crate::{go, node};

/// The only variables that are read. They are not used for secrets.
pub const ALLOWED: [&str; 16] = [
    "DOTNET_GCHeapHardLimit",
    "DOTNET_PROCESSOR_COUNT",
    "GODEBUG",
    "GOGC",
    "GOMAXPROCS",
    "GOMEMLIMIT",
    "MKL_NUM_THREADS",
    "NODE_OPTIONS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "UV_THREADPOOL_SIZE",
    // Only known keys are kept from GODEBUG and NODE_OPTIONS (`keep_known`), and only the flags of
    // `jvm::flags` from these.
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
];

/// Prefix of the variable with the CPUs of a claim (`cdiEnvVarPrefix` of
/// kubernetes-sigs/dra-driver-cpu).
const CLAIM: &[u8] = b"DRA_CPUSET_";

/// Whether a `/proc/PID/environ` names CPUs of a claim.
pub(crate) fn claims_cpus(environ: &[u8]) -> bool {
    bounded::strings(environ, bounded::ENVIRON_BYTES).any(|pair| pair.starts_with(CLAIM))
}

/// The allowed variables in a `/proc/PID/environ`.
pub(crate) fn allowed(environ: &[u8]) -> BTreeMap<String, String> {
    let pairs = bounded::strings(environ, bounded::ENVIRON_BYTES).filter_map(|pair| {
        let (name, value) = std::str::from_utf8(pair).ok()?.split_once('=')?;
        ALLOWED.contains(&name).then_some((name, value))
    });
    let mut kept = BTreeMap::new();
    // Not collected at once, which would hold every repetition of a name.
    for (name, value) in pairs {
        kept.insert(name.to_owned(), value.to_owned());
    }
    kept
}

/// Removes all but the known keys of variables that have many: a container's owner may write
/// anything there.
pub(crate) fn keep_known(settings: &mut BTreeMap<String, String>) {
    type Kept = fn(&str) -> String;
    let known: [(&str, Kept); 2] =
        [("GODEBUG", go::kept_godebug), ("NODE_OPTIONS", node::kept_options)];
    for (name, kept) in known {
        if let Some(value) = settings.get_mut(name) {
            *value = kept(value);
        }
        if settings.get(name).is_some_and(String::is_empty) {
            settings.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_allowed_names_are_kept() {
        let environ =
            b"PASSWORD=hunter2\0GOGC=50\0GOGCX=1\0broken\0GOMAXPROCS=\xff\0GODEBUG=a=b,c=d\0";
        let expected = [("GODEBUG", "a=b,c=d"), ("GOGC", "50")]
            .map(|(name, value)| (name.into(), value.into()));
        assert_eq!(allowed(environ), expected.into());
        assert_eq!(allowed(b""), BTreeMap::new());
    }

    #[test]
    fn a_claim_of_cpus_is_in_the_environment() {
        assert!(claims_cpus(b"PATH=/bin\0DRA_CPUSET_0d6f6d1c_1111=0,1\0"));
        assert!(!claims_cpus(b"PATH=/bin\0MY_DRA_CPUSET_1=0\0DRA_CPU=1\0"));
        assert!(!claims_cpus(b""));
    }
}
