//! `cargo xtask image`: the container image without Docker, for all platforms, reproducible, with a
//! bill of materials.

mod archive;
mod chart;
mod licenses;
mod platform;
mod sbom;
mod source;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use archive::{Archive, Content, ImageCommand, pack};
pub(crate) use archive::{compressed_tar, digest_of};
pub use chart::pack_chart;
pub use licenses::{License, licenses};
pub(crate) use platform::cross_compile;
pub use platform::{Build, PLATFORMS, Platform};
pub use sbom::bill;
pub use source::Source;

use crate::prerequisites::{self, Missing, Task};
use crate::process::{self, CommandError};
use crate::workspace;

/// Version of the workspace; it is the image's tag.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An error of building an image.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Missing tools.
    #[error(transparent)]
    Missing(#[from] Missing),
    /// A failed program.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// File that cannot be read or written.
    #[error("{}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        source: io::Error,
    },
    /// Unusable answer from git.
    #[error("{0}")]
    Git(String),
    /// Two builds of the same source differ.
    #[error(
        "two builds differ on {platform}: {first} and {second}; compare the programs with diffoscope"
    )]
    Differs {
        /// Platform of the images.
        platform: Platform,
        /// Digest of the manifest of the first build.
        first: String,
        /// Digest of the manifest of the second build.
        second: String,
    },
}

impl ImageError {
    pub(crate) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// Options of a build.
#[derive(Debug)]
pub struct Options {
    /// Folder of the archive and the bills of materials.
    pub output: PathBuf,
    /// Cargo profile: `dist`, or `dev` for tests.
    pub profile: String,
    /// Whether to build again, from a copy of the source in another folder, and fail if the two
    /// images differ.
    pub verify: bool,
}

/// Files of an image.
#[derive(Debug)]
pub struct Image {
    /// OCI archive.
    pub archive: PathBuf,
    /// Bill of materials per platform.
    pub bills: Vec<PathBuf>,
    /// Static program per platform.
    pub programs: Vec<(Platform, PathBuf)>,
    /// Digest of the image index.
    pub digest: String,
}

/// Builds the programs and packs them.
///
/// # Errors
/// A tool is missing, a build fails, two builds differ, or a file cannot be written.
pub fn make(options: &Options) -> Result<Image, ImageError> {
    prerequisites::check(|tool| tool.task == Task::Image)?;
    let source = Source::checkout()?;
    let target_dir = workspace::target_dir().join("image");
    let build = Build {
        source: &source,
        target_dir: &target_dir,
        profile: &options.profile,
        feature: None,
    };
    let (archive, programs) = assemble(&build)?;
    if options.verify {
        verify(&archive, &source, &options.profile)?;
    }
    fs::create_dir_all(&options.output).map_err(|error| ImageError::io(&options.output, error))?;
    let path = options.output.join(format!("cpuwarden-{VERSION}.oci.tar"));
    write(&path, &archive.bytes)?;
    let bills = PLATFORMS.iter().map(|&platform| {
        let name = format!("cpuwarden-{VERSION}-{}.cdx.json", platform.architecture());
        let path = options.output.join(name);
        write(&path, bill(&source, platform)?.as_bytes())?;
        Ok(path)
    });
    let bills = bills.collect::<Result<_, ImageError>>()?;
    Ok(Image { archive: path, bills, programs, digest: archive.digest })
}

/// Builds the program of each platform and packs the image.
fn assemble(build: &Build<'_>) -> Result<(Archive, Vec<(Platform, PathBuf)>), ImageError> {
    let mut contents = Vec::new();
    let mut programs = Vec::new();
    for platform in PLATFORMS {
        let program = build.program(platform)?;
        let mut files: Vec<_> =
            licenses(build.source)?.into_iter().map(License::into_file).collect();
        files.push(("cpuwarden".to_owned(), 0o755, read(&program)?));
        let bill = bill(build.source, platform)?.into_bytes();
        files.push(("cpuwarden.cdx.json".to_owned(), 0o644, bill));
        contents.push(Content { platform, files });
        programs.push((platform, program));
    }
    Ok((pack(build.source, VERSION, &ImageCommand::default(), &contents)?, programs))
}

/// Builds again from a copy of the source, with another target directory, and compares the images.
fn verify(first: &Archive, source: &Source, profile: &str) -> Result<(), ImageError> {
    let folder = tempfile::Builder::new().prefix("cpuwarden-verify-").tempdir();
    let folder = folder.map_err(|error| ImageError::io(Path::new("temporary directory"), error))?;
    let copy = source.copy_to(&folder.path().join("source"))?;
    let target_dir = folder.path().join("target");
    let (second, _) =
        assemble(&Build { source: &copy, target_dir: &target_dir, profile, feature: None })?;
    for ((platform, first), (_, second)) in first.manifests.iter().zip(&second.manifests) {
        if first != second {
            let (first, second) = (first.clone(), second.clone());
            return Err(ImageError::Differs { platform: *platform, first, second });
        }
    }
    Ok(())
}

/// Copies an archive with all its platforms to a registry (`registry/repository`), with the version
/// as tag. Uses skopeo(1) and its credentials (`skopeo login`). `insecure` allows HTTP and unknown
/// certificates.
///
/// # Errors
/// Skopeo is missing, or the registry rejects the image.
pub fn push(archive: &Path, repository: &str, insecure: bool) -> Result<(), ImageError> {
    let mut skopeo = Command::new("skopeo");
    // A signature policy makes no sense for an archive that was just built.
    skopeo.args(["--insecure-policy", "copy", "--all", "--preserve-digests"]);
    if insecure {
        skopeo.arg("--dest-tls-verify=false");
    }
    skopeo.arg(format!("oci-archive:{}:{VERSION}", archive.display()));
    skopeo.arg(format!("docker://{repository}:{VERSION}"));
    Ok(process::run(&mut skopeo)?)
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    fs::read(path).map_err(|error| ImageError::io(path, error))
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), ImageError> {
    fs::write(path, bytes).map_err(|error| ImageError::io(path, error))
}
