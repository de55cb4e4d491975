//! Resource use of the agent's own process, as every Prometheus client library reports it.

use std::path::Path;

use cgroupfs::{KeptFile, node, open_descriptors};
use kernel_text::{USER_HZ, parse_u64};
use snapshot::ProcessRow;

/// Index of `starttime` among the fields after the name (`proc_pid_stat(5)`).
const START_TIME: usize = 19;

/// Kept files of this process, and its constant values.
pub(crate) struct OwnProcess {
    statm: Option<KeptFile>,
    page_bytes: u64,
    row: ProcessRow,
}

impl OwnProcess {
    pub(crate) fn new() -> Self {
        let row = ProcessRow { start_time_seconds: start_time(), ..ProcessRow::default() };
        let mut process = Self { statm: None, page_bytes: rustix::param::page_size() as u64, row };
        process.open_missing();
        process.count_descriptors();
        process
    }

    /// Opens the missing files: no descriptor may have been free before.
    pub(crate) fn open_missing(&mut self) {
        if self.statm.is_none() {
            self.statm = KeptFile::open(Path::new("/proc/self"), "statm").ok().flatten();
        }
    }

    /// Counts the open descriptors; before Linux 6.2 this lists each of them.
    pub(crate) fn count_descriptors(&mut self) {
        let descriptors = open_descriptors();
        (self.row.open_fds, self.row.max_fds) = (descriptors.open, descriptors.limit);
    }

    /// Current resource use.
    pub(crate) fn read(&self, buffer: &mut Vec<u8>) -> ProcessRow {
        let text = self.statm.as_ref().and_then(|file| file.read(buffer).ok()).unwrap_or_default();
        let mut pages =
            text.split(|&byte| byte == b' ').map(|number| parse_u64("statm", number).ok());
        let mut bytes = || Some(pages.next()?? * self.page_bytes);
        let (virtual_bytes, resident_bytes) = (bytes(), bytes());
        ProcessRow { cpu_ns: Some(node::own_cpu_ns()), virtual_bytes, resident_bytes, ..self.row }
    }
}

/// Start time of this process, seconds since the epoch.
fn start_time() -> Option<f64> {
    let (own, node) = (
        std::fs::read_to_string("/proc/self/stat").ok()?,
        std::fs::read_to_string("/proc/stat").ok()?,
    );
    Some(boot_time(&node)? + since_boot(&own)?)
}

fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The name, which may contain spaces and parentheses, ends at the last parenthesis.
fn since_boot(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks: f64 = fields.split(' ').nth(START_TIME)?.parse().ok()?;
    Some(ticks / USER_HZ as f64)
}

#[cfg(test)]
mod tests {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_start_is_the_boot_plus_the_ticks_since() {
        let stat = format!("7 (a) b) S {}12345 9 9", "0 ".repeat(18));
        assert_eq!(since_boot(&stat), Some(123.45));
        assert_eq!(boot_time("cpu 1\nbtime 1700000000\nprocesses 1\n"), Some(1_700_000_000.0));
        assert_eq!((since_boot("7 (a"), boot_time("cpu 1\n")), (None, None));
    }

    #[test]
    fn this_process_started_lately_and_uses_something() {
        let row = OwnProcess::new().read(&mut Vec::new());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - row.start_time_seconds.unwrap();
        assert!((-2.0..3600.0).contains(&age), "{age}");
        assert!(row.virtual_bytes > row.resident_bytes && row.resident_bytes > Some(0), "{row:?}");
        assert!(row.open_fds > Some(0) && row.open_fds < row.max_fds, "{row:?}");
    }
}
