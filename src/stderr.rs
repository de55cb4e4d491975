//! Standard error, written by a separate thread. A reader that stops reading blocks nothing; a broken pipe or a full
//! disk stops nothing. Lines that do not fit into the queue are dropped, and counted in the log itself.

use std::io::{self, Write};
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Maximum number of queued lines.
const CAPACITY: usize = 1024;
/// Maximum length of a line, bytes; longer lines are cut.
const LONGEST: usize = 16 * 1024;
const CUT: &[u8] = "…\n".as_bytes();

static QUEUE: OnceLock<Option<Queue>> = OnceLock::new();

enum Item {
    Line(Vec<u8>),
    /// Answered once everything queued before is written.
    Flush(SyncSender<()>),
}

/// Queue of lines to be written.
struct Queue {
    items: SyncSender<Item>,
    lost: Arc<AtomicU64>,
}

impl Queue {
    fn new() -> (Self, Receiver<Item>) {
        let (items, receiver) = sync_channel(CAPACITY);
        (Self { items, lost: Arc::default() }, receiver)
    }

    fn put(&self, line: &[u8]) {
        let mut kept = line[..line.len().min(LONGEST)].to_vec();
        if kept.len() < line.len() {
            kept.extend_from_slice(CUT);
        }
        if self.items.try_send(Item::Line(kept)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes whole lines to standard error. Never blocks and never fails.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stderr;

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

/// Prints a line of the command itself, prefixed with the program's name.
pub(crate) fn say(text: impl std::fmt::Display) {
    // Writing to the queue cannot fail.
    let _ = Stderr.write(format!("cpuwarden: {text}\n").as_bytes());
}

/// Waits until everything is written, at most this long.
pub(crate) fn flush(at_most: Duration) {
    let Some(Some(queue)) = QUEUE.get() else { return };
    let (written, done) = sync_channel(1);
    let deadline = Instant::now() + at_most;
    while queue.items.try_send(Item::Flush(written.clone())).is_err() {
        if Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = done.recv_timeout(deadline.saturating_duration_since(Instant::now()));
}

/// Reports a panic of any thread in the log, or as a plain line without a logger.
pub(crate) fn report_panic(panic: &PanicHookInfo<'_>) {
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

fn queue() -> Option<&'static Queue> {
    let start = || {
        let (queue, items) = Queue::new();
        let lost = Arc::clone(&queue.lost);
        let write = move || write_all(&items, &lost, &mut io::stderr());
        std::thread::Builder::new().name("log".to_owned()).spawn(write).is_ok().then_some(queue)
    };
    QUEUE.get_or_init(start).as_ref()
}

fn write_all(items: &Receiver<Item>, lost: &AtomicU64, out: &mut impl Write) {
    while let Ok(item) = items.recv() {
        match item {
            // A line that standard error rejects is lost.
            Item::Line(line) => drop(out.write_all(&line)),
            Item::Flush(written) => drop(written.try_send(())),
        }
        let lost = lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(lost, "log lines were lost: standard error was not read in time");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_lost_and_counted_and_a_long_line_is_cut() {
        let (queue, items) = Queue::new();
        queue.put(&[b'x'; 2 * LONGEST]);
        (0..CAPACITY + 4).for_each(|_| queue.put(b"line\n"));
        assert_eq!(queue.lost.load(Ordering::Relaxed), 5);
        let lost = Arc::clone(&queue.lost);
        drop(queue);
        let mut written = Vec::new();
        write_all(&items, &lost, &mut written);
        let text = String::from_utf8(written).unwrap();
        assert_eq!(text.lines().count(), CAPACITY);
        assert_eq!(text.lines().next().unwrap().chars().count(), LONGEST + 1);
        assert_eq!(lost.load(Ordering::Relaxed), 0, "it was said");
    }

    #[test]
    fn a_writer_that_fails_ends_nothing() {
        let (queue, items) = Queue::new();
        (0..3).for_each(|_| queue.put(b"line\n"));
        drop(queue);
        // An empty slice accepts no bytes.
        write_all(&items, &AtomicU64::new(0), &mut &mut [][..]);
    }
}
