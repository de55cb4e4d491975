//! Label pairs of the Prometheus text format, formatted once per identity and kept with it:
//! `labels` of the identities, and every label value of the exposition. No other module escapes
//! label values.

/// Passes `value` to `write` in pieces, with `\`, `"` and line feed escaped as in a label value
/// (Prometheus text format 0.0.4 and OpenMetrics 1.0 agree).
pub fn escape(value: &str, mut write: impl FnMut(&str)) {
    let mut rest = value;
    while let Some(at) = rest.bytes().position(|byte| matches!(byte, b'\\' | b'"' | b'\n')) {
        write(&rest[..at]);
        write(match rest.as_bytes()[at] {
            b'\n' => "\\n",
            b'"' => "\\\"",
            _ => "\\\\",
        });
        rest = &rest[at + 1..];
    }
    write(rest);
}

/// Formats `name="value",…` with escaped values, without braces.
#[must_use]
pub fn pairs(labels: &[(&str, &str)]) -> Box<str> {
    let mut text = String::new();
    append(&mut text, labels.iter().copied());
    text.into_boxed_str()
}

/// Appends `name="value",…` as [`pairs`] to `text`, after a comma if it is not empty.
pub fn append<'l>(text: &mut String, labels: impl Iterator<Item = (&'l str, &'l str)>) {
    for (name, value) in labels {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(name);
        text.push_str("=\"");
        escape(value, |piece| text.push_str(piece));
        text.push('"');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_names_are_not_quoted() {
        assert_eq!(&*pairs(&[("namespace", "a"), ("pod", "b-0")]), r#"namespace="a",pod="b-0""#);
        assert_eq!(&*pairs(&[("pod", "\\\"\n\"é")]), r#"pod="\\\"\n\"é""#);
    }

    #[test]
    fn no_pair_is_no_text() {
        assert_eq!(&*pairs(&[]), "");
    }
}
