//! The page as a scraper sees it: parsed strictly, checked by promtool, and compared with golden
//! pages.

mod cap;
mod compressed;
mod contents;
mod golden;
mod parser;
mod presets;
mod promtool;
mod sizing;
#[path = "../snapshots/mod.rs"]
mod snapshots;

use metrics::Format;
use parser::Family;

const FORMATS: [Format; 2] = [Format::Text, Format::OpenMetrics];

/// A limit that is never reached here.
const NO_CAP: usize = usize::MAX;

fn read(page: &[u8], format: Format) -> Vec<Family> {
    parser::parse(page, format)
        .unwrap_or_else(|reason| panic!("{format:?}: {reason}\n{}", String::from_utf8_lossy(page)))
}
