//! Reads recordings: one file, or the files of a directory.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use api::Frame;
use rustix::fs::OFlags;

use super::codec::FrameTotals;
use super::error::{Error, LARGEST_FILE};
use super::ring::{is_thinned, segment_files};
use super::segment::{self, FRAMES, MAGIC, Opening, Origin, RECORD, Record, SegmentReader};

/// Maximum size of the frames of one segment in memory, bytes: twice those of a full node.
const LARGEST_SEGMENT: usize = 512 << 20;
/// Bytes of a file in which its header and the time of its first frame are.
const LARGEST_HEAD: u64 = 4 << 10;

/// A recording. Only its index is in memory, and the frames of the segment that was last read.
pub struct Recording {
    path: PathBuf,
    segments: Vec<Segment>,
    /// End of each frame, milliseconds since the epoch, in the order of recording.
    times: Vec<u64>,
    /// Place of each frame.
    places: Vec<Place>,
    notes: Vec<Note>,
    /// Index of the segment that was read last, and its frames.
    read: Option<(usize, Vec<Frame>)>,
}

/// A file of a later version, its version and the agent's.
type Newer = (PathBuf, u32, String);

/// A segment.
struct Segment {
    path: PathBuf,
    /// Bytes of the header and the complete records.
    bytes: Range<u64>,
    origin: Origin,
}

