//! Where pages go: redrawn in place on a terminal, written plainly elsewhere.

use std::io::{self, IsTerminal, Write};

/// Cursor to the top left; hides and shows the cursor; clears to the end of line and of screen (ECMA-48, DEC private).
const HOME: &str = "\x1b[H";
const HIDE_CURSOR: &str = "\x1b[?25l";
const SHOW_CURSOR: &str = "\x1b[?25h";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Standard output.
pub(super) struct Screen {
    live: bool,
    drawn: bool,
}

impl Screen {
    /// `redraw`: pages replace each other, if standard output is a terminal.
    pub(super) fn new(redraw: bool) -> Self {
        Self { live: redraw && io::stdout().is_terminal(), drawn: false }
    }

    /// Pages replace each other.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// Writes a page.
    ///
    /// # Errors
    /// Standard output is closed.
    pub(super) fn draw(&mut self, page: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if !self.live {
            return match writeln!(out, "{page}") {
                // `demo | head` has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                written => written,
            };
        }
        let begin = if self.drawn { HOME.to_owned() } else { format!("{HIDE_CURSOR}{HOME}{CLEAR_BELOW}") };
        self.drawn = true;
        // Over what is there rather than on a cleared screen, which would flicker.
        let lines: String = page.lines().map(|line| format!("{line}{CLEAR_LINE}\n")).collect();
        write!(out, "{begin}{lines}{CLEAR_BELOW}")?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.drawn {
            let mut out = io::stdout().lock();
            // A terminal that is gone needs no cursor.
            let _ = write!(out, "{SHOW_CURSOR}").and_then(|()| out.flush());
        }
    }
}
