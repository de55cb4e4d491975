//! Reads recordings: one file, or all files of a directory.

use std::fs;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use api::Frame;
use rustix::fs::OFlags;

use super::error::{Error, LARGEST_FILE};
use super::ring::segment_files;
use super::segment::{self, FRAMES, MAGIC, Opening, Origin, RECORD, SegmentReader};

/// Maximum size of the frames of one segment in memory, bytes: twice those of a full node.
const LARGEST_SEGMENT: usize = 512 << 20;

/// A recording. Only its index is in memory, and the frames of the segment that was last read.
pub struct Recording {
    path: PathBuf,
    segments: Vec<Segment>,
    /// End of each frame, milliseconds since the epoch, in the order of recording.
    times: Vec<u64>,
    notes: Vec<Note>,
    /// Index of the segment that was read last, and its frames.
    read: Option<(usize, Vec<Frame>)>,
}

/// A segment with at least one complete record.
struct Segment {
    path: PathBuf,
    /// Bytes of the header and the complete records.
    bytes: Range<u64>,
    /// Numbers of its frames.
    frames: Range<usize>,
    origin: Origin,
}

/// A part of a recording that was skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The file.
    pub path: PathBuf,
    /// First byte that was skipped.
    pub at: usize,
    /// Number of bytes.
    pub length: usize,
    /// Reason, as text for the user.
    pub reason: String,
}

