//! The filter of a table.

/// Whether a name contains every word of the filter, and none of the words after `!` or `-`. Upper
/// and lower case are the same.
pub(crate) fn matches(filter: &str, name: &str) -> bool {
    let name = name.to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| match word.strip_prefix(['!', '-']) {
        Some("") => true,
        Some(excluded) => !name.contains(excluded),
        None => name.contains(word),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_words_must_match_and_excluded_ones_must_not() {
        let name = "shop/checkout-canary-x2x4v/app";
        for filter in
            ["", " ", "CHECK", "shop app", "app shop", "check !stable", "-stable", "!", "-"]
        {
            assert!(matches(filter, name), "{filter}");
        }
        for filter in ["db", "shop db", "shop !canary", "-canary", "!shop"] {
            assert!(!matches(filter, name), "{filter}");
        }
    }
}
