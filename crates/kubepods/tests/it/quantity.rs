//! Resource quantities: Kubernetes' own spellings, rounding and limits.

use kubepods::quantity::{millicores, whole};
use proptest::prelude::*;

#[test]
fn cpu_is_read_in_millicores() {
    for (text, expected) in [
        ("0", 0),
        ("1", 1000),
        ("2.5", 2500),
        ("100m", 100),
        ("0.1", 100),
        (".5", 500),
        ("1.", 1000),
        ("+1", 1000),
        ("4k", 4_000_000),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("15e-1", 1500),
        ("1500u", 2),
        ("100n", 1),
        ("0.0001", 1),
        ("1Ki", 1_024_000),
        ("0.001000000000000000", 1),
    ] {
        assert_eq!(millicores(text), Ok(expected), "{text}");
    }
}

#[test]
fn memory_is_read_in_bytes() {
    for (text, expected) in [
        ("64Mi", 64 << 20),
        ("1Gi", 1 << 30),
        ("1.5Gi", 3 << 29),
        ("128974848", 128_974_848),
        ("129e6", 129_000_000),
        ("129M", 129_000_000),
        ("128974848000m", 128_974_848),
        ("1m", 1),
        ("7Ei", 7 << 60),
        ("1E", 1_000_000_000_000_000_000),
        ("100000Ei", i64::MAX as u64),
        ("1e60", i64::MAX as u64),
        ("0e60", 0),
        ("1e-60", 1),
        ("1e99999", i64::MAX as u64),
    ] {
        assert_eq!(whole(text), Ok(expected), "{text}");
    }
}

#[test]
fn other_text_is_an_error_that_quotes_it() {
    for text in [
        "", ".", "m", "-1", "1 ", " 1", "1.2.3", "1K", "1ki", "1e", "1e+", "0x10", "1_000", "٣",
        "1MiB", "NaN",
    ] {
        assert_eq!(millicores(text).unwrap_err().text, text);
    }
    assert!(whole(&"9".repeat(200)).unwrap_err().text.len() == 64);
}

proptest! {
    /// Exactness: every digit is preserved with every suffix.
    #[test]
    fn binary_and_decimal_suffixes_multiply_exactly(value in 0..8_000_u64) {
        for (suffix, factor) in
            [("", 1), ("k", 1000), ("M", 1_000_000), ("Ki", 1 << 10), ("Mi", 1 << 20), ("Gi", 1 << 30), ("Ti", 1 << 40)]
        {
            prop_assert_eq!(whole(&format!("{value}{suffix}")), Ok(value * factor));
        }
        prop_assert_eq!(millicores(&format!("{value}m")), Ok(value));
        prop_assert_eq!(millicores(&format!("{}.{:03}", value / 1000, value % 1000)), Ok(value));
        prop_assert_eq!(whole(&format!("{value}m")), Ok(value.div_ceil(1000)));
    }

    #[test]
    fn any_text_is_read_without_panic(text in "[+-]?[0-9.]{0,40}[a-zA-Z]{0,2}[+-]?[0-9]{0,12}") {
        let _ = (millicores(&text), whole(&text));
    }
}
