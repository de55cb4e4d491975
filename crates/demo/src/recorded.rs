//! The demo where it may not create cgroups: a recording of it. `recorded/README.md` says how it
//! was made.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use api::{ContainerFrame, Frame, Rates};
use console::{Failure, output, table};
use replay::Page;
use serde_json::{Value, json};
use tempfile::TempDir;
use timeline::recording::Recording;
use top::{App, Look, Signals, columns};

use crate::view::words;
use crate::{DemoArgs, DemoOutput, end, slowed};

const RECORDING: &[u8] = include_bytes!("recorded/demo.cpuwarden");
/// Time in the recording at which the demo begins: the bars of the last minute are then complete.
const FIRST_MINUTE: Duration = Duration::from_secs(60);
/// Time in which a recording has a frame, milliseconds.
const LATEST_MS: u64 = 3000;
/// The next step for a reader: a recording has no findings.
const NEXT: &str = "try next: the demo as root, and then, in another terminal: cpuwarden advise";

/// The recording in a file, deleted on drop.
struct Recorded {
    path: PathBuf,
    _directory: TempDir,
}

impl Recorded {
    fn unpack() -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("cpuwarden-demo-").tempdir();
        let directory = directory.context("no directory for the recorded demo")?;
        let path = directory.path().join("demo.cpuwarden");
        fs::write(&path, RECORDING).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path, _directory: directory })
    }

    fn open(&self) -> anyhow::Result<Recording> {
        Recording::open(&self.path).context("cannot open the recorded demo")
    }
}

/// Shows the recorded demo until the user leaves, its time is over or a signal comes; `why` is the
/// reason why this machine cannot run it.
///
/// # Errors
/// No temporary directory is available, or the terminal is gone.
pub async fn show_recorded(
    args: &DemoArgs,
    why: &anyhow::Error,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let recorded = Recorded::unpack()?;
    let recording = recorded.open()?;
    let (start, last) = recording.span();
    let made = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(start));
    let stage = format!("cpuwarden demo: a recording of {made}, not this machine ({why:#})");
    let begin = start + milliseconds(FIRST_MINUTE);
    if !args.is_live() {
        let until = begin.saturating_add(milliseconds(args.time().unwrap_or_default())).min(last);
        let text = match args.output {
            DemoOutput::Table => printed(recording, until, &stage)?,
            DemoOutput::Json => json(recording, begin, until, &stage)?,
        };
        output::show(&text);
        return Ok(());
    }
    let page = Page::start(recorded.open()?, begin, args.free_address())?;
    let app = App::new(Look::from_env()).with_notes(notes(stage, &args.url(page.address(), "/")));
    let shown = replay::view(recording, begin, app, async {
        tokio::select! {
            () = end(args.time()) => {}
            () = signals.any() => {}
        }
        Ok(())
    });
    let shown = shown.await;
    page.stop().await;
    shown
}

