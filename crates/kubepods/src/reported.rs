//! Answers that a kubelet may owe.

/// The kubelet's answer to a question that it is asked at intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reported<T> {
    /// It is not asked, or has not answered yet.
    #[default]
    NotAsked,
    /// It does not answer any more, or never did; the reason.
    Failed(String),
    /// The last answer.
    Read(T),
}
