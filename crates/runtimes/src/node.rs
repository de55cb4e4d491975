//! Node.js: the options that affect its memory and threads.

/// Options of V8 and Node.js with a number. Others, such as `--require` and `--title`, have texts
/// of the container's owner.
const OPTIONS: [&str; 5] = [
    "max-old-space-size",
    "max-old-space-size-percentage",
    "max-semi-space-size",
    "stack-size",
    "v8-pool-size",
];

/// Maximum digits of a value.
const DIGITS: usize = 12;

/// The known options of a NODE_OPTIONS. V8 accepts `_` for `-` in a name.
pub(crate) fn kept_options(text: &str) -> String {
    let kept = text.split_whitespace().filter(|word| {
        let option = word.strip_prefix("--").and_then(|word| word.split_once('='));
        option.is_some_and(|(name, value)| {
            let is_number =
                value.len() <= DIGITS && value.bytes().all(|byte| byte.is_ascii_digit());
            is_number && OPTIONS.contains(&&*name.replace('_', "-"))
        })
    });
    kept.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_options_with_numbers_are_kept() {
        let text = "--require=/secret --max-old-space-size=512 --title=7 --max_semi_space_size=64 \
                    --v8-pool-size=x --stack-size=1234567890123";
        assert_eq!(kept_options(text), "--max-old-space-size=512 --max_semi_space_size=64");
        assert_eq!(kept_options("max-old-space-size=1 --"), "");
    }
}
