//! The kernel's types, for which the programs are relocated.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use aya::{Btf, BtfError, EbpfLoader};

use crate::error::StartError;

/// Fields of `struct cfs_rq` with which the trace detects throttling: since Linux 6.6, and from 5.19
/// to 6.5. The helpers it calls are older than both.
pub(crate) const THROTTLE_FIELDS: [[&str; 2]; 2] = [
    ["throttled_clock_self", "throttled_clock_self_time"],
    ["throttle_count", "throttled_clock_pelt_time"],
];

/// Number of objects that are loaded with the same types: the trace, and the counters.
const OBJECTS: usize = 2;

/// The kernel's types (BTF). They take tens of MiB: read them once for all programs, and drop them
/// when the programs are loaded.
#[derive(Debug)]
pub struct KernelTypes {
    pub(crate) btf: Btf,
    /// A new loader parses the types by itself. These have dropped theirs before `btf` was parsed, so
    /// that they are never in memory twice.
    loaders: Mutex<Vec<EbpfLoader<'static>>>,
    /// Whether the trace can detect throttling.
    pub(crate) has_throttle_fields: bool,
}

impl KernelTypes {
    /// Reads `kernel/btf/vmlinux` below the mount point of sysfs.
    ///
    /// # Errors
    /// [`StartError::NoBtf`].
    pub fn read(sys_root: &Path) -> Result<Self, StartError> {
        let path = sys_root.join("kernel/btf/vmlinux");
        let no_btf = |error| StartError::NoBtf(BtfError::FileError { path: path.clone(), error });
        let loaders = Mutex::new((0..OBJECTS).map(|_| without_types()).collect());
        let bytes = std::fs::read(&path).map_err(no_btf)?;
        let btf = Btf::parse(&bytes, aya::Endianness::default()).map_err(StartError::NoBtf)?;
        let has = |fields: &[&str]| fields.iter().all(|field| has_name(&bytes, field));
        let has_throttle_fields = THROTTLE_FIELDS.iter().any(|fields| has(fields));
        Ok(Self { btf, loaders, has_throttle_fields })
    }

    /// A loader with these types.
    pub(crate) fn loader(&self) -> EbpfLoader<'_> {
        let spare = self.loaders.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut loader: EbpfLoader<'_> = spare.unwrap_or_else(without_types);
        loader.btf(Some(&self.btf));
        loader
    }
}

fn without_types() -> EbpfLoader<'static> {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    loader
}

/// Whether the BTF's string table contains this name. Only `struct cfs_rq` has fields with the names
/// of [`THROTTLE_FIELDS`].
fn has_name(btf: &[u8], name: &str) -> bool {
    memchr::memmem::find(btf, format!("\0{name}\0").as_bytes()).is_some()
}
