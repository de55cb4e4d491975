//! Standard error, written by a separate thread. A reader that stops reading blocks nothing; a
//! broken pipe or a full disk stops nothing. Lines that do not fit into the queue are dropped, and
//! counted in the log itself.

use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Maximum number of queued lines.
const CAPACITY: usize = 1024;
/// Maximum length of a line, bytes; longer lines are cut.
pub(crate) const LONGEST: usize = 4 * 1024;
const CUT: &[u8] = "…\n".as_bytes();
/// Maximum time in a single write at the end: a reader that does not read must not delay the exit.
const BLOCKED: Duration = Duration::from_millis(200);
/// Maximum time for the last lines in all. On a busy node the writing thread may wait that long for
/// a CPU.
const LAST_LINES: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

static QUEUE: OnceLock<Option<Queue>> = OnceLock::new();
static PROGRAM: OnceLock<&'static str> = OnceLock::new();

enum Item {
    Line(Vec<u8>),
    /// Keeps the following lines in memory, or writes them and all later ones.
    Hold(bool),
    /// Answered once everything queued before is written.
    Flush(SyncSender<()>),
}

/// Queue of lines to be written.
struct Queue {
    items: SyncSender<Item>,
    state: Arc<WriterState>,
}

/// State shared with the writing thread.
#[derive(Default)]
struct WriterState {
    /// Lines lost since the last report.
    lost: AtomicU64,
    /// Whether the thread is inside a write.
    writing: AtomicBool,
}

impl Queue {
    fn new() -> (Self, Receiver<Item>) {
        let (items, receiver) = sync_channel(CAPACITY);
        (Self { items, state: Arc::default() }, receiver)
    }

    /// Waits until everything queued is written, or the reader of standard error does not read.
    fn flush(&self) {
        let (written, done) = sync_channel(1);
        let deadline = Instant::now() + LAST_LINES;
        let mut blocked = Duration::ZERO;
        let mut is_queued = false;
        while blocked < BLOCKED && Instant::now() < deadline {
            is_queued = is_queued || self.items.try_send(Item::Flush(written.clone())).is_ok();
            if done.recv_timeout(POLL).is_ok() {
                return;
            }
            blocked = if self.state.writing.load(Ordering::Relaxed) {
                blocked + POLL
            } else {
                Duration::ZERO
            };
        }
    }

