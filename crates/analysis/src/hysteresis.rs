//! A value with hysteresis.

/// Holds a value until another value has lasted for several evaluations.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Steady {
    held: Option<f64>,
    /// The latest value above or below the held one, and its number of consecutive evaluations.
    other: Option<(f64, u32)>,
}

/// Evaluations that a higher value must last. Short, because too low a limit hurts now.
const UP_AFTER: u32 = 3;
/// Evaluations that a lower value must last. Long, because too high a limit only costs capacity.
const DOWN_AFTER: u32 = 30;

impl Steady {
    /// Adds an evaluation and returns the value to show. The first value is shown at once; `None`
    /// clears it at once.
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
