//! Output of pages: redrawn in place on a terminal, otherwise written one after another.

use std::io::{self, IsTerminal, Write};

/// Moves the cursor to the top left; hides and shows the cursor; clears to the end of line and of
/// screen (ECMA-48, DEC private).
const HOME: &str = "\x1b[H";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Standard output.
pub struct Screen {
    live: bool,
    drawn: bool,
}

impl Screen {
    /// `redraw`: replace the previous page, if standard output is a terminal.
    pub fn new(redraw: bool) -> Self {
        Self { live: redraw && io::stdout().is_terminal(), drawn: false }
    }

    /// Whether pages replace each other.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// Writes a page.
    ///
    /// # Errors
    /// Standard output is closed.
    pub fn draw(&mut self, page: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.live {
            return match writeln!(out, "{page}") {
                // `demo | head` closes the pipe early.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written,
            };
        }
        let begin =
            if self.drawn { HOME.to_owned() } else { format!("{HIDE_CURSOR}{HOME}{CLEAR_BELOW}") };
        self.drawn = true;
        // Overwrites the page, since clearing the screen first would flicker.
        let lines: String = page.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
        write!(out, "{begin}{lines}{CLEAR_BELOW}")?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.drawn {
            let mut out = io::stdout().lock();
            // Fails if the terminal is gone, and then the cursor does not matter.
            let _ = write!(out, "{SHOW_CURSOR}").and_then(|()| out.flush());
        }
    }
}
