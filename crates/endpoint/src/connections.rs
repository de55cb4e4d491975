//! Table of open connections, which decides which one to close when there are too many. Pure; time
//! is an argument.
//!
//! A connection is waiting until it first requests a page. Waiting connections have their own
//! limit; above it the oldest is closed first, so a probe always gets through. Pages are served to
//! a few connections per peer, and to at most [`ADMITTED`] in total. Event streams last, so they
//! have their own limits and never take a place of those who read pages.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

/// Maximum number of connections that have not requested a page: idle, in their TLS handshake, in
/// the middle of a header, or probes.
const WAITING: usize = 64;
/// Maximum number of connections that have requested a page. They share the page, so that one costs
/// a few kilobytes.
const ADMITTED: usize = 192;
/// The same for one address.
const PER_PEER: usize = 8;
/// Maximum number of event streams.
const STREAMS: usize = 16;
/// The same for one address. All users of one port forward or proxy share an address.
const STREAMS_PER_PEER: usize = 8;
/// Maximum time for a client to read a page, or to take the next event of a stream.
const SEND_TIME: Duration = Duration::from_secs(30);
/// Maximum bytes of outdated pages that slow readers keep in memory.
const HELD_BYTES: usize = 8 << 20;

/// Identifies a connection.
pub(super) type Id = u64;

/// Reason why a connection was closed or a request rejected: the label `reason`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// Too many connections without a request.
    Waiting,
    /// Too many connections from this peer.
    Peer,
    /// Too many connections in total.
    Total,
    /// The page was not read in time.
    Slow,
}

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Peer => "peer",
            Self::Total => "total",
            Self::Slow => "slow",
        }
    }
}

/// A page that is being sent to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sending {
    since: Instant,
    /// Address of the page in memory: readers of the same page share it.
    page: usize,
    bytes: usize,
}

#[derive(Debug)]
struct Open {
    id: Id,
    peer: IpAddr,
    since: Instant,
    role: Role,
    sending: Option<Sending>,
    /// Dropped to close the connection.
    _cut: oneshot::Sender<()>,
}

/// Use of a connection, which decides the limits that it counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// No request for a page yet.
    Waiting,
    /// Reads pages.
    Pages,
    /// Reads an event stream.
    Stream {
        /// Time at which the client took the latest event.
        taken: Instant,
    },
}

impl Open {
    fn reads_pages(&self) -> bool {
        self.role == Role::Pages
    }

    fn is_stream(&self) -> bool {
        matches!(self.role, Role::Stream { .. })
    }
}

/// The open connections, oldest first.
#[derive(Debug, Default)]
pub(super) struct Connections {
    open: Vec<Open>,
    last: Id,
}

/// Reason for closing a connection, if one was closed.
pub(super) type Cut = Option<Reason>;

impl Connections {
    /// Adds a connection; dropping `cut` closes it. If too many are waiting, closes the oldest of
    /// the peer with most of them.
    pub(super) fn open(
        &mut self,
        peer: IpAddr,
        now: Instant,
        cut: oneshot::Sender<()>,
    ) -> (Id, Cut) {
        self.last += 1;
        self.open.push(Open {
            id: self.last,
            peer,
            since: now,
            role: Role::Waiting,
            sending: None,
            _cut: cut,
        });
        let waiting = |open: &Open| open.role == Role::Waiting;
        let is_over = self.open.iter().filter(|open| waiting(open)).count() > WAITING;
        let victim = is_over.then(|| self.oldest_of_largest(waiting)).flatten();
        (self.last, self.cut(victim, Reason::Waiting))
    }

    /// Closes a connection that waits, the oldest of the peer with most of them: the process has no
    /// descriptor for a new one.
    pub(super) fn make_room(&mut self) -> Cut {
        let victim = self.oldest_of_largest(|open| open.role == Role::Waiting);
        self.cut(victim, Reason::Waiting)
    }

