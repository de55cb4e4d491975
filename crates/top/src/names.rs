//! Names of pods in a narrow column, shortened such that they are told apart.

use std::collections::{HashMap, HashSet};

use crate::look::Look;
use crate::text;

/// Characters of the parts of a name that Kubernetes generates: no vowels, and no digits that look
/// like letters.
const GENERATED: &str = "bcdfghjklmnpqrstvwxz2456789";
/// Number of characters with which a controller makes the name of a pod unique.
const SUFFIX: usize = 5;

/// The names, which may be equal, in at most `width` columns. Of a longer name the hash of its
/// ReplicaSet gives way first, then the namespace and the beginning that it has in common with
/// another workload, and last its middle.
pub(crate) fn told_apart(names: &[String], width: usize, look: Look) -> Vec<String> {
    let fits = |text: &str| text.chars().count() <= width;
    let shorter: Vec<String> = names
        .iter()
        .map(|name| if fits(name) { name.clone() } else { without_hash(name, look) })
        .collect();
    let mut workloads: Vec<&str> = shorter.iter().map(|name| workload(name)).collect();
    workloads.sort_unstable();
    workloads.dedup();
    let mut of_pod: HashMap<&str, Vec<&str>> = HashMap::new();
    for workload in &workloads {
        of_pod.entry(&workload[pod_of(workload).0..]).or_default().push(workload);
    }
    let label = |name: &String| {
        if fits(name) {
            return name.clone();
        }
        shortened(name, less_telling(workload(name), &workloads, &of_pod), width, look)
    };
    let mut labels: Vec<String> = shorter.iter().map(label).collect();
    for other in [end, text::fit] {
        for (at, is_shared) in shared(&labels, names).into_iter().enumerate() {
            if is_shared {
                labels[at] = other(&names[at], width, look);
            }
        }
    }
    labels
}

/// Whether each label stands for several names.
fn shared(labels: &[String], names: &[String]) -> Vec<bool> {
    let mut names_of: HashMap<&str, HashSet<&str>> = HashMap::new();
    for (label, name) in labels.iter().zip(names) {
        names_of.entry(label).or_default().insert(name);
    }
    labels.iter().map(|label| names_of[label.as_str()].len() > 1).collect()
}

/// Position of the pod in `namespace/pod/container`.
fn pod_of(name: &str) -> (usize, usize) {
    let start = name.find('/').map_or(0, |at| at + 1);
    (start, name[start..].find('/').map_or(name.len(), |at| start + at))
}

fn is_generated(text: &str) -> bool {
    text.chars().all(|char| GENERATED.contains(char))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|char| char.is_ascii_digit())
}

/// The name with a mark instead of the hash of a ReplicaSet, or of the time of a CronJob's Job.
fn without_hash(name: &str, look: Look) -> String {
    let (start, end) = pod_of(name);
    let pod = &name[start..end];
    let parts = pod.rsplit_once('-').and_then(|(rest, suffix)| {
        let (rest, hash) = rest.rsplit_once('-')?;
        Some((rest, hash, suffix))
    });
    let is_hash = |hash: &str| {
        (8..=10).contains(&hash.len()) && is_generated(hash) || hash.len() == 8 && is_number(hash)
    };
    match parts {
        Some((rest, hash, suffix))
            if suffix.len() == SUFFIX && is_generated(suffix) && is_hash(hash) =>
        {
            format!("{}{rest}-{}{suffix}{}", &name[..start], look.cut(), &name[end..])
        }
        _ => name.to_owned(),
    }
}

/// The name up to what tells the pods of one workload apart: a suffix or a number.
fn workload(name: &str) -> &str {
    let (start, end) = pod_of(name);
    let pod = &name[start..end];
    // A mark may stand before the suffix.
    let at = pod.rfind(|char: char| !char.is_ascii_alphanumeric());
    let Some(at) = at else { return &name[..end] };
    let suffix = pod[at..].trim_start_matches(|char: char| !char.is_ascii_alphanumeric());
    let is_instance = suffix.len() == SUFFIX && is_generated(suffix) || is_number(suffix);
    if is_instance { &name[..start + at] } else { &name[..end] }
}

/// Number of bytes at the beginning of a workload that may give way: words that another one begins
/// with too, and the namespace. If the pod's name is in several namespaces, only words that two of
/// these begin with.
fn less_telling(workload: &str, all: &[&str], of_pod: &HashMap<&str, Vec<&str>>) -> usize {
    let (pod, _) = pod_of(workload);
    let same_pod = &of_pod[&workload[pod..]];
    let (sorted, namespace) = if same_pod.len() > 1 { (&same_pod[..], 0) } else { (all, pod) };
    let common = |other: &&str| {
        let same = workload.chars().zip(other.chars()).take_while(|(one, other)| one == other);
        same.map(|(char, _)| char.len_utf8()).sum()
    };
    let at = sorted.partition_point(|other| *other < workload);
    let neighbors = [at.checked_sub(1), Some(at + 1)].into_iter().flatten();
    let longest: usize =
        neighbors.filter_map(|at| sorted.get(at)).map(common).max().unwrap_or_default();
    workload[..longest].rfind(['/', '-']).map_or(0, |at| at + 1).max(namespace)
}

