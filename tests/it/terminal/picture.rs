//! Pictures of `cpuwarden top` for deploy/docs: a screen of tmux, drawn by a browser.

use std::net::SocketAddr;
use std::path::Path;

use super::Tmux;
use crate::page::browser::Browser;
use crate::support::binary;

/// Colors of the terminal: text, background, and the eight of ANSI.
const TEXT: &str = "#d8dce2";
const BACKGROUND: &str = "#14171c";
const ANSI: [&str; 8] =
    ["#14171c", "#ff6b7a", "#7bd88f", "#f0b04a", "#6aa6ff", "#c792ea", "#5fd0d8", "#d8dce2"];
/// Height of a line, and margin, pixels.
const LINE: u32 = 18;
const MARGIN: u32 = 14;
const COLUMNS: u32 = 104;
/// Width of a character of `MARKUP`'s font, rounded up, in tenths of a pixel.
const CHARACTER: u32 = 85;

/// Writes `top-table.png` and `top-pod.png` of the agent at this address.
pub(crate) fn write(browser: &Browser, address: SocketAddr, directory: &Path) {
    let tmux = Tmux::start(COLUMNS as usize, 15);
    tmux.keys(&[&format!("exec {} top --address {address}", binary().display()), "Enter"]);
    tmux.wait_for("shop/checkout");
    draw(browser, &tmux, 15, &directory.join("top-table.png"));
    tmux.filter("checkout", ">L shop/checkout");
    tmux.keys(&["Enter"]);
    tmux.wait_for("used, limit 0.20");
    tmux.resize(COLUMNS as usize, 26);
    tmux.wait_for("findings, and the change");
    draw(browser, &tmux, 26, &directory.join("top-pod.png"));
}

fn draw(browser: &Browser, tmux: &Tmux, height: u32, file: &Path) {
    let screen = tmux.run(&["capture-pane", "-p", "-e", "-N"]);
    let page = format!(
        "<pre style='margin:0;font:14px/{LINE}px DejaVu Sans Mono,monospace;color:{TEXT}'>{}</pre>",
        html(&screen)
    );
    browser.look(COLUMNS * CHARACTER / 10 + 2 * MARGIN, height * LINE + 2 * MARGIN, "dark");
    browser.open("about:blank");
    let style = format!("margin:{MARGIN}px;background:{BACKGROUND}");
    let page = serde_json::Value::from(page);
    browser.run(&format!(
        "document.body.setAttribute('style', '{style}'); document.body.innerHTML = {page}"
    ));
    browser.screenshot(file);
}

/// Attributes of text, from the escape sequences before it.
#[derive(Debug, Clone, Default)]
struct Style {
    bold: bool,
    dim: bool,
    reversed: bool,
    text: Option<usize>,
    background: Option<usize>,
}

impl Style {
    /// Applies the codes of a sequence, such as `1;38;5;1`: bold, and red of 256 colors.
    fn apply_all(&mut self, codes: &str) {
        let mut codes = codes.split(';').map(|code| code.parse().unwrap_or_default());
        while let Some(code) = codes.next() {
            match code {
                38 => self.text = codes.nth(1).filter(|color| *color < ANSI.len()),
                48 => self.background = codes.nth(1).filter(|color| *color < ANSI.len()),
                code => self.apply(code),
            }
        }
    }

    fn apply(&mut self, code: usize) {
        match code {
            0 => *self = Self::default(),
            1 => self.bold = true,
            2 => self.dim = true,
            7 => self.reversed = true,
            22 => (self.bold, self.dim) = (false, false),
            27 => self.reversed = false,
            30..=37 => self.text = Some(code - 30),
            39 => self.text = None,
            40..=47 => self.background = Some(code - 40),
            49 => self.background = None,
            _ => {}
        }
    }

    fn css(&self) -> String {
        let mut text = self.text.map_or(TEXT, |at| ANSI[at]);
        let mut background = self.background.map_or("transparent", |at| ANSI[at]);
        if self.reversed {
            let behind = self.background.map_or(BACKGROUND, |at| ANSI[at]);
            (text, background) = (behind, text);
        }
        let weight = if self.bold { 700 } else { 400 };
        let opacity = if self.dim { 0.6 } else { 1.0 };
        format!("color:{text};background:{background};font-weight:{weight};opacity:{opacity}")
    }
}

/// A screen with escape sequences for colors, as markup.
fn html(screen: &str) -> String {
    let mut style = Style::default();
    let mut parts = screen.split("\u{1b}[");
    let mut markup = escaped(parts.next().unwrap_or_default());
    for part in parts {
        let (codes, text) = part.split_once('m').unwrap_or(("", part));
        style.apply_all(codes);
        markup += &format!("<span style='{}'>{}</span>", style.css(), escaped(text));
    }
    markup
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[test]
fn a_screen_keeps_its_colors_and_text() {
    assert_eq!(html("\u{1b}[1;38;5;1m<b\u{1b}[39m"), html("\u{1b}[1;31m<b\u{1b}[39m"));
    let markup = html("a\u{1b}[1;31m<b\u{1b}[0m & \u{1b}[7mc");
    assert!(markup.starts_with("a<span style='color:#ff6b7a;"), "{markup}");
    assert!(markup.contains("font-weight:700;opacity:1'>&lt;b</span>"), "{markup}");
    assert!(markup.contains("font-weight:400;opacity:1'> &amp; </span>"), "{markup}");
    assert!(markup.ends_with(&format!(
        "color:{BACKGROUND};background:{TEXT};font-weight:400;opacity:1'>c</span>"
    )));
}
