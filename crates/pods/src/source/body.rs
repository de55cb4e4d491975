//! An answer's body, parsed while it arrives: the network on the one side, serde's `Read` on the other, and never more
//! than a few chunks between them.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::SourceError;
use crate::decode::read_pod_list;
use crate::model::Pod;

/// Largest body that is read. 250 pods are about 5 MB; etcd's limit of 1.5 MiB an object makes 128 MiB of 85 absurd ones.
const BODY_LIMIT: usize = 128 << 20;

/// Chunks in flight. hyper's chunks are at most 512 KiB and usually 8 to 64.
const CHUNKS_IN_FLIGHT: usize = 2;

/// Reads the pods from a body. The parsing runs on a blocking thread, so that a large list does not hold up others.
pub(crate) async fn read_pods(url: &str, mut body: Incoming) -> Result<Vec<Arc<Pod>>, SourceError> {
    let (chunks, receiver) = mpsc::channel(CHUNKS_IN_FLIGHT);
    let parser = tokio::task::spawn_blocking(move || read_pod_list(ChunkReader { receiver, chunk: Bytes::new() }));
    let fed = feed(url, &mut body, &chunks).await;
    drop(chunks);
    let parsed = parser.await.map_err(|panic| transport(url, panic))?;
    // What ails the connection comes first: a body cut short is then not called bad JSON.
    fed?;
    parsed.map_err(|source| SourceError::Decode { url: url.to_owned(), source })
}

/// Largest configuration that is read; real ones are 5 KiB.
const CONFIG_LIMIT: usize = 1 << 20;

/// Reads the CPU manager's policy from the body of `/configz`.
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
    let body = body.map_err(|source| SourceError::Transport { url: url.to_owned(), source })?.to_bytes();
    let configz: Configz = serde_json::from_slice(&body)
        .map_err(|error| SourceError::Transport { url: url.to_owned(), source: error.into() })?;
    Ok(configz.kubeletconfig.cpu_manager_policy)
}

/// The first bytes of a refusal, as one line of text.
pub(crate) async fn read_refusal(mut body: Incoming) -> String {
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

async fn feed(url: &str, body: &mut Incoming, chunks: &mpsc::Sender<Bytes>) -> Result<(), SourceError> {
    let mut total = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|error| transport(url, error))?.into_data() else { continue };
        total += data.len();
        if total > BODY_LIMIT {
            return Err(SourceError::TooLarge { url: url.to_owned(), limit: BODY_LIMIT });
        }
        if chunks.send(data).await.is_err() {
            // The parser has given up; it tells why.
            return Ok(());
        }
    }
    Ok(())
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
