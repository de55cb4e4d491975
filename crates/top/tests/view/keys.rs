//! Keys: order, filter, selection and pause.

use api::{Frame, PodName, Points, Rates};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use top::{Control, Position, Update};

use crate::scene::{SIZES, Screen, frame, row, untraced};

#[test]
fn columns_sort_in_both_directions() {
    let mut screen = Screen::new(SIZES[1]);
    screen.write("s");
    let text = screen.text();
    assert!(text.contains("sorted by used") && text.contains("▼USED"), "{text}");
    assert!(screen.rows()[0].contains("shop/db-0"), "{text}");
    screen.write("r");
    assert!(screen.rows()[0].contains("sidecar"), "{}", screen.text());
    screen.write("S");
    assert!(screen.text().contains("sorted by verdict"));
}

#[test]
fn the_order_goes_through_the_columns_that_are_shown() {
    let mut screen = Screen::empty(SIZES[0]);
    screen.show(untraced(0));
    let mut orders = Vec::new();
    loop {
        let text = screen.text();
        let order = text.split("sorted by ").nth(1).unwrap().split("  ").next().unwrap();
        let order = order.lines().next().unwrap().to_owned();
        if orders.first() == Some(&order) {
            break;
        }
        orders.push(order);
        screen.write("s");
    }
    let expected = ["verdict", "used", "limit", "own", "above", "waited", "pod"];
    assert_eq!(orders, expected);
    screen.write("SS");
    assert!(screen.text().contains("▼WAITED"), "{}", screen.text());
    assert!(screen.rows()[0].contains("batch/encode"), "{}", screen.text());
}

#[test]
fn the_aggressors_have_an_order_of_their_own() {
    let mut screen = Screen::new(SIZES[0]);
    // Now another one is the first.
    (120..125).for_each(|second| {
        let mut frame = frame(second);
        frame.interference[1].wait = 0.9;
        screen.show(frame);
    });
    screen.write("a");
    assert!(screen.text().contains("▼NOW"), "{}", screen.text());
    assert!(screen.rows()[0].starts_with(">  shop/db-0"), "{}", screen.text());
    screen.write("s");
    assert!(screen.text().contains("▼IN 125 S"), "{}", screen.text());
    assert!(screen.rows()[0].starts_with(">  search/index"), "{}", screen.text());
    screen.write("s");
    assert!(screen.text().contains("▼VICTIMS"), "{}", screen.text());
    screen.write("a");
    assert!(screen.text().contains("sorted by verdict"), "{}", screen.text());
}

#[test]
fn the_first_row_stays_the_first_in_a_second_of_another() {
    let mut screen = Screen::new(SIZES[1]);
    let peak = |second| {
        let mut frame = frame(second);
        frame.containers[4].rates.neighbor = Some(1.2);
        frame.interference[1].wait = 1.2;
        frame
    };
    screen.show(peak(120));
    assert!(screen.rows()[0].contains("shop/checkout"), "{}", screen.text());
    screen.write("a");
    assert!(screen.rows()[0].contains("search/index"), "{}", screen.text());
    (121..125).for_each(|second| screen.show(peak(second)));
    assert!(screen.rows()[0].contains("shop/db-0"), "{}", screen.text());
    screen.write("a");
    assert!(screen.rows()[0].contains("shop/db-0"), "{}", screen.text());
}

#[test]
fn a_filter_shows_only_names_that_contain_it() {
    let mut screen = Screen::new(SIZES[0]);
    screen.write("/ENCx");
    screen.press(KeyCode::Backspace);
    assert!(screen.text().contains("filter: ENC_"));
    screen.press(KeyCode::Enter);
    assert_eq!(screen.rows().len(), 1, "{}", screen.text());
    assert!(screen.text().contains("filter: ENC"));
    screen.press(KeyCode::Esc);
    assert_eq!(screen.rows().len(), 5);
    screen.write("/nothing");
    assert!(screen.text().contains("no container matches"), "{}", screen.text());
}

