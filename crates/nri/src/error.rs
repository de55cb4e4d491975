//! Errors that end a connection.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::mux::MAX_PAYLOAD;
use crate::ttrpc::MAX_MESSAGE;

/// Cause of the end of a connection, or a plugin that cannot be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The name has other characters than the API allows.
    #[error("plugin name {0:?}: expected one or more of a-z, A-Z, 0-9, '-', '_', '.' and '+'")]
    Name(String),
    /// The index has more than two digits.
    #[error("plugin index {0}: expected a number from 0 to 99")]
    Index(u8),
    /// The thread of the handler was not started.
    #[error("failed to start the handler's thread: {0}")]
    Thread(#[source] io::Error),
    /// The socket is absent, or no process listens on it.
    #[error("failed to connect to {}: {source}", .socket.display())]
    Connect {
        /// Path of the socket.
        socket: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error("connection to the runtime failed: {0}")]
    Io(#[from] io::Error),
    /// The runtime closed the connection: it ended, or removed the plugin.
    #[error("the runtime closed the connection")]
    Closed,
    /// [`Stop::stop`](crate::Stop::stop) was called.
    #[error("stopped")]
    Stopped,
    /// The runtime sent bytes that are not part of the protocol.
    #[error("protocol error of the runtime: {0}")]
    Wire(#[from] WireError),
    /// The runtime answered the registration with an error.
    #[error("the runtime rejected the registration: {message} (code {code})")]
    Rejected {
        /// Code of gRPC.
        code: i32,
        /// Message of the runtime.
        message: String,
    },
    /// The runtime did not complete registration and synchronization.
    #[error("the runtime did not synchronize the plugin within {0:?}")]
    NotSynchronized(Duration),
    /// The handler took too long, and its answer was not used. The next connection's
    /// synchronization repairs what the handler assumed.
    #[error("the handler did not answer {method} within {within:?}")]
    Late {
        /// Called method.
        method: &'static str,
        /// Time that the handler had.
        within: Duration,
    },
}

/// Bytes that are not part of the protocol.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A frame is longer than any message.
    #[error("a frame of {length} bytes, longer than {}", MAX_PAYLOAD)]
    LongFrame {
        /// Announced length.
        length: usize,
    },
    /// A message is longer than the protocol allows.
    #[error("a message of {length} bytes, longer than {}", MAX_MESSAGE)]
    LongMessage {
        /// Announced length.
        length: usize,
    },
    /// A request has an even stream number.
    #[error("a request on stream {stream}: a client's streams have odd numbers")]
    EvenStream {
        /// Number of the stream.
        stream: u32,
    },
    /// A message of the protocol itself cannot be decoded.
    #[error("{what}: {source}")]
    Message {
        /// Name of the message.
        what: &'static str,
        /// Cause.
        source: prost::DecodeError,
    },
}
