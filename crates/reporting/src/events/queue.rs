//! Queue of messages to be sent. It is bounded, and repeated messages are merged.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::message::Message;

/// Maximum number of queued messages: two per pod of a full node.
pub(super) const CAPACITY: usize = 256;

/// Filled by the threads that decide, which it never blocks, and emptied by the publisher.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<VecDeque<(Message, i32)>>,
    arrived: Notify,
}

impl Queue {
    /// Appends a message. If one of the same kind about the same object is queued, replaces its
    /// note and counts it. Returns false if the message is lost because the queue is full.
    pub(super) fn push(&self, message: Message) -> bool {
        let mut waiting = self.waiting();
        let same = waiting.iter().position(|(other, _)| other.is_about_the_same(&message));
        match same {
            Some(at) => waiting[at] = (message, waiting[at].1.saturating_add(1)),
            None if waiting.len() >= CAPACITY => return false,
            None => waiting.push_back((message, 1)),
        }
        self.arrived.notify_one();
        true
    }

    /// The oldest message with its count; waits until there is one.
    pub(super) async fn pop(&self) -> (Message, i32) {
        loop {
            let first = self.waiting().pop_front();
            match first {
                Some(message) => return message,
                None => self.arrived.notified().await,
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Message, i32)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(pod: usize, note: &str) -> Message {
        Message::of_test(pod, note)
    }

    #[tokio::test]
    async fn repetitions_in_the_queue_merge_into_the_newer_note() {
        let queue = Queue::default();
        for (pod, note) in [(1, "a"), (2, "a"), (1, "b")] {
            assert!(queue.push(message(pod, note)));
        }
        let taken = [queue.pop().await, queue.pop().await];
        assert_eq!(
            taken.map(|(message, times)| (message.note, times)),
            [("b".into(), 2), ("a".into(), 1)]
        );
    }

    #[tokio::test]
    async fn a_full_queue_loses_what_is_new_and_takes_what_waits_already() {
        let queue = Queue::default();
        assert!((0..CAPACITY).all(|pod| queue.push(message(pod, "a"))));
        assert!(!queue.push(message(CAPACITY, "a")));
        assert!(queue.push(message(0, "b")));
        assert_eq!(queue.pop().await.0.note, "b");
        assert!(queue.push(message(CAPACITY, "a")));
    }
}