impl Recording {
    /// Opens a file, or a directory in which an agent records or has recorded. Incomplete and
    /// damaged parts are skipped, see [`Recording::notes`].
    ///
    /// # Errors
    /// The file cannot be read, is not a recording or one of a later version, or has no complete
    /// frame.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let is_dir = fs::metadata(path).map_err(Error::io("open", path))?.is_dir();
        let files = if is_dir { segment_files(path)? } else { vec![path.to_owned()] };
        if files.is_empty() {
            return Err(Error::NoRecording(path.to_owned()));
        }
        let (segments, times) = (Vec::new(), Vec::new());
        let path = path.to_owned();
        let mut recording = Self { path, segments, times, notes: Vec::new(), read: None };
        let mut newer = None;
        for file in files {
            match read_whole(&file) {
                Ok(bytes) => recording.index(&file, &bytes, &mut newer),
                Err(Error::NotAFile(_) | Error::TooLarge(_)) if is_dir => {
                    recording.skip(&file, "not a recording: no regular file, or too large");
                }
                // The agent has removed its oldest file.
                Err(Error::Io { source, .. })
                    if is_dir && source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        match newer {
            _ if !recording.times.is_empty() => Ok(recording),
            Some((path, version, agent)) => Err(Error::Newer { path, version, agent }),
            None if recording.segments.is_empty() && !is_dir => {
                Err(Error::NotARecording(recording.path))
            }
            None => Err(Error::NoFrame(recording.path)),
        }
    }

    /// Records that a whole file was skipped.
    fn skip(&mut self, path: &Path, reason: &str) {
        let length = fs::metadata(path).map_or(0, |file| file.len());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.notes.push(Note { path: path.to_owned(), at: 0, length, reason: reason.to_owned() });
    }

    /// Adds the segments of a file.
    fn index(&mut self, path: &Path, bytes: &[u8], newer: &mut Option<(PathBuf, u32, String)>) {
        let mut at = 0;
        while at < bytes.len() {
            let (end, reason) = match segment::open(&bytes[at..]) {
                Opening::Segment(header, chain, length) => {
                    let end =
                        self.index_segment(path, bytes, at..at + length, chain, header.origin);
                    (end, "incomplete or damaged")
                }
                Opening::Newer(version, agent) => {
                    newer.get_or_insert_with(|| (path.to_owned(), version, agent));
                    (at, "written by a later version")
                }
                Opening::Nothing => (at, "incomplete or damaged"),
            };
            at = next_segment(bytes, if end == at { at + 1 } else { end });
            if at > end {
                let (path, reason) = (path.to_owned(), reason.to_owned());
                self.notes.push(Note { path, at: end, length: at - end, reason });
            }
        }
    }

    /// Adds a segment with its complete records. Returns their end.
    fn index_segment(
        &mut self,
        path: &Path,
        bytes: &[u8],
        header: Range<usize>,
        mut chain: u32,
        origin: Origin,
    ) -> usize {
        let (first, mut end) = (self.times.len(), header.end);
        // A writer begins another segment then.
        while self.times.len() - first < FRAMES
            && let Some(record) = segment::record(&bytes[end..], &mut chain)
        {
            self.times.push(record.at_ms);
            end += RECORD + record.data.len();
        }
        self.segments.push(Segment {
            path: path.to_owned(),
            bytes: header.start as u64..end as u64,
            frames: first..self.times.len(),
            origin,
        });
        end
    }

    /// End of each frame, milliseconds since the epoch, in the order of recording: never empty.
    #[must_use]
    pub fn times(&self) -> &[u64] {
        &self.times
    }

    /// The skipped parts.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The node and the agent of a frame.
    #[must_use]
    pub fn origin(&self, frame: usize) -> Option<&Origin> {
        Some(&self.segments[self.segment(frame)?].origin)
    }

    /// Number of the frame with the latest end at this time or before, else of the first frame. The
    /// clock may have been wrong for a while: the order of recording is not always that of the times.
    #[must_use]
    pub fn position(&self, at_ms: u64) -> usize {
        let earlier = self.times.iter().enumerate().filter(|(_, time)| **time <= at_ms);
        earlier.max_by_key(|(_, time)| **time).map_or(0, |(number, _)| number)
    }

    /// End of the frame that was recorded last, milliseconds since the epoch.
    #[must_use]
    pub fn last_ms(&self) -> u64 {
        self.times.last().copied().unwrap_or_default()
    }

    /// Earliest end of a frame after this time.
    #[must_use]
    pub fn next_after(&self, at_ms: u64) -> Option<u64> {
        self.times.iter().copied().filter(|time| *time > at_ms).min()
    }

    /// Reads a frame; `None` after the last one, and for one that a program of another version
    /// wrote in a way that this one does not understand.
    ///
    /// # Errors
    /// The file cannot be read, for example because the agent has removed it.
    pub fn frame(&mut self, number: usize) -> Result<Option<Frame>, Error> {
        let Some(at) = self.segment(number) else { return Ok(None) };
        let first = self.segments[at].frames.start;
        if self.read.as_ref().is_none_or(|(read, _)| *read != at) {
            self.read = Some((at, self.segments[at].read()?));
        }
        let frames = self.read.as_ref().map(|(_, frames)| frames);
        Ok(frames.and_then(|frames| frames.get(number - first)).cloned())
    }

    /// End of the first and of the last frame, by time: milliseconds since the epoch.
    #[must_use]
    pub fn span(&self) -> (u64, u64) {
        let times = || self.times.iter().copied();
        (times().min().unwrap_or_default(), times().max().unwrap_or_default())
    }

    /// The frames that end after `after_ms` and not after `until_ms`, in the order of recording.
    ///
    /// # Errors
    /// As [`Recording::frame`].
    pub fn between(&mut self, after_ms: u64, until_ms: u64) -> Result<Vec<Frame>, Error> {
        let times = self.times.iter().enumerate();
        let wanted = times.filter(|(_, at_ms)| **at_ms > after_ms && **at_ms <= until_ms);
        let numbers: Vec<usize> = wanted.map(|(number, _)| number).collect();
        numbers.into_iter().filter_map(|number| self.frame(number).transpose()).collect()
    }

    /// Number of the segment with this frame.
    fn segment(&self, frame: usize) -> Option<usize> {
        let at = self.segments.partition_point(|segment| segment.frames.end <= frame);
        (at < self.segments.len()).then_some(at)
    }
}

impl Segment {
    fn read(&self) -> Result<Vec<Frame>, Error> {
        let (file, _) = open_regular(&self.path)?;
        // Was in memory as part of the file when it was indexed.
        let mut bytes = vec![0; usize::try_from(self.bytes.end - self.bytes.start).unwrap_or(0)];
        let read = file.read_exact_at(&mut bytes, self.bytes.start);
        read.map_err(Error::io("read", &self.path))?;
        Ok(decode(&bytes))
    }
}

/// The frames of one segment, up to the first that cannot be read.
fn decode(bytes: &[u8]) -> Vec<Frame> {
    let Opening::Segment(header, mut chain, mut at) = segment::open(bytes) else {
        return Vec::new();
    };
    let mut reader = SegmentReader::new(&header);
    let (mut frames, mut size) = (Vec::new(), 0);
    while let Some(record) = segment::record(&bytes[at..], &mut chain) {
        at += RECORD + record.data.len();
        let Some(frame) = reader.frame(&record) else { break };
        size += reader.frame_bytes();
        if size > LARGEST_SEGMENT {
            break;
        }
        frames.push(frame);
    }
    frames
}

/// Opens a file for reading, without waiting for the other end of a pipe. Returns it with its size,
/// bytes.
fn open_regular(path: &Path) -> Result<(fs::File, u64), Error> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(Error::io("open", path))?;
    let metadata = file.metadata().map_err(Error::io("read", path))?;
    if !metadata.is_file() {
        return Err(Error::NotAFile(path.to_owned()));
    }
    Ok((file, metadata.len()))
}

fn read_whole(path: &Path) -> Result<Vec<u8>, Error> {
    let (file, size) = open_regular(path)?;
    if size > LARGEST_FILE {
        return Err(Error::TooLarge(path.to_owned()));
    }
    let mut bytes = Vec::new();
    // It may grow meanwhile.
    file.take(LARGEST_FILE).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    Ok(bytes)
}

/// Position of the next header, or the end.
fn next_segment(bytes: &[u8], from: usize) -> usize {
    let rest = bytes.get(from..).unwrap_or_default();
    let found = rest.windows(MAGIC.len()).position(|window| window == MAGIC);
    found.map_or(bytes.len(), |found| from + found)
}
