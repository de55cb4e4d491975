//! Text of an error with its causes, for messages and the log.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

/// An error and its causes on one line: `a: b: c`.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // hyper and tonic repeat the text of their source.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Level(&'static str, #[source] Option<Box<Level>>);

    #[test]
    fn causes_follow_once_each() {
        let cause = Level("c: d", Some(Box::new(Level("d", None))));
        let error = Level("a", Some(Box::new(Level("b", Some(Box::new(cause))))));
        assert_eq!(chain(&error), "a: b: c: d");
    }
}
