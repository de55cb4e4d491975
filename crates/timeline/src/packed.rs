//! A non-negative number in 16 bits, on a logarithmic scale.
//!
//! 0 means absent, so that fresh zeroed memory is an empty history; 1 means zero.

/// Smallest positive value: a microsecond per second.
const LEAST: f64 = 1e-6;
/// Codes per factor of e: twelve decades in 65,533 codes, so that the relative error is below
/// 0.03 %.
const CODES_PER_NAT: f64 = 2371.0;
/// Code of [`LEAST`].
const FIRST: f64 = 2.0;

/// Packs a value; negative ones count as zero, and those above 1e6 as about 1e6.
pub fn pack(value: Option<f64>) -> u16 {
    match value {
        None => 0,
        Some(value) if value < LEAST / 2.0 || value.is_nan() => 1,
        // The range is checked by `clamp`.
        Some(value) => {
            let code = ((value / LEAST).ln() * CODES_PER_NAT).round() + FIRST;
            code.clamp(FIRST, f64::from(u16::MAX)) as u16
        }
    }
}

/// Unpacks a value; `None` if it is absent.
pub fn unpack(code: u16) -> Option<f64> {
    match code {
        0 => None,
        1 => Some(0.0),
        code => Some(LEAST * ((f64::from(code) - FIRST) / CODES_PER_NAT).exp()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn absent_and_zero_differ() {
        assert_eq!(unpack(pack(None)), None);
        assert_eq!(unpack(pack(Some(0.0))), Some(0.0));
        assert_eq!(unpack(pack(Some(-3.0))), Some(0.0));
        assert_eq!(unpack(pack(Some(f64::NAN))), Some(0.0));
    }

    proptest! {
        #[test]
        fn a_value_keeps_three_digits(exponent in -5.9_f64..5.9) {
            let value = 10_f64.powf(exponent);
            let unpacked = unpack(pack(Some(value))).unwrap_or_default();
            prop_assert!((unpacked / value - 1.0).abs() < 3e-4, "{value} became {unpacked}");
        }
    }
}
