//! Segments: a header, and then records, each with one frame.
//!
//! ```text
//! header: magic (8), version (u32), length of the JSON (u32), CRC-32 of all of it (u32), JSON
//! record: length of the data (u32), CRC-32 (u32), end of the frame in ms since the epoch (u64),
//!         data: deflate, flushed, with the window of the records before it
//! ```
//!
//! Numbers are little-endian. A record's CRC-32 begins with the one before it (or the header's).

use std::borrow::Borrow;
use std::time::{SystemTime, UNIX_EPOCH};

use api::Frame;
use flate2::{Compress, Compression, Crc, Decompress, FlushCompress, FlushDecompress, Status};
use serde::{Deserialize, Serialize};

use super::codec::{Columns, Decoder, Encoder, FrameTotals, columns};
use super::error::Error;
use super::table::MAX_COLUMNS;
use super::wire::VERSION;

pub(crate) const MAGIC: &[u8; 8] = b"CPUWREC\n";
/// Length of the header before its JSON.
const HEADER: usize = 8 + 4 + 4 + 4;
/// Length of a record before its data.
pub(crate) const RECORD: usize = 4 + 4 + 8;
/// Maximum size of a record's changes before compression, bytes.
const LARGEST: usize = 16 << 20;
/// Maximum size of a header's JSON, bytes.
const LARGEST_HEADER: usize = 64 << 10;
/// Number of frames per segment: more make the files smaller, since each segment begins with all
/// names; fewer lose less to a damaged byte.
pub(crate) const FRAMES: usize = 120;

/// The node and the agent of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Origin {
    /// Name of the node; empty if unknown.
    pub node: String,
    /// Version of the agent.
    pub agent: String,
}

/// JSON of a header.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Header {
    #[serde(flatten)]
    pub(crate) origin: Origin,
    /// Wall-clock time of the header, milliseconds since the epoch.
    created_at_ms: u64,
    columns: Columns,
}

/// Result of reading a header.
pub(crate) enum Opening {
    /// A segment of this or an older version, with the CRC of its header and its length.
    Segment(Header, u32, usize),
    /// A segment of a later version, with its version and the agent's.
    Newer(u32, String),
    /// No complete header.
    Nothing,
}

/// Writes one segment.
pub(crate) struct SegmentWriter {
    compress: Compress,
    encoder: Encoder,
    plain: Vec<u8>,
    chain: u32,
    pub(crate) frames: usize,
}

impl SegmentWriter {
    /// Begins a segment: appends its header.
    pub(crate) fn begin(origin: &Origin, into: &mut Vec<u8>) -> Result<Self, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let created_at_ms = u64::try_from(now).unwrap_or(u64::MAX);
        let header = Header { origin: origin.clone(), created_at_ms, columns: columns() };
        let json = serde_json::to_vec(&header)?;
        let (version, length) = (VERSION.to_le_bytes(), size(json.len()));
        let chain = checksum(&[MAGIC, &version, &length, &json]);
        for part in [&MAGIC[..], &version, &length, &chain.to_le_bytes(), &json] {
            into.extend_from_slice(part);
        }
        let compress = Compress::new(Compression::default(), false);
        Ok(Self { compress, encoder: Encoder::new(), plain: Vec::new(), chain, frames: 0 })
    }

    /// Appends a record. After an error the segment must not be continued.
    pub(crate) fn append(&mut self, frame: &Frame, into: &mut Vec<u8>) -> Result<(), Error> {
        self.plain.clear();
        self.encoder.encode(frame, &mut self.plain)?;
        self.append_encoded(frame.at_ms, into)
    }

    /// Appends a record with the encoded changes.
    fn append_encoded(&mut self, at_ms: u64, into: &mut Vec<u8>) -> Result<(), Error> {
        let head = into.len();
        into.resize(head + RECORD, 0);
        self.compress(into)?;
        let (length, at) = (size(into.len() - head - RECORD), at_ms.to_le_bytes());
        let data = &into[head + RECORD..];
        self.chain = checksum(&[&self.chain.to_le_bytes(), &length, &at, data]);
        into[head..head + 4].copy_from_slice(&length);
        into[head + 4..head + 8].copy_from_slice(&self.chain.to_le_bytes());
        into[head + 8..head + RECORD].copy_from_slice(&at);
        self.frames += 1;
        Ok(())
    }

    fn compress(&mut self, into: &mut Vec<u8>) -> Result<(), Error> {
        let before = self.compress.total_in();
        let mut done = 0;
        loop {
            // Room is left at the end exactly when all is flushed.
            into.reserve((self.plain.len() - done) / 2 + 64);
            self.compress
                .compress_vec(&self.plain[done..], into, FlushCompress::Sync)
                .map_err(std::io::Error::from)
                .map_err(serde_json::Error::io)?;
            done = usize::try_from(self.compress.total_in() - before).unwrap_or(usize::MAX);
            if done == self.plain.len() && into.len() < into.capacity() {
                return Ok(());
            }
        }
    }
}

