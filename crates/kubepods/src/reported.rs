//! State of a value requested from the kubelet.

/// A value that is requested from the kubelet at intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reported<T> {
    /// Not requested, or not answered yet.
    #[default]
    NotAsked,
    /// Several requests in a row failed, with the reason of the last.
    Failed(String),
    /// The last value.
    Read(T),
}
