//! Keeps the allocator from holding the memory in which the kernel's types were parsed once.
#![allow(unsafe_code, reason = "calls of the C library; nothing else in this module is unsafe")]

/// Free memory at the end of a heap that the allocator may keep, and size from which on an allocation
/// is a mapping of its own, which goes back to the kernel when it is freed: 1 MiB.
#[cfg(target_env = "gnu")]
const KEPT: libc::c_int = 1 << 20;

/// Fixes the limits of what the allocator keeps. By itself, glibc raises both with the largest
/// mapping that was ever freed: the kernel's types are ten MiB, and each heap would then keep twice
/// that. Does nothing with another allocator.
pub(crate) fn keep_little() {
    #[cfg(target_env = "gnu")]
    for parameter in [libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD] {
        // SAFETY: takes no pointer and locks its own state: mallopt(3) is thread-safe.
        let _ = unsafe { libc::mallopt(parameter, KEPT) };
    }
}

/// Returns free memory to the kernel. Does nothing with an allocator other than glibc's.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer and locks its own state: malloc_trim(3) is thread-safe.
    let _ = unsafe { libc::malloc_trim(0) };
}
