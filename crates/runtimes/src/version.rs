//! Versions in files and names.

/// Maximum length of a version, bytes: enough for `17.0.15.0.1-Ubuntu-0ubuntu1.22.04` and similar.
const MAX_BYTES: usize = 40;

/// Returns a plausible version. The text is untrusted, because the program's author wrote it, and
/// becomes a label value.
pub(crate) fn plausible(text: &[u8]) -> Option<String> {
    let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b".-+_~".contains(&byte);
    let is_one =
        text.len() <= MAX_BYTES && text.iter().any(u8::is_ascii_digit) && text.iter().all(is_plain);
    is_one.then(|| String::from_utf8_lossy(text).into_owned())
}

/// The digits and dots at the start of a text, if any.
pub(crate) fn leading(text: &[u8]) -> Option<String> {
    let end =
        text.iter().position(|&byte| byte != b'.' && !byte.is_ascii_digit()).unwrap_or(text.len());
    plausible(text[..end].strip_suffix(b".").unwrap_or(&text[..end]))
}

/// The text after a mark.
pub(crate) fn after<'a>(text: &'a [u8], mark: &[u8]) -> Option<&'a [u8]> {
    text.get(memchr::memmem::find(text, mark)? + mark.len()..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_looks_like_a_version_is_one() {
        assert_eq!(plausible(b"go1.25.1").as_deref(), Some("go1.25.1"));
        let too_long = [b'1'; 41];
        for text in [&b""[..], b"main", b"1.0\n", b"1\"", b"1 2", &too_long] {
            assert_eq!(plausible(text), None, "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn a_version_ends_with_its_last_number() {
        assert_eq!(leading(b"20.20.2/node").as_deref(), Some("20.20.2"));
        assert_eq!(leading(b"3.11.so.1.0").as_deref(), Some("3.11"));
        assert_eq!((leading(b"x1"), leading(b"")), (None, None));
    }

    #[test]
    fn a_mark_is_found_wherever_it_is() {
        assert_eq!(after(b"aab mark12", b"mark"), Some(&b"12"[..]));
        assert_eq!(after(b"mamark", b"mark"), Some(&b""[..]));
        assert_eq!((after(b"mar", b"mark"), after(b"", b"mark")), (None, None));
    }
}