/// A name that is longer than the width: of its first bytes, as many as necessary give way, and
/// where that does not suffice, the middle of the rest.
fn shortened(name: &str, first: usize, width: usize, look: Look) -> String {
    let cut = (name.chars().count() + 1).saturating_sub(width);
    let (before, rest) = name.split_at(first);
    let kept: String = match cut {
        _ if first == 0 => return text::fit(name, width, look),
        cut if cut <= before.chars().count() => name.chars().skip(cut).collect(),
        _ => text::fit(rest, width.saturating_sub(1), look),
    };
    let marks = [look.cut(); 2].iter().collect::<String>();
    let kept = format!("{}{kept}", look.cut()).replace(&marks, &marks[..marks.len() / 2]);
    kept.chars().take(width).collect()
}

/// The end of a name: pods of a workload differ there.
fn end(name: &str, width: usize, look: Look) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let tail = name.chars().skip(length + 1 - width.max(1));
    std::iter::once(look.cut()).chain(tail).take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Look = Look { color: false, unicode: true };

    fn labels(names: &[&str], width: usize) -> Vec<String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        told_apart(&names, width, LOOK)
    }

    #[test]
    fn names_that_fit_are_whole() {
        let names = ["shop/db-0", "shop/checkout-7d9f8b6c5d-x2x4v"];
        assert_eq!(labels(&names, 30), names);
    }

    #[test]
    fn the_hash_and_the_common_beginning_give_way() {
        let names = [
            "payments-production/checkout-worker-canary-7d9f8b6c5d-x2x4v",
            "payments-production/checkout-worker-stable-5c9f8b6c5d-9kq7z",
            "payments-production/nightly-export-28914720-9kq7z",
            "payments-production/ledger-0/main",
        ];
        let expected = [
            "…yments-production/checkout-worker-canary-…x2x4v",
            "…yments-production/checkout-worker-stable-…9kq7z",
            "payments-production/nightly-export-…9kq7z",
            "payments-production/ledger-0/main",
        ];
        assert_eq!(labels(&names, 48), expected);
        let expected = [
            "…worker-canary-…x2x4v",
            "…worker-stable-…9kq7z",
            "…nightly-ex…rt-…9kq7z",
            "…uction/ledger-0/main",
        ];
        assert_eq!(labels(&names, 21), expected);
    }

    #[test]
    fn pods_of_the_only_workload_keep_their_suffix() {
        let names = [
            "payments-production/checkout-worker-7d9f8b6c5d-x2x4v",
            "payments-production/checkout-worker-7d9f8b6c5d-b7k9w",
        ];
        assert_eq!(labels(&names, 20), ["…checkout-…er-…x2x4v", "…checkout-…er-…b7k9w"]);
    }

    #[test]
    fn the_same_pod_of_two_namespaces_is_told_apart() {
        let names = ["production-payments-eu/web-frontend-0", "staging-payments-eu/web-frontend-0"];
        let shown = labels(&names, 17);
        assert!(shown[0].starts_with("prod") && shown[1].starts_with("stag"), "{shown:?}");
    }

    #[test]
    fn long_names_of_many_shapes_are_distinct_and_fit() {
        fn suffix(at: usize) -> String {
            let char = |place: u32| GENERATED.as_bytes()[(at * 7919 / 27_usize.pow(place)) % 27];
            (0..5).map(|place| char::from(char(place))).collect()
        }
        let shapes: [fn(usize) -> String; 4] = [
            |at| format!("customer-facing/checkout-service-production-{at:03}-7d9f8b6c5d-x2x4v"),
            |at| format!("customer-facing/checkout-{}-worker-5c9f8b6c5d-{}", at / 10, suffix(at)),
            |at| format!("team-{at:03}-production-payments/postgres-primary-shard-eu-central-0"),
            |at| format!("observability-platform-system/prometheus-node-exporter-agent-{at}"),
        ];
        for width in [17, 22, 28, 40, 60] {
            let names: Vec<String> = (0..250).map(|at| shapes[at % 4](at / 4)).collect();
            assert_eq!(names.iter().collect::<HashSet<_>>().len(), 250);
            let shown = told_apart(&names, width, LOOK);
            assert!(shown.iter().all(|label| label.chars().count() <= width), "{shown:#?}");
            assert_eq!(shown.iter().collect::<HashSet<_>>().len(), 250, "{width}: {shown:#?}");
        }
    }

    #[test]
    fn any_width_is_safe() {
        let names = ["shop/checkout-7d9f8b6c5d-x2x4v", "-", "/", "", "a/b/c", "shop/checkout-0"];
        for width in 0..40 {
            let shown = labels(&names, width);
            assert!(shown.iter().all(|label| label.chars().count() <= width), "{width}: {shown:?}");
        }
    }
}
