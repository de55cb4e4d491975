//! The program of one container: detection of its runtime, and the result.

use api::Runtime;
use runtimes::{Detector, Machine};
use snapshot::ContainerRow;

/// Number of windows between two detections for an old process. A process that an init starts late
/// is found within this time.
const LOOK_EVERY: u64 = 300;

/// Detection result for the first process.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pid: Option<u32>,
    machine: Machine,
    /// Number of windows since the process was first seen.
    windows: u64,
    /// Whether the next detection is due as soon as the container has run.
    is_due: bool,
    /// CPU time of the container at the last detection, nanoseconds: without CPU time since then
    /// the program is the same.
    used_ns: Option<u64>,
    runtime: Option<Runtime>,
}

impl Program {
    /// Detects again if the first process, its CPUs or its limit have changed. If the process runs,
    /// also detects periodically: often after its start, when it may still be the container runtime
    /// or a shell, and then less and less often.
    pub(crate) fn follow(&mut self, row: &ContainerRow, detector: &mut Detector) {
        if self.pid != row.first_pid {
            *self = Self { pid: row.first_pid, ..Self::default() };
        }
        let Some(pid) = self.pid else { return };
        self.windows += 1;
        let limit_cores = row.own_limit_cores();
        let first_limit_cores = self.machine.first_limit_cores.or(limit_cores);
        let cpus = row.cpuset.as_ref().map(|cpuset| cpuset.count);
        let machine = Machine { cpus, limit_cores, first_limit_cores };
        self.is_due |= self.windows.is_power_of_two() || self.windows.is_multiple_of(LOOK_EVERY);
        let used_ns = row.usage_ns;
        let has_run = used_ns.is_none() || used_ns != self.used_ns;
        if self.is_due && has_run || machine != self.machine {
            (self.machine, self.used_ns, self.is_due) = (machine, used_ns, false);
            self.runtime = detector.detect(pid, machine);
        }
    }

    #[cfg(test)]
    pub(crate) fn with_runtime(runtime: Runtime) -> Self {
        Self { runtime: Some(runtime), ..Self::default() }
    }

    pub(crate) fn runtime(&self) -> Option<&Runtime> {
        self.runtime.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::time::Duration;

    use api::Language;
    use snapshot::{Bandwidth, Quota};

    use super::*;

    /// A process in a fake `/proc`, with an executable of this name.
    fn exec(proc_root: &Path, pid: u32, name: &str) {
        let directory = proc_root.join(pid.to_string());
        fs::create_dir_all(&directory).unwrap();
        let _ = fs::remove_file(directory.join("exe"));
        fs::write(proc_root.join(name), "").unwrap();
        symlink(proc_root.join(name), directory.join("exe")).unwrap();
    }

    fn detector(proc_root: &Path) -> Detector {
        Detector::new(proc_root.to_owned()).with_timeout(Duration::MAX)
    }

    fn row(pid: u32, limit_cores: u64) -> ContainerRow {
        let quota = Quota::Usec(limit_cores * 100_000);
        ContainerRow {
            first_pid: Some(pid),
            bandwidth: Some(Bandwidth { quota, period_usec: 100_000 }),
            ..ContainerRow::default()
        }
    }

    fn found(program: &Program) -> Option<(Language, Option<u32>)> {
        program.runtime().map(|runtime| (runtime.language, runtime.parallelism))
    }

    #[test]
    fn a_limit_that_changes_shows_at_once() {
        let root = tempfile::tempdir().unwrap();
        let (mut program, mut detector) = (Program::default(), detector(root.path()));
        exec(root.path(), 7, "java");
        for limit in [2, 2, 2, 4, 3] {
            program.follow(&row(7, limit), &mut detector);
            assert_eq!(found(&program), Some((Language::Jvm, Some(limit as u32))));
        }
        // .NET reads its limit only at startup.
        exec(root.path(), 8, "dotnet");
        for limit in [2, 4] {
            program.follow(&row(8, limit), &mut detector);
            assert_eq!(found(&program), Some((Language::Dotnet, Some(2))));
        }
    }

    #[test]
    fn a_shell_that_execs_a_program_is_detected_within_five_minutes() {
        let root = tempfile::tempdir().unwrap();
        let (mut program, mut detector) = (Program::default(), detector(root.path()));
        exec(root.path(), 7, "sh");
        program.follow(&row(7, 2), &mut detector);
        assert_eq!(found(&program), Some((Language::Unknown, None)));
        exec(root.path(), 7, "node");
        program.follow(&row(7, 2), &mut detector);
        assert_eq!(found(&program), Some((Language::Nodejs, Some(1))));
        (0..1098).for_each(|_| program.follow(&row(7, 2), &mut detector));
        exec(root.path(), 7, "java");
        let windows = (1..=300).find(|_| {
            program.follow(&row(7, 2), &mut detector);
            found(&program) == Some((Language::Jvm, Some(2)))
        });
        assert_eq!(windows, Some(100), "the 1200th");
    }

    #[test]
    fn an_idle_container_is_inspected_only_after_it_has_run() {
        let root = tempfile::tempdir().unwrap();
        let (mut program, mut detector) = (Program::default(), detector(root.path()));
        let used = |usage_ns| ContainerRow { usage_ns: Some(usage_ns), ..row(7, 2) };
        exec(root.path(), 7, "sh");
        program.follow(&used(5), &mut detector);
        // Changes the executable without any CPU time, which no real process can do.
        exec(root.path(), 7, "node");
        (0..1000).for_each(|_| program.follow(&used(5), &mut detector));
        assert_eq!(found(&program), Some((Language::Unknown, None)));
        program.follow(&used(6), &mut detector);
        assert_eq!(found(&program), Some((Language::Nodejs, Some(1))));
    }

    #[test]
    fn a_process_that_is_gone_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (mut program, mut detector) = (Program::default(), detector(root.path()));
        exec(root.path(), 7, "java");
        program.follow(&row(7, 2), &mut detector);
        program.follow(&ContainerRow::default(), &mut detector);
        assert_eq!(found(&program), None);
    }
}
