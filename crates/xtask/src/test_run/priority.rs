//! Priority for CPU time of what runs at the same time.

use std::ffi::OsStr;
use std::process::Command;

/// Priority for CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Priority {
    /// The default.
    Normal,
    /// The policy `SCHED_IDLE`: it takes only what the others leave of the CPUs, and a thread of
    /// theirs that wakes up preempts it at once.
    Idle,
}

impl Priority {
    /// Of nodes and lints next to host tests. Next to processes that spin all the time, idle ones
    /// would starve.
    pub(super) fn next_to_host_tests(spinners: u32) -> Self {
        if spinners == 0 { Self::Idle } else { Self::Normal }
    }

    /// A command that starts a program with this priority.
    pub(super) fn command(self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Normal => Command::new(program),
            Self::Idle => {
                let mut command = Command::new("chrt");
                command.args(["--idle", "0"]).arg(program);
                command
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy of a shell that the command starts, as `/proc/self/sched` has it: 0 for the default,
    /// 5 for `SCHED_IDLE`.
    fn policy(priority: Priority) -> String {
        let mut command = priority.command("sh");
        command.args(["-c", r#"set -- $(cat "/proc/$$/stat"); echo "${41}""#]);
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn idle_is_a_policy_of_the_kernel() {
        assert_eq!(policy(Priority::Normal), "0");
        assert_eq!(policy(Priority::next_to_host_tests(0)), "5");
        assert_eq!(policy(Priority::next_to_host_tests(8)), "0");
    }
}