#[test]
fn a_filter_has_several_words_and_exclusions() {
    let mut screen = Screen::new(SIZES[0]);
    let names = |screen: &mut Screen, filter: &str| {
        screen.press(KeyCode::Esc);
        screen.write(&format!("/{filter}"));
        screen.press(KeyCode::Enter);
        let rows = screen.rows();
        ["encode", "ingest", "spinner", "sidecar", "db-0"]
            .into_iter()
            .filter(|name| rows.iter().any(|row| row.contains(name)))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(names(&mut screen, "shop checkout"), "spinner sidecar");
    assert_eq!(names(&mut screen, "shop !sidecar"), "spinner db-0");
    assert_eq!(names(&mut screen, "-shop -batch"), "ingest");
    assert!(screen.text().contains("filter: -shop -batch"), "{}", screen.text());
}

#[test]
fn control_keys_edit_the_filter_and_do_nothing_else() {
    let mut screen = Screen::new(SIZES[0]);
    let control = |screen: &mut Screen, key: char| {
        screen.app.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::CONTROL));
    };
    screen.write("/shop check !side");
    control(&mut screen, 'w');
    assert!(screen.text().contains("filter: shop check _"), "{}", screen.text());
    control(&mut screen, 'w');
    control(&mut screen, 'a');
    assert!(screen.text().contains("filter: shop _"), "{}", screen.text());
    control(&mut screen, 'u');
    assert!(screen.text().contains("filter: _"), "{}", screen.text());
    control(&mut screen, 'w');
    screen.press(KeyCode::Enter);
    assert_eq!(screen.rows().len(), 5);
    control(&mut screen, 's');
    assert!(screen.text().contains("sorted by verdict"), "{}", screen.text());
}

#[test]
fn chosen_pods_are_shown_by_their_exact_names_until_esc() {
    let named = |pod: &str| row(pod, "app", None, Rates::default());
    let frame = Frame {
        containers: ["shop/web-1", "shop/web-10", "shop/web-2", "test/web-1"].map(named).into(),
        ..frame(0)
    };
    let mut screen = Screen::empty(SIZES[0]);
    let pods = ["web-1", "web-2"].map(|pod| PodName { namespace: "shop".into(), pod: pod.into() });
    screen.app = screen.app.with_pods("shop/web".to_owned(), pods);
    screen.show(frame);
    let names = |screen: &mut Screen| -> Vec<String> {
        let name = |row: &String| {
            row.split_whitespace().find(|word| word.contains('/')).unwrap().to_owned()
        };
        screen.rows().iter().map(name).collect()
    };
    assert_eq!(names(&mut screen), ["shop/web-1", "shop/web-2"]);
    assert!(screen.text().contains("filter: shop/web"), "{}", screen.text());
    screen.write("/web-2");
    screen.press(KeyCode::Enter);
    assert_eq!(names(&mut screen), ["shop/web-2"]);
    assert!(screen.text().contains("filter: shop/web, web-2"), "{}", screen.text());
    screen.press(KeyCode::Esc);
    assert_eq!(names(&mut screen).len(), 4, "{}", screen.text());
    assert!(!screen.text().contains("filter:"), "{}", screen.text());
}

#[test]
fn each_table_has_its_own_filter() {
    let mut screen = Screen::new(SIZES[0]);
    screen.write("/encode");
    screen.press(KeyCode::Enter);
    assert_eq!(screen.rows().len(), 1, "{}", screen.text());
    screen.write("a");
    assert!(screen.text().contains("search/index") && !screen.text().contains("filter:"));
    screen.write("/db-0");
    screen.press(KeyCode::Enter);
    assert_eq!(screen.rows().len(), 1, "{}", screen.text());
    // Also a pod that the filter of the victims does not select.
    screen.press(KeyCode::Enter);
    assert!(screen.text().contains("Esc back"), "{}", screen.text());
    screen.press(KeyCode::Esc);
    screen.write("a");
    assert!(screen.text().contains("filter: encode"), "{}", screen.text());
}

#[test]
fn the_selection_follows_its_container_and_the_first_row_stays_first() {
    let mut screen = Screen::new(SIZES[1]);
    screen.write("r");
    assert!(screen.rows()[0].starts_with('>'));
    screen.write("r");
    screen.press(KeyCode::Down);
    assert!(screen.rows()[1].starts_with(">N batch/encode"), "{}", screen.text());
    screen.write("r");
    assert!(screen.rows()[3].starts_with(">N batch/encode"), "{}", screen.text());
    screen.press(KeyCode::End);
    screen.press(KeyCode::PageUp);
    assert!(screen.rows()[0].starts_with('>'));
}

#[test]
fn the_selected_row_is_reversed_except_for_its_strip() {
    let mut screen = Screen::new(SIZES[0]);
    let strip = screen.rows()[0].chars().rev().take_while(|char| *char == '▇').count();
    assert!(strip >= 11, "{}", screen.text());
    assert_eq!(screen.reversed(), [80 - strip]);
}

