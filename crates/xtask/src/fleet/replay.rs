//! Pages of many nodes from one real page: names of their own, counters that grow, pods that are
//! replaced.

use std::time::Duration;

/// One pod in this number is slowed by another workload.
const SLOWED: usize = 20;
/// Number of names of a workload of the page: a workload has pods on many nodes, not on all.
const SPREAD: usize = 40;
/// Digits of a value after and before its point.
const DECIMALS: usize = 6;
const INTEGERS: usize = 12;
const WIDTH: usize = INTEGERS + 1 + DECIMALS;

/// A real page with names and values of a fixed width: the page of a node is a copy with other
/// digits, so that the replayer costs little next to the Prometheus that it feeds.
pub(super) struct Template {
    page: Vec<u8>,
    /// Places of names with their pods: node and generation, of `pod`, `uid` and `container_id`.
    names: Vec<(usize, usize)>,
    /// Places of the numbers of workloads.
    workloads: Vec<usize>,
    values: Vec<Moving>,
    /// Names of the page's pods.
    pods: Vec<String>,
    lifetime: Duration,
    /// Age of the page's counters, seconds: they began at 0 and go on at the same rate.
    age: f64,
    series: usize,
}

/// A value that changes.
struct Moving {
    at: usize,
    value: f64,
    moves: Moves,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moves {
    /// A gauge.
    Not,
    /// A counter goes on.
    Grows,
    /// A timestamp follows the clock.
    Passes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    /// Node and generation: `pod`, `uid` and `container_id`.
    Pod,
    /// `workload`.
    Workload,
}

impl Template {
    /// Cuts a page of an agent that is `age` old. Each pod is replaced by another one after `lifetime`.
    pub(super) fn new(page: &str, age: Duration, lifetime: Duration) -> Self {
        let mut template = Self {
            page: Vec::new(),
            names: Vec::new(),
            workloads: Vec::new(),
            values: Vec::new(),
            pods: Vec::new(),
            lifetime,
            age: age.as_secs_f64(),
            series: 0,
        };
        let mut counters = Vec::new();
        for line in page.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap_or((kind, ""));
                if kind != "gauge" {
                    counters.push(name.to_owned());
                }
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap_or_default();
                let is_counter = counters.iter().any(|counter| {
                    name.strip_prefix(counter.as_str())
                        .is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
                });
                let moves = match name {
                    _ if is_counter => Moves::Grows,
                    _ if name.ends_with("_timestamp_seconds") => Moves::Passes,
                    _ => Moves::Not,
                };
                template.add(line, moves);
            }
        }
        template.add_harm(page);
        template
    }

    fn add(&mut self, line: &str, moves: Moves) {
        let Some((mut rest, value)) = line.rsplit_once(' ') else { return };
        let mut pod = 0;
        while let Some((at, suffix)) = next_name(rest) {
            let end = rest[at..].find('"').map_or(rest.len(), |length| at + length);
            if rest[..at].ends_with(",pod=\"") {
                let name = &rest[at..end];
                pod = self.pods.iter().position(|known| known == name).unwrap_or_else(|| {
                    self.pods.push(name.to_owned());
                    self.pods.len() - 1
                });
            }
            self.page.extend_from_slice(&rest.as_bytes()[..end]);
            self.page.push(b'-');
            let at = self.page.len();
            match suffix {
                Suffix::Pod => self.names.push((at, pod)),
                Suffix::Workload => self.workloads.push(at),
            }
            let digits = if suffix == Suffix::Pod { suffix_of(0, 0) } else { workload_of(0) };
            self.page.extend_from_slice(digits.as_bytes());
            rest = &rest[end..];
        }
        self.page.extend_from_slice(rest.as_bytes());
        self.page.push(b' ');
        let at = self.page.len();
        match value.parse().ok().filter(|_| moves != Moves::Not) {
            Some(value) => {
                self.values.push(Moving { at, value, moves });
                self.page.extend_from_slice(&[b'0'; WIDTH]);
                self.page[at + INTEGERS] = b'.';
            }
            None => self.page.extend_from_slice(value.as_bytes()),
        }
        self.page.push(b'\n');
        self.series += 1;
    }

    /// Harm, which a node of plain files does not have.
    fn add_harm(&mut self, page: &str) {
        // A tenth of the time.
        let (slowed, lost) = (self.age / 10.0, self.age / 30.0);
        let pods: Vec<String> = self.pods.iter().step_by(SLOWED).cloned().collect();
        for pod in pods {
            let of_pod = page.lines().find(|line| line.contains(&format!(",pod=\"{pod}\"")));
            let namespace =
                of_pod.and_then(|line| line.split("namespace=\"").nth(1)?.split('"').next());
            let of = format!("namespace=\"{}\",pod=\"{pod}\"", namespace.unwrap_or_default());
            for line in [
                format!("cpuwarden_pod_slowed_seconds_total{{{of},reason=\"neighbor\"}} {slowed}"),
                format!("cpuwarden_pod_lost_core_seconds_total{{{of},reason=\"neighbor\"}} {lost}"),
                format!(
                    "cpuwarden_pod_slowed_by_seconds_total{{{of},aggressor_namespace=\"batch\",aggressor_workload=\"report\",beyond_request=\"true\"}} {slowed}"
                ),
            ] {
                self.add(&line, Moves::Grows);
            }
        }
    }

    /// Number of series of a node.
    pub(super) fn series(&self) -> usize {
        self.series
    }

    /// The page of a node at this time.
    pub(super) fn page(&self, node: usize, elapsed: Duration) -> Vec<u8> {
        let mut page = self.page.clone();
        let mut write = |at: usize, text: &[u8]| page[at..at + text.len()].copy_from_slice(text);
        let of_pod = |pod| suffix_of(node, self.generation(node, pod, elapsed));
        let suffixes: Vec<String> = (0..self.pods.len().max(1)).map(of_pod).collect();
        self.names.iter().for_each(|&(at, pod)| write(at, suffixes[pod].as_bytes()));
        let workload = workload_of(node);
        self.workloads.iter().for_each(|&at| write(at, workload.as_bytes()));
        let seconds = elapsed.as_secs_f64();
        for moving in &self.values {
            let value = match moving.moves {
                Moves::Passes => moving.value + seconds,
                Moves::Grows | Moves::Not => moving.value * (1.0 + seconds / self.age),
            };
            write(moving.at, &digits(value));
        }
        page
    }

    /// Number of times that a pod was replaced: the pods of all nodes one after another.
    fn generation(&self, node: usize, pod: usize, elapsed: Duration) -> u64 {
        let pods = self.pods.len().max(1);
        // Of consecutive numbers, the fractional parts of multiples of the golden ratio are spread.
        let offset = ((node * pods + pod) as f64 * 0.618_033_988_749_895).fract();
        (elapsed.as_secs_f64() / self.lifetime.as_secs_f64() + offset) as u64
    }
}

