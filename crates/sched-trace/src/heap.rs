//! The kernel's types take some 10 MiB while they are parsed, once; an allocator would keep them.
#![allow(unsafe_code, reason = "a call of the C library; nothing else in this module is unsafe")]

/// Gives what is free to the kernel. Nothing where the allocator is another one than glibc's.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and locks what it touches: malloc_trim(3) is thread-safe.
    let _ = unsafe { libc::malloc_trim(0) };
}
