//! Ranges of the options' values.

use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

use clap::Arg;

/// The range of an option, declared at its field.
pub(crate) trait Within: Sized {
    /// Rejects values outside the range, and adds the range to the help.
    fn within<T>(self, range: impl RangeBounds<T> + Clone + Send + Sync + 'static) -> Self
    where
        T: FromStr<Err: Display> + PartialOrd + Display + Clone + Send + Sync + 'static;
}

impl Within for Arg {
    fn within<T>(self, range: impl RangeBounds<T> + Clone + Send + Sync + 'static) -> Self
    where
        T: FromStr<Err: Display> + PartialOrd + Display + Clone + Send + Sync + 'static,
    {
        let help = self.get_help().map(ToString::to_string).unwrap_or_default();
        self.help(format!("{help} [range: {}]", describe(&range)))
            .value_parser(move |text: &str| parse_within(text, &range))
    }
}

/// Parses a value that must be in the range.
///
/// # Errors
/// The text with the range, or why the text is not a value.
pub(super) fn parse_within<T>(text: &str, range: &impl RangeBounds<T>) -> Result<T, String>
where
    T: FromStr<Err: Display> + PartialOrd + Display,
{
    let value: T = text.parse().map_err(|error: T::Err| match std::any::type_name::<T>() {
        "usize" | "u64" => format!("{text:?} is not a whole number"),
        "f64" => format!("{text:?} is not a number"),
        _ => error.to_string(),
    })?;
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(format!("{text} is out of range: expected {}", describe(range)))
    }
}

fn describe<T: Display>(range: &impl RangeBounds<T>) -> String {
    match (range.start_bound(), range.end_bound()) {
        (Bound::Included(from), Bound::Included(to)) => format!("{from} to {to}"),
        (Bound::Included(from), _) => format!("at least {from}"),
        (Bound::Excluded(from), Bound::Included(to)) => format!("above {from}, at most {to}"),
        (Bound::Excluded(from), _) => format!("above {from}"),
        (Bound::Unbounded, Bound::Included(to)) => format!("at most {to}"),
        (Bound::Unbounded, _) => "any".to_owned(),
    }
}