#[test]
fn rows_beyond_the_screen_are_reached() {
    let mut screen = Screen::empty((80, 12));
    let mut many = frame(1);
    let template = many.containers[0].clone();
    for number in 0..40 {
        many.containers
            .push(api::ContainerFrame { pod: format!("pod-{number:02}"), ..template.clone() });
    }
    screen.show(many);
    screen.press(KeyCode::End);
    let last = screen.rows().pop().unwrap();
    assert!(last.starts_with('>') && last.contains("shop/db-0"), "{}", screen.text());
}

#[test]
fn a_pause_holds_the_second_and_loses_none() {
    let mut screen = Screen::new(SIZES[0]);
    let before = screen.text();
    screen.write("p");
    (120..125).for_each(|second| screen.show(frame(second)));
    let paused = screen.text();
    assert!(paused.contains("PAUSED"));
    assert_eq!(paused.lines().nth(5), before.lines().nth(5));
    assert!(paused.contains("22:15:19 UTC"), "{paused}");
    screen.write("p");
    assert!(screen.text().contains("22:15:24 UTC"), "{}", screen.text());
    screen.press(KeyCode::Down);
    screen.press(KeyCode::Enter);
    assert!(screen.text().contains("waited for, in 125 s"), "{}", screen.text());
}

#[test]
fn a_recording_is_moved_by_keys() {
    let mut screen = Screen::new(SIZES[0]);
    let position =
        Position { at_ms: 30_000, start_ms: 0, end_ms: 60_000, speed: 2.0, is_paused: false };
    screen.app.apply(Update::Position(position));
    assert!(screen.text().contains("recording 50% x2"), "{}", screen.text());
    assert_eq!(screen.press(KeyCode::Left), Some(Control::Step(-1)));
    assert_eq!(screen.press(KeyCode::Char(']')), Some(Control::Step(60)));
    assert_eq!(screen.press(KeyCode::Char('p')), Some(Control::Pause(true)));
    screen.app.apply(Update::Position(Position { is_paused: true, ..position }));
    screen.app.apply(Update::Seek(vec![frame(3)]));
    assert!(screen.text().contains("22:13:23 UTC"), "a paused recording still moves");
}

#[test]
fn a_live_view_goes_back_jumps_to_a_typed_time_and_returns() {
    let mut screen = Screen::new(SIZES[0]);
    screen.app.apply(Update::Frame(Box::new(frame(9))));
    assert_eq!(screen.press(KeyCode::Left), Some(Control::Step(-1)));
    assert_eq!(screen.press(KeyCode::Char('{')), Some(Control::Step(-3600)));
    screen.write("@soon");
    assert!(screen.text().contains("time (UTC): soon_"), "{}", screen.text());
    assert_eq!(screen.press(KeyCode::Enter), None);
    assert!(screen.text().contains("not a time such as"), "{}", screen.text());
    for _ in 0..4 {
        screen.press(KeyCode::Backspace);
    }
    screen.write("-10m");
    let moment = "-10m".parse().unwrap();
    assert_eq!(screen.press(KeyCode::Enter), Some(Control::At(moment)));
    let (at_ms, end_ms) = (frame(3).at_ms, frame(3).at_ms + 600_000);
    let position = Position { at_ms, start_ms: 0, end_ms, speed: 0.0, is_paused: true };
    screen.app.apply(Update::Position(position));
    screen.app.apply(Update::Past(Points::default(), Box::new(frame(3))));
    let text = screen.text();
    assert!(text.contains("2023-11-14 22:13:23 UTC") && text.contains("10m 0s ago"), "{text}");
    assert!(text.contains("PAUSED"), "{text}");
    assert_eq!(screen.press(KeyCode::Char(' ')), Some(Control::Pause(false)));
    screen.app.apply(Update::Live);
    screen.app.apply(Update::Frame(Box::new(frame(12))));
    let text = screen.text();
    assert!(text.contains(" 22:13:32 UTC") && !text.contains(" ago"), "{text}");
}

#[test]
fn q_and_ctrl_c_leave_except_in_a_filter() {
    let mut screen = Screen::new(SIZES[0]);
    screen.write("/q");
    assert!(!screen.app.is_done());
    screen.app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert!(screen.app.is_done());
    let mut screen = Screen::new(SIZES[0]);
    screen.write("q");
    assert!(screen.app.is_done());
}
