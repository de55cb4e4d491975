//! Contents of each view.

use api::{BestEffort, Colocation, ContainerName, GarbageCollection, Interference, PodName, Rates};
use ratatui::crossterm::event::KeyCode;
use ratatui::style::{Color, Modifier};
use top::{Position, Update};

use crate::scene::{SIZES, Screen, advice, frame, judged, row, untraced};

#[test]
fn the_container_that_loses_most_time_is_on_top_with_its_cause() {
    for size in SIZES {
        let mut screen = Screen::new(size);
        let (rows, text) = (screen.rows(), screen.text());
        assert!(rows[0].starts_with(">L "), "{text}");
        assert!(rows[1].starts_with(" N batch/encode"), "{text}");
        assert!(rows[2].starts_with(" A data/ingest"), "{text}");
        let cells: Vec<&str> = rows[1].split_whitespace().collect();
        assert!(cells.contains(&"75%"), "{text}");
        assert!(!text.contains("search/index"), "no cause without a verdict: {text}");
        assert!(rows[0].contains("0.20") && rows[0].contains("83%"), "{text}");
        assert!(rows[0].contains('▇'), "no heat strip: {text}");
        let sentence = text.lines().nth(3).unwrap();
        assert!(sentence.starts_with("shop/checko"), "{text}");
        assert!(sentence.ends_with(": throttled 83% of the time by its own limit of 0.2 cores"));
    }
}

#[test]
fn verdicts_order_the_rows_and_name_the_cause() {
    for size in SIZES {
        let mut screen = Screen::new(size);
        screen.show(judged(120));
        let (rows, text) = (screen.rows(), screen.text());
        let starts = [">N batch/encode", " N shop/db-0", " L ", " A data/ingest"];
        for (row, start) in rows.iter().zip(starts) {
            assert!(row.starts_with(start), "{text}");
        }
        // The pod's other container has done nothing.
        assert!(rows[2].contains("checkout") && rows[2].contains("/spinner"), "{text}");
        assert!(rows[4].starts_with("   ") && rows[4].contains("/sidecar"), "{text}");
        let cause =
            |row: &str| row.split_whitespace().filter(|cell| cell.contains("search")).count();
        assert_eq!([&rows[0], &rows[1], &rows[2]].map(|row| cause(row)), [1, 0, 0], "{text}");
        assert!(rows[1].contains("several"), "{text}");
        let sentence = text.lines().nth(3).unwrap();
        let expected = "batch/encode: slowed x2.9 by search/index, 20 s of the last minute";
        assert!(sentence.starts_with(expected), "{text}");
    }
}

#[test]
fn a_limit_from_a_recording_is_rounded_to_millicores() {
    let mut recorded = frame(120);
    recorded.containers.iter_mut().filter(|row| row.limit_cores == Some(0.2)).for_each(|row| {
        row.limit_cores = Some(0.200_033_9);
    });
    let mut screen = Screen::new(SIZES[1]);
    screen.show(recorded);
    assert!(screen.text().contains("by its own limit of 0.2 cores"), "{}", screen.text());
}

#[test]
fn pods_that_yield_or_burst_are_marked_and_the_step_is_shown() {
    let mut screen = Screen::new((120, 24));
    assert!(!screen.text().contains("best effort"), "off by default");
    let mut acting = frame(120);
    let database = ContainerName { uid: "uid-db-0".into(), container: "postgres".into() };
    acting.node.colocation = Colocation {
        best_effort: Some(BestEffort { step: 1, enforcing: true }),
        yields: vec!["uid-encode".into()],
        bursts: vec![database],
    };
    screen.show(acting);
    let (rows, text) = (screen.rows(), screen.text());
    assert!(text.lines().next().unwrap().contains("best effort: step 1"), "{text}");
    assert!(rows[1].starts_with(" N y batch/encode"), "{text}");
    assert!(rows[2].starts_with(" A   data/ingest"), "{text}");
    assert!(rows.iter().any(|row| row.contains("b shop/db-0")), "{text}");
}

#[test]
fn the_wide_table_has_every_column_and_the_narrow_one_the_most_important() {
    let [narrow, wide] = SIZES.map(|size| {
        let mut screen = Screen::new(size);
        screen.show(judged(120));
        screen.text()
    });
    for title in ["USED", "LIMIT", "OWN", "ABOVE", "OTHERS", "SLOWED BY", "LAST MINUTE"] {
        assert!(narrow.contains(title) && wide.contains(title), "{title}:\n{narrow}\n{wide}");
    }
    for title in ["SYSTEM", "SELF", "SMT"] {
        assert!(!narrow.contains(title) && wide.contains(title), "{title}:\n{narrow}\n{wide}");
    }
}

