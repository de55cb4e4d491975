//! A figure that does not flap.

/// Holds a value until another has lasted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Steady {
    held: Option<f64>,
    /// The newest value on the other side, and for how many evaluations it has been there.
    other: Option<(f64, u32)>,
}

/// Evaluations for which a higher value must last: too low a limit hurts now.
const UP_AFTER: u32 = 3;
/// Evaluations for which a lower value must last: too high a limit only costs.
const DOWN_AFTER: u32 = 30;

impl Steady {
    /// Takes in a new evaluation and gives what to show. The first is shown at once; no value ends it.
    pub fn follow(&mut self, value: Option<f64>) -> Option<f64> {
        let (Some(value), Some(held)) = (value, self.held) else {
            *self = Self { held: value, other: None };
            return value;
        };
        let rises = value > held;
        let lasted = match self.other {
            Some((other, lasted)) if value != held && (other > held) == rises => lasted + 1,
            _ => 1,
        };
        self.other = (value != held).then_some((value, lasted));
        if value != held && lasted >= if rises { UP_AFTER } else { DOWN_AFTER } {
            *self = Self { held: Some(value), other: None };
        }
        self.held
    }
}
