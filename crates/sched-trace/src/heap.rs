//! Keeps the allocator from holding memory that was needed once: the start's, and the kernel's types.
#![allow(unsafe_code, reason = "calls of the C library; nothing else in this module is unsafe")]

/// Limits of glibc's allocator, for the whole process; call it before the first thread starts. Does
/// nothing with another allocator.
///
/// - One heap for all threads: glibc gives each thread one of its own, and what a thread has freed
///   there no other can use. Threads of the agent rarely allocate at the same time.
/// - At most 1 MiB of free memory at the end of the heap, and larger allocations are mappings of their
///   own, which go back to the kernel when they are freed. By itself, glibc raises both limits with
///   the largest mapping that was ever freed: the kernel's types are ten MiB, and the heap would then
///   keep twice that.
pub fn limit() {
    #[cfg(target_env = "gnu")]
    for (parameter, value) in [
        (libc::M_ARENA_MAX, 1),
        (libc::M_MMAP_THRESHOLD, 1 << 20),
        (libc::M_TRIM_THRESHOLD, 1 << 20),
    ] {
        // SAFETY: takes no pointer and locks its own state: mallopt(3) is thread-safe.
        let _ = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Returns free memory to the kernel. Does nothing with an allocator other than glibc's.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer and locks its own state: malloc_trim(3) is thread-safe.
    let _ = unsafe { libc::malloc_trim(0) };
}
