//! Handwritten pages: the things they name exist, and their links are valid.

use std::path::Path;
use std::process::Command;

use timeline::{BYTES_PER_CONTAINER, BYTES_PER_PAIR, MAX_CONTAINERS, MAX_PAIRS};

use super::{catalogue, chart, deploy, output_of, read};
use crate::support::binary;

/// Maximum size of a picture, bytes.
const LARGEST_PICTURE: u64 = 200_000;
/// Pages next to `docs`, for users and for developers.
const OTHER_PAGES: [&str; 4] = [
    "../README.md",
    "../.github/CONTRIBUTING.md",
    "../.github/SECURITY.md",
    "../benches/README.md",
];
/// Maximum number of lines of the README.
const README_LINES: usize = 150;
/// Maximum number of pages in `docs`: a new subject extends a page.
const PAGES: usize = 22;

/// Names of the files in a directory of deploy.
fn file_names(directory: &str) -> Vec<String> {
    let entries = std::fs::read_dir(deploy(directory)).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Path and text of each page.
fn pages() -> Vec<(String, String)> {
    let in_folder = |folder: &'static str| {
        let names = file_names(folder).into_iter().filter(|name| name.ends_with(".md"));
        names.map(move |name| format!("{folder}/{name}"))
    };
    let names: Vec<String> = in_folder("docs")
        .chain(in_folder("evidence"))
        .chain(OTHER_PAGES.map(str::to_owned))
        .collect();
    assert!(names.len() > 5, "{names:?}");
    names.into_iter().map(|name| (name.clone(), read(&name))).collect()
}

/// The text after each such prefix, up to a character for which `is_part` is false.
fn after<'a>(
    text: &'a str,
    beginning: &'a str,
    is_part: fn(char) -> bool,
) -> impl Iterator<Item = &'a str> {
    text.split(beginning).skip(1).map(move |rest| rest.split(|char| !is_part(char)).next().unwrap())
}

#[test]
fn every_link_leads_somewhere() {
    for (page, text) in pages() {
        for link in after(&text, "](", |char| char != ')').filter(|link| !link.starts_with("http"))
        {
            let (file, section) = link.split_once('#').unwrap_or((link, ""));
            let own = Path::new(&page);
            let file =
                if file.is_empty() { own.to_owned() } else { own.parent().unwrap().join(file) };
            let file = file.to_str().unwrap();
            assert!(deploy(file).exists(), "{page}: {link}");
            assert!(
                section.is_empty() || sections(&read(file)).any(|name| name == section),
                "{page}: {link}"
            );
        }
    }
}

#[test]
fn every_page_is_in_the_index() {
    let index = read("docs/README.md");
    for name in file_names("docs") {
        assert!(
            name == "README.md" || index.contains(&format!("]({name})")),
            "{name} is not in docs/README.md"
        );
    }
}

#[test]
fn the_entrance_stays_short() {
    let lines = read("../README.md").lines().count();
    assert!(lines <= README_LINES, "{lines} lines in README.md");
    let pages = file_names("docs");
    assert!(pages.len() <= PAGES, "{} pages: {pages:?}", pages.len());
}

/// Values of `--set` in each command of the text that installs or upgrades the chart.
fn helm_values(text: &str) -> Vec<Vec<String>> {
    let text = text.replace("\\\n", " ").replace('"', "");
    let commands = text.lines().map(str::trim_start).filter(|line| {
        line.starts_with("helm install cpuwarden ") || line.starts_with("helm upgrade ")
    });
    let values = |command: &str| {
        let values = command.split("--set ").skip(1);
        values.map(|rest| rest.split_whitespace().next().unwrap_or_default().to_owned()).collect()
    };
    commands.map(values).collect()
}

#[test]
fn the_chart_accepts_every_helm_command_of_a_page() {
    let mut rendered = 0;
    for (page, text) in pages() {
        for values in helm_values(&text).into_iter().filter(|values| !values.is_empty()) {
            let arguments: Vec<String> =
                values.iter().map(|value| format!("--set={value}")).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let objects = chart::render(&arguments);
            assert!(objects.contains("kind: DaemonSet"), "{page}: {values:?}");
            rendered += 1;
        }
    }
    assert!(rendered > 5, "{rendered} commands");
}

/// A first user learns the price of the default and its rights where it is installed, and the way
/// without them.
#[test]
fn the_price_of_the_traced_default_is_next_to_its_command() {
    let traced = chart::render(&[]);
    assert!(traced.contains("add: [BPF, PERFMON]") && !traced.contains("CPUWARDEN_SCHED_TRACE"));
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for page in ["../README.md", "docs/install.md", "chart/cpuwarden/values.yaml"] {
        let text = words(&read(page).replace("\n#", "\n"));
        for part in [
            "for at most 1 % of the node's CPUs, as root with BPF and PERFMON, with which an attacker in control of the agent",
            "can read everything on its node",
        ] {
            assert!(text.contains(part), "{page}: {part}");
        }
    }
    for page in ["../README.md", "docs/install.md"] {
        let text = read(page);
        let [install, price, monitor] =
            ["helm install cpuwarden", "root with BPF", "profile=monitor"]
                .map(|part| text.find(part).unwrap_or_else(|| panic!("{page}: {part}")));
        assert!(install < price && (price.abs_diff(monitor) < 600), "{page}");
    }
    let incident = helm_values(&read("docs/incident.md"));
    assert!(incident.iter().any(|values| *values == ["profile=trace".to_owned()]));
}

