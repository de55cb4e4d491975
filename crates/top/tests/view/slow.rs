//! Number of bytes that a frame sends, which is what a slow line feels.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use crate::scene::{SIZES, Screen, frame};

/// Counts the bytes that are written.
#[derive(Clone, Default)]
struct Line(Arc<AtomicUsize>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.fetch_add(bytes.len(), Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn only_changed_cells_are_sent() {
    for (width, height) in SIZES {
        let line = Line::default();
        let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
        let backend = CrosstermBackend::new(line.clone());
        let mut terminal = Terminal::with_options(backend, TerminalOptions { viewport }).unwrap();
        let mut screen = Screen::colored((width, height));
        (0..60).for_each(|second| screen.show(frame(second)));
        let mut draw = |screen: &mut Screen| {
            terminal.draw(|frame| screen.app.render(frame.area(), frame.buffer_mut())).unwrap();
            line.0.swap(0, Ordering::Relaxed)
        };
        let whole = draw(&mut screen);
        assert!(whole > 1000, "{whole} bytes for the whole screen");
        let unchanged = draw(&mut screen);
        assert!(unchanged < 50, "{unchanged} bytes for an unchanged screen");
        // The clock.
        screen.show(frame(60));
        let second = draw(&mut screen);
        assert!((1..100).contains(&second), "{second} bytes for an idle second");
    }
}
