//! The Helm chart as an OCI archive (<https://helm.sh/docs/topics/registries/>): a manifest with the
//! packaged chart as its only layer. skopeo(1) copies it to a registry, and helm installs it from
//! there (`oci://…`).

use std::path::Path;

use serde_json::{Map, Value, json};

use super::ImageError;
use super::archive::{Blobs, INDEX, MANIFEST};
use super::source::Source;

const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const LAYER: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

/// Packs a chart. `chart_yaml` is the text of its `Chart.yaml`, `package` the output of `helm
/// package`. The tag is the chart's version.
///
/// # Errors
/// A failed write.
pub fn pack_chart(
    source: &Source,
    chart_yaml: &str,
    package: Vec<u8>,
) -> Result<Vec<u8>, ImageError> {
    let metadata = metadata(chart_yaml);
    let mut blobs = Blobs::default();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.add_json(CONFIG, &Value::Object(metadata.clone())),
        "layers": [blobs.add(LAYER, package)],
        "annotations": {
            "org.opencontainers.image.title": metadata.get("name"),
            "org.opencontainers.image.description": metadata.get("description"),
            "org.opencontainers.image.version": metadata.get("version"),
            "org.opencontainers.image.created": source.created,
            "org.opencontainers.image.revision": source.revision,
        },
    });
    let mut descriptor = blobs.add_json(MANIFEST, &manifest);
    descriptor["annotations"] =
        json!({ "org.opencontainers.image.ref.name": metadata.get("version") });
    let layout = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor] });
    blobs.into_tar(source.epoch, &layout).map_err(|error| ImageError::io(Path::new("chart"), error))
}

/// The scalar fields of a `Chart.yaml` without nesting.
fn metadata(chart_yaml: &str) -> Map<String, Value> {
    let field = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_owned(), value.trim().trim_matches('"').into()))
    };
    chart_yaml.lines().filter_map(field).collect()
}
