//! Requests of an audit log, by user, verb and resource.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use serde_json::Value;

const DAY: f64 = 86_400.0;

/// A request of an audit log.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) user: String,
    /// Verb and resource, such as `patch nodes/status`.
    pub(super) what: String,
    /// Time of arrival, seconds of the day in UTC.
    second: f64,
}

/// The requests of a log, each once: a watch has an entry at its start and one at its end.
pub(super) fn requests(log: &[Value]) -> Vec<Request> {
    let mut seen = BTreeSet::new();
    let new = log.iter().filter(|entry| seen.insert(text(&entry["auditID"])));
    new.map(Request::of).collect()
}

impl Request {
    fn of(entry: &Value) -> Self {
        let object = &entry["objectRef"];
        let names = [&object["resource"], &object["subresource"]].map(text);
        let resource = match names {
            ["", _] => text(&entry["requestURI"]).split('?').next().unwrap_or_default().to_owned(),
            [resource, ""] => resource.to_owned(),
            [resource, subresource] => format!("{resource}/{subresource}"),
        };
        Self {
            user: text(&entry["user"]["username"]).to_owned(),
            what: format!("{} {resource}", text(&entry["verb"])),
            second: second_of(text(&entry["requestReceivedTimestamp"])).unwrap_or(f64::NAN),
        }
    }

    /// Seconds between a moment of the same day and the arrival.
    pub(super) fn seconds_after(&self, second: f64) -> f64 {
        (self.second - second).rem_euclid(DAY)
    }
}

/// Numbers by verb and resource.
pub(super) fn counts<'a>(
    requests: impl IntoIterator<Item = &'a Request>,
) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(request.what.as_str()).or_default() += 1;
    }
    counts
}

/// Spread of times in seconds, for a report.
pub(super) fn spread(mut seconds: Vec<f64>) -> String {
    seconds.sort_by(f64::total_cmp);
    let (Some(first), Some(last)) = (seconds.first(), seconds.last()) else {
        return "none".to_owned();
    };
    let median = seconds[seconds.len() / 2];
    let in_a_second =
        |from: &f64| seconds.iter().filter(|second| (*from..from + 1.0).contains(*second)).count();
    let most = seconds.iter().map(in_a_second).max().unwrap_or(0);
    format!(
        "{first:.1} s first, {median:.1} s median, {last:.1} s last, at most {most} of {} within a second",
        seconds.len()
    )
}

/// Time of day, seconds in UTC.
pub(super) fn second_of_day() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64().rem_euclid(DAY)
}

/// Time of day of a timestamp such as `2026-11-28T12:30:15.250000Z`.
fn second_of(timestamp: &str) -> Option<f64> {
    let time = timestamp.split_once('T')?.1.strip_suffix('Z')?;
    let mut parts = time.split(':').map(|part| part.parse::<f64>().ok());
    let [hours, minutes, seconds] = [parts.next()??, parts.next()??, parts.next()??];
    Some(hours * 3600.0 + minutes * 60.0 + seconds)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(id: &str, user: &str, verb: &str, object: &Value) -> Value {
        json!({"auditID": id, "user": {"username": user}, "verb": verb, "objectRef": object,
               "requestURI": "/healthz?verbose", "requestReceivedTimestamp": "2026-11-28T23:59:58.500000Z"})
    }

    #[test]
    fn a_watch_counts_once_and_a_subresource_is_named() {
        let pods = json!({"resource": "pods"});
        let log = [
            entry("1", "agent", "watch", &pods),
            entry("1", "agent", "watch", &pods),
            entry("2", "agent", "watch", &pods),
            entry("3", "agent", "patch", &json!({"resource": "nodes", "subresource": "status"})),
            entry("4", "probe", "get", &Value::Null),
        ];
        let requests = requests(&log);
        let agents = requests.iter().filter(|request| request.user == "agent");
        assert_eq!(counts(agents), [("watch pods", 2), ("patch nodes/status", 1)].into());
        assert_eq!(requests[3].what, "get /healthz");
    }

    #[test]
    fn times_are_relative_to_a_start_also_after_midnight() {
        let request = &requests(&[entry("1", "a", "get", &Value::Null)])[0];
        assert_eq!(request.seconds_after(DAY - 10.0), 8.5);
        let after_midnight = Request { second: 2.5, ..request.clone() };
        assert_eq!(after_midnight.seconds_after(DAY - 10.0), 12.5);
    }

    #[test]
    fn a_spread_has_the_most_requests_of_any_second() {
        assert_eq!(
            spread(vec![9.0, 1.0, 1.4, 1.9, 2.5]),
            "1.0 s first, 1.9 s median, 9.0 s last, at most 3 of 5 within a second"
        );
        assert_eq!(spread(Vec::new()), "none");
    }
}
