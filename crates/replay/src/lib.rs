//! `cpuwarden replay`: shows a recording.

mod frames;
mod page;

pub use page::Page;

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use clap::Args;
use console::{Failure, Moment, listen_address, output, stderr};
use timeline::recording::{self, Recording};
use top::{App, Look, Playback, Signals, Source as _, show};

use frames::{Frames, open};

/// Width of the table that is not drawn on a terminal, columns.
const WIDTH: usize = 120;

/// Options of `cpuwarden replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// File, or directory in which an agent records
    #[arg(value_name = "FILE|DIR")]
    pub path: PathBuf,
    /// Time at which to begin, within the recording, UTC: 2026-11-22T03:04:05Z, 03:04, or -10m
    /// (before the end) [default: the first second; the last one for a table and for the page]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub at: Option<Moment>,
    /// Also serve the page and the JSON API on the recording at this address: the ten minutes
    /// before the time, and each second after it when it is due. Only these if standard output is
    /// not a terminal
    #[arg(long, value_name = "ADDR:PORT", value_parser = listen_address)]
    #[arg(conflicts_with_all = ["once", "output"])]
    pub listen: Option<SocketAddr>,
    /// Print one second, and exit
    #[arg(long)]
    pub once: bool,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: ReplayOutput,
}

/// Output format of `replay`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ReplayOutput {
    /// The view of top, or a table if standard output is not a terminal
    #[default]
    Text,
    /// One frame per line
    Json,
}

/// Shows a recording.
///
/// # Errors
/// The recording cannot be opened or is one of a later version, or the terminal is gone.
pub fn replay(args: &ReplayArgs) -> Result<(), Failure> {
    let mut recording = open(&args.path)?;
    for note in recording.notes() {
        let (path, at, length) = (note.path.display(), note.at, note.length);
        stderr::say(format!("{path}: skipped {length} bytes at {at}: {}", note.reason));
    }
    // The clock may have been wrong before: the frame that was recorded last has the best time.
    let (start, end) = (recording.span().0, recording.last_ms());
    let is_live = !args.once && io::stdout().is_terminal();
    let at = match args.at {
        Some(at) => inside(&recording, at.before(end))?,
        // A table and the page show the end; a playback begins at the start.
        None if args.listen.is_some() => end,
        None if args.output == ReplayOutput::Text && !is_live => end,
        None => start,
    };
    if let Some(address) = args.listen.filter(|_| !is_live) {
        return page::serve(recording, at, address);
    }
    match args.output {
        ReplayOutput::Json => {
            let stdout = BufWriter::new(io::stdout().lock());
            // Without a time: from the first frame, also if the clock was wrong later.
            let first = args.at.map_or(0, |_| recording.position(at));
            match print_frames(&mut recording, first, args.once, stdout) {
                // A closed pipe, as with `head`.
                Err(Printing::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                Err(Printing::Output(error)) => Err(error).context("cannot print the frames")?,
                Err(Printing::Input(error)) => Err(Failure::config(error.to_string())),
                Ok(()) => Ok(()),
            }
        }
        ReplayOutput::Text if is_live => {
            let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
            runtime.block_on(async {
                let mut signals = Signals::new()?;
                let end = async {
                    signals.any().await;
                    Ok(())
                };
                let mut app = App::new(Look::from_env());
                let mut page = None;
                if let Some(address) = args.listen {
                    // The page plays the recording independently of the view.
                    let started = Page::start(open(&args.path)?, at, address)?;
                    app = app.with_notes(vec![format!("page: http://{}/", started.address())]);
                    page = Some(started);
                }
                let viewed = view(recording, at, app, end).await;
                if let Some(page) = page {
                    page.stop().await;
                }
                viewed
            })
        }
        ReplayOutput::Text => {
            let app = App::new(Look { color: false, ..Look::from_env() });
            output::show(&table(recording, at, app, WIDTH));
            Ok(())
        }
    }
}

/// The time, if the recording has it.
///
/// # Errors
/// It is before the first frame or after the last one; the text has the range.
fn inside(recording: &Recording, at: u64) -> Result<u64, Failure> {
    // A time on the command line has no milliseconds.
    const SECOND_MS: u64 = 1000;
    let (start, end) = recording.span();
    if (start.saturating_sub(SECOND_MS)..=end + SECOND_MS).contains(&at) {
        return Ok(at);
    }
    Err(Failure::config(format!(
        "--at: {} is outside of the recording, which has {} to {}",
        utc(at),
        utc(start),
        utc(end)
    )))
}

/// A time in UTC.
fn utc(ms: u64) -> impl std::fmt::Display {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_millis(ms))
}

/// Shows the view on a recording, from a time on, until the user leaves or `end` returns.
///
/// # Errors
/// The error of `end`, or standard output is not a terminal.
pub async fn view(
    recording: Recording,
    at: u64,
    app: App,
    end: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    show(app, Playback::new(Frames(recording), at), end).await
}

