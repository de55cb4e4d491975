//! Number formatting for both formats, without allocation: integers and nanoseconds exactly, floats
//! as the shortest text that reads back as the same value.

use std::io::Write as _;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Thousandths up to this number have at most 15 significant digits, which a double distinguishes:
/// the text reads back as the same value, and no shorter one does.
const MAX_THOUSANDTHS: f64 = 1e15;

/// Writes `value` in decimal.
pub(super) fn integer(page: &mut Vec<u8>, value: u64) {
    page.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes `ns` nanoseconds in seconds, by integer arithmetic: exact for every value.
pub(super) fn seconds(page: &mut Vec<u8>, ns: u64) {
    integer(page, ns / NANOS_PER_SECOND);
    fraction(page, ns % NANOS_PER_SECOND, NANOS_PER_SECOND);
}

/// Writes `.` and the digits of `part / unit` without trailing zeros; nothing for 0. `unit` is a
/// power of ten.
fn fraction(page: &mut Vec<u8>, part: u64, unit: u64) {
    if part == 0 {
        return;
    }
    // The unit's leading 1 takes the place of the point and preserves leading zeros.
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(unit + part).trim_end_matches('0');
    page.push(b'.');
    page.extend_from_slice(&digits.as_bytes()[1..]);
}

/// Writes the shortest decimal text that reads back as `value`; `NaN`, `+Inf`, `-Inf` as both
/// formats spell them.
pub(super) fn float(page: &mut Vec<u8>, value: f64) {
    let thousandths = (value * 1000.0).round();
    if thousandths.abs() < MAX_THOUSANDTHS && thousandths / 1000.0 == value {
        if thousandths < 0.0 {
            page.push(b'-');
        }
        let thousandths = thousandths.abs() as u64;
        integer(page, thousandths / 1000);
        fraction(page, thousandths % 1000, 1000);
    } else if value.is_nan() {
        page.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        page.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    } else {
        write!(page, "{value}").expect("a Vec takes any text");
    }
}

/// Writes a bucket's upper bound as the value of `le`: always with a point, as OpenMetrics
/// requires. The text format uses the same form, so that a series keeps its name in either format.
pub(super) fn bound(page: &mut Vec<u8>, value: f64) {
    float(page, value);
    if value.is_finite() && value.fract() == 0.0 {
        page.extend_from_slice(b".0");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut page = Vec::new();
        write(&mut page);
        String::from_utf8(page).unwrap()
    }

    #[test]
    fn nanoseconds_are_exact_seconds() {
        for (ns, expected) in [
            (0, "0"),
            (1, "0.000000001"),
            (1_000_000_000, "1"),
            (1_500_000_000, "1.5"),
            (20_000_000_010, "20.00000001"),
            (u64::MAX, "18446744073.709551615"),
        ] {
            assert_eq!(text(|page| seconds(page, ns)), expected);
        }
    }

    #[test]
    fn floats_are_short() {
        for (value, expected) in [
            (0.0, "0"),
            (2.0, "2"),
            (0.5, "0.5"),
            (-0.25, "-0.25"),
            (0.1, "0.1"),
            (1.0 / 3.0, "0.3333333333333333"),
            (1_753_171_200.125, "1753171200.125"),
            (1e-9, "0.000000001"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(text(|page| float(page, value)), expected);
        }
    }

    #[test]
    fn bounds_are_the_same_in_both_formats() {
        for (value, expected) in
            [(0.01, "0.01"), (1.0, "1.0"), (2.5, "2.5"), (f64::INFINITY, "+Inf")]
        {
            assert_eq!(text(|page| bound(page, value)), expected);
        }
    }

    proptest! {
        #[test]
        fn seconds_keep_every_nanosecond(ns: u64) {
            let written = text(|page| seconds(page, ns));
            let (whole, fraction) = written.split_once('.').unwrap_or((&written, ""));
            prop_assert_eq!(format!("{whole}{fraction:0<9}").parse::<u128>().unwrap(), u128::from(ns));
        }

        #[test]
        fn floats_read_back_as_themselves(value: f64) {
            prop_assert_eq!(text(|page| float(page, value)).parse::<f64>().unwrap(), value);
        }

        #[test]
        fn thousandths_are_no_longer_than_the_shortest(thousandths in -1_000_000_000_i64..1_000_000_000) {
            let value = thousandths as f64 / 1000.0;
            prop_assert_eq!(text(|page| float(page, value)), value.to_string());
        }
    }
}
