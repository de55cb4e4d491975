//! Keys.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::app::{App, View};
use crate::history::key;
use crate::source::Control;

/// Keys and their meaning, for the help.
pub(crate) const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", if cfg!(unix) { "quit; Ctrl-Z stops the program until fg" } else { "quit" }),
    ("up, down, j, k", "select a row, or scroll; also PgUp, PgDn, Home, End"),
    ("Enter", "open the selected pod; Tab shows its next container, Esc goes back"),
    ("a", "reverse the view: the pods that others wait for"),
    ("t", "the node's CPUs: load and owner"),
    (
        "/",
        "filter by parts of namespace/pod/container: all words must match, and none after ! or -. Enter keeps it, Esc clears it; Ctrl-W removes a word, Ctrl-U all",
    ),
    ("s, S", "sort by the next or the previous shown column; r reverses the order"),
    ("p, Space", "pause and continue, no second is lost; in the past: to now"),
    ("left, right", "1 s back or forward; [ ] 1 min, { } 1 h; 0 $ ends; + - speed"),
    ("@", "go to a time: 03:04 (UTC), 2026-11-22T03:04:05Z, or -10m"),
    ("?", "this help"),
];

impl App {
    /// Processes a key; returns the command that it means for a recording.
    pub fn key(&mut self, event: KeyEvent) -> Option<Control> {
        if event.kind == KeyEventKind::Release {
            return None;
        }
        if event.modifiers.contains(KeyModifiers::CONTROL) {
            self.control_key(event.code);
            return None;
        }
        if self.is_typing {
            self.type_filter(event.code);
            return None;
        }
        if self.typed_time.is_some() {
            return self.type_time(event.code);
        }
        let position = self.position.is_some();
        match event.code {
            KeyCode::Char('q') => self.is_done = true,
            KeyCode::Char('?' | 'h') => self.show_help(!self.help),
            KeyCode::Esc => self.back(),
            _ if self.help => self.scroll_by(event.code),
            KeyCode::Char('p' | ' ') if position => return Some(Control::Pause(!self.is_paused)),
            KeyCode::Char('p' | ' ') => self.pause(!self.is_paused),
            KeyCode::Char('@') => self.typed_time = Some(String::new()),
            code if control(code).is_some() => return control(code),
            code => self.command(code),
        }
        None
    }

    fn control_key(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('c') => self.is_done = true,
            // Windows has no job control.
            KeyCode::Char('z') => self.is_suspending = cfg!(unix),
            KeyCode::Char('u') if self.is_typing => self.filter_mut().clear(),
            KeyCode::Char('w') if self.is_typing => {
                let filter = self.filter_mut();
                let words = filter.trim_end();
                filter.truncate(words.rfind(' ').map_or(0, |at| at + 1));
            }
            _ => {}
        }
    }

    fn command(&mut self, code: KeyCode) {
        match code {
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char(key @ ('s' | 'S')) => self.sort_by_next(key == 'S'),
            KeyCode::Char('r') => self.is_ascending = !self.is_ascending,
            KeyCode::Char('a') => self.turn_round(),
            KeyCode::Char('t') => self.show_topology(),
            KeyCode::Enter => self.open(),
            KeyCode::Backspace => self.back(),
            KeyCode::Tab => self.next_container(),
            code => match self.view {
                View::Victims | View::Aggressors => self.move_selection(code),
                View::Detail(_) | View::Topology => self.scroll_by(code),
            },
        }
    }

    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter_mut().clear();
            }
            KeyCode::Backspace => drop(self.filter_mut().pop()),
            KeyCode::Char(char) if char.is_ascii_graphic() || char == ' ' => {
                self.filter_mut().push(char);
            }
            _ => {}
        }
    }

    /// Edits the typed time. Returns the command when it is complete; a wrong one stays.
    fn type_time(&mut self, code: KeyCode) -> Option<Control> {
        let typed = self.typed_time.as_mut()?;
        match code {
            KeyCode::Enter => match typed.parse() {
                Ok(moment) => {
                    self.typed_time = None;
                    return Some(Control::At(moment));
                }
                Err(error) => self.status = error,
            },
            KeyCode::Esc => {
                self.typed_time = None;
                self.status.clear();
            }
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Char(char) if char.is_ascii_graphic() || char == ' ' => typed.push(char),
            _ => {}
        }
        None
    }

    /// Sorts the current table by its next column, or by the previous one.
    fn sort_by_next(&mut self, is_back: bool) {
        match self.view {
            View::Victims => self.sort = self.sort.next(&self.columns, is_back),
            View::Aggressors => self.harm_sort = self.harm_sort.next(is_back),
            View::Detail(_) | View::Topology => return,
        }
        self.is_ascending = false;
    }

    fn show_help(&mut self, help: bool) {
        self.help = help;
        self.scroll = 0;
    }

    fn back(&mut self) {
        self.scroll = 0;
        if self.help {
            self.help = false;
        } else if matches!(self.view, View::Detail(_) | View::Topology) {
            self.view = self.table.clone();
        } else {
            self.filter_mut().clear();
            if self.view == View::Victims {
                self.only = None;
            }
        }
    }

    fn turn_round(&mut self) {
        self.scroll = 0;
        let is_victims = self.view == View::Victims;
        self.view = if is_victims { View::Aggressors } else { View::Victims };
    }

    fn show_topology(&mut self) {
        self.scroll = 0;
        if self.view == View::Topology {
            self.view = self.table.clone();
            return;
        }
        if !matches!(self.view, View::Detail(_)) {
            self.table = self.view.clone();
        }
        self.view = View::Topology;
    }

    fn next_container(&mut self) {
        let View::Detail(shown) = &self.view else { return };
        let rows = self.containers_of(shown);
        let at = rows.iter().position(|row| row.container == shown.2).unwrap_or(0);
        if let Some(next) = rows.get((at + 1) % rows.len().max(1)) {
            self.view = View::Detail(key(next));
            self.scroll = 0;
        }
    }

    fn move_selection(&mut self, code: KeyCode) {
        let (at, count) = self.selection();
        let last = count.saturating_sub(1);
        let to = match code {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => at + 1,
            KeyCode::PageUp => at.saturating_sub(self.page),
            KeyCode::PageDown => at + self.page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            KeyCode::End | KeyCode::Char('G') => last,
            _ => return,
        };
        self.select(to.min(last));
    }

    fn scroll_by(&mut self, code: KeyCode) {
        self.scroll = match code {
            KeyCode::Up | KeyCode::Char('k') => self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll + 1,
            KeyCode::PageUp => self.scroll.saturating_sub(self.page),
            KeyCode::PageDown => self.scroll + self.page,
            KeyCode::Home | KeyCode::Char('g') => 0,
            // Drawing limits it.
            KeyCode::End | KeyCode::Char('G') => usize::MAX / 2,
            _ => return,
        };
    }
}

/// Keys that move in time.
fn control(code: KeyCode) -> Option<Control> {
    Some(match code {
        KeyCode::Left => Control::Step(-1),
        KeyCode::Right => Control::Step(1),
        KeyCode::Char('[') => Control::Step(-60),
        KeyCode::Char(']') => Control::Step(60),
        KeyCode::Char('{') => Control::Step(-3600),
        KeyCode::Char('}') => Control::Step(3600),
        KeyCode::Char('+') => Control::Faster,
        KeyCode::Char('-') => Control::Slower,
        KeyCode::Char('0') => Control::Start,
        KeyCode::Char('$') => Control::End,
        _ => return None,
    })
}
