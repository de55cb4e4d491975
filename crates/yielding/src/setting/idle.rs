//! `cpu.idle` of a pod.

use kernel_text::CgroupVersion;
use state_dir::{Original, Written};

use super::{Access, Place};
use crate::Result;

/// `cpu.idle`, with the weight that the kernel replaces when it changes.
pub(super) struct Idle;

const FILE: &str = "cpu.idle";

impl Access for Idle {
    fn file(&self, _version: CgroupVersion) -> &'static str {
        FILE
    }

    fn read(&self, place: &Place) -> Result<Option<Original>> {
        let Some(value) = place.read(FILE)? else { return Ok(None) };
        let weight = place.read(weight_file(place.version))?;
        Ok(Some(Original { value, weight, burst: None }))
    }

    /// The weight that the kernel itself sets with `cpu.idle` was not written by another program, so
    /// the older one stays.
    fn rebase(
        &self,
        was: &Written,
        found: Original,
        is_ours: bool,
        version: CgroupVersion,
    ) -> Original {
        if is_ours {
            return was.original.clone();
        }
        let is_default = found.weight.as_deref() == Some(default_weight(version));
        let weight = if is_default { was.original.weight.clone() } else { found.weight };
        Original { weight, ..found }
    }

    /// Clears `cpu.idle`, then restores the weight. A crash in between leaves the kernel's default
    /// weight, which the next restore replaces; any other weight was written by another program.
    fn restore(&self, place: &Place, was: &Written, _all_cpus: &str) -> Result<()> {
        let Some(now) = self.read(place)? else { return Ok(()) };
        let was_idle = now.value == "1";
        if was_idle && was.original.value != "1" {
            place.write(FILE, "0")?;
        }
        let is_default = now.weight.as_deref() == Some(default_weight(place.version));
        match &was.original.weight {
            Some(weight) if was_idle || is_default => {
                place.write(weight_file(place.version), weight)
            }
            _ => Ok(()),
        }
    }
}

/// File of a cgroup's weight.
const fn weight_file(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "cpu.shares",
        CgroupVersion::V2 => "cpu.weight",
    }
}

/// The weight that the kernel sets when `cpu.idle` is cleared.
const fn default_weight(version: CgroupVersion) -> &'static str {
    match version {
        CgroupVersion::V1 => "1024",
        CgroupVersion::V2 => "100",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_that_the_kernel_set_does_not_become_the_original() {
        let of = |value: &str, weight: &str| Original {
            value: value.to_owned(),
            weight: Some(weight.to_owned()),
            burst: None,
        };
        let was = Written {
            namespace: String::new(),
            pod: String::new(),
            inode: 0,
            original: of("0", "2"),
            wrote: "1".to_owned(),
            replaces: None,
        };
        let rebased = |found| Idle.rebase(&was, found, false, CgroupVersion::V2);
        assert_eq!(rebased(of("0", "100")), of("0", "2"));
        assert_eq!(rebased(of("0", "79")), of("0", "79"));
    }
}
