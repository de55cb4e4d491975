//! Budget of reviews of new tokens per peer. Pure; time is an argument.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(30);
/// Maximum number of new tokens of a peer per window.
const STRANGER: u32 = 3;
/// The same for a peer that has had a valid token: its token changes, but not often.
const TRUSTED: u32 = 20;
/// Time for which a peer with a valid token counts as trusted.
const TRUSTED_FOR: Duration = Duration::from_secs(2 * 3600);
/// Maximum number of peers in the table.
const PEERS: usize = 1024;

/// Remaining budget of each peer.
#[derive(Debug, Default)]
pub(super) struct Budget(HashMap<IpAddr, Account>);

#[derive(Debug, Clone, Copy)]
struct Account {
    began: Instant,
    used: u32,
    trusted_until: Option<Instant>,
}

impl Account {
    fn is_trusted(&self, now: Instant) -> bool {
        self.trusted_until.is_some_and(|until| until > now)
    }
}

impl Budget {
    /// Whether this peer may have another token reviewed now.
    pub(super) fn take(&mut self, peer: IpAddr, now: Instant) -> bool {
        let account = self.account(peer, now);
        if now.saturating_duration_since(account.began) >= WINDOW {
            (account.began, account.used) = (now, 0);
        }
        account.used += 1;
        account.used <= if account.is_trusted(now) { TRUSTED } else { STRANGER }
    }

    /// Marks the peer as trusted, because its token was valid.
    pub(super) fn trust(&mut self, peer: IpAddr, now: Instant) {
        self.account(peer, now).trusted_until = Some(now + TRUSTED_FOR);
    }

    fn account(&mut self, peer: IpAddr, now: Instant) -> &mut Account {
        if self.0.len() >= PEERS && !self.0.contains_key(&peer) {
            let is_in_use =
                |account: &Account| now.saturating_duration_since(account.began) < WINDOW;
            self.0.retain(|_, account| account.is_trusted(now) || is_in_use(account));
        }
        self.0.entry(peer).or_insert(Account { began: now, used: 0, trusted_until: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn unknown_clients_have_a_separate_small_review_budget() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        let taken = (0..1000).filter(|_| budget.take(peer(1), now)).count();
        assert_eq!(taken, 3);
        assert!(budget.take(peer(2), now));
        assert!(budget.take(peer(1), now + WINDOW));
    }

    #[test]
    fn a_peer_with_a_good_token_may_bring_new_ones() {
        let (mut budget, now) = (Budget::default(), Instant::now());
        budget.trust(peer(1), now);
        assert_eq!((0..1000).filter(|_| budget.take(peer(1), now)).count(), 20);
        let later = now + TRUSTED_FOR;
        assert_eq!((0..1000).filter(|_| budget.take(peer(1), later)).count(), 3);
    }
}
