//! `/proc/PID/task/TID/schedstat`.

use crate::flat::digits;
use crate::{ParseError, Result};

/// `sched_info` of one task (fs/proc/base.c `proc_pid_schedstat`); needs only `CONFIG_SCHED_INFO`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TaskSchedstat {
    /// Time on a CPU, nanoseconds.
    pub run_ns: u64,
    /// Time runnable but waiting, including throttled time, nanoseconds.
    pub run_delay_ns: u64,
}

impl TaskSchedstat {
    /// Parses `RUN_NS DELAY_NS TIMESLICES`.
    ///
    /// # Errors
    /// Fails for fewer than two numbers.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut numbers = text.trim_ascii().split(|&byte| byte == b' ').map(digits);
        match (numbers.next().flatten(), numbers.next().flatten()) {
            (Some(run_ns), Some(run_delay_ns)) => Ok(Self { run_ns, run_delay_ns }),
            _ => Err(ParseError::unexpected("schedstat", text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_and_delay_are_nanoseconds() {
        let stat = TaskSchedstat::parse(b"2128785449 3608000000 517\n").unwrap();
        assert_eq!((stat.run_ns, stat.run_delay_ns), (2_128_785_449, 3_608_000_000));
    }

    #[test]
    fn bad_text_is_an_error() {
        assert!(TaskSchedstat::parse(b"").is_err());
        assert!(TaskSchedstat::parse(b"1").is_err());
        assert!(TaskSchedstat::parse(b"a b c").is_err());
    }
}
