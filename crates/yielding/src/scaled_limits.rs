//! Publication of the scaled quotas: a reader of cgroups learns the limits behind them.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use snapshot::{Published, ScaledQuota, ScaledQuotas};

use crate::checkpoint::{Checkpoint, Key, Written};
use crate::setting::{Kind, quota_usec};

/// Time for which a quota stays published after its end: it may just have been read.
const LATE_READING: Duration = Duration::from_secs(2);

/// The scaled quotas that are published, and when each was last in the checkpoint.
#[derive(Debug, Default)]
pub(crate) struct ScaledLimits {
    known: HashMap<PathBuf, (ScaledQuota, Instant)>,
}

impl ScaledLimits {
    /// Publishes the scaled quotas of a checkpoint. To be called before they are written.
    pub(crate) fn follow(
        &mut self,
        checkpoint: &Checkpoint,
        now: Instant,
        slot: &Published<ScaledQuotas>,
    ) {
        let scaled = checkpoint.written.iter().filter_map(scaled_quota);
        self.known.extend(scaled.map(|(path, quota)| (path, (quota, now))));
        self.known.retain(|_, (_, seen)| now.saturating_duration_since(*seen) < LATE_READING);
        if self.known.is_empty() && slot.latest().0.is_empty() {
            return;
        }
        let known = self.known.iter().map(|(path, (quota, _))| (path.clone(), quota.clone()));
        slot.publish(ScaledQuotas(known.collect()));
    }
}

fn scaled_quota((key, was): (&Key, &Written)) -> Option<(PathBuf, ScaledQuota)> {
    if key.1 != Kind::ScaledQuota {
        return None;
    }
    let quotas = [Some(&was.wrote), was.replaces.as_ref()].into_iter().flatten();
    let limit_usec = quota_usec(&was.original.value)?;
    let quotas_usec = quotas.filter_map(|value| quota_usec(value)).collect();
    Some((key.0.clone(), ScaledQuota { limit_usec, quotas_usec }))
}

#[cfg(test)]
mod tests {
    use crate::setting::Original;

    use super::*;

    fn checkpoint(wrote: &str, replaces: Option<&str>) -> Checkpoint {
        let original = Original { value: "20000 100000".to_owned(), weight: None, burst: None };
        let written = Written {
            namespace: String::new(),
            pod: String::new(),
            inode: 1,
            original,
            wrote: wrote.to_owned(),
            replaces: replaces.map(str::to_owned),
        };
        let mut checkpoint = Checkpoint::default();
        checkpoint.written.insert(("pod/app".into(), Kind::ScaledQuota), written.clone());
        checkpoint.written.insert(("batch".into(), Kind::Quota), written);
        checkpoint
    }

    #[test]
    fn the_limit_is_known_from_before_the_write_until_the_last_reading() {
        let (mut limits, slot, start) =
            (ScaledLimits::default(), Published::default(), Instant::now());
        let mut limit_of = |checkpoint: &Checkpoint, millis: u64, quota| {
            limits.follow(checkpoint, start + Duration::from_millis(millis), &slot);
            slot.latest().limit_usec("pod/app", quota)
        };
        let first = checkpoint("24000 100000", Some("20000 100000"));
        assert_eq!(limit_of(&first, 0, 24_000), Some(20_000));
        let second = checkpoint("28800 100000", Some("24000 100000"));
        assert_eq!(limit_of(&second, 1000, 24_000), Some(20_000), "not written yet");
        assert_eq!(limit_of(&second, 1000, 28_800), Some(20_000));
        let ended = Checkpoint::default();
        assert_eq!(limit_of(&ended, 2000, 28_800), Some(20_000), "read before its end");
        assert_eq!(limit_of(&ended, 3000, 28_800), None, "now it is a limit of its own");
        assert_eq!(slot.latest().0.len(), 0);
    }

    #[test]
    fn a_quota_of_best_effort_pods_is_their_limit() {
        let slot = Published::default();
        let checkpoint = checkpoint("24000 100000", None);
        ScaledLimits::default().follow(&checkpoint, Instant::now(), &slot);
        assert_eq!(slot.latest().limit_usec("batch", 24_000), None);
    }
}
