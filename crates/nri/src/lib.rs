//! Plugins of the Node Resource Interface (NRI), through which containerd and CRI-O let other
//! processes adjust containers before their first instruction.
//!
//! A [`Plugin`] connects to the runtime's socket, registers, and passes events to a [`Handler`]:
//!
//! ```no_run
//! use nri::api::{Container, Event, PodSandbox};
//! use nri::{Creation, Events, Handler, Plugin, Stop};
//!
//! struct Greeting;
//!
//! impl Handler for Greeting {
//!     fn events(&self) -> Events {
//!         Events::of(&[Event::CreateContainer])
//!     }
//!
//!     fn create_container(&mut self, _pod: PodSandbox, _container: Container) -> Creation {
//!         let mut creation = Creation::default();
//!         creation.add_env("GREETING", "hello");
//!         creation
//!     }
//! }
//!
//! # fn main() -> Result<(), nri::Error> {
//! let plugin = Plugin::new("greeting", 50, nri::DEFAULT_SOCKET.as_ref(), Greeting)?;
//! let stop = Stop::new();
//! plugin.run(&stop, |report| eprintln!("{report}"))
//! # }
//! ```
//!
//! - All versions of the protocol are supported: events as `StateChange` (before 0.12) or by
//!   methods of their own, subscriptions to what the runtime knows.
//! - A plugin never fails a container. A panic, a late answer, or a request that cannot be decoded
//!   is answered empty.
//! - A lost connection is restored. The runtime then sends all pods and containers
//!   ([`Handler::synchronize`]), which repairs what was missed.
//! - Memory is bounded: a message may have 4 MiB and 8 MiB of objects, a synchronization 32 MiB and
//!   64 MiB of objects. An empty object takes two bytes of a message and hundreds in memory, so
//!   objects are counted before they are decoded.
//! - Unsolicited updates (`UpdateContainers`) are left out: several versions of containerd and
//!   CRI-O deadlock on them.
//!
//! The crate needs unwinding panics. Linux only.

pub mod api;

mod dispatch;
mod error;
mod events;
mod handler;
mod mux;
mod plugin;
mod session;
mod size;
mod stop;
mod trunk;
mod ttrpc;
mod worker;

pub use dispatch::Fault;
pub use error::{Error, WireError};
pub use events::{EventMask, Runtime};
pub use handler::{Creation, Handler};
pub use plugin::{DEFAULT_SOCKET, Plugin, PluginReport};
pub use stop::Stop;
