//! The burst of a pod or container.

use kernel_text::CgroupVersion;
use state_dir::Written;

use super::{Access, Place};
use crate::Result;

/// `cpu.max.burst` (v2) and `cpu.cfs_burst_us` (v1).
pub(super) struct Burst;

/// The value that every quota allows.
pub(crate) const NO_BURST: &str = "0";

impl Access for Burst {
    fn file(&self, version: CgroupVersion) -> &'static str {
        match version {
            CgroupVersion::V1 => "cpu.cfs_burst_us",
            CgroupVersion::V2 => "cpu.max.burst",
        }
    }

    fn is_ours(&self, was: &Written, found: &str) -> bool {
        was.values().any(|value| value == found || is_divided(found, value))
    }

    fn restore(&self, place: &Place, was: &Written, _all_cpus: &str) -> Result<()> {
        let Some(now) = self.read(place)? else { return Ok(()) };
        if !self.is_ours(was, &now.value) && !is_lowered(was, &now.value) {
            return Ok(());
        }
        match self.write(place, &was.original.value, was) {
            // The quota has shrunk below the original burst.
            Err(error) if error.is_rejected() => self.write(place, NO_BURST, was),
            written => written,
        }
    }
}

/// Reads a burst, microseconds; `None` without one.
pub(super) fn read(place: &Place) -> Result<Option<u64>> {
    let text = place.read(Burst.file(place.version))?;
    Ok(text.and_then(|text| text.parse().ok()).filter(|&usec| usec > 0))
}

/// Writes a burst, microseconds.
pub(crate) fn write(place: &Place, usec: u64) -> Result<()> {
    place.write(Burst.file(place.version), &usec.to_string())
}

/// Whether the burst may be what a resize left: it lowers a burst before the checkpoint knows, and
/// the process may end in between.
fn is_lowered(was: &Written, found: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    number(found).is_some() && was.values().any(|wrote| number(found) < number(wrote))
}

/// Whether `found` is what kernels before 6.10 make of a burst: each write of `cpu.max` divides it
/// by 1000 (fixed by commit 49217ea147 of Linux). With the systemd driver a resize writes twice,
/// which leaves 0 of a burst below one second.
pub(crate) fn is_divided(found: &str, wrote: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    let (Some(found), Some(wrote)) = (number(found), number(wrote)) else { return false };
    let divided = |usec: &u64| (*usec > 0).then_some(usec / 1000);
    std::iter::successors(Some(wrote), divided).skip(1).any(|usec| usec == found)
}

#[cfg(test)]
mod tests {
    use state_dir::Original;

    use super::*;

    #[test]
    fn a_burst_may_have_been_divided_more_than_once() {
        let is = |found, wrote| is_divided(found, wrote);
        assert!(is("20", "20999") && is("0", "20999") && is("2", "2000000") && is("0", "2000000"));
        assert!(!is("20999", "20999") && !is("21", "20999") && !is("2", "20999"));
        assert!(!is("0", "0") && !is("", "20999") && !is("0", "max"));
    }

    #[test]
    fn a_burst_that_the_kernel_divided_is_still_ours() {
        let was = Written {
            namespace: String::new(),
            pod: String::new(),
            inode: 0,
            original: Original { value: "0".to_owned(), ..Original::default() },
            wrote: "20000".to_owned(),
            replaces: Some("30000".to_owned()),
        };
        let is_ours = |found| Burst.is_ours(&was, found);
        assert!(["20000", "30000", "20", "30", "0"].into_iter().all(is_ours));
        assert!(!is_ours("10000"));
    }
}
