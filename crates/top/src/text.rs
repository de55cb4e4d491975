//! Numbers, names and strips as text of a fixed width.

use std::time::{Duration, UNIX_EPOCH};

use api::Bounds;

use crate::look::Look;

/// Text of a value that the kernel or the configuration does not provide.
pub(crate) const ABSENT: &str = "-";

/// Cores: `0.20`, `12.3`, `128`.
pub(crate) fn cores(value: Option<f64>) -> String {
    value.map_or(ABSENT.to_owned(), |value| match value {
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    })
}

/// A share of the time: `85%`.
pub(crate) fn percent(value: Option<f64>) -> String {
    value.map_or(ABSENT.to_owned(), |value| format!("{:.0}%", value * 100.0))
}

/// Bounds of a share of the time: `12-40%`, `85%` if both round to the same, `at least 12%` if they
/// are far apart.
pub(crate) fn percents(bounds: Bounds) -> String {
    if bounds.is_wide() {
        return format!("at least {}", percent(Some(bounds.lower)));
    }
    let (lower, upper) = (percent(Some(bounds.lower)), percent(Some(bounds.upper)));
    if lower == upper { upper } else { format!("{}-{upper}", lower.trim_end_matches('%')) }
}

/// A time, given in seconds: `0`, `749ms`, `4.80s`, `12.3s`, `128s`.
pub(crate) fn time(value: Option<f64>) -> String {
    value.map_or(ABSENT.to_owned(), |value| match value {
        value if value < 0.0005 => "0".to_owned(),
        value if value < 0.9995 => format!("{:.0}ms", value * 1000.0),
        value => format!("{}s", cores(Some(value))),
    })
}

/// Wall-clock time in UTC: `20:03:41`.
pub(crate) fn clock(at_ms: u64) -> String {
    let seconds = at_ms / 1000 % 86_400;
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// Date and time in UTC: `2026-11-22 20:03:41`.
pub(crate) fn date_time(at_ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(at_ms);
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', "")
}

/// A length of time, with its two largest units: `2h 5m`.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, seconds) => format!("{minutes}m {seconds}s"),
        (hours, minutes, _) => format!("{hours}h {minutes}m"),
    }
}

/// A name from outside, without characters that a terminal could interpret.
pub(crate) fn clean(name: &str) -> String {
    name.chars()
        .map(|char| if char.is_ascii_graphic() || char == ' ' { char } else { '?' })
        .collect()
}

/// Text of exactly this width, aligned left; longer text is cut in the middle, since names of pods
/// differ at both ends.
pub(crate) fn fit(text: &str, width: usize, look: Look) -> String {
    let length = text.chars().count();
    if length <= width {
        return format!("{text:<width$}");
    }
    let Some(kept) = width.checked_sub(1) else { return String::new() };
    let tail = kept / 2;
    let head: String = text.chars().take(kept - tail).collect();
    let tail: String = text.chars().skip(length - tail).collect();
    format!("{head}{}{tail}", look.cut())
}

/// Text of at most this width; longer text is cut at its end.
pub(crate) fn cut(text: &str, width: usize, look: Look) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let Some(kept) = width.checked_sub(1) else { return String::new() };
    text.chars().take(kept).chain([look.cut()]).collect()
}

/// Two names that together have at most this width. A name that fits into half of it is kept, and
/// the other one is shortened to what it leaves.
pub(crate) fn shorten(names: [&str; 2], width: usize, look: Look) -> [String; 2] {
    let lengths = names.map(|name| name.chars().count());
    let half = width / 2;
    let room = match lengths {
        [first, second] if first + second <= width => lengths,
        [first, _] if first <= half => [first, width - first],
        [_, second] if second <= half => [width - second, second],
        _ => [width - half, half],
    };
    [0, 1].map(|at| fit(names[at], room[at], look).trim_end().to_owned())
}

