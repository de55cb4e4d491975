//! Connects the view to a terminal, and restores it.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::io::{self, BufWriter};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread::{self, ThreadId};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::app::App;
use crate::source::Source;
#[cfg(unix)]
pub(crate) use unix::{Input, columns, stop_job};
#[cfg(windows)]
pub(crate) use windows::{Input, columns, stop_job};

/// Time between two polls of the source while no key is pressed.
const LOOK: Duration = Duration::from_millis(100);

/// Size of the largest frame that is written at once, bytes.
const BUFFER: usize = 256 << 10;

/// Shows the view on standard output until the user leaves or `stop` returns true. The thread that
/// calls it must be the only one that reads standard input.
///
/// # Errors
/// Standard output is not a terminal, or it is gone.
pub fn run(app: &mut App, source: &mut impl Source, stop: impl Fn() -> bool) -> io::Result<()> {
    let input = Input::open()?;
    let _raw = RawTerminal::enter()?;
    // A frame is one write: on a busy machine a part of it would stay visible.
    let out = BufWriter::with_capacity(BUFFER, io::stdout());
    let mut terminal = Terminal::new(CrosstermBackend::new(out))?;
    let mut is_changed = true;
    while !app.is_done() && !stop() {
        for update in source.updates() {
            app.apply(update);
            is_changed = true;
        }
        if is_changed {
            terminal.draw(|frame| {
                let area = frame.area();
                app.render(area, frame.buffer_mut());
            })?;
            is_changed = false;
        }
        input.wait(LOOK)?;
        if !event::poll(Duration::ZERO)? {
            continue;
        }
        is_changed = true;
        // After several keys at once, only the last state is drawn: a slow connection stays usable.
        while !app.is_done() && event::poll(Duration::ZERO)? {
            if let Event::Key(key) = event::read()?
                && let Some(control) = app.key(key)
            {
                source.control(control);
            }
        }
        if std::mem::take(&mut app.is_suspending) {
            suspend()?;
            terminal.clear()?;
        }
    }
    Ok(())
}

/// Stops the processes of this job, with the terminal restored, until they are continued.
fn suspend() -> io::Result<()> {
    restore();
    stop_job()?;
    change()
}

/// The terminal in raw mode, on its alternate screen; restored on drop and before the message of a
/// panic of this thread.
struct RawTerminal;

impl RawTerminal {
    fn enter() -> io::Result<Self> {
        restore_on_panic(thread::current().id());
        let raw = Self;
        change()?;
        Ok(raw)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        restore();
    }
}

/// Whether the terminal must be restored.
static IS_CHANGED: AtomicBool = AtomicBool::new(false);

/// Sets raw mode and the alternate screen.
fn change() -> io::Result<()> {
    enable_raw_mode()?;
    // From here on there is something to restore.
    IS_CHANGED.store(true, Ordering::Relaxed);
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Restores the terminal once: to leave the alternate screen again would move the cursor back to
/// where it was before, and what follows would overwrite the message of a panic.
fn restore() {
    if !IS_CHANGED.swap(false, Ordering::Relaxed) {
        return;
    }
    // Fails if the terminal is gone, and then nothing must be restored.
    let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Adds the restoration to the panic hook, so that the message appears on the restored terminal.
fn restore_on_panic(drawing: ThreadId) {
    static ADDED: Once = Once::new();
    ADDED.call_once(|| {
        let report: Arc<dyn Fn(&panic::PanicHookInfo<'_>) + Send + Sync> =
            panic::take_hook().into();
        panic::set_hook(Box::new(move |info| {
            if thread::current().id() == drawing {
                restore();
            }
            report(info);
        }));
    });
}
