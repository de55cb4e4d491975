//! Numbers and the flat-keyed format (`KEY VALUE\n`), on bytes and without allocation.

use crate::{ParseError, Result};

/// Parses a decimal number, as the kernel prints it, with an optional trailing newline.
///
/// # Errors
/// Fails for anything but digits, or a value above `u64::MAX`.
pub fn parse_u64(file: &'static str, text: &[u8]) -> Result<u64> {
    let text = text.trim_ascii();
    digits(text).ok_or_else(|| match text {
        b"" => ParseError::Empty { file },
        _ => ParseError::unexpected(file, text),
    })
}

/// Parses a decimal number that may be negative.
///
/// # Errors
/// Fails for anything but an optional `-` and digits, or a value beyond `i64`.
pub fn parse_i64(file: &'static str, text: &[u8]) -> Result<i64> {
    let text = text.trim_ascii();
    let (negative, rest) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let value = digits(rest).and_then(|magnitude| match negative {
        true => 0_i64.checked_sub_unsigned(magnitude),
        false => i64::try_from(magnitude).ok(),
    });
    match value {
        Some(value) => Ok(value),
        None if text.is_empty() => Err(ParseError::Empty { file }),
        None => Err(ParseError::unexpected(file, text)),
    }
}

/// Parses digits only: no sign, no space.
pub(crate) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    })
}

/// Calls `visit(key, value)` for each line of a flat-keyed file.
///
/// The caller must ignore unknown keys: kernels add keys.
///
/// # Errors
/// Fails for a line that is not `KEY NUMBER`.
pub fn flat_keyed<'a>(
    file: &'static str,
    text: &'a [u8],
    mut visit: impl FnMut(&'a [u8], u64),
) -> Result<()> {
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
        let space = line.iter().position(|&byte| byte == b' ');
        let parsed = space.and_then(|at| Some((&line[..at], digits(&line[at + 1..])?)));
        let (key, value) = parsed.ok_or_else(|| ParseError::unexpected(file, line))?;
        visit(key, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_only() {
        assert_eq!(parse_u64("f", b"42\n"), Ok(42));
        assert_eq!(parse_u64("f", b"18446744073709551615"), Ok(u64::MAX));
        assert!(parse_u64("f", b"18446744073709551616").is_err());
        assert!(parse_u64("f", b"+1").is_err());
        assert_eq!(parse_u64("f", b"\n"), Err(ParseError::Empty { file: "f" }));
        assert_eq!(parse_i64("f", b"-1\n"), Ok(-1));
        assert!(parse_i64("f", b"--1").is_err());
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = flat_keyed("cpu.stat", b"nr_periods 1\nrubbish\n", |_, _| {}).unwrap_err();
        assert_eq!(error, ParseError::Unexpected { file: "cpu.stat", text: "rubbish".into() });
    }
}
