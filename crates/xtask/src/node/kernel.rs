//! Kernels from Debian's packages, cached by version in `target/node`: the image, and the modules
//! that nodes need.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;

use super::NodeError;
use super::apt::{self, PrivateApt};
use crate::process;
use crate::workspace;

/// A kernel series that Debian ships.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelSeries {
    /// 6.1, from Debian 12.
    V6_1,
    /// 6.12, from Debian 13 and from Debian 12's backports.
    V6_12,
}

impl KernelSeries {
    /// All series.
    pub const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    /// Version number: `6.1` or `6.12`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// Suites that contain the series, in order of preference.
    fn suites(self) -> &'static [&'static str] {
        match self {
            Self::V6_1 => &["bookworm-security", "bookworm"],
            Self::V6_12 => &["bookworm-backports", "trixie-security", "trixie"],
        }
    }
}

impl fmt::Display for KernelSeries {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for KernelSeries {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|series| series.name() == text)
            .ok_or(format!("not one of {known}"))
    }
}

/// The package that depends on the current cloud kernel of a suite.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// Modules for a network card in QEMU, each after its dependencies. Newer kernels have some of them
/// built in, like everything else the node uses. The last one is a module in all kernels.
const NETWORK_MODULES: [&str; 8] = [
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
];

/// Further modules for the node of a cluster: its disks, containers' file systems, and their
/// network cards. The last one is a module in all kernels.
const CLUSTER_MODULES: [&str; 3] = ["virtio_blk", "overlay", "veth"];

/// An unpacked kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Path of `vmlinuz-VERSION`.
    pub image: PathBuf,
    /// Paths of the modules for a network card, in load order.
    pub network_modules: Vec<PathBuf>,
    /// Paths of the modules for the node of a cluster, in load order, after those for a network
    /// card.
    pub cluster_modules: Vec<PathBuf>,
}

impl Kernel {
    /// The kernel of an image, if its modules exist.
    fn of(image: PathBuf) -> Option<Self> {
        let directory = modules_directory(&image)?;
        let files: Vec<_> =
            fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).collect();
        let find = |name: &&str| files.iter().find(|path| module_name(path) == Some(name)).cloned();
        let all = |wanted: &[&str]| {
            let found: Vec<_> = wanted.iter().filter_map(find).collect();
            let last = found.last().and_then(|path| module_name(path));
            (last == wanted.last().copied()).then_some(found)
        };
        let (network_modules, cluster_modules) = (all(&NETWORK_MODULES)?, all(&CLUSTER_MODULES)?);
        Some(Self { image, network_modules, cluster_modules })
    }
}

/// Path of `modules-VERSION` beside `vmlinuz-VERSION`.
fn modules_directory(image: &Path) -> Option<PathBuf> {
    let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?;
    Some(image.with_file_name(format!("modules-{version}")))
}

/// `NAME` of `NAME.ko`, or of `NAME.ko.xz` in newer kernels.
fn module_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_suffix(".ko").or_else(|| name.strip_suffix(".ko.xz"))
}

/// Returns a kernel of the series, downloaded unless it is in `target/node` already.
///
/// # Errors
/// [`NodeError::NoKernel`] with all attempts; I/O errors of the cache.
pub fn obtain_kernel(series: KernelSeries) -> Result<Kernel, NodeError> {
    let cache = workspace::target_dir().join("node").join(series.name());
    fs::create_dir_all(&cache).map_err(NodeError::io(&cache))?;
    // Two tests may need the same kernel at once: the second waits for the first one's.
    let lock_path = cache.join("lock");
    let lock = File::create(&lock_path).map_err(NodeError::io(&lock_path))?;
    lock.lock().map_err(NodeError::io(&lock_path))?;
    if let Some(kernel) = cached(&cache)? {
        return Ok(kernel);
    }
    let mut attempts = Vec::new();
    for suite in series.suites() {
        for archive in apt::machine_archives(&cache)? {
            match fetch(series, &cache, &archive, suite) {
                Ok(kernel) => return Ok(kernel),
                Err(reason) => attempts.push(format!("{archive} {suite}: {reason}")),
            }
        }
    }
    Err(NodeError::NoKernel { series, attempts })
}

fn cached(cache: &Path) -> Result<Option<Kernel>, NodeError> {
    let entries = fs::read_dir(cache).map_err(NodeError::io(cache))?.flatten();
    let mut images: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| is_image(path)).collect();
    images.sort();
    Ok(images.into_iter().rev().find_map(Kernel::of))
}

fn is_image(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("vmlinuz-")
}

fn fetch(series: KernelSeries, cache: &Path, archive: &str, suite: &str) -> Result<Kernel, String> {
    let apt = PrivateApt::new(&cache.join("apt"), archive, suite)
        .map_err(|error| process::error_chain(&error))?;
    let package = apt.dependency_of(META_PACKAGE).map_err(|error| process::error_chain(&error))?;
    let package = package.ok_or_else(|| format!("no package {META_PACKAGE}"))?;
    if !package.starts_with(&format!("linux-image-{series}.")) {
        return Err(format!("its kernel is {package}"));
    }
    let deb = apt.download(&package).map_err(|error| process::error_chain(&error))?;
    let unpacked = cache.join("apt/unpacked");
    unpack(&deb, &unpacked).map_err(|error| process::error_chain(&error))?;
    keep(&unpacked, cache).map_err(|error| error.to_string())?;
    let _ = fs::remove_dir_all(cache.join("apt"));
    let kernel = cached(cache).map_err(|error| process::error_chain(&error))?;
    kernel.ok_or_else(|| format!("{package} lacks its image, virtio_net or veth"))
}

