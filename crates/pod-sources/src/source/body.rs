//! Body of an answer, parsed while it arrives: a channel of a few chunks connects the network to
//! serde's `Read`.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use kubepods::model::Pod;
use kubepods::{LabelKeys, read_pods_into};
use tokio::sync::mpsc;

use super::SourceError;

/// Maximum number of chunks in flight. hyper's chunks are at most 512 KiB and usually 8 KiB to 64
/// KiB.
const CHUNKS_IN_FLIGHT: usize = 2;

/// A pod list that was read.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) pods: Vec<Arc<Pod>>,
    /// Whether the list, or a pod in it, exceeded a limit: some pods are not included.
    pub(crate) is_cut: bool,
}

/// Reads the pods from the first `limit` bytes of a body. Parsing runs on a blocking thread, so
/// that a large list does not delay other tasks.
pub(crate) async fn read_pods(
    url: &str,
    mut body: Incoming,
    limit: usize,
    keep: LabelKeys,
) -> Result<Listed, SourceError> {
    let (chunks, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let parser = tokio::task::spawn_blocking(move || {
        let mut pods = Vec::new();
        let read = read_pods_into(ChunkReader { receiver, chunk: Bytes::new() }, &keep, &mut pods);
        (read, pods)
    });
    let fed = feed(url, &mut body, &chunks, limit).await;
    drop(chunks);
    let (read, pods) = parser.await.map_err(|panic| transport(url, panic))?;
    // Errors of the connection come first, so that a truncated body is not reported as invalid
    // JSON.
    let is_cut = fed? == Fed::ToTheLimit;
    match read {
        Ok(refused) => Ok(Listed { pods, is_cut: refused > 0 }),
        Err(_) if is_cut && !pods.is_empty() => Ok(Listed { pods, is_cut }),
        Err(_) if is_cut => Err(SourceError::TooLarge { url: url.to_owned(), limit }),
        Err(source) => Err(SourceError::Decode { url: url.to_owned(), source }),
    }
}

/// Part of a body that the parser received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fed {
    Whole,
    ToTheLimit,
}

/// Maximum size of the kubelet's configuration, bytes; real ones take 5 KiB.
const CONFIG_LIMIT: usize = 1 << 20;

/// Reads the CPU manager policy from the body of `/configz`.
pub(crate) async fn read_policy(url: &str, body: Incoming) -> Result<Box<str>, SourceError> {
    #[derive(serde::Deserialize)]
    struct Configz {
        kubeletconfig: KubeletConfig,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct KubeletConfig {
        cpu_manager_policy: Box<str>,
    }
    let body = Limited::new(body, CONFIG_LIMIT).collect().await;
    let body =
        body.map_err(|source| SourceError::Transport { url: url.to_owned(), source })?.to_bytes();
    let configz: Configz = serde_json::from_slice(&body)
        .map_err(|error| SourceError::Transport { url: url.to_owned(), source: error.into() })?;
    Ok(configz.kubeletconfig.cpu_manager_policy)
}

/// Reads the first bytes of an error response, as one line of text.
pub(crate) async fn read_rejection(mut body: Incoming) -> String {
    const ENOUGH: usize = 300;
    let mut text = Vec::new();
    while text.len() < ENOUGH
        && let Some(Ok(frame)) = body.frame().await
    {
        text.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
    }
    text.truncate(ENOUGH);
    String::from_utf8_lossy(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn feed(
    url: &str,
    body: &mut Incoming,
    chunks: &mpsc::Sender<Bytes>,
    limit: usize,
) -> Result<Fed, SourceError> {
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| transport(url, error))?.into_data() else { continue };
        total += data.len();
        if total > limit {
            return Ok(Fed::ToTheLimit);
        }
        if chunks.send(data).await.is_err() {
            // The parser has stopped; its own result contains the reason.
            return Ok(Fed::Whole);
        }
    }
    Ok(Fed::Whole)
}

fn transport(url: &str, error: impl std::error::Error + Send + Sync + 'static) -> SourceError {
    SourceError::Transport { url: url.to_owned(), source: Box::new(error) }
}

struct ChunkReader {
    receiver: mpsc::Receiver<Bytes>,
    chunk: Bytes,
}

impl Read for ChunkReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while !self.chunk.has_remaining() {
            match self.receiver.blocking_recv() {
                Some(chunk) => self.chunk = chunk,
                None => return Ok(0),
            }
        }
        let length = out.len().min(self.chunk.remaining());
        self.chunk.copy_to_slice(&mut out[..length]);
        Ok(length)
    }
}
