//! The runbooks as a Grafana dashboard, one panel per section. The alerts' `runbook_url` can point
//! to it, so that nothing must be published on the web.

use serde_json::{Value, json};

/// Height of a panel in units of Grafana's grid; longer sections scroll.
const HEIGHT: usize = 9;

/// Builds the dashboard of a page whose second-level headings are alerts. Panel IDs number the
/// sections from 1.
#[must_use]
pub fn dashboard(page: &str) -> String {
    let mut parts = page.split("\n## ");
    let introduction = parts.next().unwrap_or_default();
    let introduction = introduction.trim_start_matches("# Runbooks");
    let sections: Vec<(&str, &str)> =
        parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect();
    let alerts = sections.iter().enumerate().map(|(at, (title, text))| panel(at + 1, title, text));
    let panels: Vec<Value> =
        std::iter::once(panel(0, "Introduction", introduction)).chain(alerts).collect();
    let dashboard = json!({
        "uid": "cpuwarden-runbooks",
        "title": "cpuwarden / Runbooks",
        "description": "What each alert means, how to look, what to do. Generated from deploy/docs/runbooks.md.",
        "tags": ["cpuwarden"],
        "schemaVersion": 41,
        "version": 1,
        "editable": false,
        "timezone": "browser",
        "links": [{
            "type": "dashboards", "title": "cpuwarden", "tags": ["cpuwarden"], "asDropdown": false, "includeVars": true,
            "keepTime": true, "targetBlank": false, "icon": "external link", "tooltip": "", "url": "",
        }],
        "templating": {"list": []},
        "annotations": {"list": []},
        "panels": panels,
    });
    format!("{dashboard:#}\n")
}

fn panel(at: usize, title: &str, text: &str) -> Value {
    // Grafana treats ID 0 as missing.
    let id = if at == 0 { 1000 } else { at };
    json!({
        "id": id,
        "type": "text",
        "title": title,
        "gridPos": {"x": 0, "y": at * HEIGHT, "w": 24, "h": HEIGHT},
        "options": {"mode": "markdown", "content": without_relative_links(text).trim()},
    })
}

/// Replaces `[text](page.md)` by `text`, because Grafana does not have the other pages.
fn without_relative_links(text: &str) -> String {
    let mut parts = text.split('[');
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let link =
            part.split_once("](").and_then(|(label, rest)| Some((label, rest.split_once(')')?)));
        match link {
            Some((label, (target, after))) if !target.starts_with("http") => {
                kept.extend([label, after]);
            }
            _ => kept.extend(["[", part]),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_a_panel_without_links_to_other_pages() {
        let page = "# Runbooks\n\nAll.\n\n## First\n\nSee [install](install.md#a), [x](https://x.y) and a[0].\n\n## Second\nB\n";
        let dashboard: Value = serde_json::from_str(&dashboard(page)).unwrap();
        let panels = dashboard["panels"].as_array().unwrap().iter();
        let shown = |panel: &Value| {
            [panel["title"].clone(), panel["id"].clone(), panel["options"]["content"].clone()]
        };
        let expected: [[Value; 3]; 3] = [
            ["Introduction".into(), 1000.into(), "All.".into()],
            ["First".into(), 1.into(), "See install, [x](https://x.y) and a[0].".into()],
            ["Second".into(), 2.into(), "B".into()],
        ];
        assert_eq!(panels.map(shown).collect::<Vec<[Value; 3]>>(), expected);
    }
}
