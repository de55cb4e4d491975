//! Cache of the API server's answers, with the time of the next review. Pure; time is an argument.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Lifetimes of cached answers, as in kube-rbac-proxy and the API server itself: longer for allowed
/// than for denied.
const ALLOWED_FOR: Duration = Duration::from_secs(120);
const DENIED_FOR: Duration = Duration::from_secs(30);
/// Age at which a token in use is reviewed again.
const RENEW_AFTER: Duration = Duration::from_secs(60);
/// Time for which a token that was valid uses the client for renewals.
const GOOD_FOR: Duration = Duration::from_secs(3600);
/// Maximum number of cached answers for tokens that are not valid: unknown clients must not fill
/// the memory.
const STRANGERS: usize = 128;
/// Maximum number of cached answers.
const KEPT: usize = 256;

/// Answer of the API server for a token and a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Allowed,
    /// The token is invalid.
    Unknown,
    /// The user may not read the path.
    Denied,
}

/// Token and path of a review.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) token: Box<str>,
    pub(super) path: Box<str>,
}

/// State of a token in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Fresh(Access),
    /// Allowed, and due for another review.
    Renew,
    /// Was allowed, but must be reviewed again before access.
    Expired,
    None,
}

#[derive(Debug, Default)]
pub(super) struct Kept(HashMap<Key, KeptAccess>);

#[derive(Debug, Clone, Copy)]
struct KeptAccess {
    access: Access,
    at: Instant,
    renewing: bool,
}

impl Kept {
    pub(super) fn recall(&mut self, key: &Key, now: Instant) -> Answer {
        let Some(entry) = self.0.get_mut(key) else { return Answer::None };
        let age = now.saturating_duration_since(entry.at);
        match entry.access {
            Access::Allowed if age >= GOOD_FOR => Answer::None,
            Access::Allowed if age >= ALLOWED_FOR => Answer::Expired,
            Access::Allowed if age >= RENEW_AFTER && !entry.renewing => {
                entry.renewing = true;
                Answer::Renew
            }
            Access::Unknown | Access::Denied if age >= DENIED_FOR => Answer::None,
            access => Answer::Fresh(access),
        }
    }

    pub(super) fn keep(&mut self, key: Key, access: Access, now: Instant) {
        let strangers = self.0.values().filter(|entry| entry.access != Access::Allowed).count();
        if strangers >= STRANGERS {
            self.0.retain(|_, entry| entry.access == Access::Allowed);
        }
        if self.0.len() >= KEPT {
            self.0.retain(|_, entry| now.saturating_duration_since(entry.at) < ALLOWED_FOR);
        }
        if self.0.len() < KEPT || self.0.contains_key(&key) {
            self.0.insert(key, KeptAccess { access, at: now, renewing: false });
        }
    }

    /// Records that the API server did not answer; the next request tries again.
    pub(super) fn not_renewed(&mut self, key: &Key) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.renewing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(token: &str) -> Key {
        Key { token: token.into(), path: "/metrics".into() }
    }

    #[test]
    fn a_good_token_is_renewed_once_before_its_time_is_over() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        kept.keep(key("good"), Access::Allowed, now);
        let mut at = |seconds| kept.recall(&key("good"), now + Duration::from_secs(seconds));
        assert_eq!(at(59), Answer::Fresh(Access::Allowed));
        assert_eq!(at(61), Answer::Renew);
        assert_eq!(at(62), Answer::Fresh(Access::Allowed), "one renewal at a time");
        assert_eq!(at(121), Answer::Expired);
        kept.not_renewed(&key("good"));
        assert_eq!(kept.recall(&key("good"), now + Duration::from_secs(63)), Answer::Renew);
    }

    #[test]
    fn invalid_tokens_do_not_evict_valid_ones() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        kept.keep(key("good"), Access::Allowed, now);
        for number in 0..10_000 {
            kept.keep(key(&number.to_string()), Access::Unknown, now);
        }
        assert_eq!(kept.recall(&key("good"), now), Answer::Fresh(Access::Allowed));
        assert!(kept.0.len() <= KEPT);
    }

    #[test]
    fn rejections_are_cached_for_30_seconds() {
        let (mut kept, now) = (Kept::default(), Instant::now());
        kept.keep(key("bad"), Access::Denied, now);
        assert_eq!(
            kept.recall(&key("bad"), now + Duration::from_secs(29)),
            Answer::Fresh(Access::Denied)
        );
        assert_eq!(kept.recall(&key("bad"), now + Duration::from_secs(30)), Answer::None);
    }
}
