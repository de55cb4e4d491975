//! A number of bytes: `100MB`, `2GiB`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A number of bytes that is parsed and printed with a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(pub u64);

/// Units, the largest first.
const UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("KB", 1_000),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = UNITS.iter().find_map(|(unit, bytes)| {
            let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(*bytes)
        });
        size.map(Self).ok_or_else(|| format!("{text:?} is not a size such as 100MB or 1GiB"))
    }
}

impl TryFrom<String> for ByteSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.to_string()
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit =
            UNITS.iter().find(|(_, bytes)| self.0 >= *bytes && self.0.is_multiple_of(*bytes));
        match unit {
            Some((unit, bytes)) => write!(out, "{}{unit}", self.0 / bytes),
            None => write!(out, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_and_are_printed_as_given() {
        for (text, bytes) in [("100MB", 100_000_000), ("1GiB", 1 << 30), ("64KiB", 65_536)] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!((size.0, size.to_string().as_str()), (bytes, text));
        }
        assert_eq!("2 MiB".parse(), Ok(ByteSize(2 << 20)));
        assert_eq!("3KB".parse::<ByteSize>().unwrap().to_string(), "3kB");
        for text in ["100", "MB", "-1MB", "1.5GB", "100mb", "99999999999GB", ""] {
            assert!(text.parse::<ByteSize>().unwrap_err().contains("100MB or 1GiB"), "{text}");
        }
    }
}