#[test]
fn the_share_of_garbage_collection_stands_beside_throttling() {
    let mut screen = Screen::new(SIZES[1]);
    assert!(!screen.text().contains("64%"), "{}", screen.text());
    let mut frame = frame(120);
    let gc = GarbageCollection { cpu_share: Some(0.64), cycles: Some(2.5), ..Default::default() };
    frame.containers[2].gc = Some(gc);
    screen.show(frame);
    let text = screen.text();
    let titles = text.lines().find(|line| line.contains("OWN")).unwrap();
    let words: Vec<_> = titles.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "GC").unwrap();
    assert_eq!(words[at - 1], "ABOVE", "{text}");
    let row = text.lines().find(|line| line.contains("spinner")).unwrap();
    assert!(row.contains("83%") && row.contains("64%"), "{text}");
    screen.write("/spinner");
    screen.press(KeyCode::Enter);
    screen.press(KeyCode::Enter);
    let text = screen.text();
    assert!(text.contains("GC 64% of its CPU, 2.5 cycles/s"), "{text}");
}

#[test]
fn a_missing_trace_is_reported_with_the_reason_and_bounds() {
    for size in SIZES {
        let mut screen = Screen::empty(size);
        (0..5).for_each(|second| screen.show(untraced(second)));
        let text = screen.text();
        assert!(text.contains("trace off: no permission to load eBPF programs"), "{text}");
        assert!(text.contains("WAITED") && text.contains(">=75%"), "{text}");
        assert!(!text.contains("OTHERS"), "{text}");
        screen.press(KeyCode::Char('a'));
        assert!(screen.text().contains("without the trace it is unknown"));
    }
}

/// The chart passes the value that turns the trace off, and the command that turns it on.
#[test]
fn the_command_that_turns_the_trace_on_is_readable_as_a_whole() {
    let hint = "profile=monitor. To see who waits for whom: helm upgrade cpuwarden CHART --namespace cpuwarden \
                --reset-then-reuse-values --set profile=trace";
    for size in SIZES {
        let mut screen = Screen::empty(size);
        let mut frame = untraced(0);
        frame.node.trace.reason = format!("off: {hint}");
        screen.show(frame);
        let words: Vec<String> = screen.text().split_whitespace().map(str::to_owned).collect();
        assert!(words.join(" ").contains(hint), "{}", screen.text());
    }
}

#[test]
fn order_and_filter_are_readable_beside_a_long_notice() {
    for size in SIZES {
        let mut screen = Screen::empty(size);
        (0..5).for_each(|second| screen.show(untraced(second)));
        screen.press(KeyCode::Char('/'));
        for char in "checkout".chars() {
            screen.press(KeyCode::Char(char));
        }
        screen.press(KeyCode::Enter);
        let text = screen.text();
        assert!(text.contains("sorted by verdict  filter: checkout"), "{text}");
    }
}

#[test]
fn the_pod_shows_its_five_minutes_and_the_change() {
    for size in SIZES {
        let mut screen = Screen::new(size);
        screen.press(KeyCode::Enter);
        let text = screen.text();
        let line = |label: &str| {
            let line = text.lines().find(|line| line.starts_with(label));
            line.unwrap_or_else(|| panic!("no {label} in\n{text}")).to_owned()
        };
        assert!(line("used, limit 0.20").ends_with("0.20   0.20"), "{text}");
        assert!(line("throttled, own").ends_with("83%    83%"), "{text}");
        assert!(line("throttled, own").contains('▇'), "{text}");
        assert!(line("throttled, own").contains('·'), "the first three minutes are absent: {text}");
        assert!(line("waited, others").ends_with("1%     1%"), "{text}");
        assert!(text.contains("limit 0.20  request 0.20  Burstable  CPUs 0-1"), "{text}");
        assert!(text.contains("throttled-by-own-quota: resources.limits.cpu: 1200m"), "{text}");
        assert!(text.contains("container 1 of 2"), "{text}");
        screen.press(KeyCode::Tab);
        assert!(screen.text().contains("container 2 of 2"));
        screen.press(KeyCode::Esc);
        assert_eq!(screen.rows().len(), 5);
    }
}

