//! Returns the memory in which the kernel's types were parsed once, and which the allocator would
//! otherwise keep.
#![allow(unsafe_code, reason = "a call of the C library; nothing else in this module is unsafe")]

/// Returns free memory to the kernel. Does nothing with an allocator other than glibc's.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointer and locks its own state: malloc_trim(3) is thread-safe.
    let _ = unsafe { libc::malloc_trim(0) };
}
