//! Decides whether to accept an empty list. Pure: time is an argument.
//!
//! A kubelet lists nothing for up to 16 s after its start (`items: null`), while its containers
//! keep running. Names are kept meanwhile; a drained node loses them one minute later.

use std::time::{Duration, Instant};

/// Time for which lists must stay empty before one is accepted against the evidence.
const DOUBT: Duration = Duration::from_secs(60);

/// Remembers since when lists have been empty.
#[derive(Debug, Default)]
pub(super) struct EmptyLists {
    since: Option<Instant>,
}

impl EmptyLists {
    /// Whether to accept a list. `pods_run`: the index has pods, or cgroups wait for a name.
    pub(super) fn believes(&mut self, is_empty: bool, pods_run: bool, now: Instant) -> bool {
        if !is_empty {
            self.since = None;
            return true;
        }
        let since = *self.since.get_or_insert(now);
        !pods_run || now.duration_since(since) >= DOUBT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_list_is_accepted_without_contrary_evidence() {
        assert!(EmptyLists::default().believes(true, false, Instant::now()));
    }

    #[test]
    fn while_pods_run_an_empty_list_is_believed_only_when_it_lasts() {
        let mut lists = EmptyLists::default();
        let now = Instant::now();
        assert!(!lists.believes(true, true, now));
        assert!(!lists.believes(true, true, now + DOUBT - Duration::from_nanos(1)));
        assert!(lists.believes(true, true, now + DOUBT));
    }

    #[test]
    fn a_list_with_pods_ends_the_doubt() {
        let mut lists = EmptyLists::default();
        let now = Instant::now();
        assert!(!lists.believes(true, true, now));
        assert!(lists.believes(false, true, now + DOUBT));
        assert!(!lists.believes(true, true, now + DOUBT * 2));
    }
}
