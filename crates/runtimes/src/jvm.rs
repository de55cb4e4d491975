//! Flags of a JVM, from its command line and `JAVA_TOOL_OPTIONS`; the later of two holds.

use std::collections::BTreeMap;

/// The flags that bear on CPU and heap, as (name of the setting, text before the value).
const FLAGS: [(&str, &str); 3] = [
    ("ActiveProcessorCount", "-XX:ActiveProcessorCount="),
    ("MaxRAMPercentage", "-XX:MaxRAMPercentage="),
    ("Xmx", "-Xmx"),
];

/// Adds the flags among the words.
pub(crate) fn flags<'a>(words: impl Iterator<Item = &'a str>, settings: &mut BTreeMap<String, String>) {
    for word in words {
        for (name, prefix) in FLAGS {
            if let Some(value) = word.strip_prefix(prefix) {
                settings.insert(name.to_owned(), value.to_owned());
            }
        }
    }
}