    /// Admits a connection to those that read pages.
    ///
    /// # Errors
    /// There is no free place.
    pub(super) fn admit(&mut self, id: Id) -> Result<Cut, Reason> {
        let Some(at) = self.position(id) else { return Err(Reason::Total) };
        if self.open[at].role != Role::Waiting {
            return Ok(None);
        }
        let peer = self.open[at].peer;
        let idle = |open: &Open| open.reads_pages() && open.sending.is_none();
        let mut cut = None;
        if self.admitted_of(peer) >= PER_PEER {
            let own = self
                .open
                .iter()
                .position(|open| idle(open) && open.peer == peer)
                .ok_or(Reason::Peer)?;
            cut = self.cut(Some(own), Reason::Peer);
        } else if self.open.iter().filter(|open| open.reads_pages()).count() >= ADMITTED {
            let fair = self.admitted_of(peer) + 1;
            let busy =
                |open: &Open, all: &Self| open.reads_pages() && all.admitted_of(open.peer) > fair;
            let victim = self
                .oldest_of_largest(idle)
                .or_else(|| self.oldest_of_largest(|open| busy(open, self)));
            cut = self.cut(Some(victim.ok_or(Reason::Total)?), Reason::Total);
        }
        if let Some(at) = self.position(id) {
            self.open[at].role = Role::Pages;
        }
        Ok(cut)
    }

    /// Gives the connection a place among the event streams, and frees its place among the readers
    /// of pages.
    ///
    /// # Errors
    /// There is no free place.
    pub(super) fn admit_stream(&mut self, id: Id, now: Instant) -> Result<(), Reason> {
        let at = self.position(id).ok_or(Reason::Total)?;
        let peer = self.open[at].peer;
        let others = |open: &&Open| open.is_stream() && open.id != id;
        if self.open.iter().filter(others).filter(|open| open.peer == peer).count()
            >= STREAMS_PER_PEER
        {
            return Err(Reason::Peer);
        }
        if self.open.iter().filter(others).count() >= STREAMS {
            return Err(Reason::Total);
        }
        self.open[at].role = Role::Stream { taken: now };
        Ok(())
    }

    /// Records that the client of a stream took an event.
    pub(super) fn took_event(&mut self, id: Id, now: Instant) {
        if let Some(at) = self.position(id)
            && let Role::Stream { taken } = &mut self.open[at].role
        {
            *taken = now;
        }
    }

    /// Frees the place of a stream that has ended.
    pub(super) fn end_stream(&mut self, id: Id) {
        if let Some(at) = self.position(id) {
            self.open[at].role = Role::Waiting;
        }
    }

    /// Records that a page is being sent. If slow readers keep too many outdated pages, closes the
    /// slowest.
    pub(super) fn sending(
        &mut self,
        id: Id,
        page: usize,
        bytes: usize,
        now: Instant,
    ) -> Vec<Reason> {
        if let Some(at) = self.position(id) {
            self.open[at].sending = Some(Sending { since: now, page, bytes });
        }
        let mut cut = Vec::new();
        while self.outdated_bytes(page) > HELD_BYTES {
            let outdated =
                self.open.iter().enumerate().filter_map(|(at, open)| Some((at, open.sending?)));
            let slowest = outdated
                .filter(|(_, sending)| sending.page != page)
                .min_by_key(|(_, sending)| sending.since);
            cut.extend(self.cut(slowest.map(|(at, _)| at), Reason::Slow));
        }
        cut
    }

    /// Records that the page was read, or that its reader is gone.
    pub(super) fn sent(&mut self, id: Id) {
        if let Some(at) = self.position(id) {
            self.open[at].sending = None;
        }
    }

    /// Closes connections whose client takes too long to read a page, or has not taken an event of
    /// its stream.
    pub(super) fn sweep(&mut self, now: Instant) -> Vec<Reason> {
        let is_over = |since: Instant| now.saturating_duration_since(since) > SEND_TIME;
        let is_slow = |open: &Open| match open.role {
            Role::Stream { taken } => is_over(taken),
            _ => open.sending.is_some_and(|sending| is_over(sending.since)),
        };
        let before = self.open.len();
        self.open.retain(|open| !is_slow(open));
        vec![Reason::Slow; before - self.open.len()]
    }

    /// Removes a closed connection.
    pub(super) fn close(&mut self, id: Id) {
        self.open.retain(|open| open.id != id);
    }