    fn put(&self, line: &[u8]) {
        let mut kept = line[..line.len().min(LONGEST)].to_vec();
        if kept.len() < line.len() {
            kept.extend_from_slice(CUT);
        }
        if self.items.try_send(Item::Line(kept)).is_err() {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes whole lines to standard error. Never blocks and never fails.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stderr;

impl Write for Stderr {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(queue) = queue() {
            queue.put(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sets the name that [`say`] puts before its lines, and that hints name; the first call counts.
pub fn name_program(name: &'static str) {
    let _ = PROGRAM.set(name);
}

/// Name of this program as users type it.
#[must_use]
pub fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("cpuwarden")
}

/// Prints a line of the command itself, prefixed with the program's name.
pub fn say(text: impl std::fmt::Display) {
    // Writing to the queue cannot fail.
    let line = format!("{}: {text}\n", program());
    let _ = Stderr.write(crate::output::printable(&line).as_bytes());
}

/// Waits until everything is written, or until standard error is found blocked.
pub fn flush() {
    if let Some(Some(queue)) = QUEUE.get() {
        queue.flush();
    }
}

/// Reports a panic of any thread in the log, or as a plain line without a logger.
pub fn report_panic(panic: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("unnamed");
    let message = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(ToString::to_string).unwrap_or_default();
    if tracing::dispatcher::has_been_set() {
        tracing::error!(thread, place, "panic: {message}");
    } else {
        say(format_args!("panic in thread {thread} at {place}: {message}"));
    }
}

/// Keeps all lines in memory until the returned value is dropped: a view draws on the terminal.
#[must_use]
pub fn hold() -> Held {
    Held::set(true);
    Held
}

/// Lines are kept while this value lives.
#[derive(Debug)]
pub struct Held;

impl Held {
    fn set(is_held: bool) {
        if let Some(queue) = queue() {
            // Fails only if the writing thread is gone.
            let _ = queue.items.send(Item::Hold(is_held));
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        Self::set(false);
    }
}

fn queue() -> Option<&'static Queue> {
    let start = || {
        let (queue, items) = Queue::new();
        let state = Arc::clone(&queue.state);
        let write = move || write_all(&items, &state, &mut io::stderr());
        std::thread::Builder::new().name("log".to_owned()).spawn(write).is_ok().then_some(queue)
    };
    QUEUE.get_or_init(start).as_ref()
}

fn write_all(items: &Receiver<Item>, state: &WriterState, out: &mut impl Write) {
    let mut held: Option<Vec<Vec<u8>>> = None;
    let mut write = |line: &[u8]| {
        state.writing.store(true, Ordering::Relaxed);
        // A line that standard error rejects is lost.
        drop(out.write_all(line));
        state.writing.store(false, Ordering::Relaxed);
    };
    while let Ok(item) = items.recv() {
        match item {
            Item::Line(line) => match &mut held {
                None => write(&line),
                Some(held) if held.len() < CAPACITY => held.push(line),
                Some(_) => drop(state.lost.fetch_add(1, Ordering::Relaxed)),
            },
            Item::Hold(true) => drop(held.get_or_insert_default()),
            Item::Hold(false) => held.take().iter().flatten().for_each(|line| write(line)),
            Item::Flush(written) => drop(written.try_send(())),
        }
        let lost = if held.is_some() { 0 } else { state.lost.swap(0, Ordering::Relaxed) };
        if lost > 0 {
            tracing::warn!(lost, "dropped log lines: the reader of standard error is too slow");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemoryLog;

    #[test]
    fn lines_without_room_are_dropped_and_counted() {
        let (queue, items) = Queue::new();
        queue.put(&[b'x'; 2 * LONGEST]);
        (0..CAPACITY + 4).for_each(|_| queue.put(b"line\n"));
        assert_eq!(queue.state.lost.load(Ordering::Relaxed), 5);
        let state = Arc::clone(&queue.state);
        drop(queue);
        let mut written = Vec::new();
        write_all(&items, &state, &mut written);
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text.lines().count(), CAPACITY);
        assert_eq!(text.lines().next().unwrap().chars().count(), LONGEST + 1);
        assert_eq!(state.lost.load(Ordering::Relaxed), 0, "the loss was reported");
    }

    #[test]
    fn held_lines_are_written_after_the_hold_and_in_order() {
        let (queue, items) = Queue::new();
        queue.put(b"before\n");
        queue.items.send(Item::Hold(true)).unwrap();
        queue.put(b"during\n");
        let state = Arc::clone(&queue.state);
        let log = MemoryLog::default();
        let writer = {
            let mut out = log.clone();
            std::thread::spawn(move || write_all(&items, &state, &mut out))
        };
        queue.flush();
        assert_eq!(log.text(), "before\n");
        queue.items.send(Item::Hold(false)).unwrap();
        queue.put(b"after\n");
        drop(queue);
        writer.join().unwrap();
        assert_eq!(log.text(), "before\nduring\nafter\n");
    }

    #[test]
    fn a_writer_that_fails_ends_nothing() {
        let (queue, items) = Queue::new();
        (0..3).for_each(|_| queue.put(b"line\n"));
        drop(queue);
        // An empty slice accepts no bytes.
        write_all(&items, &WriterState::default(), &mut &mut [][..]);
    }

    #[test]
    fn a_late_writer_thread_still_writes_the_last_line() {
        let (queue, items) = Queue::new();
        queue.put(b"the reason\n");
        let state = Arc::clone(&queue.state);
        let (path, started) = (tempfile::NamedTempFile::new().unwrap(), Instant::now());
        let mut file = path.reopen().unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(3 * BLOCKED);
            write_all(&items, &state, &mut file);
        });
        queue.flush();
        assert!(started.elapsed() >= 3 * BLOCKED);
        assert_eq!(std::fs::read_to_string(path.path()).unwrap(), "the reason\n");
    }

    /// A reader that never reads.
    struct Blocked(Receiver<()>);

    impl Write for Blocked {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_is_given_up_before_the_deadline() {
        let (queue, items) = Queue::new();
        queue.put(b"unread\n");
        let (release, blocked) = sync_channel(1);
        let state = Arc::clone(&queue.state);
        let writer = std::thread::spawn(move || write_all(&items, &state, &mut Blocked(blocked)));
        queue.flush();
        assert!(queue.state.writing.load(Ordering::Relaxed), "the line is still being written");
        drop((release, queue));
        writer.join().unwrap();
    }
}
