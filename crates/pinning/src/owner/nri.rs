//! Detects processes with access to the runtime's NRI socket. NRI plugins set the cpusets of
//! containers while the runtime creates them. Only root may enter the socket's directory (0700), so
//! access proves more than a name.
//!
//! Plugins that the runtime launches itself (/opt/nri/plugins) use a socket pair instead. They are
//! processes of the host and are detected by name.

use std::path::{Path, PathBuf};

use cgroupfs::bounded;

/// Path of the socket under both names of its directory; `/var/run` is a symlink to `/run` on most
/// hosts.
const SOCKETS: [&str; 2] = ["/var/run/nri/nri.sock", "/run/nri/nri.sock"];
/// State of a connected socket in `/proc/PID/net/unix` (`SS_CONNECTED`).
const CONNECTED: &str = "03";

/// The runtime's NRI socket, if plugins are connected to it.
#[derive(Debug)]
pub(super) struct NriSocket {
    /// Possible locations, as device and path within the device's file system.
    files: Vec<DeviceFile>,
}

/// A file by its device (`0:25`) and its path within the device's file system, both as in
/// mountinfo.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeviceFile {
    device: String,
    path: PathBuf,
}

impl NriSocket {
    /// The socket, located in the host's network and mount namespaces. `None` if no plugin is
    /// connected.
    pub(super) fn find(proc_root: &Path) -> Option<Self> {
        Self::find_any(proc_root, &SOCKETS)
    }

    fn find_any(proc_root: &Path, sockets: &[&str]) -> Option<Self> {
        let init = proc_root.join("1");
        if connections(&init, sockets) == Some(0) {
            return None;
        }
        let mounts = mounts(&init)?;
        Some(Self {
            files: sockets
                .iter()
                .filter_map(|socket| located(&mounts, Path::new(socket)))
                .collect(),
        })
    }

    /// Whether the socket or a directory above it is among the process's mounts.
    pub(super) fn is_reached_by(&self, process: &Path) -> bool {
        let mounts = mounts(process).unwrap_or_default();
        self.files.iter().any(|file| is_reached(&mounts, file))
    }
}

/// Number of plugins connected to the runtime's NRI socket; `None` if it cannot be read.
#[must_use]
pub fn connected_plugins(proc_root: &Path) -> Option<usize> {
    connections(&proc_root.join("1"), &SOCKETS)
}

/// Number of the runtime's ends of connections to these sockets, in the process's network
/// namespace.
fn connections(process: &Path, sockets: &[&str]) -> Option<usize> {
    let text = bounded::read(&process.join("net/unix"), bounded::UNIX_SOCKETS_BYTES).ok()?;
    let count = count_connections(&String::from_utf8_lossy(&text), sockets);
    // The part cut off by the size limit may contain a connection.
    (count > 0 || text.len() < bounded::UNIX_SOCKETS_BYTES).then_some(count)
}

/// Counts connections in lines of the format `Num: RefCount Protocol Flags Type St Inode Path`.
fn count_connections(text: &str, sockets: &[&str]) -> usize {
    let is_connection = |line: &&str| {
        let mut fields = line.split_ascii_whitespace().skip(5);
        fields.next() == Some(CONNECTED)
            && fields.nth(1).is_some_and(|path| sockets.contains(&path))
    };
    text.lines().filter(is_connection).count()
}

fn mounts(process: &Path) -> Option<String> {
    let text = bounded::read(&process.join("mountinfo"), bounded::MOUNTS_BYTES).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// Device, root and mount point of each line of the format
/// `ID PARENT MAJOR:MINOR ROOT MOUNTPOINT …`.
fn fields(mounts: &str) -> impl Iterator<Item = (&str, &Path, &Path)> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(2);
        Some((fields.next()?, Path::new(fields.next()?), Path::new(fields.next()?)))
    })
}

/// Device and path of a file, by the longest mount point above it, and the last of equal ones.
fn located(mounts: &str, file: &Path) -> Option<DeviceFile> {
    let above = fields(mounts).filter(|(_, _, point)| file.starts_with(point));
    let (device, root, point) = above.max_by_key(|(_, _, point)| point.as_os_str().len())?;
    Some(DeviceFile { device: device.to_owned(), path: root.join(file.strip_prefix(point).ok()?) })
}

fn is_reached(mounts: &str, file: &DeviceFile) -> bool {
    fields(mounts).any(|(device, root, _)| device == file.device && file.path.starts_with(root))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    const HOST: &str = "1 0 259:1 / / rw - ext4 /dev/root rw\n25 1 0:24 / /run rw,nosuid shared:5 - tmpfs tmpfs rw\n";

    #[test]
    fn only_the_real_socket_directory_counts_as_mounted() {
        let file = located(HOST, Path::new("/run/nri/nri.sock")).unwrap();
        assert_eq!(file, DeviceFile { device: "0:24".to_owned(), path: "/nri/nri.sock".into() });
        let reached = |mount| is_reached(&format!("700 600 {mount} rw - tmpfs tmpfs rw\n"), &file);
        assert!(
            reached("0:24 /nri /var/run/nri")
                && reached("0:24 /nri/nri.sock /nri.sock")
                && reached("0:24 / /host/run")
        );
        assert!(!reached("0:99 /nri /var/run/nri"), "a volume in memory of its own");
        assert!(
            !reached("259:1 /var/lib/kubelet/pods/u/volumes/nri /var/run/nri"),
            "an empty directory"
        );
        assert!(
            !reached("0:24 /containerd /run/containerd") && !reached("0:24 /nri-other /run/nri")
        );
    }

    #[test]
    fn connections_to_a_real_socket_are_counted() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nri.sock");
        let sockets = [path.to_str().unwrap()];
        let listener = UnixListener::bind(&path).unwrap();
        let process = Path::new("/proc/thread-self");
        assert_eq!(connections(process, &sockets), Some(0), "it listens only");
        let plugins: Vec<_> = (0..2)
            .map(|_| (UnixStream::connect(&path).unwrap(), listener.accept().unwrap()))
            .collect();
        assert_eq!(connections(process, &sockets), Some(2));
        drop(plugins);
        assert_eq!(connections(process, &sockets), Some(0));
        assert_eq!(connections(Path::new("/nowhere"), &sockets), None);
    }

    #[test]
    fn an_unconnected_socket_makes_no_pod_a_plugin() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("nri.sock");
        let sockets = [path.to_str().unwrap()];
        symlink("/proc/self", directory.path().join("1")).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        assert!(NriSocket::find_any(directory.path(), &sockets).is_none());
        let _plugin = (UnixStream::connect(&path).unwrap(), listener.accept().unwrap());
        let socket = NriSocket::find_any(directory.path(), &sockets).unwrap();
        assert!(socket.is_reached_by(Path::new("/proc/self")), "{socket:?}");
        assert!(!socket.is_reached_by(Path::new("/nowhere")));
    }
}
