//! The part of the Prometheus text format that the tests need.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

/// One page of metrics. Only lines that are asked for are parsed: tests read a page many times a
/// second until a value is there.
pub(crate) struct Exposition {
    pub(crate) text: String,
}

/// One line with a value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Exposition {
    pub(crate) fn new(text: String) -> Self {
        Self { text }
    }

    /// All samples; panics at an invalid line.
    pub(crate) fn samples(&self) -> impl Iterator<Item = Sample> {
        self.with_prefix("")
    }

    /// Samples whose names start with this prefix; panics at an invalid line.
    pub(crate) fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = Sample> {
        let lines = self.text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines
            .filter(move |line| line.starts_with(prefix))
            .map(|line| Sample::parse(line).unwrap_or_else(|| panic!("no sample: {line}")))
    }

    /// Checks the page with promtool; panics with its complaints.
    pub(crate) fn assert_promtool_agrees(&self) {
        let mut promtool = Command::new("promtool");
        promtool
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = promtool.spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("promtool (Debian package prometheus): {error}"));
        child.stdin.take().unwrap().write_all(self.text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "promtool: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Sample {
    fn parse(line: &str) -> Option<Self> {
        let (series, value) = line.rsplit_once(' ')?;
        let value = value.parse().ok()?;
        let Some((name, rest)) = series.split_once('{') else {
            return Some(Self { name: series.to_owned(), labels: BTreeMap::new(), value });
        };
        let labels = labels(rest.strip_suffix('}')?)?;
        Some(Self { name: name.to_owned(), labels, value })
    }

    /// Value of the label; empty if missing, as in Prometheus.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// Parses `a="x",b="y"`.
fn labels(mut text: &str) -> Option<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let (value, after) = quoted(rest)?;
        all.insert(name.to_owned(), value);
        text = after.strip_prefix(',').unwrap_or(after);
    }
    Some(all)
}

/// The value up to the closing quote, and the text after it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, char)) = chars.next() {
        match char {
            '"' => return Some((value, &text[index + 1..])),
            '\\' => value.push(match chars.next()?.1 {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
    None
}

#[test]
fn a_sample_is_taken_apart() {
    let page = Exposition::new("# HELP a b\na{x=\"1,\\\"}\",y=\"\\\\n\"} 2.5\nb 1e3\n".into());
    let labels = [("x".to_owned(), "1,\"}".to_owned()), ("y".to_owned(), "\\n".to_owned())];
    let first = Sample { name: "a".into(), labels: labels.into(), value: 2.5 };
    assert_eq!(
        page.samples().collect::<Vec<_>>(),
        [first, Sample { name: "b".into(), labels: BTreeMap::new(), value: 1000.0 }]
    );
}
