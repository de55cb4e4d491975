//! `cargo xtask release`: builds all files of a release into one folder: image, bills of materials,
//! kubectl plugin, chart, manifests, license texts, checksums.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::generated::{self, GenerateError};
use crate::image::{self, Build, Image, ImageError, Options, PLATFORMS, Source, VERSION};
use crate::krew;
use crate::workspace;

/// Name of the file with the SHA-256 of all other files, in the format of `sha256sum --check`.
pub const CHECKSUMS: &str = "SHA256SUMS";

/// An error of building a release.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Failed build of the image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Failed build of the chart or the manifests.
    #[error(transparent)]
    Generate(#[from] GenerateError),
}

/// Builds the image according to `options`, then all other files in the same folder.
/// The manifests refer to the image as `repository` (`registry/name`) with its digest; the manifest
/// of the kubectl plugin refers to its archives below `download_url`.
///
/// # Errors
/// Anything that cannot be built, rendered or written.
pub fn make(
    options: &Options,
    repository: &str,
    download_url: &str,
) -> Result<Image, ReleaseError> {
    let source = Source::checkout()?;
    let image = image::make(options)?;
    add_plugin(options, &source, download_url)?;
    complete(&options.output, &source, repository, &image.digest)?;
    Ok(image)
}

/// Builds the kubectl plugin of each platform, and adds its archives and its manifest.
fn add_plugin(options: &Options, source: &Source, download_url: &str) -> Result<(), ReleaseError> {
    let target_dir = workspace::target_dir().join("plugin");
    let profile = options.profile.as_str();
    let build = Build { source, target_dir: &target_dir, profile, feature: Some("kubectl") };
    let program = |platform| Ok((platform, image::read(&build.program(platform)?)?));
    let programs = PLATFORMS.into_iter().map(program).collect::<Result<Vec<_>, ImageError>>()?;
    Ok(krew::complete(&options.output, source, &programs, download_url)?)
}

/// OCI archive of the chart in a release's folder.
#[must_use]
pub fn chart_archive(folder: &Path) -> PathBuf {
    folder.join(format!("cpuwarden-chart-{VERSION}.oci.tar"))
}

/// Adds chart, manifests, license texts and checksums to a folder that contains the image.
///
/// # Errors
/// Helm fails, or a file cannot be read or written.
pub fn complete(
    folder: &Path,
    source: &Source,
    repository: &str,
    digest: &str,
) -> Result<(), ReleaseError> {
    add_chart(folder, source)?;
    for license in image::licenses(source)? {
        image::write(&folder.join(license.name), &license.text)?;
    }
    for manifest in generated::manifests(&[
        &format!("--set=image.repository={repository}"),
        &format!("--set=image.digest={digest}"),
    ])? {
        let name = manifest.path.file_name().unwrap_or_default();
        image::write(&folder.join(name), manifest.text.as_bytes())?;
    }
    image::write(&folder.join(CHECKSUMS), checksums(folder)?.as_bytes())?;
    Ok(())
}

/// Adds the chart as a package for helm and as an OCI archive.
fn add_chart(folder: &Path, source: &Source) -> Result<(), ReleaseError> {
    generated::package_chart(folder)?;
    let package = image::read(&folder.join(format!("cpuwarden-{VERSION}.tgz")))?;
    let chart_yaml = image::read(&source.root.join("deploy/chart/cpuwarden/Chart.yaml"))?;
    let archive = image::pack_chart(source, &String::from_utf8_lossy(&chart_yaml), package)?;
    image::write(&chart_archive(folder), &archive)?;
    Ok(())
}

fn checksums(folder: &Path) -> Result<String, ImageError> {
    let failed = |error| ImageError::io(folder, error);
    let files = fs::read_dir(folder).map_err(failed)?.map(|entry| Ok(entry?.path()));
    let mut files = files.collect::<std::io::Result<Vec<PathBuf>>>().map_err(failed)?;
    files.sort();
    let mut text = String::new();
    for file in files.iter().filter(|file| !file.ends_with(CHECKSUMS)) {
        let bytes = fs::read(file).map_err(|error| ImageError::io(file, error))?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let _ =
            writeln!(text, "{}  {name}", image::digest_of(&bytes).trim_start_matches("sha256:"));
    }
    Ok(text)
}
