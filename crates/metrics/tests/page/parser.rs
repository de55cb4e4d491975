//! A strict parser of both formats: accepts only what the specifications allow, even where scrapers
//! are lenient. It shares no code with the writer.

use std::collections::HashSet;

use metrics::Format;
use metrics::catalogue::MetricKind;

#[derive(Debug, PartialEq)]
pub(crate) struct Family {
    /// Name as in the metadata: without `_total` in OpenMetrics.
    pub(crate) name: String,
    pub(crate) kind: MetricKind,
    pub(crate) help: String,
    pub(crate) unit: Option<String>,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: String,
}

impl Sample {
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }

    fn number(&self) -> f64 {
        self.value.parse().expect("values are checked when they are read")
    }

    /// Identity of the series, independent of the order of its labels.
    pub(crate) fn series(&self) -> (String, Vec<(String, String)>) {
        let mut labels = self.labels.clone();
        labels.sort();
        (self.name.clone(), labels)
    }
}

/// Parses every family of the page; returns the first line that breaks a rule as the error.
pub(crate) fn parse(page: &[u8], format: Format) -> Result<Vec<Family>, String> {
    let text = std::str::from_utf8(page).map_err(|error| format!("not UTF-8: {error}"))?;
    let text = match format {
        Format::Text => text,
        Format::OpenMetrics => text.strip_suffix("# EOF\n").ok_or("no # EOF at the end")?,
    };
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("the last line has no end".to_owned());
    }
    let mut parser = PageParser { format, families: Vec::new(), metadata: Vec::new() };
    for line in text.split_terminator('\n') {
        parser.line(line).map_err(|reason| format!("{reason}: {line}"))?;
    }
    if !parser.metadata.is_empty() {
        return Err("metadata without a sample at the end".to_owned());
    }
    check_names(&parser.families)?;
    check_series(&parser.families)?;
    for family in &parser.families {
        check_values(family, format)?;
    }
    Ok(parser.families)
}

struct PageParser {
    format: Format,
    families: Vec<Family>,
    /// Metadata lines (keyword, name, text) that precede their family's first sample.
    metadata: Vec<(String, String, String)>,
}

impl PageParser {
    fn line(&mut self, line: &str) -> Result<(), String> {
        match line.strip_prefix("# ") {
            Some(comment) => self.metadata_line(comment),
            None => self.sample_line(line),
        }
    }

    fn metadata_line(&mut self, comment: &str) -> Result<(), String> {
        let mut parts = comment.splitn(3, ' ');
        let (Some(keyword), Some(name), Some(text)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err("a comment that is no metadata".to_owned());
        };
        match keyword {
            "HELP" | "TYPE" => {}
            "UNIT" if self.format == Format::OpenMetrics => {}
            _ => return Err("unknown keyword".to_owned()),
        }
        if self.metadata.iter().any(|(seen, of, _)| seen == keyword || of != name) {
            return Err("metadata twice, or of a family without samples".to_owned());
        }
        self.metadata.push((keyword.to_owned(), name.to_owned(), text.to_owned()));
        Ok(())
    }

    fn sample_line(&mut self, line: &str) -> Result<(), String> {
        if !self.metadata.is_empty() {
            self.begin_family()?;
        }
        let sample = sample(line)?;
        let family = self.families.last_mut().ok_or("a sample before any metadata")?;
        if !sample_names(family, self.format).contains(&sample.name) {
            return Err(format!("not a sample of {} {}", family.kind.as_str(), family.name));
        }
        family.samples.push(sample);
        Ok(())
    }

    fn begin_family(&mut self) -> Result<(), String> {
        let metadata = std::mem::take(&mut self.metadata);
        let text_of = |keyword| {
            metadata.iter().find(|(of, _, _)| of == keyword).map(|(_, _, text)| text.clone())
        };
        let name = metadata[0].1.clone();
        let kind = match text_of("TYPE").as_deref() {
            Some("counter") => MetricKind::Counter,
            Some("gauge") => MetricKind::Gauge,
            Some("histogram") => MetricKind::Histogram,
            _ => return Err("no type".to_owned()),
        };
        let help = text_of("HELP").filter(|help| !help.is_empty()).ok_or("no help")?;
        let unit = text_of("UNIT");
        if unit.as_ref().is_some_and(|unit| !name.ends_with(&format!("_{unit}"))) {
            return Err("the unit does not end the name".to_owned());
        }
        self.families.push(Family { name, kind, help, unit, samples: Vec::new() });
        Ok(())
    }
}

fn sample_names(family: &Family, format: Format) -> Vec<String> {
    let name = &family.name;
    match (family.kind, format) {
        (MetricKind::Counter, Format::OpenMetrics) => vec![format!("{name}_total")],
        (MetricKind::Counter | MetricKind::Gauge, _) => vec![name.clone()],
        (MetricKind::Histogram, _) => {
            ["bucket", "sum", "count"].iter().map(|suffix| format!("{name}_{suffix}")).collect()
        }
    }
}

