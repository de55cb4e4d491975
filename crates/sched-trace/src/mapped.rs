//! BPF array maps, mapped into memory: tables are read without copies and without a system call per
//! entry.
#![allow(unsafe_code, reason = "mapping memory is unsafe; nothing else in this crate is")]

use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::counters::{Group, Usage};
use crate::layout::{CgroupWaits, Control, Cpu, Pair};

/// A type that may lie in memory that the kernel writes to.
///
/// # Safety
/// The type consists only of atomic integers and is `repr(C)` without padding. Its size is a
/// multiple of eight, so that it is also the stride of the map's values.
pub(crate) unsafe trait Shared {}

// SAFETY: all are `repr(C)` structs of `AtomicU64` and pairs of `AtomicU32`;
// `sizes_are_strides` checks the sizes.
unsafe impl Shared for Control {}
// SAFETY: as above.
unsafe impl Shared for Cpu {}
// SAFETY: as above.
unsafe impl Shared for CgroupWaits {}
// SAFETY: as above.
unsafe impl Shared for Pair {}
// SAFETY: as above.
unsafe impl Shared for Group {}
// SAFETY: as above.
unsafe impl Shared for Usage {}

/// The values of an array map with `BPF_F_MMAPABLE`, as a slice.
pub(crate) struct Mapped<T> {
    base: NonNull<T>,
    len: usize,
}

impl<T> fmt::Debug for Mapped<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mapped").field("len", &self.len).finish_non_exhaustive()
    }
}

// SAFETY: the memory belongs to no thread, and all access to it is atomic.
unsafe impl<T: Shared> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// Maps the values of the map `fd`, which has at least `len` values of the size of `T`.
    pub(crate) fn new(fd: BorrowedFd<'_>, len: usize) -> Result<Self, Errno> {
        let bytes = len * size_of::<T>();
        // SAFETY: a new mapping at an address chosen by the kernel touches no existing memory.
        let base = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )?
        };
        Ok(Self { base: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, len })
    }
}

impl<T> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the mapping is page-aligned, `len` values long and lives as long as `self`. `new`
        // exists only for `Shared` types, for which all bit patterns are valid and concurrent
        // writes are allowed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: `new` mapped exactly this range, and no reference into it outlives `self`. munmap
        // cannot fail for a mapped range.
        let _ = unsafe { munmap(self.base.as_ptr().cast::<c_void>(), self.len * size_of::<T>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_strides() {
        assert_eq!(size_of::<Control>(), 16);
        assert_eq!(size_of::<Cpu>(), 32 * 8 + 1024 * 32 + 64 * 24);
        assert_eq!(size_of::<CgroupWaits>(), 192);
        assert_eq!(size_of::<Pair>(), 40);
        assert_eq!(size_of::<Group>(), 96);
        assert_eq!(size_of::<Usage>(), 16);
    }
}
