//! The name that a mistyped one probably means.

/// The candidate that is closest to a name, if at most a third of the name would have to change.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let most = (name.chars().count() / 3).max(1);
    let near = candidates.into_iter().map(|candidate| (edits(name, candidate), candidate));
    let near = near.filter(|(edits, _)| *edits <= most).min_by_key(|(edits, _)| *edits);
    near.map(|(_, candidate)| candidate)
}

/// Number of characters to insert, remove, replace or swap with the next one, regardless of case
/// (optimal string alignment).
fn edits(one: &str, other: &str) -> usize {
    let lowered = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (one, other) = (lowered(one), lowered(other));
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, char) in one.iter().enumerate() {
        let mut next = vec![at + 1];
        for (column, wanted) in other.iter().enumerate() {
            let replaced = row[column] + usize::from(char != wanted);
            let mut edits = replaced.min(row[column + 1] + 1).min(next[column] + 1);
            if at > 0 && column > 0 && char == &other[column - 1] && &one[at - 1] == wanted {
                edits = edits.min(before[column - 1] + 1);
            }
            next.push(edits);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [&str; 4] = ["sampleInterval", "listen", "log", "schedTrace"];

    #[test]
    fn a_typing_mistake_finds_the_name() {
        for (typed, meant) in [
            ("sampleIntervall", "sampleInterval"),
            ("sampleinterval", "sampleInterval"),
            ("lissten", "listen"),
            ("listne", "listen"),
            ("logs", "log"),
            ("lgo", "log"),
        ] {
            assert_eq!(nearest(typed, KEYS), Some(meant), "{typed}");
        }
    }

    #[test]
    fn another_word_finds_nothing() {
        for typed in ["", "a", "config", "interval", "trace"] {
            assert_eq!(nearest(typed, KEYS), None, "{typed}");
        }
    }

    #[test]
    fn edits_are_counted_at_every_place() {
        for (one, other, count) in [
            ("", "", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("É", "é", 0),
            ("tpo", "top", 1),
            ("abc", "cab", 2),
        ] {
            assert_eq!(edits(one, other), count, "{one} {other}");
        }
    }
}