#[test]
fn the_change_is_on_a_low_screen_beside_notes_and_aggressors() {
    let mut screen = Screen::empty(SIZES[0]);
    (0..120).for_each(|second| {
        let mut frame = frame(second);
        let template = frame.interference[0].clone();
        let aggressors = ["a", "b", "c"].map(|pod| {
            let aggressor = PodName { namespace: "batch".into(), pod: pod.into() };
            let victim = frame.containers[2].pod_name();
            Interference { victim, aggressor, ..template.clone() }
        });
        frame.interference.extend(aggressors);
        screen.show(frame);
    });
    let mut advice = advice();
    // As long as real ones: three lines each.
    advice.changes[0].change = "resources.limits.cpu=1200m, ".repeat(5);
    advice.changes.extend_from_within(..);
    screen.app.apply(Update::Advice(vec![advice]));
    let note = "a note that is longer than one line of a terminal of eighty columns, as the demo's";
    screen.app.apply(Update::Notes(vec![note.into(), note.into(), "a short note".into()]));
    assert!(screen.text().contains("a short note"), "{}", screen.text());
    screen.press(KeyCode::Enter);
    let text = screen.text();
    assert!(!text.contains("a short note"), "{text}");
    assert_eq!(text.matches("resources.limits.cpu=1200m").count(), 10, "{text}");
    assert!(text.contains("lower requests from 24 h"), "{text}");
    assert!(text.contains("scroll (2 more below)") && !text.contains("batch/b"), "{text}");
    assert!(text.ends_with("q quit"), "{text}");
    screen.press(KeyCode::Char('j'));
    let text = screen.text();
    assert!(text.contains("scroll (1 more below)") && text.contains("batch/b"), "{text}");
    screen.press(KeyCode::End);
    let text = screen.text();
    assert!(text.contains("batch/c") && !text.contains("more below"), "{text}");
}

#[test]
fn a_recording_says_that_it_has_no_findings() {
    let mut screen = Screen::empty(SIZES[0]);
    screen.show(frame(0));
    screen.press(KeyCode::Enter);
    assert!(screen.text().contains("not available yet"), "{}", screen.text());
    screen.app.apply(Update::Position(Position::default()));
    let text = screen.text();
    assert!(text.contains("a recording has none") && !text.contains("yet"), "{text}");
}

#[test]
fn a_pod_lists_its_aggressors_in_seconds() {
    let mut screen = Screen::new(SIZES[0]);
    screen.press(KeyCode::Down);
    screen.press(KeyCode::Enter);
    let text = screen.text();
    assert!(text.contains("the pod waited for, in 120 s"), "{text}");
    let line = text.lines().find(|line| line.contains("search/index  ")).unwrap();
    assert!(line.contains("84.0s"), "{text}");
}

#[test]
fn the_view_is_reversed_to_the_aggressors() {
    for size in SIZES {
        let mut screen = Screen::new(size);
        screen.press(KeyCode::Char('a'));
        let (rows, text) = (screen.rows(), screen.text());
        assert!(rows[0].starts_with(">  search/index"), "{text}");
        assert!(rows[0].contains("70%") && rows[0].contains("84.0s"), "{text}");
        assert!(rows[0].contains("batch/encode"), "{text}");
        assert!(text.contains("search/index: 1 pods wait for it, 70% of the time"), "{text}");
        screen.press(KeyCode::Down);
        screen.press(KeyCode::Enter);
        assert!(screen.text().contains("shop/db-0/postgres"), "the aggressor's own pod opens");
    }
}

#[test]
fn the_topology_has_a_cell_per_thread_with_load_and_owner() {
    for size in SIZES {
        let mut screen = Screen::new(size);
        screen.press(KeyCode::Char('t'));
        let text = screen.text();
        assert!(text.contains("socket 0  NUMA node 1  L3 cache 0"), "{text}");
        assert!(text.contains("[  2▂ 25%a  3▃ 38%a]"), "{text}");
        assert!(text.contains("[  0   0%.  1▁ 12%.]"), "{text}");
        assert!(text.contains("a shop/db-0  CPUs 2-3"), "{text}");
    }
}

