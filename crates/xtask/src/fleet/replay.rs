//! Pages of many nodes from one real page: names of their own, counters that grow, pods that are
//! replaced.

use std::fmt::Write as _;
use std::time::Duration;

/// Time in which a counter of the page doubles.
const DOUBLES: f64 = 600.0;
/// One pod in this number is slowed by another workload.
const SLOWED: usize = 20;
/// Number of names of a workload of the page: a workload has pods on many nodes, not on all.
const SPREAD: usize = 40;

/// A real page, cut where names go.
pub(super) struct Template {
    lines: Vec<Line>,
    /// Names of the page's pods.
    pods: Vec<String>,
    lifetime: Duration,
}

/// A sample. Text and the names that follow it.
struct Line {
    parts: Vec<(String, Suffix)>,
    rest: String,
    value: f64,
    grows: bool,
    /// Position of its pod.
    pod: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Suffix {
    /// Node and generation: `pod`, `uid` and `container_id`.
    Pod,
    /// `workload`.
    Workload,
}

impl Template {
    /// Cuts a page. Each pod is replaced by another one after `lifetime`.
    pub(super) fn new(page: &str, lifetime: Duration) -> Self {
        let mut template = Self { lines: Vec::new(), pods: Vec::new(), lifetime };
        let mut counters = Vec::new();
        for line in page.lines() {
            if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap_or((kind, ""));
                if kind != "gauge" {
                    counters.push(name.to_owned());
                }
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap_or_default();
                let grows = counters.iter().any(|counter| {
                    name.strip_prefix(counter.as_str())
                        .is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
                });
                template.add(line, grows);
            }
        }
        template.add_harm();
        template
    }

    fn add(&mut self, line: &str, grows: bool) {
        let Some((labels, value)) = line.rsplit_once(' ') else { return };
        let (mut parts, mut rest, mut pod) = (Vec::new(), labels, 0);
        while let Some((at, suffix)) = next_name(rest) {
            let end = rest[at..].find('"').map_or(rest.len(), |length| at + length);
            if rest[..at].ends_with(",pod=\"") {
                let name = &rest[at..end];
                pod = self.pods.iter().position(|known| known == name).unwrap_or_else(|| {
                    self.pods.push(name.to_owned());
                    self.pods.len() - 1
                });
            }
            parts.push((rest[..end].to_owned(), suffix));
            rest = &rest[end..];
        }
        let value = value.parse().unwrap_or(0.0);
        self.lines.push(Line { parts, rest: rest.to_owned(), value, grows, pod });
    }

    /// Harm, which a node of plain files does not have.
    fn add_harm(&mut self) {
        let pods: Vec<String> = self.pods.iter().step_by(SLOWED).cloned().collect();
        for pod in pods {
            let namespace = self.lines.iter().find_map(|line| {
                let (text, _) = line.parts.first().filter(|(text, _)| text.ends_with(&pod))?;
                Some(text.split("namespace=\"").nth(1)?.split('"').next()?.to_owned())
            });
            let of = format!("namespace=\"{}\",pod=\"{pod}\"", namespace.unwrap_or_default());
            for line in [
                format!("cpuwarden_pod_slowed_seconds_total{{{of},reason=\"neighbor\"}} 60"),
                format!("cpuwarden_pod_lost_core_seconds_total{{{of},reason=\"neighbor\"}} 20"),
                format!(
                    "cpuwarden_pod_slowed_by_seconds_total{{{of},aggressor_namespace=\"batch\",aggressor_workload=\"report\",beyond_request=\"true\"}} 60"
                ),
            ] {
                self.add(&line, true);
            }
        }
    }

    /// Number of series of a node.
    pub(super) fn series(&self) -> usize {
        self.lines.len()
    }

    /// The page of a node at this time.
    pub(super) fn page(&self, node: usize, elapsed: Duration) -> String {
        let growth = 1.0 + elapsed.as_secs_f64() / DOUBLES;
        let mut page = String::with_capacity(self.lines.len() * 160);
        for line in &self.lines {
            let generation = self.generation(node, line.pod, elapsed);
            for (text, suffix) in &line.parts {
                page.push_str(text);
                let _ = match suffix {
                    Suffix::Pod => write!(page, "-{node}-{generation}"),
                    Suffix::Workload => write!(page, "-{}", node % SPREAD),
                };
            }
            let value = if line.grows { line.value * growth } else { line.value };
            let _ = writeln!(page, "{} {value}", line.rest);
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
        # TYPE c histogram\nc_bucket{le=\"1\"} 4\n";

    #[test]
    fn a_page_has_the_names_of_its_node_and_grows() {
        let template = Template::new(PAGE, Duration::from_secs(1000));
        let page = template.page(41, Duration::from_secs(600));
        let lines: Vec<&str> = page.lines().take(3).collect();
        let generation = template.generation(41, 0, Duration::from_secs(600));
        let of = |name: &str| name.replace('G', &generation.to_string());
        assert_eq!(lines[0], of("a{namespace=\"s\",pod=\"p-41-G\",container=\"c\"} 4"));
        assert_eq!(
            lines[1],
            of(
                "b{namespace=\"s\",pod=\"p-41-G\",container=\"c\",uid=\"u-41-G\",workload=\"w-1\"} 3"
            )
        );
        assert_eq!(lines[2], "c_bucket{le=\"1\"} 8");
        assert!(page.contains("aggressor_workload=\"report-1\""), "{page}");
        assert_eq!(template.series(), page.lines().count());
    }

    #[test]
    fn all_pods_are_replaced_once_in_a_lifetime_at_different_times() {
        let mut template = Template::new(PAGE, Duration::from_secs(100));
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
