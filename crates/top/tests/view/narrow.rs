//! Long names at 80 columns: facts stay, and what is cut is marked.

use std::collections::HashSet;

use api::{
    Bounds, CauseKind, Contention, CpuFrame, Culprit, Frame, Interference, PodName, Rates,
    SlowedReason, Verdict,
};
use ratatui::crossterm::event::KeyCode;
use top::Update;

use crate::scene::{SIZES, Screen, frame, row};

const NODE: &str = "ip-192-168-100-123.eu-central-1.compute.internal";
const VICTIM: &str = "payments-production/checkout-worker-canary-7d9f8b6c5d-x2x4v";
const AGGRESSOR: (&str, &str) = ("analytics-batch", "nightly-warehouse-export-28914720-9kq7z");

/// A node, a victim and an aggressor with names of the usual lengths in a cloud.
fn long_names(second: u64) -> Frame {
    let rates = Rates {
        usage_cores: Some(0.25),
        neighbor: Some(0.749),
        system: Some(0.001),
        ..Rates::default()
    };
    let mut frame = frame(second);
    frame.node.name = NODE.into();
    let mut victim = row(VICTIM, "worker", Some(0.5), rates);
    victim.cpus = Some((0..40).map(|cpu| (2 * cpu).to_string()).collect::<Vec<_>>().join(","));
    let victim_name = victim.pod_name();
    let mut owner = row(VICTIM, "worker", None, Rates::default());
    (owner.namespace, owner.pod) = (AGGRESSOR.0.into(), AGGRESSOR.1.into());
    owner.cpus = Some("5,7".into());
    let aggressor = PodName { namespace: AGGRESSOR.0.into(), pod: AGGRESSOR.1.into() };
    frame.containers = vec![victim, owner];
    let culprit = Culprit {
        namespace: AGGRESSOR.0.into(),
        kind: "Pod".into(),
        name: AGGRESSOR.1.into(),
        ..Culprit::default()
    };
    frame.verdicts = vec![Verdict {
        victim: victim_name.clone(),
        cause: CauseKind::One,
        reason: SlowedReason::Neighbor,
        summary: format!("slowed ×4.0 by {}, 20 s of the last minute", culprit.name()),
        culprits: vec![culprit],
        ..Verdict::default()
    }];
    frame.interference = vec![Interference { victim: victim_name, aggressor, wait: 0.7 }];
    frame
}

fn screen() -> Screen {
    let mut screen = Screen::empty(SIZES[0]);
    (0..3).for_each(|second| screen.show(long_names(second)));
    screen
}

fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn the_first_line_has_its_facts_beside_a_long_name_of_the_node() {
    let mut screen = screen();
    let first = |screen: &mut Screen| screen.lines().swap_remove(0);
    let facts = ["22:13:22 UTC", "pressure 91%", "contention at least 37%"];
    let line = first(&mut screen);
    assert_has(&line, &["ip-192-168-100-123.eu-cent…  "]);
    assert_has(&line, &facts);
    screen.press(KeyCode::Char('p'));
    let line = first(&mut screen);
    assert_has(&line, &["ip-192-168-100-123", "…  PAUSED"]);
    assert_has(&line, &facts);
    let plain = top::table(&screen.app, 80);
    assert_has(plain.lines().next().unwrap(), &facts);
    let mut wide = Screen::empty(SIZES[1]);
    wide.show(long_names(0));
    assert_has(&first(&mut wide), &[NODE, "2 containers", "contention at least 37%"]);
}

#[test]
fn names_are_shortened_in_the_middle_and_numbers_stay() {
    let mut screen = screen();
    let text = screen.text();
    assert_has(
        &text,
        &["payments-…c5d-x2x4v: slowed x4.0 by analytics…720-9kq7z, 20 s of the last minute"],
    );
    assert_has(
        &screen.rows()[0],
        &[">N …", "checkout-worker-canary-…x2x4v  0.25  0.50    75% …nightl…9kq7z "],
    );
    screen.press(KeyCode::Char('a'));
    let text = screen.text();
    assert_has(&text, &[": 1 pods wait for it, 70% of the time, most payments-", "x2x4v"]);
    assert_has(
        &screen.rows()[0],
        &[">  …nightly-wa…rt-…9kq7z      70%     2.10s        1 …checko…x2x4v "],
    );
}