/// Lines above the view.
fn notes(stage: String, page: &str) -> Vec<String> {
    vec![
        stage,
        format!("page: {page}; {NEXT}"),
        "Ctrl-C or q ends the demo; Space pauses, left and right move in time".to_owned(),
    ]
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Who is slowed by whom at a time, and the table of the view, below its stage.
fn printed(mut recording: Recording, until: u64, stage: &str) -> anyhow::Result<String> {
    let width = columns();
    let app = App::new(Look { color: false, ..Look::from_env() });
    let frames = recording.between(until.saturating_sub(LATEST_MS), until);
    let frame = frames.context("cannot read the recorded demo")?.pop().unwrap_or_default();
    let head = table::wrap(stage, width) + &table::wrap(NEXT, width);
    let slowed = slowed::table(&frame, width);
    let words = words(width);
    Ok(format!("{head}\n{slowed}\n{}\n{words}", replay::table(recording, until, app, width)))
}

/// The averages of the frames in this time, in the form of the demo's own table.
fn json(mut recording: Recording, start: u64, until: u64, stage: &str) -> anyhow::Result<String> {
    let frames = recording.between(start, until).context("cannot read the recorded demo")?;
    let slowed = frames.last().map(|frame| &frame.verdicts);
    let page = json!({ "stage": stage, "errors": [], "slowed": slowed, "rows": rows(&frames) });
    Ok(serde_json::to_string_pretty(&page).context("cannot print the table")? + "\n")
}

fn rows(frames: &[Frame]) -> Value {
    let key =
        |row: &ContainerFrame| (row.namespace.clone(), row.pod.clone(), row.container.clone());
    let mut containers: BTreeMap<_, Vec<(&ContainerFrame, f64)>> = BTreeMap::new();
    for frame in frames {
        for row in &frame.containers {
            containers.entry(key(row)).or_default().push((row, frame.seconds));
        }
    }
    let row = |((namespace, pod, container), seen): (_, Vec<(&ContainerFrame, f64)>)| {
        let values = |pick: fn(&Rates) -> Option<f64>| {
            seen.iter().filter_map(move |(row, seconds)| Some((pick(&row.rates)?, *seconds)))
        };
        let mean = |pick| {
            let (sum, time) = values(pick).fold((0.0, 0.0), |(sum, time), (value, seconds)| {
                (sum + value * seconds, time + seconds)
            });
            (time > 0.0).then(|| sum / time)
        };
        json!({
            "namespace": namespace,
            "pod": pod,
            "container": container,
            "seconds": seen.iter().map(|(_, seconds)| seconds).sum::<f64>(),
            "usageCores": mean(|rates| rates.usage_cores),
            "limitCores": seen.last().and_then(|(row, _)| row.limit_cores),
            "throttledShare": mean(|rates| rates.throttled_share),
            "peakThrottledShare":
                values(|rates| rates.throttled_share).map(|(share, _)| share).reduce(f64::max),
            "throttledPeriodsShare": null,
            "throttledOwn": mean(|rates| rates.throttled_own),
            "throttledAncestor": mean(|rates| rates.throttled_ancestor),
        })
    };
    containers.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recording_shows_the_causes_of_waits_for_minutes() {
        let recorded = Recorded::unpack().unwrap();
        let mut recording = recorded.open().unwrap();
        let (start, last) = recording.span();
        assert!(last - start >= 2 * milliseconds(FIRST_MINUTE), "{start} to {last}");
        let frames = recording.between(start, last).unwrap();
        assert!(frames.iter().all(|frame| frame.node.trace.mode == "continuous"));
        let waits = |victim: &str, aggressor: &str| -> f64 {
            let pairs = frames.iter().flat_map(|frame| &frame.interference);
            let is = |pair: &&api::Interference| {
                pair.victim.pod == victim && pair.aggressor.pod == aggressor
            };
            pairs.filter(is).map(|pair| pair.wait).sum()
        };
        assert!(waits("encode", "index") > 10.0, "{}", waits("encode", "index"));
    }

    #[test]
    fn the_recording_says_what_to_try_next() {
        let [stage, next, keys] = &notes("stage".to_owned(), "http://127.0.0.1:9753/")[..] else {
            panic!("not three notes")
        };
        assert_eq!(stage, "stage");
        // Two lines of 80 columns.
        assert!(next.ends_with(": cpuwarden advise") && next.len() < 150, "{next}");
        assert!(keys.contains("Ctrl-C"), "{keys}");
        let recorded = Recorded::unpack().unwrap();
        let recording = recorded.open().unwrap();
        let until = recording.span().0 + milliseconds(FIRST_MINUTE);
        let text = printed(recording, until, "stage").unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.starts_with(&format!("stage {NEXT} ")), "{text}");
    }

    #[test]
    fn rows_are_averages_over_the_time() {
        let frame = |seconds: f64, usage: f64, share: Option<f64>| {
            let mut row = ContainerFrame { limit_cores: Some(0.2), ..ContainerFrame::default() };
            (row.rates.usage_cores, row.rates.throttled_share) = (Some(usage), share);
            Frame { seconds, containers: vec![row], ..Frame::default() }
        };
        let rows = rows(&[frame(1.0, 0.1, None), frame(3.0, 0.5, Some(0.75))]);
        let row = &rows[0];
        assert_eq!((&row["seconds"], &row["usageCores"]), (&4.0.into(), &0.4.into()), "{row}");
        assert_eq!((&row["throttledShare"], &row["throttledOwn"]), (&0.75.into(), &Value::Null));
    }
}
