//! The page as a scraper sees it: read back by a strict parser, checked by promtool, compared with golden pages.

mod cap;
mod contents;
mod golden;
mod parser;
mod promtool;
#[path = "../snapshots/mod.rs"]
mod snapshots;

use metrics::Format;
use parser::Family;

const FORMATS: [Format; 2] = [Format::Text, Format::OpenMetrics];

/// A cap that nothing here reaches.
const NO_CAP: usize = usize::MAX;

fn read(page: &[u8], format: Format) -> Vec<Family> {
    parser::parse(page, format)
        .unwrap_or_else(|reason| panic!("{format:?}: {reason}\n{}", String::from_utf8_lossy(page)))
}
