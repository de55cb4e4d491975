//! The initial environment, filtered by a list of names.

use std::collections::BTreeMap;

use cgroupfs::bounded;

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
    // Only the flags of `jvm::flags` are kept from these.
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
];

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
}