/// Extracts the image and the network modules from a kernel package.
fn unpack(deb: &Path, into: &Path) -> Result<(), NodeError> {
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--fsys-tarfile").arg(deb).stdout(Stdio::piped());
    let mut child = dpkg.spawn().map_err(|source| process::start_error(&dpkg, source))?;
    let stream = child.stdout.take().expect("stdout is piped");
    let copied = copy_wanted(stream, into).map_err(NodeError::io(deb));
    let status = child.wait().map_err(|source| process::start_error(&dpkg, source))?;
    if status.success() { copied } else { Err(process::failed(&dpkg, status, "").into()) }
}

/// Reads to the end, so that dpkg-deb exits without an error.
fn copy_wanted(stream: impl io::Read, into: &Path) -> io::Result<()> {
    for entry in tar::Archive::new(stream).entries()? {
        let mut entry = entry?;
        let Some(file) = place(&entry.path()?).map(|place| into.join(place)) else { continue };
        fs::create_dir_all(file.parent().unwrap_or(into))?;
        io::copy(&mut entry, &mut File::create(&file)?)?;
    }
    Ok(())
}

/// Moves the unpacked files into the cache. The image sorts last, so an existing image means that
/// the cache is complete.
fn keep(unpacked: &Path, cache: &Path) -> io::Result<()> {
    let mut names = fs::read_dir(unpacked)?
        .map(|entry| Ok(entry?.file_name()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    for name in names {
        let _ = fs::remove_dir_all(cache.join(&name));
        fs::rename(unpacked.join(&name), cache.join(&name))?;
    }
    Ok(())
}

/// Destination of a file of the package; `None` for files that are not needed.
fn place(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?;
    if is_image(path) {
        return Some(name.into());
    }
    let module = module_name(path)?;
    (NETWORK_MODULES.contains(&module) || CLUSTER_MODULES.contains(&module)).then_some(())?;
    // `./lib/modules/VERSION/kernel/…`, or below `./usr`.
    let version = path.iter().skip_while(|part| *part != "modules").nth(1)?;
    Some(Path::new(&format!("modules-{}", version.to_str()?)).join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_named_as_it_is_typed() {
        for series in KernelSeries::ALL {
            assert_eq!(series.to_string().parse(), Ok(series));
        }
        assert_eq!("6.6".parse::<KernelSeries>(), Err("not one of 6.1, 6.12".into()));
    }

    #[test]
    fn a_kernel_needs_its_modules_in_the_image_or_beside_it() {
        let cache = tempfile::tempdir().unwrap();
        let unpacked = cache.path().join("apt/unpacked");
        let file = |place: &str| {
            fs::create_dir_all(unpacked.join(place).parent().unwrap()).unwrap();
            fs::write(unpacked.join(place), "").unwrap();
        };
        ["vmlinuz-6.12", "modules-6.12/failover.ko.xz"].iter().for_each(|place| file(place));
        keep(&unpacked, cache.path()).unwrap();
        assert_eq!(cached(cache.path()).unwrap(), None);
        let all = [
            "vmlinuz-6.12",
            "modules-6.12/virtio_net.ko.xz",
            "modules-6.12/failover.ko.xz",
            "modules-6.12/veth.ko.xz",
        ];
        all.iter().for_each(|place| file(place));
        keep(&unpacked, cache.path()).unwrap();
        let modules = ["failover", "virtio_net"]
            .map(|name| cache.path().join(format!("modules-6.12/{name}.ko.xz")));
        let kernel = Kernel {
            image: cache.path().join("vmlinuz-6.12"),
            network_modules: modules.into(),
            cluster_modules: vec![cache.path().join("modules-6.12/veth.ko.xz")],
        };
        assert_eq!(cached(cache.path()).unwrap(), Some(kernel));
    }

    #[test]
    fn kernel_and_network_modules_are_kept_by_version() {
        let place = |path: &str| place(Path::new(path));
        assert_eq!(place("./boot/vmlinuz-6.1.0-1"), Some("vmlinuz-6.1.0-1".into()));
        let module = "./lib/modules/6.1.0-1/kernel/drivers/virtio/virtio.ko";
        assert_eq!(place(module), Some("modules-6.1.0-1/virtio.ko".into()));
        assert_eq!(
            place("./usr/lib/modules/6.12.1/kernel/net/virtio_net.ko.xz"),
            Some("modules-6.12.1/virtio_net.ko.xz".into())
        );
        for unwanted in [
            "./boot/config-6.1.0-1",
            "./lib/modules/6.1.0-1/kernel/drivers/virtio/virtio_mem.ko",
            "./",
        ] {
            assert_eq!(place(unwanted), None, "{unwanted}");
        }
    }
}
