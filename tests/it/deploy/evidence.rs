//! Evidence for pinning: the chart and the benchmarks' page show the measured figures.

use std::fs;
use std::process::Command;

use xtask::tools;

use super::{deploy, output_of, read};

/// Script that parses an SVG as XML and prints its texts, one per line.
const TEXTS: &str = r#"
import sys, xml.etree.ElementTree as tree
root = tree.parse(sys.argv[1]).getroot()
assert root.tag == "{http://www.w3.org/2000/svg}svg", root.tag
for element in root.iter("{http://www.w3.org/2000/svg}text"): print(element.text)
"#;

fn draw(results: &str) -> String {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("results");
    fs::write(&file, results).unwrap();
    output_of(Command::new("awk").arg("-f").arg(deploy("evidence/chart.awk")).arg(file))
}

fn texts(svg: &str) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("chart.svg");
    fs::write(&file, svg).unwrap();
    let texts = output_of(Command::new(tools::python().unwrap()).args(["-c", TEXTS]).arg(file));
    texts.lines().map(str::to_owned).collect()
}

#[test]
fn result_charts_show_every_figure_and_condition() {
    let svg = draw("# 8 CPUs & <more>\nunpinned 10.5 99.25 1000\nFullPCPUs 1.5 20 4000\n");
    let texts = texts(&svg);
    for shown in [
        "8 CPUs & <more>",
        "unpinned",
        "FullPCPUs",
        "10.50",
        "1.50",
        "99.25",
        "20.00",
        "1000",
        "4000",
    ] {
        assert!(texts.iter().any(|text| text == shown), "{shown}: {texts:?}");
    }
    let widths: Vec<&str> =
        svg.lines().filter_map(|line| line.split("width=\"").nth(1)?.split('"').next()).collect();
    assert_eq!(widths[2..], ["400.0", "57.1", "400.0", "80.6", "100.0", "400.0"], "{svg}");
}

#[test]
fn invalid_results_are_rejected() {
    for wrong in ["", "unpinned 10.5 99.25\n"] {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("results");
        fs::write(&file, wrong).unwrap();
        let output = Command::new("awk")
            .arg("-f")
            .arg(deploy("evidence/chart.awk"))
            .arg(file)
            .output()
            .unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{wrong:?}: {output:?}");
    }
}

#[test]
fn the_chart_and_the_page_show_the_results_that_are_kept() {
    let results = read("evidence/pinning.txt");
    assert_eq!(draw(&results), read("evidence/pinning.svg"), "draw the chart again");
    let page = read("../benches/README.md");
    let rows = results
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').collect::<Vec<_>>());
    for row in rows {
        let [name, p50, p99, rate] = row[..] else { panic!("{row:?}") };
        let ms = |text: &str| format!("{:.2} ms", text.parse::<f64>().unwrap());
        let shown =
            format!("| {} | {} | {} | {rate} |", name.replace('+', " + "), ms(p50), ms(p99));
        assert!(page.contains(&shown), "{shown}");
    }
}