/// The place of a frame.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// Index of its segment.
    segment: usize,
    /// Number of frames before it in the segment.
    at: usize,
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
    /// The file cannot be read, is not a recording or one of a later version, is damaged at the start
    /// of its only segment, or has no complete frame.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let is_dir = fs::metadata(path).map_err(Error::io("open", path))?.is_dir();
        let files = if is_dir { segment_files(path)? } else { vec![path.to_owned()] };
        Self::open_files(path, files, is_dir)
    }

    /// Opens a file, or the part of a directory that can contain frames of this time, milliseconds
    /// since the epoch, and perhaps a little more.
    ///
    /// # Errors
    /// As [`Recording::open`], also if no file has a frame of the time.
    pub fn open_between(path: &Path, after_ms: u64, until_ms: u64) -> Result<Self, Error> {
        if path.is_file() {
            return Self::open(path);
        }
        let spans = spans(&segment_files(path)?);
        let wanted = spans.into_iter().filter(|span| span.overlaps(after_ms, until_ms));
        Self::open_files(path, wanted.map(|span| span.path).collect(), true)
    }

    /// Opens the files of a recording, of which those with means come first.
    fn open_files(path: &Path, mut files: Vec<PathBuf>, is_dir: bool) -> Result<Self, Error> {
        if files.is_empty() {
            return Err(Error::NoRecording(path.to_owned()));
        }
        // Each mean ends with a frame, which decides whether the mean is needed.
        let thinned = files.partition_point(|file| is_dir && is_thinned(file));
        files.rotate_left(thinned);
        let mut recording = Self {
            path: path.to_owned(),
            segments: Vec::new(),
            times: Vec::new(),
            places: Vec::new(),
            notes: Vec::new(),
            read: None,
        };
        let full = files.len() - thinned;
        let newer = recording.add_files(&files[..full], is_dir)?;
        let (times, places) = recording.take_frames();
        let newer = newer.or(recording.add_files(&files[full..], is_dir)?);
        recording.append_unless_known(times, places);
        match newer {
            _ if !recording.times.is_empty() => Ok(recording),
            Some((path, version, agent)) => Err(Error::Newer { path, version, agent }),
            None if recording.segments.is_empty() && !is_dir => {
                let was_one = segment::was_header(&head(&recording.path)?);
                let error = if was_one { Error::Damaged } else { Error::NotARecording };
                Err(error(recording.path))
            }
            None => Err(Error::NoFrame(recording.path)),
        }
    }

    fn take_frames(&mut self) -> (Vec<u64>, Vec<Place>) {
        (std::mem::take(&mut self.times), std::mem::take(&mut self.places))
    }

    /// Appends all frames to those means that are not of the same time.
    fn append_unless_known(&mut self, times: Vec<u64>, places: Vec<Place>) {
        let known: HashSet<u64> = times.iter().copied().collect();
        let (means, their_places) = self.take_frames();
        for (at_ms, place) in means.into_iter().zip(their_places) {
            if !known.contains(&at_ms) {
                self.times.push(at_ms);
                self.places.push(place);
            }
        }
        self.times.extend(times);
        self.places.extend(places);
    }

    /// Adds the frames of files. Returns the first one of a later version, with its version and the
    /// agent's.
    fn add_files(&mut self, files: &[PathBuf], is_dir: bool) -> Result<Option<Newer>, Error> {
        let mut newer = None;
        for file in files {
            match read_whole(file) {
                Ok(bytes) => self.index(file, &bytes, &mut newer),
                Err(Error::NotAFile(_) | Error::TooLarge(_)) if is_dir => {
                    self.skip(file, "not a recording: no regular file, or too large");
                }
                // The agent has removed its oldest file.
                Err(Error::Io { source, .. })
                    if is_dir && source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(newer)
    }

    /// Records that a whole file was skipped.
    fn skip(&mut self, path: &Path, reason: &str) {
        let length = fs::metadata(path).map_or(0, |file| file.len());
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.notes.push(Note { path: path.to_owned(), at: 0, length, reason: reason.to_owned() });
    }

    /// Adds the segments of a file.
    fn index(&mut self, path: &Path, bytes: &[u8], newer: &mut Option<Newer>) {
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
        let (segment, mut end) = (self.segments.len(), header.end);
        // A writer begins another segment then.
        for at in 0..FRAMES {
            let Some(record) = segment::record(&bytes[end..], &mut chain) else { break };
            self.times.push(record.at_ms);
            self.places.push(Place { segment, at });
            end += RECORD + record.data.len();
        }
        let bytes = header.start as u64..end as u64;
        self.segments.push(Segment { path: path.to_owned(), bytes, origin });
        end
    }

    /// End of each frame, milliseconds since the epoch, in the order of recording: never empty.
    #[must_use]
    pub fn times(&self) -> &[u64] {
        &self.times
    }

    /// The file or directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The skipped parts.
    #[must_use]
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The node and the agent of a frame.
    #[must_use]
    pub fn origin(&self, frame: usize) -> Option<&Origin> {
        Some(&self.segments[self.places.get(frame)?.segment].origin)
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
        let Some(&Place { segment, at }) = self.places.get(number) else { return Ok(None) };
        if self.read.as_ref().is_none_or(|(read, _)| *read != segment) {
            self.read = Some((segment, self.segments[segment].frames()?));
        }
        let frames = self.read.as_ref().map(|(_, frames)| frames);
        Ok(frames.and_then(|frames| frames.get(at)).cloned())
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

    /// Calls `take` with the frames that end after `after_ms` and not after `until_ms`, in the order
    /// of recording. Keeps no frame in memory.
    ///
    /// # Errors
    /// As [`Recording::frame`].
    pub fn each_between(
        &self,
        after_ms: u64,
        until_ms: u64,
        mut take: impl FnMut(Frame),
    ) -> Result<(), Error> {
        self.each_record(after_ms, until_ms, |reader, record| reader.frame(record).map(&mut take))
    }

    /// As [`Recording::each_between`], with the sums over each frame only: a tenth of the work.
    ///
    /// # Errors
    /// As [`Recording::frame`].
    pub fn each_total(
        &self,
        after_ms: u64,
        until_ms: u64,
        mut take: impl FnMut(FrameTotals),
    ) -> Result<(), Error> {
        self.each_record(after_ms, until_ms, |reader, record| reader.totals(record).map(&mut take))
    }

    /// Calls `read` with each record of this time. It returns `None` for one that cannot be read.
    fn each_record(
        &self,
        after_ms: u64,
        until_ms: u64,
        mut read: impl FnMut(&mut SegmentReader, &Record<'_>) -> Option<()>,
    ) -> Result<(), Error> {
        let frames = self.times.iter().zip(&self.places);
        let wanted = frames.filter(|(at_ms, _)| **at_ms > after_ms && **at_ms <= until_ms);
        let places: Vec<Place> = wanted.map(|(_, place)| *place).collect();
        for of_segment in places.chunk_by(|a, b| a.segment == b.segment) {
            let mut wanted = of_segment.iter().map(|place| place.at).peekable();
            self.segments[of_segment[0].segment].each(|at, reader, record| {
                match wanted.next_if_eq(&at) {
                    Some(_) => read(reader, record)?,
                    None => reader.skip(record)?,
                }
                wanted.peek().map(|_| ())
            })?;
        }
        Ok(())
    }
}

impl Segment {
    /// Calls `take` with each record and its number, until it returns `None`.
    fn each(
        &self,
        mut take: impl FnMut(usize, &mut SegmentReader, &Record<'_>) -> Option<()>,
    ) -> Result<(), Error> {
        let (file, _) = open_regular(&self.path)?;
        // Was in memory as part of the file when it was indexed.
        let mut bytes = vec![0; usize::try_from(self.bytes.end - self.bytes.start).unwrap_or(0)];
        let read = file.read_exact_at(&mut bytes, self.bytes.start);
        read.map_err(Error::io("read", &self.path))?;
        let Opening::Segment(header, mut chain, mut at) = segment::open(&bytes) else {
            return Ok(());
        };
        let mut reader = SegmentReader::new(&header);
        for number in 0.. {
            let Some(record) = segment::record(&bytes[at..], &mut chain) else { break };
            at += RECORD + record.data.len();
            if take(number, &mut reader, &record).is_none() {
                break;
            }
        }
        Ok(())
    }

    /// The frames up to the first that cannot be read.
    fn frames(&self) -> Result<Vec<Frame>, Error> {
        let (mut frames, mut size) = (Vec::new(), 0);
        self.each(|_, reader, record| {
            let frame = reader.frame(record)?;
            size += reader.frame_bytes();
            (size <= LARGEST_SEGMENT).then(|| frames.push(frame))
        })?;
        Ok(frames)
    }
}

/// Time of the frames of a file, as far as it is known without reading all of it.
struct FileSpan {
    path: PathBuf,
    /// End of its first frame, milliseconds since the epoch.
    first_ms: u64,
    /// End of the first frame of the next file.
    next_ms: Option<u64>,
}

impl FileSpan {
    /// Whether the file may have a frame of this time.
    fn overlaps(&self, after_ms: u64, until_ms: u64) -> bool {
        match self.next_ms {
            // The clock was set back, at an unknown time.
            Some(next_ms) if next_ms < self.first_ms => true,
            Some(next_ms) => self.first_ms <= until_ms && next_ms > after_ms,
            None => self.first_ms <= until_ms,
        }
    }
}

/// Spans of the files of a directory that begin with a complete frame.
fn spans(files: &[PathBuf]) -> Vec<FileSpan> {
    let mut spans: Vec<FileSpan> = Vec::new();
    for path in files {
        let Some(first_ms) = first_ms(path) else { continue };
        if let Some(last) =
            spans.last_mut().filter(|last| is_thinned(&last.path) == is_thinned(path))
        {
            last.next_ms = Some(first_ms);
        }
        spans.push(FileSpan { path: path.clone(), first_ms, next_ms: None });
    }
    spans
}

/// Earliest end of a frame in a file or a directory, milliseconds since the epoch; `None` without
/// frames.
#[must_use]
pub fn earliest_ms(path: &Path) -> Option<u64> {
    if path.is_file() {
        return first_ms(path);
    }
    spans(&segment_files(path).ok()?).into_iter().map(|span| span.first_ms).min()
}

/// End of the first frame of a file.
fn first_ms(path: &Path) -> Option<u64> {
    let bytes = head(path).ok()?;
    let Opening::Segment(_, _, at) = segment::open(&bytes) else { return None };
    segment::time(bytes.get(at..)?)
}

/// First bytes of a file.
fn head(path: &Path) -> Result<Vec<u8>, Error> {
    let (file, _) = open_regular(path)?;
    let mut bytes = Vec::new();
    file.take(LARGEST_HEAD).read_to_end(&mut bytes).map_err(Error::io("read", path))?;
    Ok(bytes)
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
