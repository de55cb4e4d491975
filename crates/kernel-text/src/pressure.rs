//! Pressure files (PSI) of a cgroup, such as `cpu.pressure`, and of the node.

use crate::flat::digits;
use crate::{ParseError, Result};

/// Totals of a pressure file, nanoseconds. (kernel/sched/psi.c `psi_show`.)
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which at least one task waited for the resource, nanoseconds.
    pub some_ns: Option<u64>,
    /// Time in which every non-idle task waited, nanoseconds. Of the CPU: available for a cgroup
    /// since 5.13, always 0 for the node.
    pub full_ns: Option<u64>,
}

impl Pressure {
    /// Parses `some avg10=… total=USEC` and `full …`.
    ///
    /// # Errors
    /// Fails for a line without `total=`.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut pressure = Self::default();
        for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            let total =
                total_usec(line).ok_or_else(|| ParseError::unexpected("pressure file", line))?;
            let total_ns = total.checked_mul(1000);
            if line.starts_with(b"some ") {
                pressure.some_ns = total_ns;
            } else if line.starts_with(b"full ") {
                pressure.full_ns = total_ns;
            }
        }
        Ok(pressure)
    }
}

/// `total=` has always been the last token of a PSI line.
fn total_usec(line: &[u8]) -> Option<u64> {
    let last = line.rsplit(|&byte| byte == b' ').next()?;
    digits(last.strip_prefix(b"total=")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read() {
        // uname -r 6.18.44
        let text =
            b"some avg10=0.36 avg60=0.08 avg300=0.25 total=2549366\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let pressure = Pressure::parse(text).unwrap();
        assert_eq!((pressure.some_ns, pressure.full_ns), (Some(2_549_366_000), Some(7000)));
    }

    #[test]
    fn full_is_absent_before_5_13() {
        let pressure =
            Pressure::parse(b"some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n").unwrap();
        assert_eq!((pressure.some_ns, pressure.full_ns), (Some(1000), None));
    }

    #[test]
    fn a_line_without_total_is_an_error() {
        assert!(Pressure::parse(b"some avg10=0.00\n").is_err());
        assert_eq!(Pressure::parse(b"").unwrap(), Pressure::default());
    }
}