    fn cut(&mut self, at: Option<usize>, reason: Reason) -> Cut {
        self.open.remove(at?);
        Some(reason)
    }

    fn position(&self, id: Id) -> Option<usize> {
        self.open.iter().position(|open| open.id == id)
    }

    fn admitted_of(&self, peer: IpAddr) -> usize {
        self.open.iter().filter(|open| open.reads_pages() && open.peer == peer).count()
    }

    /// Among the connections that may be closed, the oldest of the peer with most of them.
    fn oldest_of_largest(&self, may_go: impl Fn(&Open) -> bool) -> Option<usize> {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        self.open
            .iter()
            .filter(|open| may_go(open))
            .for_each(|open| *counts.entry(open.peer).or_default() += 1);
        let (&largest, _) = counts.iter().max_by_key(|(_, count)| **count)?;
        let candidates =
            self.open.iter().enumerate().filter(|(_, open)| open.peer == largest && may_go(open));
        candidates.min_by_key(|(_, open)| open.since).map(|(at, _)| at)
    }

    /// Total bytes of the pages being sent, each counted once, without `newest`.
    fn outdated_bytes(&self, newest: usize) -> usize {
        let held: BTreeMap<usize, usize> = self
            .open
            .iter()
            .filter_map(|open| open.sending)
            .map(|sending| (sending.page, sending.bytes))
            .collect();
        held.iter().filter(|(page, _)| **page != newest).map(|(_, bytes)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table, and the other ends of its connections.
    #[derive(Default)]
    struct Scene {
        table: Connections,
        ends: Vec<(Id, oneshot::Receiver<()>)>,
    }

    impl Scene {
        fn open(&mut self, peer: u8, at: Instant) -> Id {
            let (cut, end) = oneshot::channel();
            let (id, _) = self.table.open(peer_of(peer), at, cut);
            self.ends.push((id, end));
            id
        }

        fn is_open(&mut self, id: Id) -> bool {
            let end =
                self.ends.iter_mut().find(|(other, _)| *other == id).map(|(_, end)| end.try_recv());
            end == Some(Err(oneshot::error::TryRecvError::Empty))
        }
    }

    fn peer_of(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn without_descriptors_a_waiting_connection_makes_room() {
        let (mut scene, now) = (Scene::default(), Instant::now());
        let reader = scene.open(1, now);
        scene.table.admit(reader).unwrap();
        assert_eq!(scene.table.make_room(), None, "nobody waits");
        let (first, second) = (scene.open(1, now), scene.open(1, now + Duration::from_secs(1)));
        assert_eq!(scene.table.make_room(), Some(Reason::Waiting));
        assert_eq!([reader, first, second].map(|id| scene.is_open(id)), [true, false, true]);
    }

    #[test]
    fn the_oldest_waiting_connection_of_the_largest_peer_closes() {
        let (mut scene, now) = (Scene::default(), Instant::now());
        let probe = scene.open(1, now);
        let flood: Vec<Id> = (0..200).map(|_| scene.open(2, now)).collect();
        assert!(scene.is_open(probe), "another peer's flood");
        assert!(!scene.is_open(flood[0]) && scene.is_open(flood[199]));
        assert_eq!(flood.iter().filter(|&&id| scene.is_open(id)).count(), WAITING - 1);
        let probe = scene.open(2, now);
        assert!(scene.is_open(probe), "of the same address as the flood");
    }

    #[test]
    fn a_peer_has_a_few_places_and_uses_its_idle_ones_again() {
        let (mut scene, now) = (Scene::default(), Instant::now());
        let ids: Vec<Id> = (0..PER_PEER).map(|_| scene.open(1, now)).collect();
        for &id in &ids {
            assert_eq!(scene.table.admit(id), Ok(None));
            scene.table.sending(id, 1, 10, now);
        }
        let more = scene.open(1, now);
        assert_eq!(scene.table.admit(more), Err(Reason::Peer), "all are busy");
        scene.table.sent(ids[3]);
        assert_eq!(scene.table.admit(more), Ok(Some(Reason::Peer)));
        assert!(!scene.is_open(ids[3]) && scene.is_open(ids[0]));
        assert_eq!(scene.table.admit(more), Ok(None), "a place is kept");
    }

    #[test]
    fn a_peer_with_few_connections_finds_a_place_among_greedy_ones() {
        let (mut scene, now) = (Scene::default(), Instant::now());
        for peer in 0..24 {
            for _ in 0..PER_PEER {
                let id = scene.open(peer, now);
                scene.table.admit(id).unwrap();
                scene.table.sending(id, 1, 10, now);
            }
        }
        let scraper = scene.open(100, now);
        assert_eq!(scene.table.admit(scraper), Ok(Some(Reason::Total)));
        assert!(scene.is_open(scraper));
        // If each peer has one and all are busy, the last one must wait.
        let mut even = Scene::default();
        for peer in 0..192 {
            let id = even.open(peer, now);
            even.table.admit(id).unwrap();
            even.table.sending(id, 1, 10, now);
        }
        let last = even.open(200, now);
        assert_eq!(even.table.admit(last), Err(Reason::Total));
    }

    #[test]
    fn streams_take_no_place_of_the_readers_of_pages() {
        let (mut scene, now) = (Scene::default(), Instant::now());
        let mut streams = 0;
        for peer in 0..4 {
            let ids: Vec<Id> = (0..PER_PEER + 1).map(|_| scene.open(peer, now)).collect();
            let admitted: Vec<bool> =
                ids.iter().map(|&id| scene.table.admit_stream(id, now).is_ok()).collect();
            assert!(!admitted[PER_PEER], "one more than a peer may have");
            streams += admitted.iter().filter(|admitted| **admitted).count();
        }
        assert_eq!(streams, STREAMS);
        for _ in 0..PER_PEER {
            let id = scene.open(0, now);
            assert_eq!(scene.table.admit(id), Ok(None));
            scene.table.sending(id, 1, 10, now);
        }
    }

    #[test]
    fn a_stream_is_closed_if_its_client_takes_no_event() {
        let (mut scene, now) = (Scene::default(), Instant::now());
        let (stuck, good) = (scene.open(1, now), scene.open(1, now));
        for id in [stuck, good] {
            scene.table.admit_stream(id, now).unwrap();
        }
        let later = now + SEND_TIME + Duration::from_secs(1);
        scene.table.took_event(good, later);
        assert_eq!(scene.table.sweep(later), [Reason::Slow]);
        assert!(!scene.is_open(stuck) && scene.is_open(good));
        scene.table.end_stream(good);
        assert_eq!(scene.table.sweep(later + 2 * SEND_TIME), [], "it is an idle connection now");
    }

    #[test]
    fn outdated_pages_are_kept_for_slow_readers_within_bounds() {
        let (mut scene, now) = (Scene::default(), Instant::now());
        let mebibyte = 1 << 20;
        let ids: Vec<Id> = (0..12).map(|at| scene.open(at / 4, now)).collect();
        let second = Duration::from_secs(1);
        for (at, &id) in ids.iter().enumerate() {
            scene.table.admit(id).unwrap();
            // Each reads a different page, except the last two, which share one.
            scene.table.sending(id, at.min(10), mebibyte, now + second * at as u32);
        }
        let open: Vec<bool> = ids.iter().map(|&id| scene.is_open(id)).collect();
        assert_eq!(open.iter().filter(|open| !**open).count(), 2, "{open:?}");
        assert!(!open[0] && !open[1], "{open:?}");
    }

    #[test]
    fn a_page_that_is_not_read_in_time_is_given_up() {
        let (mut scene, now) = (Scene::default(), Instant::now());
        let (slow, idle) = (scene.open(1, now), scene.open(1, now));
        for id in [slow, idle] {
            scene.table.admit(id).unwrap();
            scene.table.sending(id, 1, 10, now);
        }
        scene.table.sent(idle);
        assert!(scene.table.sweep(now + SEND_TIME).is_empty());
        assert_eq!(scene.table.sweep(now + SEND_TIME + Duration::from_millis(1)), [Reason::Slow]);
        assert!(!scene.is_open(slow) && scene.is_open(idle));
    }
}
