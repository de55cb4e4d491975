//! Bounds on what is read from a container, all of them: a container's owner decides how long its files are.
//!
//! A process moves the ends of its own `environ` and `cmdline` (`PR_SET_MM_MAP`) and makes them gigabytes, has as many
//! threads and children as its pod may, and puts pipes and devices where files are expected. Reads stop at a bound, opens
//! never wait, and only regular files are opened.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Bytes of `/proc/PID/environ`: what the kernel lets a program start with by default is 128 KiB a string.
pub const ENVIRON_BYTES: usize = 128 << 10;
/// Bytes of `/proc/PID/cmdline`.
pub const CMDLINE_BYTES: usize = 64 << 10;
/// Bytes of `/proc/PID/maps`, some 600 mappings.
pub const MAPS_BYTES: usize = 64 << 10;
/// Bytes of `/proc/PID/cgroup`: a line for each v1 hierarchy, and paths are as long as a container makes them.
pub const CGROUP_BYTES: usize = 64 << 10;
/// Bytes of `/proc/PID/mountinfo`, some 2,000 mounts.
pub const MOUNTS_BYTES: usize = 256 << 10;
/// Bytes of `/proc/PID/net/unix`, some 12,000 sockets.
pub const UNIX_SOCKETS_BYTES: usize = 1 << 20;
/// Bytes of every other file of a process, and of files beside its program: `release` of a JDK has 2 KiB.
pub const FILE_BYTES: usize = 16 << 10;
/// Bytes of `cgroup.procs`: 30,000 processes or more.
pub const PROCS_BYTES: usize = 256 << 10;
/// Threads of a container, and children of a process, that are listed: 1,024, and one to tell that there are more.
pub const ENTRIES: usize = 1025;
/// Bytes of a setting that are kept.
pub const VALUE_BYTES: usize = 256;
/// Bytes of the path of a Go module that are kept.
pub const MODULE_BYTES: usize = 512;

/// Opens a regular file to read it. Anything else is an error, and a pipe without a writer is not waited for.
///
/// # Errors
/// The operating system's, or [`io::ErrorKind::InvalidInput`] for what is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
    }
}

/// The first bytes of a regular file, at most so many.
///
/// # Errors
/// Those of [`open`], and of reading it.
pub fn read(path: &Path, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(most as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The names in a directory, at most [`ENTRIES`]; none where it cannot be listed.
pub fn names(directory: &Path) -> impl Iterator<Item = OsString> {
    fs::read_dir(directory).into_iter().flatten().flatten().take(ENTRIES).map(|entry| entry.file_name())
}

/// The strings of a file that ends each with a zero byte; one that the bound has cut is left out.
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
    fn what_is_no_regular_file_is_an_error_and_not_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        for path in [&pipe, Path::new("/dev/zero"), directory.path()] {
            assert_eq!(read(path, 1).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{}", path.display());
        }
        assert_eq!(read(&directory.path().join("gone"), 1).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_string_that_the_bound_has_cut_is_left_out() {
        let of = |bytes: &'static [u8], most| strings(bytes, most).filter(|s| !s.is_empty()).collect::<Vec<_>>();
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
