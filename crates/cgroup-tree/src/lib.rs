//! The tree of a node's Kubernetes cgroups in one hierarchy: discovery by inotify and by walks,
//! with ids that are never reused and a stream of changes for each subscriber.
//!
//! A hierarchy is discovered once, whatever the number of its users. On cgroup v2 the sampler,
//! pinning and the trace share one tree; on v1 each hierarchy has its own directories and inodes,
//! so pinning has a tree of the cpuset hierarchy unless it is mounted together with `cpu`.
//!
//! # Threads
//! The tree has none. Any subscriber's thread applies the pending inotify events under one mutex
//! ([`Subscription::poll`]); in the same critical section the changes are queued for all, and the
//! others are woken. So an event is read once and seen by all, and the sampler wakes on inotify
//! itself: on v2 it must read a dying container within the milliseconds until the runtime removes
//! its cgroup. The mutex is held for `stat`, `readdir` and `inotify_add_watch`, never while a
//! counter is read. A subscriber that hangs delays no other, and its queue is bounded by the size
//! of the tree. A thread that panics while it holds the mutex costs the tree: the next one discards
//! all cgroups and walks again, under new ids.
//!
//! # Walks
//! A walk finds what inotify missed. The age of the last periodic walk by any subscriber counts
//! ([`Subscription::reconcile`]), so that usually one of them walks for all. A walk also follows a
//! lost event, a new root, and every wake-up while a watch is missing.
//!
//! Containers that a subscriber seeks by their ids ([`Subscription::seek`]) are also found outside of
//! the kubepods roots.
//!
//! This crate reads no file of a cgroup and knows nothing about the kubelet's list of pods.

mod cgroup;
mod entries;
mod index;
mod queue;
mod roots;
mod slots;
mod state;
mod strays;
mod tree;
mod watches;

pub use cgroup::{Role, TreeCgroup, depth_key};
pub use index::PathIndex;
pub use queue::{Change, Interests};
pub use slots::{CgroupId, Slots};
pub use strays::Sought;
pub use tree::{KubepodsTree, Subscription, TreeOptions};
