//! CPU advice from a history: the smallest limit, the smallest burst and the request.

use api::{CpuAdvice, LimitAdvice};

use crate::history::History;
use crate::request::{REQUEST_AFTER_SECONDS, duration};

/// Computes the advice for an objective (share of throttled periods) after `after_seconds` of
/// history.
#[must_use]
pub fn cpu_advice(history: &History, objective: f64, after_seconds: u64) -> CpuAdvice {
    let seen = CpuAdvice {
        windows: history.windows(),
        watched_seconds: history.watched_seconds(),
        ..CpuAdvice::default()
    };
    if history.replayed_seconds() < after_seconds {
        return seen;
    }
    CpuAdvice {
        limit: smallest_limit(history, objective),
        burst_seconds: smallest_burst(history, objective),
        request_cores: history.usage().quantile(0.95),
        most_cores: history.usage().quantile(1.0),
        ..seen
    }
}

/// The advice that still lacks history after `watched` seconds, and when it will be available;
/// `None` after a day.
#[must_use]
pub fn not_enough_history(watched: u64, limits_after_seconds: u64) -> Option<String> {
    let all = [("limits", limits_after_seconds), ("lower requests", REQUEST_AFTER_SECONDS)];
    let missing = all.into_iter().filter(|&(_, after)| watched < after);
    let missing: Vec<_> =
        missing.map(|(what, after)| format!("{what} from {}", duration(after))).collect();
    let (so_far, day) = (duration(watched), duration(REQUEST_AFTER_SECONDS));
    (!missing.is_empty())
        .then(|| format!("not enough history: {so_far} of {day}; {}", missing.join(", ")))
}

fn smallest_limit(history: &History, objective: f64) -> Option<LimitAdvice> {
    let fits = |(cores, count): (f64, crate::Count)| {
        let (throttled_share, at_most) = (count.share()?, count.share_at_most()?);
        let is_lower_bound = at_most > objective;
        let advice = LimitAdvice {
            cores,
            throttled_share,
            throttled_share_at_most: at_most,
            is_lower_bound,
        };
        (throttled_share <= objective).then_some(advice)
    };
    history.limits().find_map(fits)
}

/// The smallest burst that meets the objective; `None` unless the current limit has throttled.
fn smallest_burst(history: &History, objective: f64) -> Option<f64> {
    if history.throttled_windows() == 0 {
        return None;
    }
    history
        .bursts()
        .filter(|&(burst, _)| burst > 0.0)
        .find(|(_, count)| count.share().is_some_and(|share| share <= objective))
        .map(|(burst, _)| burst)
}
