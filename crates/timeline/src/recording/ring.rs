//! A ring of segment files in a directory: the oldest are removed to keep the size below a limit.
//!
//! A thinned ring writes each frame, and the means of ten seconds to files of their own. After an
//! hour the files with all frames are removed.

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use api::Frame;
use rustix::fs::FlockOperation;

use super::error::Error;
use super::segment::{FRAMES, Origin, SegmentWriter};
use super::thin::Thinner;
use super::wire::EXTENSION;

/// Smallest limit of a ring, bytes.
pub const LEAST_SIZE: u64 = 1 << 20;
/// Number of files at least among which the size is divided: this part of the recording is lost
/// when the oldest file is removed.
const PARTS: u64 = 8;
/// Highest number of a file: one each millisecond for thirty thousand years.
const LAST_NUMBER: u64 = 1_000_000_000_000_000;
/// Maximum time until written frames are on the disk, should the node crash, and until a removed file
/// is noticed.
const CHECK_EVERY: Duration = Duration::from_secs(10);

/// Time in which all frames are kept, before which there are means.
const FULL_FOR: Duration = Duration::from_secs(60 * 60);
/// Length of a mean.
const THINNED: Duration = Duration::from_secs(10);
/// Start of the name of a file with means.
const THINNED_PREFIX: &str = "thinned-";
/// Share of the disk that stays free, as its inverse.
const SPARE: u64 = 10;

/// The place, size and contents of a ring.
#[derive(Debug, Clone)]
pub struct RingConfig {
    dir: PathBuf,
    limit: u64,
    /// Whether frames of the last hour are kept, and before it means of ten seconds.
    is_thinned: bool,
    /// Puts written frames on the disk, should the node crash; `None` if the kernel decides when.
    sync: Option<Sync>,
    /// Reads the size of the disk and what is free of it; `None` if recording may fill it.
    free: Option<ReadFree>,
}

/// Reads the number of blocks of a file system, and of those that are available.
type ReadFree = fn(&Path) -> io::Result<(u64, u64)>;

/// Waits until the contents of a file are on the disk.
type Sync = fn(&File) -> io::Result<()>;

impl RingConfig {
    /// A ring that keeps all frames until the size is reached.
    #[must_use]
    pub fn new(dir: PathBuf, limit: u64) -> Self {
        let limit = limit.max(LEAST_SIZE);
        Self { dir, limit, is_thinned: false, sync: Some(File::sync_data), free: None }
    }

    /// Keeps all frames of the last hour, and before it their means over ten seconds. Stops while
    /// less than a tenth of the disk is free.
    #[must_use]
    pub fn thinned(self) -> Self {
        Self { is_thinned: true, free: Some(read_free), ..self }
    }

    /// Leaves it to the kernel when frames are written to the disk: for a directory that does not
    /// outlive the pod anyway.
    #[must_use]
    pub fn without_sync(self) -> Self {
        Self { sync: None, ..self }
    }

    /// Whether written frames are soon on the disk, should the node crash.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.sync.is_some()
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// # Errors
    /// Less than a tenth of the disk is free, or the directory is gone.
    fn check_free(&self) -> Result<(), Error> {
        let Some(read) = self.free else { return Ok(()) };
        let (blocks, available) = read(&self.dir).map_err(Error::io("read", &self.dir))?;
        match available.saturating_mul(SPARE) < blocks {
            true => Err(Error::NearlyFull(self.dir.clone())),
            false => Ok(()),
        }
    }

    /// Size from which a file is not continued, bytes.
    fn part(&self) -> u64 {
        self.limit / PARTS
    }
}

fn read_free(dir: &Path) -> io::Result<(u64, u64)> {
    let disk = rustix::fs::statvfs(dir)?;
    Ok((disk.f_blocks, disk.f_bavail))
}

/// Writes frames to a directory, with a bounded total size.
pub struct Ring {
    config: RingConfig,
    /// Keeps other recorders out.
    _lock: File,
    origin: Origin,
    full: Track,
    /// Means of the frames.
    thinned: Track,
    thinner: Thinner,
    bytes: Vec<u8>,
}

/// Files of one kind of frames.
struct Track {
    prefix: &'static str,
    /// Oldest first; the last one may be open.
    files: VecDeque<SegmentFile>,
    current: Option<Current>,
    /// Number in the name of the next file.
    next: u64,
}

struct SegmentFile {
    path: PathBuf,
    /// Size, bytes.
    size: u64,
    /// End of its last frame, milliseconds since the epoch.
    last_ms: u64,
}

/// The segment that is being written.
struct Current {
    file: File,
    writer: SegmentWriter,
    checked: Instant,
}

