//! OCI image layout in a tar archive (opencontainers/image-spec v1: image-layout, image-index,
//! manifest, config).
//!
//! The same programs and source give the same bytes: entries are sorted, every timestamp is the
//! commit's, and the compressed data contains no timestamp.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;

use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

use super::ImageError;
use super::licenses::EXPRESSION;
use super::platform::Platform;
use super::source::Source;

pub(super) const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Name and text of the image's labels and annotations.
const LABELS: [(&str, &str); 3] = [
    ("org.opencontainers.image.title", "cpuwarden"),
    (
        "org.opencontainers.image.description",
        "Per-node Kubernetes agent: CPU throttling, contention and placement, every second",
    ),
    ("org.opencontainers.image.licenses", EXPRESSION),
];

/// Files of one platform's image.
#[derive(Debug)]
pub struct Content {
    /// Platform of the program.
    pub platform: Platform,
    /// Name below `/`, mode and bytes of each file.
    pub files: Vec<(String, u32, Vec<u8>)>,
}

/// Command of the image's containers, unless their pod says otherwise.
#[derive(Debug, Clone)]
pub struct ImageCommand {
    /// Program and leading arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments.
    pub command: Vec<String>,
}

impl Default for ImageCommand {
    /// The agent.
    fn default() -> Self {
        Self { entrypoint: vec!["/cpuwarden".into()], command: vec!["run".into()] }
    }
}

/// An archive with its digests.
#[derive(Debug)]
pub struct Archive {
    /// The tar file's bytes.
    pub bytes: Vec<u8>,
    /// Digest of the image index, `sha256:…`, for a pull by digest.
    pub digest: String,
    /// Digest of each platform's manifest.
    pub manifests: Vec<(Platform, String)>,
}

/// Packs an image for all platforms into one archive with a tag.
///
/// # Errors
/// A name too long for tar, or a failed write.
pub fn pack(
    source: &Source,
    tag: &str,
    entry: &ImageCommand,
    contents: &[Content],
) -> Result<Archive, ImageError> {
    let mut blobs = Blobs::default();
    let mut manifests = Vec::new();
    let mut descriptors = Vec::new();
    for content in contents {
        let mut descriptor = manifest(source, tag, entry, content, &mut blobs)?;
        manifests.push((content.platform, text(&descriptor["digest"])));
        descriptor["platform"] =
            json!({ "architecture": content.platform.architecture(), "os": "linux" });
        descriptors.push(descriptor);
    }
    let annotations = labels(source, tag);
    let index = json!({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": descriptors, "annotations": annotations,
    });
    let mut index = blobs.add_json(INDEX, &index);
    let digest = text(&index["digest"]);
    index["annotations"] = json!({ "org.opencontainers.image.ref.name": tag });
    let layout = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [index] });
    let bytes = blobs
        .into_tar(source.epoch, &layout)
        .map_err(|error| ImageError::io(Path::new("archive"), error))?;
    Ok(Archive { bytes, digest, manifests })
}

/// Adds a platform's layer, configuration and manifest. Returns the manifest's descriptor.
fn manifest(
    source: &Source,
    tag: &str,
    entry: &ImageCommand,
    content: &Content,
    blobs: &mut Blobs,
) -> Result<Value, ImageError> {
    let failed = |error| ImageError::io(Path::new("layer"), error);
    let layer = tar_of(source.epoch, &content.files).map_err(failed)?;
    let compressed = compress(&layer).map_err(failed)?;
    let config = json!({
        "created": source.created,
        "architecture": content.platform.architecture(),
        "os": "linux",
        "config": {
            "User": "65532:65532",
            "ExposedPorts": { "9753/tcp": {} },
            "Entrypoint": entry.entrypoint,
            "Cmd": entry.command,
            "WorkingDir": "/",
            "Labels": labels(source, tag),
        },
        "rootfs": { "type": "layers", "diff_ids": [digest_of(&layer)] },
        "history": [{ "created": source.created, "created_by": "cargo xtask image" }],
    });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": blobs.add_json(CONFIG, &config),
        "layers": [blobs.add(LAYER, compressed)],
        "annotations": labels(source, tag),
    });
    Ok(blobs.add_json(MANIFEST, &manifest))
}

fn labels(source: &Source, tag: &str) -> BTreeMap<&'static str, String> {
    let fixed = LABELS.map(|(name, text)| (name, text.to_owned()));
    let of_source = [
        ("org.opencontainers.image.version", tag.to_owned()),
        ("org.opencontainers.image.revision", source.revision.clone()),
        ("org.opencontainers.image.created", source.created.clone()),
    ];
    fixed.into_iter().chain(of_source).collect()
}

/// Blobs by digest.
#[derive(Default)]
pub(super) struct Blobs(BTreeMap<String, Vec<u8>>);

impl Blobs {
    /// Adds a blob. Returns its descriptor.
    pub(super) fn add(&mut self, media_type: &str, bytes: Vec<u8>) -> Value {
        let digest = digest_of(&bytes);
        let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() });
        self.0.insert(digest, bytes);
        descriptor
    }

    pub(super) fn add_json(&mut self, media_type: &str, document: &Value) -> Value {
        self.add(media_type, document.to_string().into_bytes())
    }

    pub(super) fn into_tar(self, epoch: u64, layout: &Value) -> io::Result<Vec<u8>> {
        let blobs = self
            .0
            .into_iter()
            .map(|(digest, bytes)| (format!("blobs/{}", digest.replace(':', "/")), bytes));
        let heads = [
            ("index.json".to_owned(), layout.to_string().into_bytes()),
            ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
        ];
        let files: Vec<_> = blobs.chain(heads).map(|(name, bytes)| (name, 0o644, bytes)).collect();
        tar_of(epoch, &files)
    }
}

fn tar_of(epoch: u64, files: &[(String, u32, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let mut archive = Builder::new(Vec::new());
    for (name, mode, bytes) in files {
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::Regular);
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(epoch);
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, bytes.as_slice())?;
    }
    archive.into_inner()
}

/// A compressed tar archive; the same files and time give the same bytes.
pub(crate) fn compressed_tar(epoch: u64, files: &[(String, u32, Vec<u8>)]) -> io::Result<Vec<u8>> {
    compress(&tar_of(epoch, files)?)
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Digest in OCI form, `sha256:` and 64 hexadecimal digits.
pub(crate) fn digest_of(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
