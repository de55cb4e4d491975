//! When the work of busy containers comes up inside a second: a few at a time are read every 20 ms for two seconds.
//!
//! A thread of its own, so that the sampler's ticks and the endpoint never wait for it. Waking costs more than reading:
//! several are read side by side, and once each has been, none for a while.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use analysis::{READ_EVERY_NS, READINGS, UsageTrace};
use cgroupfs::{Hierarchy, KeptFile, Version};
use kernel_text::{CpuStat, parse_u64};

use super::{Advisor, ROUND};
use crate::watchdog::{Beat, keep_running};

/// Containers that are read at a time.
const SIDE_BY_SIDE: usize = 8;

const READ_EVERY: Duration = Duration::from_nanos(READ_EVERY_NS);

/// Until it is looked again where nothing is busy.
const IDLE: Duration = Duration::from_secs(2);

/// Between two looks once every busy container has had one.
const PAUSE: Duration = Duration::from_secs(6);

/// The running thread, which ends when this is dropped.
pub(crate) struct ArrivalSampler {
    _stop: mpsc::Sender<()>,
}

/// Starts the thread.
///
/// # Errors
/// The system has no thread left.
pub(crate) fn sample_arrivals(
    advisor: Advisor,
    hierarchy: Hierarchy,
    beat: Beat,
    panicked: impl FnMut() + Send + 'static,
) -> std::io::Result<ArrivalSampler> {
    let (stop, stopped) = mpsc::channel();
    let sample = move |stopped: &Receiver<()>| {
        while sample_once(&advisor, &hierarchy, stopped).is_some() {
            beat.beat(ROUND);
        }
    };
    let run = move || keep_running(&stopped, panicked, || sample(&stopped));
    std::thread::Builder::new().name("arrivals".to_owned()).spawn(run)?;
    Ok(ArrivalSampler { _stop: stop })
}

/// `None` when it is to end.
fn sample_once(advisor: &Advisor, hierarchy: &Hierarchy, stopped: &Receiver<()>) -> Option<()> {
    let wanted = advisor.due_for_trace(SIDE_BY_SIDE);
    let mut readers: Vec<_> =
        wanted.iter().filter_map(|(labels, cgroup)| Some((labels, Reader::open(hierarchy, cgroup)?))).collect();
    if readers.is_empty() {
        return wait(stopped, IDLE);
    }
    let began = Instant::now();
    for number in 0..READINGS as u32 {
        wait(stopped, (READ_EVERY * number).saturating_sub(began.elapsed()))?;
        readers.iter_mut().for_each(|(_, reader)| reader.read(began));
    }
    for (labels, reader) in &readers {
        if let Some(trace) = UsageTrace::from_readings(&reader.readings) {
            advisor.learn(labels, trace);
        }
    }
    if advisor.awaits_first_trace() { Some(()) } else { wait(stopped, PAUSE) }
}

fn wait(stopped: &Receiver<()>, time: Duration) -> Option<()> {
    matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout)).then_some(())
}

/// One container's use.
struct Reader {
    version: Version,
    file: KeptFile,
    buffer: Vec<u8>,
    /// Nanoseconds since the start, and CPU time used until then.
    readings: Vec<(u64, u64)>,
}

impl Reader {
    /// `None` where it is gone.
    fn open(hierarchy: &Hierarchy, cgroup: &str) -> Option<Self> {
        let version = hierarchy.version;
        let (mount, name): (&Path, _) = match version {
            Version::V1 => (hierarchy.cpuacct.as_deref()?, "cpuacct.usage"),
            Version::V2 => (&hierarchy.cpu, "cpu.stat"),
        };
        let file = KeptFile::open(&mount.join(cgroup.trim_start_matches('/')), name).ok()??;
        Some(Self { version, file, buffer: Vec::new(), readings: Vec::with_capacity(READINGS) })
    }

    /// A reading that fails is missing.
    fn read(&mut self, began: Instant) {
        let Ok(text) = self.file.read(&mut self.buffer) else { return };
        let used_ns = match self.version {
            Version::V1 => parse_u64("cpuacct.usage", text).ok(),
            Version::V2 => CpuStat::parse(text).ok().and_then(|stat| stat.usage_ns),
        };
        let at_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.readings.extend(used_ns.map(|used_ns| (at_ns, used_ns)));
    }
}
