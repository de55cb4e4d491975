//! Grants in the checkpoint: the planner's form as text.

use placement::{Class, Current, Holding};
use state_dir::Held;

/// Converts to the form of the checkpoint.
pub(crate) fn to_held(current: &Current) -> Held {
    let words =
        |holding: &Holding| (class_name(holding.class).to_owned(), holding.cpus.to_string());
    let held = current.held.iter();
    Held {
        held: held.map(|(uid, holding)| (uid.to_string(), words(holding))).collect(),
        demoted: current.demoted.iter().map(ToString::to_string).collect(),
    }
}

/// Converts to the planner's form. Entries with an unknown class or an invalid CPU list are skipped:
/// they cannot have been granted.
#[must_use]
pub fn to_current(grants: &Held) -> Current {
    let holding = |(class, cpus): &(String, String)| {
        let class =
            [Class::Lse, Class::Lsr].into_iter().find(|known| class_name(*known) == class)?;
        Some(Holding { class, cpus: cpus.parse().ok()? })
    };
    let held = grants.held.iter();
    Current {
        held: held
            .filter_map(|(uid, words)| Some((uid.as_str().into(), holding(words)?)))
            .collect(),
        demoted: grants.demoted.iter().map(|uid| uid.as_str().into()).collect(),
        ..Current::default()
    }
}

/// Name of the class: `LSE`, `LSR`, `LS` or `BE`.
#[must_use]
pub const fn class_name(class: Class) -> &'static str {
    match class {
        Class::Lse => "LSE",
        Class::Lsr => "LSR",
        Class::Share => "LS",
        Class::BestEffort => "BE",
    }
}

#[cfg(test)]
mod tests {
    use state_dir::{CheckedFile, PinningCheckpoint};

    use super::*;

    #[test]
    fn any_text_decodes_to_a_checkpoint_or_an_error() {
        const FILE: CheckedFile =
            CheckedFile { name: "pins.json", magic: "cpuwarden-pins-1", remedy: "" };
        let parse = |text: &str| FILE.parse::<PinningCheckpoint>(text);
        corpus::run(
            env!("CARGO_MANIFEST_DIR"),
            "checkpoint",
            &[b"\"0-8191\"", b"null", b"{}", b"[]"],
            |bytes| {
                let Ok(body) = std::str::from_utf8(bytes) else { return };
                assert!(parse(body).is_err(), "without a checksum");
                let text = FILE.text(body);
                // A CPU list of ten bytes can expand to a set of a kilobyte.
                let decode = || parse(&text).map(|read| (to_current(&read.committed), read));
                let Ok((current, read)) = corpus::within((64 << 10) + 256 * text.len(), decode)
                else {
                    return;
                };
                assert_eq!(to_current(&to_held(&current)), current);
                let written = serde_json::to_string(&read).unwrap();
                assert_eq!(parse(&FILE.text(&written)).unwrap(), read);
                let cut = &text[..text.floor_char_boundary(text.len() - 1)];
                assert!(parse(cut).is_err(), "cut");
                assert!(parse(&format!("{text} ")).is_err(), "another text of the same meaning");
            },
        );
    }
}
