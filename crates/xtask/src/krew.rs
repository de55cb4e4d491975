//! The kubectl plugin as krew installs it: an archive per platform, and the plugin's manifest
//! (<https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/>).

use std::path::Path;

use serde_json::{Value, json};

use crate::image::{self, ImageError, License, Platform, Source, VERSION};

/// Name of the manifest.
pub const MANIFEST: &str = "cpuwarden.krew.yaml";
/// Program of the plugin: kubectl finds plugins by this name.
const PROGRAM: &str = "kubectl-cpuwarden";
const SHORT: &str = "Show who throttles and delays a pod";
const DESCRIPTION: &str = "\
Shows CPU throttling and contention of the pods of a cluster, as the cpuwarden agents on the nodes
measure them: live (top), and as changes of limits, requests and parallelism (advise).
Needs the agent in the cluster, and the right to forward ports to its pods.
";

/// Packs the plugin of each platform, and writes the manifest. The archives will be downloaded from
/// below `url`.
///
/// # Errors
/// A file cannot be written, or a license cannot be read.
pub fn complete(
    folder: &Path,
    source: &Source,
    programs: &[(Platform, Vec<u8>)],
    url: &str,
) -> Result<(), ImageError> {
    let licenses: Vec<_> = image::licenses(source)?.into_iter().map(License::into_file).collect();
    let platforms = programs.iter().map(|(platform, program)| {
        let name = format!("{PROGRAM}-{VERSION}-linux-{}.tar.gz", platform.architecture());
        let path = folder.join(&name);
        let mut files = licenses.clone();
        files.push((PROGRAM.to_owned(), 0o755, program.clone()));
        let archive = image::compressed_tar(source.epoch, &files)
            .map_err(|error| ImageError::io(&path, error))?;
        image::write(&path, &archive)?;
        let digest = image::digest_of(&archive);
        Ok(json!({
            "selector": { "matchLabels": { "os": "linux", "arch": platform.architecture() } },
            "uri": format!("{}/{name}", url.trim_end_matches('/')),
            "sha256": digest.trim_start_matches("sha256:"),
            "bin": PROGRAM,
        }))
    });
    let manifest = manifest(&platforms.collect::<Result<Vec<_>, ImageError>>()?);
    let path = folder.join(MANIFEST);
    // JSON is YAML; krew reads both.
    let text = serde_json::to_string_pretty(&manifest)
        .map_err(|error| ImageError::io(&path, error.into()))?;
    image::write(&path, format!("{text}\n").as_bytes())
}

fn manifest(platforms: &[Value]) -> Value {
    json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": { "name": "cpuwarden" },
        "spec": {
            "version": format!("v{VERSION}"),
            "shortDescription": SHORT,
            "description": DESCRIPTION,
            "platforms": platforms,
        },
    })
}