/// A node with 250 pods of long names, as Deployments, StatefulSets, DaemonSets and Jobs make them.
fn crowded(second: u64) -> Frame {
    let names = (0..250).map(|at: usize| {
        let (team, place) = (at / 50, at % 50);
        let random = |length: u32| -> String {
            let chars = b"bcdfghjklmnpqrstvwxz2456789";
            let char = |place| char::from(chars[(at * 7919 + 1) / 27_usize.pow(place) % 27]);
            (0..length).map(|place| char(place % 4)).collect()
        };
        let namespace = format!("team-{team}-payments-production");
        match place % 4 {
            0 => format!("{namespace}/checkout-worker-canary-{}-{}", random(10), random(5)),
            1 => format!("{namespace}/checkout-worker-stable-{}-{}", random(10), random(5)),
            2 => format!("{namespace}/postgres-primary-eu-central-shard-{place}"),
            _ => format!("{namespace}/nightly-warehouse-export-289{place:05}-{}", random(5)),
        }
    });
    let rates = Rates { usage_cores: Some(0.1), neighbor: Some(0.01), ..Rates::default() };
    let containers = names.map(|name| row(&name, "app", Some(0.5), rates)).collect();
    Frame { containers, interference: Vec::new(), ..frame(second) }
}

#[test]
fn pods_with_long_names_are_told_apart_at_every_width() {
    for width in [80, 120, 200] {
        let mut screen = Screen::empty((width, 270));
        screen.show(crowded(0));
        let rows = screen.rows();
        assert_eq!(rows.len(), 250, "{}", screen.text());
        let name = |row: &String| row[3..].split("  ").next().unwrap().to_owned();
        let names: HashSet<String> = rows.iter().map(name).collect();
        assert_eq!(names.len(), 250, "{}", screen.text());
        let least = if width == 80 { 40 } else { 48 };
        assert!(names.iter().all(|name| name.chars().count() >= least), "{}", screen.text());
        let of = |kind: &str| names.iter().filter(|name| name.contains(kind)).count();
        assert_eq!((of("canary"), of("stable")), (65, 65), "{}", screen.text());
        let text = screen.text();
        assert_eq!(text.contains(" OWN "), width == 200, "an empty column:\n{text}");
        assert_eq!(text.contains("SLOWED BY"), width == 200, "an empty column:\n{text}");
    }
}

#[test]
fn a_column_that_had_a_value_stays() {
    let mut screen = Screen::empty(SIZES[0]);
    screen.show(crowded(0));
    assert!(!screen.text().contains("throttled"), "{}", screen.text());
    let mut throttled = crowded(1);
    throttled.containers[7].rates.throttled_share = Some(0.5);
    screen.show(throttled);
    assert!(screen.text().contains("throttled"), "{}", screen.text());
    screen.show(crowded(2));
    assert!(screen.text().contains("throttled"), "{}", screen.text());
}

#[test]
fn the_name_of_the_node_stays_where_it_is() {
    for width in [80, 99, 100, 140] {
        let mut screen = Screen::empty((width, 24));
        let mut at = HashSet::new();
        for second in 0..4 {
            let mut frame = long_names(second);
            frame.node.steal = (second == 1).then_some(0.5);
            if second == 2 {
                frame.containers.truncate(0);
            }
            screen.show(frame);
            if second == 3 {
                screen.press(KeyCode::Char('p'));
            }
            at.insert(screen.lines()[0].find("ip-192").unwrap());
        }
        assert_eq!(at.len(), 1, "{width}: {at:?}");
    }
}