/// Reads the header at the start of these bytes.
pub(crate) fn open(bytes: &[u8]) -> Opening {
    let parse = || {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (version, rest) = number(rest)?;
        let (length, rest) = number(rest)?;
        let (chain, rest) = number(rest)?;
        let json = rest.get(..length as usize).filter(|json| json.len() <= LARGEST_HEADER)?;
        let sum = checksum(&[MAGIC, &version.to_le_bytes(), &length.to_le_bytes(), json]);
        if sum != chain {
            return None;
        }
        if version > VERSION {
            let header: Origin = serde_json::from_slice(json).unwrap_or_default();
            return Some(Opening::Newer(version, header.agent));
        }
        let header: Header = serde_json::from_slice(json).ok()?;
        if header.columns.values().any(|columns| columns.len() > MAX_COLUMNS) {
            return None;
        }
        Some(Opening::Segment(header, chain, HEADER + json.len()))
    };
    parse().unwrap_or(Opening::Nothing)
}

/// Whether these bytes were a header before they were damaged: its magic or the start of its JSON is
/// left.
pub(crate) fn was_header(bytes: &[u8]) -> bool {
    let json = bytes.get(HEADER..).unwrap_or_default();
    bytes.starts_with(MAGIC) || json.starts_with(br#"{"node":"#)
}

/// A record that was not changed since it was written.
pub(crate) struct Record<'a> {
    pub(crate) at_ms: u64,
    pub(crate) data: &'a [u8],
}

/// Reads the record at the start of these bytes, and advances the chain of checksums.
pub(crate) fn record<'a>(bytes: &'a [u8], chain: &mut u32) -> Option<Record<'a>> {
    let (length, rest) = number(bytes)?;
    let (sum, rest) = number(rest)?;
    let (at, rest) = rest.split_first_chunk()?;
    let data = rest.get(..length as usize)?;
    if checksum(&[&chain.to_le_bytes(), &length.to_le_bytes(), at, data]) != sum {
        return None;
    }
    *chain = sum;
    Some(Record { at_ms: u64::from_le_bytes(*at), data })
}

/// Time of the record at the start of these bytes, of which the data may be missing.
pub(crate) fn time(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(8..)?.first_chunk()?))
}

/// Reads the records of one segment, in order.
pub(crate) struct SegmentReader {
    decompress: Decompress,
    decoder: Decoder,
    plain: Vec<u8>,
}

impl SegmentReader {
    pub(crate) fn new(header: &Header) -> Self {
        let decompress = Decompress::new(false);
        Self { decompress, decoder: Decoder::new(&header.columns), plain: Vec::new() }
    }

    /// The frame of the next record; `None` if there is no frame in it.
    pub(crate) fn frame(&mut self, record: &Record<'_>) -> Option<Frame> {
        self.decompress(record.data)?;
        self.decoder.decode(record.at_ms, &self.plain)
    }

    /// The sums over the frame of the next record.
    pub(crate) fn totals(&mut self, record: &Record<'_>) -> Option<FrameTotals> {
        self.decompress(record.data)?;
        self.decoder.totals(record.at_ms, &self.plain)
    }

    /// Passes over the next record.
    pub(crate) fn skip(&mut self, record: &Record<'_>) -> Option<()> {
        self.totals(record).map(|_| ())
    }

    /// Size of the last frame in memory, bytes, at most.
    pub(crate) fn frame_bytes(&self) -> usize {
        self.decoder.frame_bytes()
    }

    fn decompress(&mut self, data: &[u8]) -> Option<()> {
        self.plain.clear();
        let before = self.decompress.total_in();
        loop {
            let done = usize::try_from(self.decompress.total_in() - before).ok()?;
            self.plain.reserve(4 * (data.len() - done) + 64);
            let length = self.plain.len();
            let status = self
                .decompress
                .decompress_vec(&data[done..], &mut self.plain, FlushDecompress::Sync)
                .ok()?;
            let is_read = self.decompress.total_in() - before == data.len() as u64;
            if is_read && self.plain.len() < self.plain.capacity() {
                return Some(());
            }
            let is_stuck = self.plain.len() == length && status == Status::BufError;
            if is_stuck || status == Status::StreamEnd || self.plain.len() > LARGEST {
                return None;
            }
        }
    }
}

