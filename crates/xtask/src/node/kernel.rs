//! Kernel images, out of Debian's packages, kept by version in `target/node`.

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
    /// 6.1, of Debian 12.
    V6_1,
    /// 6.12, of Debian 13 and of Debian 12's backports.
    V6_12,
}

impl KernelSeries {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::V6_1, Self::V6_12];

    /// `6.1`, `6.12`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// Suites that carry the series, the best first.
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
        Self::ALL.into_iter().find(|series| series.name() == text).ok_or(format!("not one of {known}"))
    }
}

/// The package that depends on the current cloud kernel of a suite.
const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// The path of a kernel image of the series, fetched if there is none in `target/node` yet.
///
/// # Errors
/// [`NodeError::NoKernel`] with everything that was tried; IO errors on the cache.
pub fn obtain_kernel(series: KernelSeries) -> Result<PathBuf, NodeError> {
    let cache = workspace::target_dir().join("node").join(series.name());
    fs::create_dir_all(&cache).map_err(NodeError::io(&cache))?;
    // Two tests may want the same kernel at once: the second waits for the first one's.
    let lock_path = cache.join("lock");
    let lock = File::create(&lock_path).map_err(NodeError::io(&lock_path))?;
    lock.lock().map_err(NodeError::io(&lock_path))?;
    if let Some(image) = cached_image(&cache)? {
        return Ok(image);
    }
    let mut attempts = Vec::new();
    for suite in series.suites() {
        for archive in apt::machine_archives(&cache)? {
            match fetch(series, &cache, &archive, suite) {
                Ok(image) => return Ok(image),
                Err(reason) => attempts.push(format!("{archive} {suite}: {reason}")),
            }
        }
    }
    Err(NodeError::NoKernel { series, attempts })
}

fn cached_image(cache: &Path) -> Result<Option<PathBuf>, NodeError> {
    let entries = fs::read_dir(cache).map_err(NodeError::io(cache))?.flatten();
    let mut images: Vec<_> = entries.map(|entry| entry.path()).filter(|path| is_image(path)).collect();
    images.sort();
    Ok(images.pop())
}

fn is_image(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("vmlinuz-") && !name.ends_with(".part")
}

fn fetch(series: KernelSeries, cache: &Path, archive: &str, suite: &str) -> Result<PathBuf, String> {
    let apt = PrivateApt::new(&cache.join("apt"), archive, suite).map_err(|error| process::error_chain(&error))?;
    let package = apt.dependency_of(META_PACKAGE).map_err(|error| process::error_chain(&error))?;
    let package = package.ok_or_else(|| format!("no package {META_PACKAGE}"))?;
    if !package.starts_with(&format!("linux-image-{series}.")) {
        return Err(format!("its kernel is {package}"));
    }
    let deb = apt.download(&package).map_err(|error| process::error_chain(&error))?;
    let image = unpack_image(&deb, cache).map_err(|error| process::error_chain(&error))?;
    let _ = fs::remove_dir_all(cache.join("apt"));
    Ok(image)
}

/// Takes `boot/vmlinuz-VERSION` out of a kernel package.
fn unpack_image(deb: &Path, cache: &Path) -> Result<PathBuf, NodeError> {
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.arg("--fsys-tarfile").arg(deb).stdout(Stdio::piped());
    let mut child = dpkg.spawn().map_err(|source| process::start_error(&dpkg, source))?;
    let stream = child.stdout.take().expect("stdout is piped");
    let image = copy_image(stream, cache).map_err(NodeError::io(deb));
    let status = child.wait().map_err(|source| process::start_error(&dpkg, source))?;
    if status.success() { image } else { Err(process::failed(&dpkg, status, "").into()) }
}

/// Reads to the end, for dpkg-deb to end well.
fn copy_image(stream: impl io::Read, cache: &Path) -> io::Result<PathBuf> {
    let mut image = Err(io::Error::new(io::ErrorKind::NotFound, "no boot/vmlinuz in the package"));
    for entry in tar::Archive::new(stream).entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let Some(name) = path.file_name().filter(|_| is_image(&path)) else { continue };
        let part = cache.join(name).with_added_extension("part");
        io::copy(&mut entry, &mut File::create(&part)?)?;
        fs::rename(&part, cache.join(name))?;
        image = Ok(cache.join(name));
    }
    image
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
    fn an_image_that_is_still_being_written_does_not_count() {
        let cache = tempfile::tempdir().unwrap();
        fs::write(cache.path().join("vmlinuz-6.1.0-1-cloud-amd64.part"), "").unwrap();
        assert_eq!(cached_image(cache.path()).unwrap(), None);
        let image = cache.path().join("vmlinuz-6.1.0-1-cloud-amd64");
        fs::write(&image, "").unwrap();
        assert_eq!(cached_image(cache.path()).unwrap(), Some(image));
    }
}