#[test]
fn every_picture_is_small_and_shown_on_a_page() {
    let pages = pages();
    let pictures = file_names("docs/images");
    assert!(pictures.len() > 3, "{pictures:?}");
    for picture in pictures {
        let bytes = std::fs::read(deploy("docs/images").join(&picture)).unwrap();
        assert!(bytes.starts_with(b"\x89PNG"), "{picture} is not a PNG");
        assert!(bytes.len() as u64 <= LARGEST_PICTURE, "{picture}: {} bytes", bytes.len());
        let is_shown = |text: &str| {
            after(text, "![", |char| char != ')')
                .any(|link| link.ends_with(&format!("images/{picture}")))
        };
        assert!(pages.iter().any(|(_, text)| is_shown(text)), "no page shows {picture}");
    }
}

/// Headings of a page in the form of link anchors.
fn sections(text: &str) -> impl Iterator<Item = String> {
    let headings = text
        .lines()
        .filter(|line| line.starts_with('#'))
        .map(|line| line.trim_start_matches(['#', ' ']));
    headings.map(|heading| {
        let kept = heading.chars().filter(|&char| char.is_alphanumeric() || " -_".contains(char));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    })
}

#[test]
fn every_key_and_value_that_a_page_names_exists() {
    let reference = output_of(Command::new(binary()).args(["reference", "configuration"]));
    let values: serde_json::Value =
        serde_json::from_str(&read("chart/cpuwarden/values.schema.json")).unwrap();
    for (page, text) in pages() {
        for key in after(&text, "`config.", |char| char.is_ascii_alphanumeric()) {
            assert!(reference.contains(&format!("`{key}`")), "{page}: no key {key}");
        }
        for value in after(&text, "--set ", |char| char != '=' && !char.is_whitespace()) {
            // Keys of the agent's configuration file are not in the schema.
            if let Some(key) = value.strip_prefix("config.") {
                assert!(reference.contains(&format!("`{key}`")), "{page}: no key {key}");
                continue;
            }
            let schema = |at: &serde_json::Value, name: &str| {
                if at["$ref"].is_null() { at["properties"][name].clone() } else { at.clone() }
            };
            let found = value.split('.').fold(values.clone(), |at, name| schema(&at, name));
            assert!(!found.is_null(), "{page}: no value {value}");
        }
        for section in [
            "kubelet",
            "endpoint",
            "rbac",
            "podMonitor",
            "prometheusRule",
            "networkPolicy",
            "dashboards",
        ] {
            for name in after(&text, &format!("`{section}."), |char| char.is_ascii_alphanumeric()) {
                let known = &values["properties"][section]["properties"][name];
                assert!(!known.is_null(), "{page}: no value {section}.{name}");
            }
        }
    }
}

#[test]
fn the_stated_memory_of_the_history_is_that_of_the_code() {
    let stated = |page: &str| read(page).replace('\n', " ").replace(',', "");
    let container = format!("{BYTES_PER_CONTAINER} bytes per container");
    for page in ["docs/views.md", "docs/configuration.md"] {
        assert!(stated(page).contains(&container), "{page}: {container}");
    }
    let page = stated("docs/views.md");
    for text in [
        format!("for at most {MAX_CONTAINERS} containers"),
        format!("{BYTES_PER_PAIR} bytes per pair"),
        format!("for at most {MAX_PAIRS} pairs"),
    ] {
        assert!(page.contains(&text), "{text}");
    }
}

#[test]
fn every_metric_that_a_page_names_is_exposed() {
    for (page, text) in pages() {
        // A name that ends in `_` stands for several metrics; the base name of a histogram has no
        // samples.
        let is_several = |name: &str| name.ends_with('_');
        let is_family =
            |name: &str| metrics::catalogue::all().any(|(_, metric)| metric.name == name);
        for name in catalogue::names_in(&text)
            .into_iter()
            .filter(|name| !is_several(name) && !is_family(name))
        {
            catalogue::assert_all_known(&page, name);
        }
    }
}

#[test]
fn the_words_for_cpu_time_are_the_same_on_the_page_and_in_the_documentation() {
    let (page, views) = (read("../crates/endpoint/assets/page.js"), read("docs/views.md"));
    for (word, text) in console::LEGEND {
        assert!(page.contains(&format!("[\"{word}\", \"{text}\"]")), "the page: {word}");
        assert!(views.contains(&format!("| {word} | {text} |")), "docs/views.md: {word}");
    }
}

/// A read-only mount does not prevent a connection to a socket in it.
#[test]
fn the_risk_of_the_kubelets_sockets_is_said_where_they_are_mounted() {
    let values = read("chart/cpuwarden/values.yaml");
    let (before, _) = values.split_once("\nprofile: ").unwrap();
    let comment = before.rsplit("\n\n").next().unwrap();
    let rights = read("docs/platform-team.md");
    let row = rights.lines().find(|line| line.contains("/plugins_registry")).unwrap();
    let security = read("docs/security.md");
    let item = security.split("\n- ").find(|item| item.contains("plugins_registry")).unwrap();
    for text in [comment, row, item] {
        let is_said = ["plugins_registry", "connect", "CSI", "DRA"].map(|word| text.contains(word));
        assert_eq!(is_said, [true; 4], "{text}");
    }
}

#[test]
fn what_the_page_shows_to_all_pods_is_said_where_it_is_switched_on() {
    let values = read("chart/cpuwarden/values.yaml");
    let (before, _) = values.split_once("\nui: true\n").unwrap();
    let comment = before.rsplit("\n\n").next().unwrap();
    let words = ["every pod of the node", "every pod of the cluster can read", "set ui: false"];
    assert_eq!(words.map(|word| comment.contains(word)), [true; 3], "{comment}");
}
