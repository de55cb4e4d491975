//! Answers that a kubelet may owe.

/// The kubelet's answer to a question that it is asked at intervals.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Reported<T> {
    /// No answer yet, or no question: the kubelet is not asked.
    #[default]
    NotAsked,
    /// No answer, or none any more, with the reason.
    Failed(String),
    /// The last answer.
    Read(T),
}
