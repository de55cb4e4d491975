//! Properties of the parsers for data from the kubelet and pod authors, over a corpus and its
//! mutations. Protobuf, whose types are generated in crate `pod-sources`, is tested in its
//! `src/proto.rs`.

use corpus::within;
use kubepods::path::CgroupPath;
use kubepods::{path, quantity, read_pod_list};
use serde::de::IgnoredAny;
use serde_json::Value;

fn check(parser: &str, tokens: &[&[u8]], property: impl Fn(&[u8])) {
    corpus::run(env!("CARGO_MANIFEST_DIR"), parser, tokens, property);
}

#[test]
fn pod_lists_are_read_the_same_in_any_notation() {
    let tokens: [&[u8]; 6] =
        [b"\"items\":", b"null", b"{}", b"[]", b"\"\\ud800\"", b"\"resources\":{}"];
    check("pod_list", &tokens, |text| {
        // The shortest container is "{}," and takes a few hundred bytes of fields.
        let read = within((64 << 10) + 512 * text.len(), || read_pod_list(text));
        if serde_json::from_slice::<IgnoredAny>(text).is_err() {
            return assert!(read.is_err(), "not JSON");
        }
        // Skipped fields may contain numbers and strings that no type can represent.
        let Ok(value) = serde_json::from_slice::<Value>(text) else { return };
        let Ok(pods) = read else { return };
        assert!(value.is_object());
        if value["items"].is_null() {
            return assert!(pods.is_empty());
        }
        assert_eq!(pods.len(), value["items"].as_array().map_or(0, Vec::len));
        for again in [serde_json::to_vec(&value), serde_json::to_vec_pretty(&value)] {
            assert_eq!(read_pod_list(&again.expect("JSON")[..]).expect("the same list"), pods);
        }
    });
}

#[test]
fn a_list_that_ends_early_is_an_error() {
    check("pod_list", &[], |text| {
        if read_pod_list(text).is_ok() {
            let end = text.trim_ascii_end().len();
            for cut in [end - 1, end / 2, 1] {
                assert!(read_pod_list(&text[..cut]).is_err(), "cut at {cut}");
            }
        }
    });
}

#[test]
fn paths_of_cgroups_read_back_as_written() {
    let understood = std::cell::Cell::new(0);
    let tokens: [&[u8]; 8] = [
        b"kubepods",
        b"/",
        b".slice",
        b".scope",
        b"-pod",
        b"cri-containerd-",
        b"system",
        b"kubepods-besteffort.slice",
    ];
    check("cgroup_path", &tokens, |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        let Some(parsed) = within(4096 + 16 * text.len(), || path::parse(text)) else { return };
        understood.set(understood.get() + 1);
        let written = CgroupPath::to_string(&parsed);
        assert_eq!(written, text);
    });
    assert!(understood.get() >= 8, "the corpus has paths of no kubelet");
}

/// A decimal number with a suffix, by floating point; `None` beyond its precision.
fn by_float(text: &str, factor: f64) -> Option<f64> {
    let end = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = match &text[end..] {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        _ => return None,
    };
    Some(number * unit * factor).filter(|value| *value < 1e15)
}

#[test]
fn quantities_are_rounded_up_and_never_off() {
    check("quantity", &[b"m", b"Ki", b"e3", b"E", b".", b"n"], |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        let (millis, bytes) = within(4096, || (quantity::millicores(text), quantity::whole(text)));
        assert_eq!(millis.is_ok(), bytes.is_ok(), "{text:?}");
        for (found, factor) in [(millis, 1000.0), (bytes, 1.0)] {
            let (Ok(found), Some(expected)) = (found, by_float(text, factor)) else { continue };
            let error = found as f64 - expected;
            // Each of a few operations on floating-point numbers rounds.
            let rounding = 0.001 + expected * 4.0 * f64::EPSILON;
            assert!(
                (-rounding..1.0 + rounding).contains(&error),
                "{text:?}: {found}, {expected} by floating point"
            );
        }
    });
}
