//! `cargo xtask fleet` with two agents.

use std::fs;
use std::time::Duration;

use xtask::fleet::{self, Options};

use crate::support::binary;

#[test]
fn a_small_fleet_is_scraped_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let output = directory.path().join("report");
    fleet::run(&Options {
        agents: 2,
        harmed: 0,
        agent: Some(binary()),
        series: 3000,
        preset: "standard".into(),
        pods: 5,
        lifetime: Duration::from_secs(20),
        length: Duration::from_secs(10),
        memory: 4 << 30,
        store: None,
        output: Some(output.clone()),
    })
    .unwrap();
    let text = fs::read_to_string(output).unwrap();
    let row = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    };
    assert_eq!(row("targets down"), 0.0);
    assert!(row("targets up") > 2.0, "replayed ones too: {text}");
    let scraped = row("series scraped");
    assert!((2000.0..3500.0).contains(&scraped), "{text}");
    // The rules read the replayed pages, and pods were replaced.
    assert!(row("new series per hour") > 0.0, "{text}");
    assert!(text.contains("cpuwarden-workloads"), "{text}");
}