/// Suffix of a pod's name: its node and generation.
fn suffix_of(node: usize, generation: u64) -> String {
    format!("{node:05}-{generation:05}")
}

/// Suffix of a workload's name.
fn workload_of(node: usize) -> String {
    format!("{:02}", node % SPREAD)
}

/// A value with a fixed number of digits.
fn digits(value: f64) -> [u8; WIDTH] {
    let mut rest = (value * 10_f64.powi(DECIMALS as i32)) as u64;
    let mut text = [b'.'; WIDTH];
    for at in (0..WIDTH).rev().filter(|&at| at != INTEGERS) {
        text[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text
}

/// Position of the next value that gets a suffix.
fn next_name(text: &str) -> Option<(usize, Suffix)> {
    let labels = [
        (",pod=\"", Suffix::Pod),
        (",uid=\"", Suffix::Pod),
        (",container_id=\"", Suffix::Pod),
        (",workload=\"", Suffix::Workload),
        (",aggressor_workload=\"", Suffix::Workload),
    ];
    let found = labels
        .into_iter()
        .filter_map(|(label, suffix)| text.find(label).map(|at| (at + label.len(), suffix)));
    found.min_by_key(|(at, _)| *at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP a Help.\n# TYPE a counter\n\
        a{namespace=\"s\",pod=\"p\",container=\"c\"} 2\n# TYPE b gauge\n\
        b{namespace=\"s\",pod=\"p\",container=\"c\",uid=\"u\",workload=\"w\"} 3\n\
        # TYPE last_timestamp_seconds gauge\nlast_timestamp_seconds 1800000000.5\n\
        # TYPE c histogram\nc_bucket{le=\"1\"} 4\n";

    #[test]
    fn a_page_has_the_names_of_its_node_and_grows() {
        let template = Template::new(PAGE, Duration::from_secs(600), Duration::from_secs(1000));
        let page = String::from_utf8(template.page(41, Duration::from_secs(600))).unwrap();
        let lines: Vec<&str> = page.lines().take(4).collect();
        let generation = template.generation(41, 0, Duration::from_secs(600));
        let of = |name: &str| name.replace('G', &format!("{generation:05}"));
        assert_eq!(
            lines[0],
            of("a{namespace=\"s\",pod=\"p-00041-G\",container=\"c\"} 000000000004.000000")
        );
        assert_eq!(
            lines[1],
            of(
                "b{namespace=\"s\",pod=\"p-00041-G\",container=\"c\",uid=\"u-00041-G\",workload=\"w-01\"} 3"
            )
        );
        assert_eq!(lines[2], "last_timestamp_seconds 001800000600.500000");
        assert_eq!(lines[3], "c_bucket{le=\"1\"} 000000000008.000000");
        assert!(page.contains("aggressor_workload=\"report-01\""), "{page}");
        assert_eq!(template.series(), page.lines().count());
    }

    #[test]
    fn all_pods_are_replaced_once_in_a_lifetime_at_different_times() {
        let mut template = Template::new(PAGE, Duration::from_secs(600), Duration::from_secs(100));
        template.pods = (0..50).map(|pod| pod.to_string()).collect();
        let replaced = |from: u64, to: u64| -> u64 {
            let at =
                |seconds, node, pod| template.generation(node, pod, Duration::from_secs(seconds));
            (0..20)
                .flat_map(|node| (0..50).map(move |pod| (node, pod)))
                .map(|(node, pod)| at(to, node, pod) - at(from, node, pod))
                .sum()
        };
        assert_eq!(replaced(0, 100), 1000);
        assert!((95..=105).contains(&replaced(0, 10)), "{}", replaced(0, 10));
        assert!((95..=105).contains(&replaced(60, 70)), "{}", replaced(60, 70));
    }
}
