//! Labels of pods that are exported: `--pod-labels`.

use sampler::ExportedLabel;

use crate::exit::Failure;

/// Maximum number of labels: each is on every container's series of container_info.
const MOST: usize = 10;
/// Maximum length of a label's key: a DNS name, a slash and 63 characters.
const LONGEST: usize = 253 + 1 + 63;

/// Parses the keys, separated by commas.
///
/// # Errors
/// Too many keys, one that no label can have, or two that become the same label of the metric.
pub(super) fn exported(keys: Option<&str>) -> Result<Vec<ExportedLabel>, Failure> {
    let mut labels: Vec<ExportedLabel> = Vec::new();
    for key in keys.unwrap_or_default().split(',').map(str::trim).filter(|key| !key.is_empty()) {
        let wrong = |why: &str| Failure::config(format!("--pod-labels: {key:?} {why}"));
        if !is_key(key) {
            return Err(wrong("is not the key of a label, e.g. team or app.kubernetes.io/name"));
        }
        let name = name(key);
        if let Some(same) = labels.iter().find(|label| *label.name == *name) {
            let same = &same.key;
            return Err(wrong(&format!("and {same:?} both become {name}; remove one of them")));
        }
        if labels.len() == MOST {
            return Err(wrong(&format!("is one label too many: at most {MOST}")));
        }
        labels.push(ExportedLabel { key: key.into(), name: name.into() });
    }
    Ok(labels)
}

/// Name of the metric's label, as kube-state-metrics forms it.
fn name(key: &str) -> String {
    let is_plain = |char: &char| char.is_ascii_alphanumeric();
    let part = |char: char| if is_plain(&char) { char } else { '_' };
    format!("label_{}", key.chars().map(part).collect::<String>())
}

fn is_key(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').unwrap_or(("a", key));
    let is_part = |text: &str| {
        let char = |char: char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.');
        let ends = |char: Option<char>| char.is_some_and(|char| char.is_ascii_alphanumeric());
        text.chars().all(char) && ends(text.chars().next()) && ends(text.chars().last())
    };
    key.len() <= LONGEST && is_part(prefix) && is_part(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(keys: &str) -> Result<Vec<String>, String> {
        let labels = exported(Some(keys)).map_err(|failure| failure.to_string())?;
        Ok(labels.iter().map(|label| label.name.to_string()).collect())
    }

    #[test]
    fn a_key_becomes_a_label_of_the_metric() {
        assert_eq!(names("").unwrap(), [""; 0]);
        assert_eq!(
            names("team, app.kubernetes.io/name,a-b").unwrap(),
            ["label_team", "label_app_kubernetes_io_name", "label_a_b"]
        );
        assert!(exported(None).unwrap().is_empty());
    }

    #[test]
    fn what_no_pod_can_have_and_what_collides_is_rejected() {
        for (keys, word) in [
            ("te am", "\"te am\" is not the key of a label"),
            ("/team", "is not the key"),
            ("team/", "is not the key"),
            ("a/b/c", "is not the key"),
            ("{team}", "is not the key"),
            ("a.b,a-b", "\"a-b\" and \"a.b\" both become label_a_b"),
            ("team,team", "both become label_team"),
            ("a,b,c,d,e,f,g,h,i,j,k", "\"k\" is one label too many: at most 10"),
        ] {
            let error = names(keys).unwrap_err();
            assert!(error.starts_with("--pod-labels: ") && error.contains(word), "{keys}: {error}");
        }
        assert!(names(&"a".repeat(400)).is_err());
    }
}
