//! Kubernetes resource quantities (`apimachinery/pkg/api/resource`): `100m`, `4k`, `1Gi`, `1e3`,
//! `0.5`.
//!
//! Pure and exact: integers only, rounded up where Kubernetes rounds up. The kubelet rewrites
//! quantities to their canonical form, so "4000" becomes "4k"; both are the same value.

/// Text that is not a quantity, or a negative quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a resource quantity: {text:?}")]
pub struct BadQuantity {
    /// The text, cut to 64 bytes.
    pub text: String,
}

/// Maximum value: Kubernetes caps values here ("values bigger than 2^63-1 are capped").
const MAX: u128 = i64::MAX as u128;

/// Maximum power of ten: a larger one overflows or vanishes for any digits.
const MAX_POWER: i32 = 60;

/// Parses a CPU quantity to millicores, rounded up as by the kubelet for `cpu.max` and
/// `cpu.shares`.
pub fn millicores(text: &str) -> Result<u64, BadQuantity> {
    scaled(text, 3).ok_or_else(|| bad(text))
}

/// Parses a quantity of bytes, rounded up.
pub fn whole(text: &str) -> Result<u64, BadQuantity> {
    scaled(text, 0).ok_or_else(|| bad(text))
}

fn bad(text: &str) -> BadQuantity {
    BadQuantity { text: text.chars().take(64).collect() }
}

/// Value times 10^`power`, rounded up and capped.
fn scaled(text: &str, power: i32) -> Option<u64> {
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let digits_end =
        unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(digits_end);
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (integer.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (ten, two) = multiplier(suffix)?;
    let fraction = fraction.trim_end_matches('0');
    let mantissa = decimal(integer, fraction)?;
    let ten = ten + power - i32::try_from(fraction.len()).ok()?;
    Some(round_up(mantissa, ten, two))
}

/// Powers of ten and of two of a suffix. A lone `E` is exa; `E` or `e` with a number is an
/// exponent.
fn multiplier(suffix: &str) -> Option<(i32, u32)> {
    Some(match suffix {
        "n" => (-9, 0),
        "u" => (-6, 0),
        "m" => (-3, 0),
        "" => (0, 0),
        "k" => (3, 0),
        "M" => (6, 0),
        "G" => (9, 0),
        "T" => (12, 0),
        "P" => (15, 0),
        "E" => (18, 0),
        "Ki" => (0, 10),
        "Mi" => (0, 20),
        "Gi" => (0, 30),
        "Ti" => (0, 40),
        "Pi" => (0, 50),
        "Ei" => (0, 60),
        _ => {
            (suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?.clamp(-MAX_POWER, MAX_POWER), 0)
        }
    })
}

/// The digits of both parts as one number. The bounds keep every later product exact or certainly
/// above [`MAX`]; more digits do not occur (Kubernetes itself keeps nine decimals).
fn decimal(integer: &str, fraction: &str) -> Option<u128> {
    if fraction.len() > 18 {
        return None;
    }
    integer.bytes().chain(fraction.bytes()).try_fold(0_u128, |value, digit| {
        value.checked_mul(10)?.checked_add(u128::from(digit - b'0'))
    })
}

fn round_up(mantissa: u128, ten: i32, two: u32) -> u64 {
    let shifted = mantissa.saturating_mul(1 << two);
    let power = 10_u128.checked_pow(ten.unsigned_abs());
    let value = match (power, ten >= 0) {
        (Some(power), true) => shifted.saturating_mul(power),
        (Some(power), false) => shifted.div_ceil(power),
        (None, true) if shifted == 0 => 0,
        (None, true) => u128::MAX,
        (None, false) => u128::from(shifted > 0),
    };
    u64::try_from(value.min(MAX)).expect("capped below u64::MAX")
}