/// Values, oldest first, as one line of bars of this width, the newest at the right. Each bar is
/// the largest of its values, relative to `full`; NaN is absent.
pub(crate) fn strip(values: &[f32], width: usize, full: f64, look: Look) -> String {
    buckets(values, width)
        .into_iter()
        .map(|bucket| match bucket {
            None => look.gap(),
            Some(value) => look.bar(f64::from(value) / full),
        })
        .collect()
}

/// The largest value of each of `width` equal parts; `None` for a part without any value. Fewer
/// values than parts fill the right side.
fn buckets(values: &[f32], width: usize) -> Vec<Option<f32>> {
    if values.len() <= width {
        let missing = std::iter::repeat_n(None, width - values.len());
        return missing.chain(values.iter().map(|&value| known(value))).collect();
    }
    let part = |at: usize| {
        let (from, to) = (at * values.len() / width, (at + 1) * values.len() / width);
        values[from..to].iter().filter_map(|&value| known(value)).reduce(f32::max)
    };
    (0..width).map(part).collect()
}

fn known(value: f32) -> Option<f32> {
    (!value.is_nan()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look { color: false, unicode: true };

    #[test]
    fn numbers_fit_five_characters() {
        assert_eq!([0.2, 12.34, 128.0].map(|value| cores(Some(value))), ["0.20", "12.3", "128"]);
        assert_eq!(
            [0.0, 0.0004, 0.749, 4.8, 12.34].map(|value| time(Some(value))),
            ["0", "0", "749ms", "4.80s", "12.3s"]
        );
        assert_eq!((percent(Some(0.853)), percent(None)), ("85%".to_owned(), "-".to_owned()));
    }

    #[test]
    fn bounds_that_are_far_apart_are_a_lower_bound() {
        let texts = [(0.37, 0.78), (0.1, 0.4), (0.1, 0.41), (0.85, 0.852)]
            .map(|(lower, upper)| percents(Bounds { lower, upper }));
        assert_eq!(texts, ["at least 37%", "10-40%", "at least 10%", "85%"]);
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(fit("shop/checkout-7d9f8b6c5d-x2x4v", 13, LOOK), "shop/c…-x2x4v");
        assert_eq!(fit("shop/web", 10, LOOK), "shop/web  ");
        assert_eq!(fit("shop", 0, LOOK), "");
        assert_eq!(cut("worker-1.example", 9, LOOK), "worker-1…");
        assert_eq!(cut("worker-1", 9, LOOK), "worker-1");
    }

    #[test]
    fn the_longer_of_two_names_is_shortened() {
        let (short, long) = ("shop/web", "batch/encode-5d8f7c9b44-qk2zp");
        assert_eq!(shorten([short, long], 40, LOOK), [short, long]);
        assert_eq!(shorten([short, long], 20, LOOK), [short, "batch/…qk2zp"]);
        assert_eq!(shorten([long, short], 20, LOOK), ["batch/…qk2zp", short]);
        assert_eq!(shorten([long, long], 12, LOOK), ["bat…zp"; 2]);
        assert_eq!(shorten([long, ""], 12, LOOK), ["batch/…qk2zp", ""]);
        assert_eq!(shorten([long, short], 0, LOOK), ["", ""]);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(clean("a\x1b[31m\nb\u{202e}c"), "a?[31m?b?c");
    }

    #[test]
    fn a_strip_shows_the_peak_of_each_part_and_where_values_are_missing() {
        let values = [f32::NAN, f32::NAN, 0.0, 1.0, 0.5, 0.0];
        assert_eq!(strip(&values, 3, 1.0, LOOK), "·█▄");
        assert_eq!(strip(&[1.0], 3, 1.0, LOOK), "··█");
    }

    #[test]
    fn the_clock_is_utc() {
        assert_eq!(date_time(1_700_000_000_000), "2023-11-14 22:13:20");
        assert_eq!([59_000, 125_000, 7_500_000].map(span), ["59s", "2m 5s", "2h 5m"]);
        assert_eq!(clock(1_700_000_000_000), "22:13:20");
    }
}
