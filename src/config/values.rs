//! Checks values without looking at this machine. Each error has the option, the value and the
//! remedy.

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::sources::{flag, keys};
use super::{ByteSize, HumanDuration, Options};
use crate::exit::Failure;

/// Options that accept an empty text, which means none.
const MAY_BE_EMPTY: &[&str] =
    &["reservedCpus", "cpusetOwnerNamespaces", "metricsEnable", "metricsDisable"];
/// Maximum length of a node name (RFC 1123).
const NODE_NAME: usize = 253;

const fn seconds(from: u64, to: u64) -> RangeInclusive<Duration> {
    Duration::from_secs(from)..=Duration::from_secs(to)
}

/// Rejects texts that are invalid for any option.
pub(super) fn check_texts(options: &Options) -> Result<(), Failure> {
    let given = serde_json::to_value(options).map_err(|error| {
        Failure::config(format!("an option is not UTF-8: {error}; rename the file or directory"))
    })?;
    let texts = given.as_object().into_iter().flatten();
    for (key, text) in texts.filter_map(|(key, value)| Some((key, value.as_str()?))) {
        check_text(key, text).map_err(|why| Failure::config(format!("{}: {why}", flag(key))))?;
    }
    Ok(())
}

fn check_text(key: &str, text: &str) -> Result<(), String> {
    if text.trim().is_empty() && !MAY_BE_EMPTY.contains(&key) {
        return Err("is empty; set a value or remove it".to_owned());
    }
    if let Some((_, rest)) = text.split_once("$(").or_else(|| text.split_once("${")) {
        let name = rest.split([')', '}']).next().unwrap_or_default();
        return Err(format!(
            "{text:?} has an unexpanded variable; define {name} in the container's env, before the entry that uses it"
        ));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("{text:?} contains a control character; remove it"));
    }
    Ok(())
}

/// Checks the values as they were given.
pub(super) fn check_values(options: &Options) -> Result<(), Failure> {
    let checks = [check_times(options), check_numbers(options), check_names(options)];
    checks.into_iter().collect::<Result<(), String>>().map_err(Failure::config)
}

fn check_times(options: &Options) -> Result<(), String> {
    let interval = options.sample_interval.0;
    let sample = Duration::from_millis(100)..=Duration::from_secs(60);
    within("--sample-interval", interval, &sample)?;
    if let Some(HumanDuration(walk)) = options.reconcile_interval {
        if walk < interval {
            let (walk, tick) = (HumanDuration(walk), HumanDuration(interval));
            return Err(format!(
                "--reconcile-interval: {walk} is shorter than --sample-interval ({tick}); raise it"
            ));
        }
        within(
            "--reconcile-interval",
            walk,
            &(Duration::from_millis(100)..=Duration::from_secs(3600)),
        )?;
    }
    within("--advice-after", options.advice_after.0, &seconds(10, 7 * 86_400))?;
    within("--pod-poll-interval", options.pod_poll_interval.0, &seconds(1, 3600))
}

fn within(flag: &str, time: Duration, range: &RangeInclusive<Duration>) -> Result<(), String> {
    if range.contains(&time) {
        return Ok(());
    }
    let (from, to) = (HumanDuration(*range.start()), HumanDuration(*range.end()));
    Err(format!(
        "{flag}: {} is out of range: expected a time from {from} to {to}",
        HumanDuration(time)
    ))
}

fn check_numbers(options: &Options) -> Result<(), String> {
    let (share, cores) = (options.sched_trace_budget, options.cpu_budget);
    if !(share > 0.0 && share <= 1.0) {
        return Err(format!(
            "--sched-trace-budget: {share} is out of range: expected a fraction in (0, 1], e.g. 0.01"
        ));
    }
    if !(cores > 0.0 && cores.is_finite()) {
        return Err(format!(
            "--cpu-budget: {cores} is out of range: expected a number of cores above 0, e.g. 0.02"
        ));
    }
    if options.best_effort_floor < 2 {
        return Err(format!(
            "--best-effort-floor: {} is too small: best-effort pods keep at least 2 CPUs",
            options.best_effort_floor
        ));
    }
    let percent = |flag: &str, value: u64, range: RangeInclusive<u64>| match range.contains(&value)
    {
        true => Ok(()),
        false => Err(format!(
            "{flag}: {value} is out of range: expected a percentage from {} to {}",
            range.start(),
            range.end()
        )),
    };
    percent("--burst-percent", options.burst_percent, 1..=99)?;
    percent("--burst-quota-percent", options.burst_quota_percent, 100..=1000)?;
    if options.max_series == 0 {
        return Err("--max-series: 0 would drop all series; use at least 1".to_owned());
    }
    if let Some(size) = options.record_size.filter(|size| size.0 < recording::LEAST_SIZE) {
        let least = ByteSize(recording::LEAST_SIZE);
        return Err(format!("--record-size: {size} is too small; use at least {least}"));
    }
    if options.metrics_auth && options.tls_cert.is_none() {
        return Err(
            "--metrics-auth needs --tls-cert and --tls-key, so that tokens are not sent in clear text".to_owned()
        );
    }
    Ok(())
}

fn check_names(options: &Options) -> Result<(), String> {
    if let Some(kubepods) = &options.kubepods
        && kubepods.trim_matches('/').split('/').any(|part| matches!(part, "" | "." | ".."))
    {
        return Err(format!(
            "--kubepods: {kubepods:?} is not a path below the cgroup hierarchy, e.g. kubepods.slice"
        ));
    }
    let is_name = |name: &str| {
        let is_part = |char: char| {
            char.is_ascii_lowercase() || char.is_ascii_digit() || matches!(char, '-' | '.')
        };
        name.len() <= NODE_NAME && name.chars().all(is_part)
    };
    match &options.node_name {
        Some(name) if !is_name(name) => Err(format!(
            "--node-name: {name:?} is not a node name: expected a DNS name in lower case, e.g. node-1"
        )),
        _ => Ok(()),
    }
}

/// An error in the file, with its position in the format of a compiler message.
pub(super) fn file_error(path: &Path, text: &str, error: &serde_saphyr::Error) -> Failure {
    let printed = error.without_snippet().to_string();
    let message = printed.split(" at line ").next().unwrap_or(&printed);
    let message = message.split(", set DuplicateKeyPolicy").next().unwrap_or(message);
    let Some(line) = error.location().and_then(|place| usize::try_from(place.line()).ok()) else {
        return Failure::config(format!("{}: {message}; correct the file", path.display()));
    };
    let place = format!("{}:{line}", path.display());
    let value = text
        .lines()
        .nth(line.saturating_sub(1))
        .and_then(|line| Some(line.split_once(':')?.1.trim()));
    // The library names an invalid number only by its type; add the value.
    let message =
        match value.filter(|value| message.starts_with("invalid ") && !message.contains(value)) {
            Some(value) => format!("{message}: {value}"),
            None => message.to_owned(),
        };
    match keys(text).into_iter().find(|(_, at)| *at == line) {
        Some((key, _)) if !message.starts_with(&key) && !message.starts_with("unknown field") => {
            Failure::config(format!("{place}: {key}: {message}; correct the file"))
        }
        _ => Failure::config(format!("{place}: {message}; correct the file")),
    }
}