fn sample(line: &str) -> Result<Sample, String> {
    let end = line.find(['{', ' ']).ok_or("no value")?;
    let (name, mut rest) = line.split_at(end);
    if !is_name(name, true) {
        return Err("not a metric name".to_owned());
    }
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = label(rest)?;
            labels.push(label);
            rest = after;
            match rest.split_at_checked(1) {
                Some((",", more)) => rest = more,
                Some(("}", more)) => {
                    rest = more;
                    break;
                }
                _ => return Err("labels do not end".to_owned()),
            }
        }
    }
    let value = rest.strip_prefix(' ').ok_or("no space before the value")?;
    if !is_value(value) {
        return Err("not a value, or a timestamp after it".to_owned());
    }
    let distinct: HashSet<_> = labels.iter().map(|(name, _)| name).collect();
    if distinct.len() != labels.len() {
        return Err("a label twice".to_owned());
    }
    Ok(Sample { name: name.to_owned(), labels, value: value.to_owned() })
}

fn label(text: &str) -> Result<((String, String), &str), String> {
    let (name, rest) = text.split_once("=\"").ok_or("a label without a value")?;
    if !is_name(name, false) || name.starts_with("__") {
        return Err("not a label name".to_owned());
    }
    let mut value = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Ok(((name.to_owned(), value), &rest[at + 1..])),
            '\\' => value.push(match chars.next() {
                Some((_, 'n')) => '\n',
                Some((_, escaped @ ('\\' | '"'))) => escaped,
                _ => return Err("an unknown escape".to_owned()),
            }),
            other => value.push(other),
        }
    }
    Err("a label value does not end".to_owned())
}

fn is_name(name: &str, colons: bool) -> bool {
    !name.is_empty()
        && !name.starts_with(|char: char| char.is_ascii_digit())
        && name
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || char == '_' || (colons && char == ':'))
}

fn is_value(value: &str) -> bool {
    matches!(value, "NaN" | "+Inf" | "-Inf")
        || (value
            .chars()
            .all(|char| char.is_ascii_digit() || matches!(char, '.' | '-' | '+' | 'e'))
            && value.parse::<f64>().is_ok())
}

fn check_names(families: &[Family]) -> Result<(), String> {
    let mut seen = HashSet::new();
    match families.iter().find(|family| !seen.insert(&family.name)) {
        Some(family) => Err(format!("{} is not in one piece", family.name)),
        None => Ok(()),
    }
}

fn check_series(families: &[Family]) -> Result<(), String> {
    let mut seen = HashSet::new();
    match families
        .iter()
        .flat_map(|family| &family.samples)
        .find(|sample| !seen.insert(sample.series()))
    {
        Some(sample) => Err(format!("a series twice: {:?}", sample.series())),
        None => Ok(()),
    }
}

fn check_values(family: &Family, format: Format) -> Result<(), String> {
    let name = &family.name;
    match family.kind {
        MetricKind::Counter => {
            if name.ends_with("_total") != (format == Format::Text) {
                return Err(format!("_total is wrong on counter {name}"));
            }
            if let Some(sample) = family
                .samples
                .iter()
                .find(|sample| sample.number().is_nan() || sample.number() < 0.0)
            {
                return Err(format!("a counter is {}: {name}", sample.value));
            }
        }
        MetricKind::Gauge if name.ends_with("_total") => {
            return Err(format!("_total on gauge {name}"));
        }
        MetricKind::Gauge => {}
        MetricKind::Histogram => {
            let mut rest = &family.samples[..];
            while !rest.is_empty() {
                rest = check_histogram(rest)
                    .map_err(|reason| format!("{reason} in histogram {name}"))?;
            }
        }
    }
    Ok(())
}

/// Checks that the first histogram of `samples` is complete and contiguous, and returns what
/// follows it.
fn check_histogram(samples: &[Sample]) -> Result<&[Sample], String> {
    let own_labels = |sample: &Sample| -> Vec<(String, String)> {
        sample.labels.iter().filter(|(name, _)| name != "le").cloned().collect()
    };
    let labels = own_labels(&samples[0]);
    let buckets = samples
        .iter()
        .take_while(|sample| sample.name.ends_with("_bucket") && own_labels(sample) == labels);
    let (mut last_bound, mut last_count, mut read) = (f64::NEG_INFINITY, 0.0, 0);
    for bucket in buckets {
        let le = bucket.label("le").ok_or("a bucket without le")?;
        let bound: f64 = le.parse().map_err(|_| format!("le is {le}"))?;
        if le != "+Inf" && !le.contains('.') {
            return Err(format!("le is {le}, without a point"));
        }
        if bound <= last_bound || bucket.number() < last_count {
            return Err(format!("no growth at le {le}"));
        }
        (last_bound, last_count, read) = (bound, bucket.number(), read + 1);
    }
    if last_bound != f64::INFINITY {
        return Err("no +Inf bucket".to_owned());
    }
    let [sum, count, ..] = &samples[read..] else { return Err("half a histogram".to_owned()) };
    if !sum.name.ends_with("_sum")
        || !count.name.ends_with("_count")
        || sum.labels != labels
        || count.labels != labels
    {
        return Err("no sum and count after the buckets".to_owned());
    }
    if count.number() != last_count {
        return Err("the count is not the +Inf bucket's".to_owned());
    }
    Ok(&samples[read + 2..])
}