/// The table of the view at a time, of at most `width` columns.
#[must_use]
pub fn table(recording: Recording, at: u64, mut app: App, width: usize) -> String {
    Playback::new(Frames(recording), at).updates().into_iter().for_each(|update| app.apply(update));
    top::table(&app, width)
}

/// Reason why frames were not printed.
#[derive(Debug)]
enum Printing {
    Input(recording::Error),
    Output(io::Error),
}

/// Prints a frame as JSON, and unless `once`, all that were recorded later.
fn print_frames(
    recording: &mut Recording,
    first: usize,
    once: bool,
    mut to: impl Write,
) -> Result<(), Printing> {
    let last = if once { first } else { recording.times().len().saturating_sub(1) };
    for number in first..=last {
        let Some(frame) = recording.frame(number).map_err(Printing::Input)? else { continue };
        let json = serde_json::to_string(&frame).map_err(io::Error::from);
        // JSON escapes only some of the control characters.
        let written = json.and_then(|json| writeln!(to, "{}", output::printable(&json)));
        written.map_err(Printing::Output)?;
    }
    to.flush().map_err(Printing::Output)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use api::Frame;
    use timeline::recording::Origin;

    use super::*;

    /// 2026-11-22T03:00:00Z.
    const THREE: u64 = 1_795_316_400_000;

    fn recording(dir: &tempfile::TempDir) -> Recording {
        let frame = |second: u64| Frame {
            at_ms: THREE + second * 1000,
            seconds: 1.0,
            containers: vec![api::ContainerFrame {
                namespace: "shop".to_owned(),
                pod: format!("checkout-{second}"),
                container: "app".to_owned(),
                ..api::ContainerFrame::default()
            }],
            ..Frame::default()
        };
        let frames: Vec<Frame> = (0..300).map(frame).collect();
        let path = dir.path().join("recording");
        std::fs::write(&path, recording::encode(&frames, &Origin::default()).unwrap()).unwrap();
        Recording::open(&path).unwrap()
    }

    #[test]
    fn control_characters_in_a_files_name_do_not_reach_the_terminal() {
        let dir = tempfile::tempdir().unwrap();
        drop(recording(&dir));
        let mut bytes = std::fs::read(dir.path().join("recording")).unwrap();
        bytes.truncate(bytes.len() - 1);
        let path = dir.path().join("\x1b[2Jrecording\u{9b}2J");
        std::fs::write(&path, bytes).unwrap();
        let printed = Command::new(std::env::current_exe().unwrap())
            .args(["tests::print_notes", "--exact", "--ignored", "--nocapture"])
            .env("RECORDING", path)
            .output()
            .unwrap();
        let notes = String::from_utf8(printed.stderr).unwrap();
        let name = "/\u{fffd}[2Jrecording\u{fffd}2J: skipped ";
        assert!(printed.status.success() && notes.contains(name), "{notes:?}");
        assert!(!notes.contains(['\x1b', '\u{9b}']), "{notes:?}");
    }

    /// Runs in a process of its own.
    #[test]
    #[ignore = "started by another test"]
    fn print_notes() {
        let path = std::env::var_os("RECORDING").unwrap().into();
        let output = ReplayOutput::Text;
        replay(&ReplayArgs { path, at: None, listen: None, once: true, output }).unwrap();
        stderr::flush();
    }

    #[test]
    fn a_time_outside_of_the_recording_is_an_error_with_the_range() {
        let dir = tempfile::tempdir().unwrap();
        let recording = recording(&dir);
        for at in [THREE - 999, THREE, THREE + 299_999] {
            assert_eq!(inside(&recording, at).ok(), Some(at));
        }
        for (at, text) in
            [(THREE - 60_000, "2026-11-22T02:59:00Z"), (THREE + 360_000, "2026-11-22T03:06:00Z")]
        {
            let error = inside(&recording, at).unwrap_err().to_string();
            let range = "is outside of the recording, which has 2026-11-22T03:00:00Z to \
                         2026-11-22T03:04:59Z";
            assert_eq!(error, format!("--at: {text} {range}"));
        }
    }

    #[test]
    fn json_has_the_frame_of_the_time_or_all_from_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut recording = recording(&dir);
        let mut printed = |at, once| {
            let mut text = Vec::new();
            let first = recording.position(at);
            print_frames(&mut recording, first, once, &mut text).unwrap();
            let frame = |line: &str| serde_json::from_str::<Frame>(line).unwrap().at_ms;
            String::from_utf8(text).unwrap().lines().map(frame).collect::<Vec<u64>>()
        };
        assert_eq!(printed(THREE + 5500, true), [THREE + 5000]);
        assert_eq!(printed(THREE + 297_000, false), [297, 298, 299].map(|s| THREE + s * 1000));
    }

    #[test]
    fn the_table_shows_the_second_of_the_time() {
        let dir = tempfile::tempdir().unwrap();
        let app = App::new(Look { color: false, unicode: true });
        let text = table(recording(&dir), THREE + 130_000, app, WIDTH);
        assert!(text.contains("checkout-130") && !text.contains("checkout-131"), "{text}");
    }
}