/// Encodes frames as the bytes of one file. Keeps no frame.
pub struct FileEncoder {
    origin: Origin,
    writer: SegmentWriter,
    bytes: Vec<u8>,
}

impl FileEncoder {
    /// Begins a file.
    ///
    /// # Errors
    /// The origin cannot be encoded.
    pub fn new(origin: &Origin) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        let writer = SegmentWriter::begin(origin, &mut bytes)?;
        Ok(Self { origin: origin.clone(), writer, bytes })
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn add(&mut self, frame: &Frame) -> Result<(), Error> {
        if self.writer.frames == FRAMES {
            self.writer = SegmentWriter::begin(&self.origin, &mut self.bytes)?;
        }
        self.writer.append(frame, &mut self.bytes)
    }

    /// The bytes of the file.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// A recording of these frames, as the bytes of one file. Keeps no frame longer than needed.
///
/// # Errors
/// A frame cannot be encoded.
pub fn encode(
    frames: impl IntoIterator<Item = impl Borrow<Frame>>,
    origin: &Origin,
) -> Result<Vec<u8>, Error> {
    let mut file = FileEncoder::new(origin)?;
    frames.into_iter().try_for_each(|frame| file.add(frame.borrow()))?;
    Ok(file.finish())
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*number), rest))
}

/// A length in the file. Records are far below 4 GiB.
fn size(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes()
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut sum = Crc::new();
    parts.iter().for_each(|part| sum.update(part));
    sum.sum()
}

#[cfg(test)]
mod tests {
    use api::{ContainerFrame, NodeFrame};

    use super::super::codec::columns;
    use super::super::reader::Recording;
    use super::super::wire::{put, zigzag};
    use super::*;

    /// Appends the changes that insert these rows, all present, without a value.
    fn put_rows(table: &str, heads: &[Vec<u8>], into: &mut Vec<u8>) {
        put(0, into);
        put(heads.len() as u64, into);
        heads.iter().for_each(|_| put(0, into));
        for head in heads {
            put(head.len() as u64, into);
            into.extend_from_slice(head);
        }
        for _ in heads {
            put(0, into);
            put(zigzag(1), into);
        }
        if !heads.is_empty() {
            put((heads.len() * columns()[table].len()) as u64, into);
        }
    }

    /// A recording of 120 frames with these rows: small, because nothing changes.
    fn unchanging(rows: usize, name_bytes: usize) -> (tempfile::TempDir, Recording) {
        let mut bytes = Vec::new();
        let mut writer = SegmentWriter::begin(&Origin::default(), &mut bytes).unwrap();
        let pod = "x".repeat(name_bytes);
        let row = ContainerFrame { pod, ..ContainerFrame::default() };
        put(1_000_000, &mut writer.plain);
        let node = vec![serde_json::to_vec(&NodeFrame::default()).unwrap()];
        put_rows("node", &node, &mut writer.plain);
        put_rows("cpus", &[], &mut writer.plain);
        let heads = vec![serde_json::to_vec(&row).unwrap(); rows];
        put_rows("containers", &heads, &mut writer.plain);
        put_rows("interference", &[], &mut writer.plain);
        writer.append_encoded(1000, &mut bytes).unwrap();
        for second in 2..=FRAMES as u64 {
            writer.plain.clear();
            put(1_000_000, &mut writer.plain);
            for (table, rows) in
                [("node", 1), ("cpus", 0), ("containers", rows), ("interference", 0)]
            {
                put(0, &mut writer.plain);
                put(0, &mut writer.plain);
                if rows > 0 {
                    put((rows * (columns()[table].len() + 1)) as u64, &mut writer.plain);
                }
            }
            writer.append_encoded(1000 * second, &mut bytes).unwrap();
        }
        assert!(bytes.len() < 256 << 10, "{}", bytes.len());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording");
        std::fs::write(&path, bytes).unwrap();
        let recording = Recording::open(&path).unwrap();
        (dir, recording)
    }

    fn frames(recording: &mut Recording) -> usize {
        (0..FRAMES).take_while(|&number| recording.frame(number).unwrap().is_some()).count()
    }

    #[test]
    fn a_small_file_does_not_fill_the_memory() {
        let (_dir, mut full) = unchanging(1024, 200);
        assert_eq!(frames(&mut full), FRAMES);
        // Two million rows.
        let (_dir, mut rows) = unchanging(17_000, 0);
        assert_eq!(frames(&mut rows), 0);
        // Two gigabytes of names.
        let (_dir, mut names) = unchanging(1900, 8 << 10);
        let read = frames(&mut names);
        assert!((1..=34).contains(&read), "{read} frames of 15 MiB");
    }
}