#[test]
fn the_help_explains_every_key_and_column() {
    let mut screen = Screen::new(SIZES[1]);
    screen.press(KeyCode::Char('?'));
    let text = screen.text();
    for word in [
        "Enter",
        "reverse the view",
        "OTHERS",
        "SLOWED BY",
        "filter by",
        "first letter",
        "slowed x",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let mut low = Screen::new(SIZES[0]);
    low.press(KeyCode::Char('?'));
    let first = low.text();
    low.press(KeyCode::End);
    assert_ne!(low.text(), first, "the rest of the help scrolls");
    assert!(low.text().contains("the configuration does not provide"), "{}", low.text());
}

#[test]
fn a_container_that_ended_opens_with_its_five_minutes() {
    let mut screen = Screen::new(SIZES[0]);
    let without_spinner = |second| {
        let mut frame = frame(second);
        frame.containers.retain(|row| row.container != "spinner");
        frame
    };
    screen.press(KeyCode::Enter);
    screen.show(without_spinner(120));
    let is_whole = |text: &str| {
        assert!(
            text.contains("/spinner: has ended") && text.contains("ended  limit 0.20"),
            "{text}"
        );
        let own = text.lines().find(|line| line.starts_with("throttled, own")).unwrap();
        assert!(own.contains('▇') && own.ends_with("-    83%"), "{text}");
    };
    is_whole(&screen.text());
    screen.press(KeyCode::Esc);
    let text = screen.text();
    let rows = screen.rows();
    let row = rows.iter().find(|row| row.contains("spinner")).unwrap();
    assert!(row.starts_with(">x shop/che") && row.contains('▇'), "{text}");
    // Its pod is still known as one with two containers, and a recording shows the same.
    assert!(row.contains("/spinner"), "{text}");
    let frames = (0..120).map(frame).chain([without_spinner(120)]).collect();
    screen.app.apply(Update::Seek(frames));
    for key in "/spinner".chars() {
        screen.press(KeyCode::Char(key));
    }
    screen.press(KeyCode::Enter);
    screen.press(KeyCode::Enter);
    is_whole(&screen.text());
    // Five minutes later it is forgotten.
    screen.press(KeyCode::Esc);
    (121..421).for_each(|second| screen.show(without_spinner(second)));
    assert!(screen.text().contains("no container matches"), "{}", screen.text());
}

#[test]
fn hostile_names_are_text() {
    let mut screen = Screen::empty(SIZES[0]);
    let mut hostile = frame(1);
    hostile.containers = vec![row("shop/\x1b[2J\x07\u{202e}evil", "\r\n", None, Rates::default())];
    screen.show(hostile);
    let text = screen.text();
    assert!(text.contains("shop/?[2J??evil"), "{text}");
    screen.press(KeyCode::Enter);
    assert!(screen.text().chars().all(|char| !char.is_control() || char == '\n'));
}

#[test]
fn a_lost_connection_is_reported_until_the_next_frame() {
    let mut screen = Screen::new(SIZES[0]);
    screen.app.apply(Update::Status("no agent answers at 127.0.0.1:9753; trying again".into()));
    assert!(screen.text().contains("no agent answers at 127.0.0.1:9753"));
    screen.show(frame(200));
    assert!(!screen.text().contains("no agent answers"));
}

#[test]
fn secondary_text_is_dimmed_in_the_color_of_the_theme() {
    let mut screen = Screen::colored(SIZES[0]);
    let keys = screen.cells().pop().unwrap();
    let style = keys[0].style();
    assert_eq!(keys[0].symbol(), "q");
    assert_eq!((style.fg, style.add_modifier), (Some(Color::Reset), Modifier::DIM));
}

#[test]
fn any_size_of_the_terminal_is_drawn() {
    for width in [1, 2, 10, 21, 40, 79, 81, 300] {
        for height in [1, 2, 3, 5, 11, 13, 60] {
            let mut screen = Screen::new((width, height));
            for key in ['v', 'a', 't', '?', '?', 'a'] {
                screen.press(KeyCode::Char(key));
                assert_eq!(screen.lines().len(), usize::from(height));
            }
            screen.press(KeyCode::Enter);
            screen.lines();
        }
    }
}

#[test]
fn plain_text_has_no_marks_of_a_terminal_and_fits() {
    let screen = Screen::new(SIZES[0]);
    for width in [80, 100, 140] {
        let text = top::table(&screen.app, width);
        assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        assert!(text.contains("\n L ") && !text.contains('>') && !text.contains('\x1b'), "{text}");
    }
}
