//! Bounds on everything that is read from a container, because its owner decides the length of its
//! files.
//!
//! A process can move the ends of its own `environ` and `cmdline` (`PR_SET_MM_MAP`) and make them
//! gigabytes long. It can have as many threads and children as its pod may, and put pipes and
//! devices where files are expected. Reads stop at a bound, opens never block, and only regular
//! files are opened.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Maximum bytes of `/proc/PID/environ`; the kernel's default limit for a program start is 128 KiB
/// per string.
pub const ENVIRON_BYTES: usize = 128 << 10;
/// Maximum bytes of `/proc/PID/cmdline`.
pub const CMDLINE_BYTES: usize = 64 << 10;
/// Maximum bytes of `/proc/PID/maps`, about 600 mappings.
pub const MAPS_BYTES: usize = 64 << 10;
/// Bytes of `/proc/PID/cgroup`: a line for each v1 hierarchy, and paths are as long as a container
/// makes them.
pub const CGROUP_BYTES: usize = 64 << 10;
/// Bytes of `/proc/PID/mountinfo`, some 2,000 mounts.
pub const MOUNTS_BYTES: usize = 256 << 10;
/// Bytes of `/proc/PID/net/unix`, some 12,000 sockets.
pub const UNIX_SOCKETS_BYTES: usize = 1 << 20;
/// Bytes of every other file of a process, and of files beside its program: `release` of a JDK has
/// 2 KiB.
pub const FILE_BYTES: usize = 16 << 10;
/// Maximum bytes of `cgroup.procs`: at least 30,000 processes.
pub const PROCS_BYTES: usize = 256 << 10;
/// Maximum number of listed threads of a container or children of a process: 1,024, and one more to
/// detect truncation.
pub const ENTRIES: usize = 1025;
/// Maximum bytes of a setting that are kept.
pub const VALUE_BYTES: usize = 256;
/// Maximum bytes of a Go module path that are kept.
pub const MODULE_BYTES: usize = 512;

/// Opens a regular file for reading, without blocking on a pipe that has no writer.
///
/// # Errors
/// The operating system's, or [`io::ErrorKind::InvalidInput`] for anything but a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// Reads at most the first `most` bytes of a regular file.
///
/// # Errors
/// Those of [`open`], and of reading it.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names in a directory, at most [`ENTRIES`]; empty if it cannot be listed.
pub fn names(directory: &Path) -> impl Iterator<Item = OsString> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .take(ENTRIES)
        .map(|entry| entry.file_name())
}

/// The NUL-terminated strings of a file; a string that the bound `most` has truncated is dropped.
pub fn strings(bytes: &[u8], most: usize) -> impl Iterator<Item = &[u8]> {
    let whole = if bytes.len() < most {
        bytes
    } else {
        &bytes[..bytes.iter().rposition(|&byte| byte == 0).map_or(0, |last| last + 1)]
    };
    whole.split(|&byte| byte == 0)
}

/// Truncates a string to at most `most` bytes.
pub fn truncate(text: &mut String, most: usize) {
    text.truncate(text.floor_char_boundary(most));
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_read_up_to_the_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("environ");
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&path, ENVIRON_BYTES).unwrap().len(), ENVIRON_BYTES);
    }

    #[test]
    fn a_special_file_is_an_error_without_blocking() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), directory.path()] {
            assert_eq!(
                read(path, 1).unwrap_err().kind(),
                io::ErrorKind::InvalidInput,
                "{}",
                path.display()
            );
        }
        assert_eq!(
            read(&directory.path().join("gone"), 1).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn a_string_that_the_bound_has_cut_is_left_out() {
        let of = |bytes: &'static [u8], most| {
            strings(bytes, most).filter(|s| !s.is_empty()).collect::<Vec<_>>()
        };
        assert_eq!(of(b"A=1\0B=2\0C=16", 12), [b"A=1", b"B=2"]);
        assert_eq!(of(b"A=1\0B=2\0C=16", 13), [&b"A=1"[..], b"B=2", b"C=16"]);
        assert_eq!(of(b"A=16", 4), [b""; 0]);
    }

    #[test]
    fn a_string_is_cut_between_characters() {
        let mut text = "a\u{e9}b".to_owned();
        truncate(&mut text, 2);
        assert_eq!(text, "a");
    }
}