#[test]
fn a_line_has_the_load_of_each_cpu() {
    for (width, cpus) in [(80, 8), (80, 256), (200, 128)] {
        let mut frame = frame(0);
        let cpu = frame.node.cpus[0].clone();
        frame.node.cpus = (0..cpus)
            .map(|at| CpuFrame { cpu: at, busy: Some(f64::from(at % 2)), ..cpu.clone() })
            .collect();
        let mut screen = Screen::empty((width, 24));
        screen.show(frame);
        let line = screen.lines().swap_remove(1);
        assert!(line.starts_with(&format!("{cpus} CPUs  50% busy  ")), "{line:?}");
        let bars = line.chars().filter(|char| *char == '█').count();
        let expected = if cpus == 256 { 60 } else { cpus as usize / 2 };
        assert_eq!(bars, expected, "{line:?}");
    }
}

#[test]
fn a_pod_with_many_cpus_and_a_long_name_shows_both_ends_or_a_mark() {
    let mut screen = screen();
    screen.press(KeyCode::Enter);
    let lines = screen.lines();
    let at = lines.iter().position(|line| line.starts_with("payments-production/")).unwrap();
    assert!(lines[at].ends_with("x2x4v/worker"), "{lines:#?}");
    assert_has(&lines[at + 1], &["limit 0.50  request 0.20  Burstable  CPUs 0,2,4"]);
    assert!(lines[at + 1].ends_with('…'), "{lines:#?}");
    assert_has(&lines.join("\n"), &["  analytics-batch/nigh…port-28914720-9kq7z    2.10s █"]);
}

#[test]
fn topology_and_help_cut_nothing() {
    let mut screen = screen();
    screen.press(KeyCode::Char('t'));
    let text = screen.text();
    assert_has(&text, &["[  4▄ 50%.  5▅ 62%a]", "a analytics-batch/nightly-warehouse-export"]);
    assert_has(&text, &["9kq7z  CPUs 5,7"]);
    screen.press(KeyCode::Char('?'));
    let mut help = String::new();
    let mut page = screen.text();
    while !help.ends_with(&page) {
        help += "\n";
        help += &page;
        screen.press(KeyCode::PageDown);
        page = screen.text();
    }
    // The ends of texts of two lines.
    assert_has(&help, &["not known (without", "summed over CPUs", "BE BestEffort"]);
    let is_name = |line: &str| line.starts_with("ip-") || line.starts_with("payment");
    let cut = help.lines().find(|line| line.contains('…') && !is_name(line));
    assert_eq!(cut, None, "{help}");
}

#[test]
fn a_text_that_is_longer_than_its_lines_is_marked() {
    let mut screen = screen();
    let path = format!("/{}", "a".repeat(100));
    screen.app.apply(Update::Status(format!("cannot read {path}")));
    let text = screen.text().replace('\n', "");
    assert_has(&text, &[path.as_str()]);
    screen.app.apply(Update::Status("word ".repeat(100)));
    assert_has(&screen.text(), &["word word…\n"]);
}

#[test]
fn contention_of_each_class_is_shown_in_full_or_in_short() {
    let bounds = |lower, upper| Some(Bounds { lower, upper });
    let contention = Contention {
        node: bounds(0.37, 0.78),
        guaranteed: bounds(0.0, 0.0),
        burstable: bounds(0.37, 0.78),
        best_effort: bounds(0.05, 0.09),
    };
    let mut frame = frame(0);
    let texts = [
        "sorted by verdict  contention: G 0%, B at least 37%, BE 5-9%",
        "sorted by verdict  contention: Guaranteed 0%, Burstable at least 37%, BestEffort 5-9%",
    ];
    for (size, text) in SIZES.into_iter().zip(texts) {
        let mut screen = Screen::empty(size);
        frame.node.contention = contention;
        screen.show(frame.clone());
        assert_has(&screen.text(), &[text]);
        frame.node.contention.guaranteed = None;
        frame.at_ms += 1000;
        screen.show(frame.clone());
        assert!(!screen.text().contains("G 0%") && !screen.text().contains("Guaranteed"));
    }
}
