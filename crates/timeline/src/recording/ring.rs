//! A ring of segment files in a directory: the oldest are removed to keep the size below a limit.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use api::Frame;
use rustix::fs::FlockOperation;

use super::error::Error;
use super::segment::{FRAMES, Origin, SegmentWriter};
use super::wire::EXTENSION;

/// Smallest limit of a ring, bytes.
pub const LEAST_SIZE: u64 = 1 << 20;
/// Number of files at least among which the size is divided: this part of the recording is lost
/// when the oldest file is removed.
const PARTS: u64 = 8;
/// Highest number of a file: one each millisecond for thirty thousand years.
const LAST_NUMBER: u64 = 1_000_000_000_000_000;
/// Maximum time until written frames are on the disk, should the node crash.
const SYNC_EVERY: Duration = Duration::from_secs(10);

/// Writes frames to a directory, with a bounded total size.
pub struct Ring {
    dir: PathBuf,
    /// Keeps other recorders out.
    _lock: File,
    limit: u64,
    origin: Origin,
    /// Files with their sizes, oldest first; the last one may be open.
    files: VecDeque<(PathBuf, u64)>,
    current: Option<Current>,
    /// Number in the name of the next file.
    next: u64,
    bytes: Vec<u8>,
}

/// The segment that is being written.
struct Current {
    file: File,
    writer: SegmentWriter,
    synced: Instant,
}

impl Current {
    /// Waits until the frames are on the disk. Fails if the file was removed.
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()?;
        self.synced = Instant::now();
        match self.file.metadata()?.nlink() {
            0 => Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed")),
            _ => Ok(()),
        }
    }
}

impl Ring {
    /// Opens or creates the directory, and removes old segments above the limit. What is there
    /// stays; recording continues in a new segment.
    ///
    /// # Errors
    /// The directory cannot be created or read, or another process writes to it.
    pub fn open(dir: &Path, limit: u64, origin: Origin) -> Result<Self, Error> {
        let created = fs::DirBuilder::new().recursive(true).mode(0o750).create(dir);
        created.map_err(Error::io("create", dir))?;
        let lock = File::open(dir).map_err(Error::io("open", dir))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::InUse(dir.to_owned()))?;
        let mut files = VecDeque::new();
        let paths = segment_files(dir)?;
        let next = paths.iter().filter_map(|path| number(path)).max().map_or(1, |last| last + 1);
        for path in paths {
            let file = fs::symlink_metadata(&path).map_err(Error::io("read", &path))?;
            if file.is_file() {
                files.push_back((path, file.len()));
            }
        }
        let (dir, limit) = (dir.to_owned(), limit.max(LEAST_SIZE));
        let bytes = Vec::new();
        let mut ring = Self { dir, _lock: lock, limit, origin, files, current: None, next, bytes };
        ring.make_room(0)?;
        Ok(ring)
    }

    /// Appends a frame. When it returns, the frame survives the end of the process. After an error
    /// the next frame begins a new segment.
    ///
    /// # Errors
    /// The disk is full, or the directory can no longer be written.
    pub fn append(&mut self, frame: &Frame) -> Result<(), Error> {
        let appended = self.try_append(frame);
        if appended.is_err() {
            // The segment's state is ahead of what is in its file.
            self.current = None;
        }
        appended
    }

    /// Total size of the files, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.files.iter().map(|(_, size)| size).sum()
    }

    fn try_append(&mut self, frame: &Frame) -> Result<(), Error> {
        self.bytes.clear();
        if self.current.as_ref().is_some_and(|current| current.writer.frames >= FRAMES)
            || self.files.back().is_some_and(|(_, size)| *size >= self.limit / PARTS)
        {
            self.end_segment()?;
        }
        let mut current = match self.current.take() {
            Some(current) => current,
            None => self.begin_segment()?,
        };
        current.writer.append(frame, &mut self.bytes)?;
        let length = self.bytes.len() as u64;
        self.make_room(length)?;
        let Some((path, size)) = self.files.back_mut() else { return Ok(()) };
        let written = current.file.write_all(&self.bytes);
        // After a failed write, some of the bytes may be in the file.
        *size = match &written {
            Ok(()) => *size + length,
            Err(_) => current.file.metadata().map_or(*size + length, |file| file.len()),
        };
        written.map_err(Error::io("write", path))?;
        if current.synced.elapsed() >= SYNC_EVERY {
            current.sync().map_err(Error::io("write", path))?;
        }
        self.current = Some(current);
        Ok(())
    }

    fn begin_segment(&mut self) -> Result<Current, Error> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o640);
        let (path, file) = loop {
            let path = self.dir.join(format!("{:010}.{EXTENSION}", self.next));
            self.next += 1;
            match options.open(&path) {
                // Not by this recorder, which holds the lock.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                opened => {
                    let file = opened.map_err(Error::io("create", &path))?;
                    break (path, file);
                }
            }
        };
        self.files.push_back((path, 0));
        let writer = SegmentWriter::begin(&self.origin, &mut self.bytes)?;
        Ok(Current { file, writer, synced: Instant::now() })
    }

    fn end_segment(&mut self) -> Result<(), Error> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        current.sync().map_err(Error::io("write", &self.dir))
    }

    /// Removes the oldest files until this number of bytes can be added.
    fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        let kept = usize::from(bytes > 0);
        while self.size() + bytes > self.limit && self.files.len() > kept {
            let Some((path, _)) = self.files.front() else { break };
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", path)(error));
                }
                _ => self.files.pop_front(),
            };
        }
        Ok(())
    }
}

/// The segment files of a directory, oldest first.
pub(crate) fn segment_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let path = entry.map_err(Error::io("read", dir))?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            files.push(path);
        }
    }
    files.sort_by_key(|path| (number(path), path.clone()));
    Ok(files)
}

/// Number in a file's name, if this program can have written it.
fn number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok().filter(|number| *number <= LAST_NUMBER)
}
