//! Bounds on the log's lines: owners of pods decide how often some of them are written, and how long
//! their names and annotations are.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use crate::stderr::{LONGEST, Stderr};

/// Maximum number of lines of one place in the code in [`PER`].
const LINES: u32 = 100;
const PER: Duration = Duration::from_secs(10);
/// Maximum length of a text in a JSON line that is too long, bytes.
const TEXT: usize = 256;

/// Limits the rate of each place in the code that logs at info or above.
#[derive(Debug, Default)]
pub(crate) struct RateLimit(Mutex<HashMap<Identifier, Window>>);

/// Lines of one place since a time.
#[derive(Debug, Clone, Copy)]
struct Window {
    since: Instant,
    lines: u32,
}

impl RateLimit {
    /// Whether another line of this place is written, and how many were left out before.
    fn admit(&self, place: Identifier, now: Instant) -> (bool, u32) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(place).or_insert(Window { since: now, lines: 0 });
        let mut left_out = 0;
        if now.saturating_duration_since(window.since) >= PER {
            left_out = window.lines.saturating_sub(LINES);
            *window = Window { since: now, lines: 0 };
        }
        window.lines = window.lines.saturating_add(1);
        (window.lines <= LINES, left_out)
    }
}

impl<S: Subscriber> Layer<S> for RateLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return true;
        }
        let (is_admitted, left_out) = self.admit(metadata.callsite(), Instant::now());
        if left_out > 0 {
            tracing::warn!(left_out, module = metadata.target(), "left out similar log lines");
        }
        is_admitted
    }
}

/// Writes lines of JSON to standard error; one that is too long keeps its fields, with shorter
/// texts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct JsonLines;

impl Write for JsonLines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let shorter = (line.len() > LONGEST).then(|| shortened(line)).flatten();
        Stderr.write(shorter.as_deref().unwrap_or(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line with texts of at most [`TEXT`] bytes.
fn shortened(line: &[u8]) -> Option<Vec<u8>> {
    let mut value = serde_json::from_slice(line).ok()?;
    shorten(&mut value);
    let mut line = serde_json::to_vec(&value).ok()?;
    line.push(b'\n');
    Some(line)
}

fn shorten(value: &mut Value) {
    match value {
        Value::String(text) if text.len() > TEXT => {
            text.truncate(text.floor_char_boundary(TEXT));
            text.push('…');
        }
        Value::Object(fields) => fields.values_mut().for_each(shorten),
        Value::Array(values) => values.iter_mut().for_each(shorten),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use tracing::Metadata;
    use tracing::callsite::Callsite;
    use tracing::subscriber::Interest;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::testing::MemoryLog;

    /// A place in the code.
    struct Place;

    impl Callsite for Place {
        fn set_interest(&self, _: Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("nothing is logged here")
        }
    }

    #[test]
    fn one_place_does_not_flood_the_log() {
        let log = MemoryLog::default();
        let writer = log.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let subscriber = tracing_subscriber::registry().with(RateLimit::default()).with(lines);
        tracing::subscriber::with_default(subscriber, || {
            (0..10 * LINES).for_each(|number| tracing::info!(number, "of a pod"));
            tracing::info!("another place");
        });

        let text = log.text();
        assert_eq!(text.matches("of a pod").count(), LINES as usize);
        assert_eq!(text.matches("another place").count(), 1);
    }

    #[test]
    fn what_was_left_out_is_counted_with_the_next_line() {
        let (limit, start) = (RateLimit::default(), Instant::now());
        let place = Identifier(&Place);
        let admitted = (0..LINES + 7).filter(|_| limit.admit(place.clone(), start).0).count();
        assert_eq!(admitted, LINES as usize);
        assert_eq!(limit.admit(place.clone(), start + PER), (true, 7));
        assert_eq!(limit.admit(place, start + PER), (true, 0));
    }

    #[test]
    fn a_long_json_line_stays_json() {
        let long = "é".repeat(LONGEST);
        let line = serde_json::json!({ "fields": { "message": "m", "pod": [long, 7] } });
        let shorter = shortened(format!("{line}\n").as_bytes()).unwrap();
        let value: Value = serde_json::from_slice(&shorter).unwrap();
        let pod = value["fields"]["pod"][0].as_str().unwrap();
        assert_eq!(
            (pod.len(), pod.ends_with('…'), &value["fields"]["pod"][1]),
            (TEXT + 3, true, &7.into())
        );
        assert!(shorter.ends_with(b"\n") && shorter.len() < LONGEST);
        assert_eq!(shortened(b"text"), None);
    }
}