#[test]
fn a_good_page_is_read() {
    let page = "# HELP a_seconds_total h\n# TYPE a_seconds_total counter\na_seconds_total{x=\"\\\\\\\"\\n\"} 1.5\n";
    let families = parse(page.as_bytes(), Format::Text).unwrap();
    assert_eq!(families[0].samples[0].labels, [("x".to_owned(), "\\\"\n".to_owned())]);
    assert_eq!(families[0].samples[0].value, "1.5");
    let page = "# HELP a_seconds h\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1\n# EOF\n";
    assert_eq!(
        parse(page.as_bytes(), Format::OpenMetrics).unwrap()[0].unit.as_deref(),
        Some("seconds")
    );
}

#[test]
fn the_parser_rejects_invalid_pages() {
    let head = "# HELP a h\n# TYPE a gauge\n";
    let histogram = "# HELP a h\n# TYPE a histogram\n";
    let text = [
        "a 1\n".to_owned(),
        format!("{head}a 1"),
        format!("{head}a 1\n\na 2\n"),
        format!("{head}a 1\n{head}"),
        format!("{head}a 1\na 1\n"),
        format!("{head}a{{x=\"1\",y=\"2\"}} 1\na{{y=\"2\",x=\"1\"}} 1\n"),
        format!("{head}a 1\n# HELP b h\n# TYPE b gauge\nb 1\n{head}a{{x=\"1\"}} 1\n"),
        format!("{head}b 1\n"),
        format!("{head}a{{x=\"1\",x=\"2\"}} 1\n"),
        format!("{head}a{{x=\"\\t\"}} 1\n"),
        format!("{head}a{{x=\"1\"\n"),
        format!("{head}a{{}} 1\n"),
        format!("{head}a{{__x=\"1\"}} 1\n"),
        format!("{head}a 1 1700000000\n"),
        format!("{head}a inf\n"),
        format!("{head}a \n"),
        "# TYPE a gauge\na 1\n".to_owned(),
        "# HELP a h\na 1\n".to_owned(),
        "# HELP a h\n# TYPE a counter\na 1\n".to_owned(),
        "# HELP a_total h\n# TYPE a_total gauge\na_total 1\n".to_owned(),
        "# HELP a_total h\n# TYPE a_total counter\na_total -1\n".to_owned(),
        "# HELP a_seconds h\n# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 1\n"
            .to_owned(),
        format!("{histogram}a_bucket{{le=\"+Inf\"}} 1\n"),
        format!("{histogram}a_bucket{{le=\"1.0\"}} 1\na_sum 1\na_count 1\n"),
        format!(
            "{histogram}a_bucket{{le=\"1\"}} 1\na_bucket{{le=\"+Inf\"}} 1\na_sum 1\na_count 1\n"
        ),
        format!(
            "{histogram}a_bucket{{le=\"1.0\"}} 2\na_bucket{{le=\"+Inf\"}} 1\na_sum 1\na_count 1\n"
        ),
        format!("{histogram}a_bucket{{le=\"+Inf\"}} 1\na_sum 1\na_count 2\n"),
        format!("{histogram}a_bucket{{le=\"+Inf\"}} 1\na_sum{{x=\"1\"}} 1\na_count 1\n"),
    ];
    for page in text {
        assert!(parse(page.as_bytes(), Format::Text).is_err(), "{page}");
    }
    let openmetrics = [
        "",
        "# HELP a h\n# TYPE a gauge\na 1\n",
        "# HELP a h\n# TYPE a gauge\na 1\n# EOF\n# EOF\n",
        "# HELP a_total h\n# TYPE a_total counter\na_total 1\n# EOF\n",
        "# HELP a_seconds h\n# TYPE a_seconds gauge\n# UNIT a_seconds bytes\na_seconds 1\n# EOF\n",
    ];
    for page in openmetrics {
        assert!(parse(page.as_bytes(), Format::OpenMetrics).is_err(), "{page}");
    }
}