impl Current {
    /// Waits until the frames are on the disk if there is a `sync`. Fails if the file was removed.
    fn check(&mut self, sync: Option<Sync>) -> io::Result<()> {
        if let Some(sync) = sync {
            sync(&self.file)?;
        }
        self.checked = Instant::now();
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
    /// The directory cannot be created or read, another process writes to it, or the disk is nearly
    /// full.
    pub fn open(config: RingConfig, origin: Origin) -> Result<Self, Error> {
        let dir = &config.dir;
        let created = fs::DirBuilder::new().recursive(true).mode(0o750).create(dir);
        created.map_err(Error::io("create", dir))?;
        let lock = File::open(dir).map_err(Error::io("open", dir))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| Error::InUse(dir.to_owned()))?;
        let (thinned, full) = segment_files(dir)?.into_iter().partition(|path| is_thinned(path));
        let mut ring = Self {
            full: Track::read("", full)?,
            thinned: Track::read(THINNED_PREFIX, thinned)?,
            thinner: Thinner::new(THINNED),
            config,
            _lock: lock,
            origin,
            bytes: Vec::new(),
        };
        ring.make_room(0)?;
        ring.config.check_free()?;
        Ok(ring)
    }

    /// Appends a frame. When it returns, the frame survives the end of the process. After an error
    /// the next frame begins a new segment.
    ///
    /// # Errors
    /// The disk is full or nearly full, or the directory can no longer be written.
    pub fn append(&mut self, frame: &Frame) -> Result<(), Error> {
        let appended = self.try_append(frame);
        if appended.is_err() {
            // The segments' states are ahead of what is in their files.
            self.full.current = None;
            self.thinned.current = None;
        }
        appended
    }

    /// Total size of the files, bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.full.size() + self.thinned.size()
    }

    fn try_append(&mut self, frame: &Frame) -> Result<(), Error> {
        self.config.check_free()?;
        if self.full.end_segment(&self.config)?
            && let Some(mean) = self.thinner.finish().filter(|_| self.config.is_thinned)
        {
            // Means and files end together: when the file is removed, no frame is in neither.
            self.write(true, &mean)?;
        }
        self.write(false, frame)?;
        if self.config.is_thinned {
            self.full.remove_older(frame.at_ms.saturating_sub(milliseconds(FULL_FOR)))?;
            for mean in self.thinner.add(frame) {
                self.write(true, &mean)?;
            }
        }
        Ok(())
    }

    /// Writes a frame to one of the tracks.
    fn write(&mut self, to_thinned: bool, frame: &Frame) -> Result<(), Error> {
        self.bytes.clear();
        let track = if to_thinned { &mut self.thinned } else { &mut self.full };
        track.end_segment(&self.config)?;
        let mut current = match track.current.take() {
            Some(current) => current,
            None => track.begin_segment(&self.config.dir, &self.origin, &mut self.bytes)?,
        };
        current.writer.append(frame, &mut self.bytes)?;
        self.make_room(self.bytes.len() as u64)?;
        let track = if to_thinned { &mut self.thinned } else { &mut self.full };
        track.write(&mut current, frame.at_ms, &self.bytes)?;
        if current.checked.elapsed() >= CHECK_EVERY {
            let checked = current.check(self.config.sync);
            checked.map_err(Error::io("write", &self.config.dir))?;
        }
        track.current = Some(current);
        Ok(())
    }

    /// Removes the oldest files until this number of bytes can be added. Means have at least half
    /// of the space.
    fn make_room(&mut self, bytes: u64) -> Result<(), Error> {
        let kept = usize::from(bytes > 0);
        while self.size() + bytes > self.config.limit {
            let has_old = |track: &Track| track.files.len() > kept;
            let of_full = match (has_old(&self.full), has_old(&self.thinned)) {
                (true, true) => self.full.size() > self.config.limit / 2,
                (of_full, of_thinned) if of_full || of_thinned => of_full,
                _ => break,
            };
            let track = if of_full { &mut self.full } else { &mut self.thinned };
            track.remove_oldest()?;
        }
        Ok(())
    }
}

impl Track {
    /// The files that are there, in the order of their names.
    fn read(prefix: &'static str, paths: Vec<PathBuf>) -> Result<Self, Error> {
        let next = paths.iter().filter_map(|path| number(path)).max().map_or(1, |last| last + 1);
        let mut files = VecDeque::new();
        for path in paths {
            let file = fs::symlink_metadata(&path).map_err(Error::io("read", &path))?;
            if file.is_file() {
                let written = file.modified().unwrap_or(UNIX_EPOCH).duration_since(UNIX_EPOCH);
                let last_ms = milliseconds(written.unwrap_or_default());
                files.push_back(SegmentFile { path, size: file.len(), last_ms });
            }
        }
        Ok(Self { prefix, files, current: None, next })
    }

    fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    fn begin_segment(
        &mut self,
        dir: &Path,
        origin: &Origin,
        bytes: &mut Vec<u8>,
    ) -> Result<Current, Error> {
        let mut options = OpenOptions::new();
        options.append(true).create_new(true).mode(0o640);
        let (path, file) = loop {
            let path = dir.join(format!("{}{:010}.{EXTENSION}", self.prefix, self.next));
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
        self.files.push_back(SegmentFile { path, size: 0, last_ms: 0 });
        let writer = SegmentWriter::begin(origin, bytes)?;
        Ok(Current { file, writer, checked: Instant::now() })
    }

    /// Appends bytes to the last file.
    fn write(&mut self, current: &mut Current, at_ms: u64, bytes: &[u8]) -> Result<(), Error> {
        let Some(file) = self.files.back_mut() else { return Ok(()) };
        let (length, written) = (bytes.len() as u64, current.file.write_all(bytes));
        // After a failed write, some of the bytes may be in the file.
        file.size = match &written {
            Ok(()) => file.size + length,
            Err(_) => current.file.metadata().map_or(file.size + length, |file| file.len()),
        };
        file.last_ms = at_ms;
        written.map_err(Error::io("write", &file.path))
    }

    /// Ends the segment if it is complete; returns whether it was.
    fn end_segment(&mut self, config: &RingConfig) -> Result<bool, Error> {
        let is_large = self.files.back().is_some_and(|file| file.size >= config.part());
        let complete = |current: &mut Current| current.writer.frames >= FRAMES || is_large;
        let Some(mut current) = self.current.take_if(complete) else { return Ok(false) };
        current.check(config.sync).map_err(Error::io("write", &config.dir))?;
        Ok(true)
    }

    /// Removes the files whose last frame ended before this time, except the last one.
    fn remove_older(&mut self, than_ms: u64) -> Result<(), Error> {
        while self.files.len() > 1 && self.files.front().is_some_and(|file| file.last_ms < than_ms)
        {
            self.remove_oldest()?;
        }
        Ok(())
    }

    fn remove_oldest(&mut self) -> Result<(), Error> {
        let Some(SegmentFile { path, .. }) = self.files.front() else { return Ok(()) };
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("remove", path)(error))
            }
            _ => {
                self.files.pop_front();
                Ok(())
            }
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The segment files of a directory: those with means, and then the others, oldest first.
pub(crate) fn segment_files(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let path = entry.map_err(Error::io("read", dir))?.path();
        if path.extension().is_some_and(|extension| extension == EXTENSION) {
            files.push(path);
        }
    }
    files.sort_by_key(|path| (!is_thinned(path), number(path), path.clone()));
    Ok(files)
}

/// Whether a file contains means of frames.
pub(crate) fn is_thinned(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(THINNED_PREFIX))
}

/// Number in a file's name, if this program can have written it.
fn number(path: &Path) -> Option<u64> {
    let name = path.file_stem()?.to_str()?;
    let digits = name.strip_prefix(THINNED_PREFIX).unwrap_or(name);
    digits.parse().ok().filter(|number| *number <= LAST_NUMBER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;

    fn frame(second: u64) -> Frame {
        Frame { at_ms: 1000 * second, seconds: 1.0, ..Frame::default() }
    }

    #[test]
    fn recording_stops_while_less_than_a_tenth_of_the_disk_is_free() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static AVAILABLE: AtomicU64 = AtomicU64::new(10);
        let dir = tempfile::tempdir().unwrap();
        let mut config = RingConfig::new(dir.path().to_owned(), LEAST_SIZE).thinned();
        config.free = Some(|_| Ok((100, AVAILABLE.load(Ordering::Relaxed))));
        let mut ring = Ring::open(config.clone(), Origin::default()).unwrap();
        ring.append(&frame(1)).unwrap();
        AVAILABLE.store(9, Ordering::Relaxed);
        let error = ring.append(&frame(2)).unwrap_err();
        assert!(error.to_string().contains("less than a tenth"), "{error}");
        drop(ring);
        assert!(Ring::open(config.clone(), Origin::default()).is_err());
        AVAILABLE.store(10, Ordering::Relaxed);
        let mut ring = Ring::open(config, Origin::default()).unwrap();
        ring.append(&frame(3)).unwrap();
        assert_eq!(Recording::open(dir.path()).unwrap().times(), [1000, 3000]);
    }

    #[test]
    fn files_are_synced_when_they_end_unless_the_directory_does_not_last() {
        use std::cell::Cell;
        thread_local!(static SYNCED: Cell<u32> = const { Cell::new(0) });
        let synced = |configure: fn(RingConfig) -> RingConfig| {
            let dir = tempfile::tempdir().unwrap();
            let mut config = RingConfig::new(dir.path().to_owned(), LEAST_SIZE);
            config.sync = Some(|_| {
                SYNCED.set(SYNCED.get() + 1);
                Ok(())
            });
            SYNCED.set(0);
            let mut ring = Ring::open(configure(config), Origin::default()).unwrap();
            (0..=FRAMES as u64).for_each(|second| ring.append(&frame(second)).unwrap());
            SYNCED.get()
        };
        assert!(synced(|config| config) >= 1, "the file that ended");
        assert_eq!(synced(|config| config.without_sync().thinned()), 0);
    }

    #[test]
    fn the_free_part_of_a_real_disk_is_read() {
        let config = RingConfig::new("/".into(), LEAST_SIZE);
        assert!(config.free.is_none(), "a ring of a command may fill the disk");
        let (blocks, available) = config.thinned().free.unwrap()(Path::new("/")).unwrap();
        assert!(blocks > 0 && available <= blocks, "{available} of {blocks}");
    }
}
