//! Content negotiation by a scraper's Accept and Accept-Encoding headers (RFC 9110, section 12.5).

/// An exposition format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    #[default]
    Text,
    /// OpenMetrics text format 1.0.0.
    OpenMetrics,
}

impl Format {
    /// The format that an Accept header prefers; of two with equal weight, the first. The text
    /// format is the default for an empty header or one without either format: every scraper reads
    /// it, and an error page would not help.
    #[must_use]
    pub fn from_accept(accept: &str) -> Self {
        let mut best = (0, Self::Text);
        for range in accept.split(',') {
            let weight = weight(range);
            if let Some(format) = named(range)
                && weight > best.0
            {
                best = (weight, format);
            }
        }
        best.1
    }

    /// Content-Type of a page in this format.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Whether an Accept-Encoding header accepts gzip.
#[must_use]
pub fn accepts_gzip(accept_encoding: &str) -> bool {
    let mut any = false;
    for coding in accept_encoding.split(',') {
        let name = coding.split(';').next().unwrap_or_default().trim();
        let accepted = weight(coding) > 0;
        if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            return accepted;
        }
        any |= name == "*" && accepted;
    }
    any
}

/// The format that a media range requests. A wildcard means the text format, which every client
/// reads. Another version counts as another format (Prometheus requests OpenMetrics 0.0.1, 1.0.0
/// and text 1.0.0 together).
fn named(range: &str) -> Option<Format> {
    let media_type = range.split(';').next().unwrap_or_default().trim();
    let version = parameter(range, "version");
    if media_type.eq_ignore_ascii_case("application/openmetrics-text") {
        matches!(version, None | Some("1.0.0")).then_some(Format::OpenMetrics)
    } else if media_type.eq_ignore_ascii_case("text/plain") {
        matches!(version, None | Some("0.0.4")).then_some(Format::Text)
    } else {
        matches!(media_type, "*/*" | "text/*").then_some(Format::Text)
    }
}

/// The `q` of a list member in thousandths: 1000 if absent, 0 if invalid.
fn weight(member: &str) -> u32 {
    let Some(q) = parameter(member, "q") else { return 1000 };
    match q.parse::<f64>() {
        Ok(q) if (0.0..=1.0).contains(&q) => (q * 1000.0).round() as u32,
        _ => 0,
    }
}

fn parameter<'a>(member: &'a str, name: &str) -> Option<&'a str> {
    member.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_is_given_what_it_prefers() {
        let cases = [
            // 2.42
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            // 2.49 to 2.55
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Format::OpenMetrics,
            ),
            // the same with scrape_protocols [PrometheusText0.0.4]
            ("text/plain;version=0.0.4;q=0.5,*/*;q=0.4", Format::Text),
            // 3.x
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                Format::OpenMetrics,
            ),
            // 3.x with native histograms: protobuf first, which is not supported
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,\
                 application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                Format::OpenMetrics,
            ),
            // 3.x with scrape_protocols [PrometheusText1.0.0]: only the wildcard matches
            ("text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.5", Format::Text),
        ];
        for (accept, format) in cases {
            assert_eq!(Format::from_accept(accept), format, "{accept}");
        }
    }

    #[test]
    fn weights_and_their_absence_count() {
        let cases = [
            ("", Format::Text),
            ("*/*", Format::Text),
            ("application/json", Format::Text),
            ("application/openmetrics-text", Format::OpenMetrics),
            ("Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8", Format::OpenMetrics),
            ("application/openmetrics-text;version=0.0.1", Format::Text),
            ("application/openmetrics-text;version=1.0.0;q=0", Format::Text),
            ("application/openmetrics-text;q=0.3, text/plain;q=0.7", Format::Text),
            ("text/plain, application/openmetrics-text", Format::Text),
            ("application/openmetrics-text, text/plain", Format::OpenMetrics),
            ("application/openmetrics-text;q=x", Format::Text),
            ("application/openmetrics-text;q=2", Format::Text),
        ];
        for (accept, format) in cases {
            assert_eq!(Format::from_accept(accept), format, "{accept}");
        }
    }

    #[test]
    fn gzip_is_sent_only_where_it_is_taken() {
        for taken in ["gzip", "deflate, GZIP;q=0.5", "*", "x-gzip", "identity;q=0.1, *;q=0.9"] {
            assert!(accepts_gzip(taken), "{taken}");
        }
        for refused in
            ["", "identity", "deflate, br", "gzip;q=0", "*;q=0", "*, gzip;q=0", "gzip;q=0, *"]
        {
            assert!(!accepts_gzip(refused), "{refused}");
        }
    }
}
