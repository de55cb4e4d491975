//! The page by keyboard, and for readers without sight: focus, headings, names of dialogs, texts of
//! graphs, news, and names that contain invisible characters.

use serde_json::{Value, json};

use crate::api::full_report;
use crate::browser::{Borrowed, Browser};
use crate::support::{Server, UNSEEN};

const ROWS: &str = "document.querySelectorAll('[aria-label=Victims] tbody tr').length > 2";
/// The pod of the row that has the focus.
const FOCUSED: &str = "document.activeElement.closest('tbody tr')?.querySelector('a').textContent";

/// A browser on the page of this server.
fn open(server: &Server) -> Borrowed {
    let browser = Browser::borrow();
    browser.look(1280, 400, "light");
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for(ROWS);
    browser
}

fn filter(browser: &Browser, text: &str) {
    let text = Value::from(text);
    browser.run(&format!(
        "const i = document.querySelector('main input'); i.focus(); i.value = {text}; i.dispatchEvent(new Event('input'))"
    ));
}

/// Names of the pods in the table.
fn names(browser: &Browser) -> Value {
    browser.run("return [...document.querySelectorAll('tbody a')].map((name) => name.textContent)")
}

#[test]
fn help_opens_at_its_top_with_a_name_and_explains_the_words() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    browser.press("?");
    browser.wait_for("document.querySelector('dialog').open");
    let state = browser.run(
        "const dialog = document.querySelector('dialog');
        const title = document.getElementById(dialog.getAttribute('aria-labelledby'));
        const top = title.getBoundingClientRect().top;
        return [dialog.scrollTop, dialog.scrollHeight > dialog.clientHeight, title.textContent, top > 0 && top < 100,
            document.activeElement.textContent, document.activeElement.closest('dialog') === dialog]",
    );
    assert_eq!(state, json!([0, true, "Help", true, "Close", true]));
    let text = browser.run("return document.querySelector('dialog').textContent");
    for word in ["used", "limit", "throttled", "waited", "lost", "slowed ×", "Waited, others"] {
        assert!(text.as_str().unwrap().contains(word), "{word}: {text}");
    }
    // Waits are a share of the time, on every view.
    let heads = browser.run("return document.querySelector('thead').textContent");
    assert!(heads.as_str().unwrap().contains("WaitedOthersof the time"), "{heads}");
    let shown = browser.run("return document.body.textContent");
    assert!(!shown.as_str().unwrap().contains("ms per s"), "{shown}");
}

#[test]
fn arrow_keys_move_in_the_list_and_enter_opens_the_first_match() {
    let server = Server::start(16, true).ten_seconds();
    let browser = open(&server);
    let all = names(&browser);
    browser.press("ArrowDown");
    assert_eq!(browser.run(&format!("return {FOCUSED}")), all[0]);
    browser.press("ArrowDown");
    browser.press("ArrowDown");
    browser.press("ArrowUp");
    assert_eq!(browser.run(&format!("return {FOCUSED}")), all[1]);
    filter(&browser, "pod-1");
    browser.press("ArrowDown");
    let found = names(&browser);
    assert_eq!(found.as_array().unwrap().len(), 7);
    assert_eq!(browser.run(&format!("return {FOCUSED}")), found[0]);
    filter(&browser, "POD !pod-1 -pod-2 pod-");
    let found = names(&browser);
    assert_eq!(found.as_array().unwrap().len(), 7, "{found}");
    filter(&browser, "shop pod-12");
    browser.press("Enter");
    browser.wait_for("document.querySelector('[aria-label=Pod] h1')?.textContent == 'pod-12'");
}

/// In the list of aggressors, which is replaced every second, and in that of findings, which has a
/// filter.
#[test]
fn arrow_keys_move_in_whichever_list_is_shown() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    let focused = "document.activeElement.closest('tbody tr')?.querySelector('.pod').textContent";
    let is_focused = |pod: &str| browser.wait_for(&format!("{focused} == '{pod}'"));
    let title = "document.querySelector('[aria-label=Pod] h1')?.textContent";
    browser.press("a");
    browser.wait_for("document.querySelectorAll('[aria-label=Aggressors] tbody tr').length == 3");
    for (key, pod) in
        [("ArrowDown", "pod-1"), ("ArrowDown", "pod-2"), ("k", "pod-1"), ("j", "pod-2")]
    {
        browser.press(key);
        is_focused(pod);
    }
    let row = "document.querySelector('[aria-label=Aggressors] tbody tr')";
    browser.run(&format!("window.before = {row}"));
    server.second(11);
    browser.wait_for(&format!("{row} != window.before"));
    is_focused("pod-2");
    browser.press("Enter");
    browser.wait_for(&format!("{title} == 'pod-2'"));

    let reports = ["gone", "pod-1", "pod-2"].map(|pod| {
        let mut report = serde_json::to_value(full_report()).unwrap();
        report["pod"] = pod.into();
        report["workload"] = Value::Null;
        report
    });
    let answer = json!({ "containers": reports });
    browser.run(&format!(
        "const original = fetch; window.fetch = async (path, ...rest) =>
            path.endsWith('/advice') ? new Response(JSON.stringify({answer})) : original(path, ...rest)"
    ));
    browser.press("f");
    let rows = "document.querySelectorAll('[aria-label=Advice] tbody tr').length";
    browser.wait_for(&format!("{rows} == 3"));
    for (key, pod) in [("ArrowDown", "gone"), ("ArrowDown", "pod-1"), ("ArrowUp", "gone")] {
        browser.press(key);
        is_focused(pod);
    }
    // Letters in the filter are no keys of the page.
    browser.press("/");
    for key in ["m", "Escape"] {
        browser.press(key);
    }
    let state = browser.run(&format!("return [location.hash, {rows}]"));
    assert_eq!(state[0], "#advice");
    filter(&browser, "shop !gone -pod-1");
    browser.wait_for(&format!("{rows} == 1"));
    browser.press("Enter");
    browser.wait_for(&format!("{title} == 'pod-2'"));
    assert!(browser.console().is_empty());
}

#[test]
fn the_focus_follows_its_pod_when_the_order_changes() {
    let server = Server::start(5, true).ten_seconds();
    let browser = open(&server);
    browser.press("ArrowDown");
    let name = browser.run(&format!("return {FOCUSED}"));
    let place = || {
        browser.run(
            "return [...document.querySelectorAll('tbody tr')].findIndex((row) => row.classList.contains('selected'))",
        )
    };
    assert_eq!(place(), 0);
    // By name, the first one is not the first.
    browser.run("[...document.querySelectorAll('th button')].find((button) => button.textContent.startsWith('Pod')).dispatchEvent(new Event('click'))");
    let order = names(&browser);
    let at = order.as_array().unwrap().iter().position(|one| *one == name).unwrap();
    assert_eq!(browser.run(&format!("return {FOCUSED}")), name);
    assert_eq!(place(), at);
    browser.press("Enter");
    browser
        .wait_for(&format!("document.querySelector('[aria-label=Pod] h1')?.textContent == {name}"));
}

#[test]
fn each_view_has_one_heading_and_its_graphs_a_text_of_their_values() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    let views = [
        ("pods", "tbody td"),
        ("aggressors", "[aria-label=Aggressors] tbody td"),
        ("matrix", ".matrix td"),
        ("topology", ".cpu"),
        ("advice", "[aria-label=Advice] .count:not(:empty)"),
        ("pod/uid-1", ".chart path.line"),
    ];
    for (view, content) in views {
        browser.run(&format!("location.hash = '{view}'"));
        browser.wait_for(&format!("document.querySelector('main {content}')"));
        let headings = browser.run("return document.querySelectorAll('h1').length");
        assert_eq!(headings, 1, "{view}");
        let graphs = browser.run(
            "return [...document.querySelectorAll('main canvas, main svg')].map((graph) => [graph.role ?? graph.getAttribute('role'), graph.ariaLabel])",
        );
        for graph in graphs.as_array().unwrap() {
            let text = graph[1].as_str().unwrap();
            let has_values =
                text.contains("at most") && text.chars().any(|char| char.is_ascii_digit());
            assert!(graph[0] == "img" && has_values, "{view}: {graph}");
        }
    }
    let used = browser.run("return document.querySelector('[aria-label=Pod] .chart').ariaLabel");
    assert_eq!(
        used,
        "Used and limit over time, cores. used: 0.50, at most 0.50; limit: 0.50, at most 0.50"
    );
    // The view has the focus, as a new page would.
    assert_eq!(browser.run("return document.activeElement.id"), "main");
}

#[test]
fn the_status_says_what_is_new_and_not_each_second() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    let status = "document.querySelector('[role=status]#status').textContent";
    browser.wait_for(&format!("{status} == 'live. No pod is slowed.'"));
    browser.run(
        "window.news = 0;
        new MutationObserver(() => { window.news += 1; }).observe(document.getElementById('status'), { childList: true, characterData: true, subtree: true })",
    );
    let time = "document.getElementById('facts').textContent";
    for second in 11..14 {
        let before = browser.run(&format!("return {time}"));
        server.second(second);
        browser.wait_for(&format!("{time} != {before}"));
    }
    assert_eq!(browser.run("return window.news"), 0);
    browser.press("p");
    browser.wait_for(&format!("{status} == 'paused. No pod is slowed.'"));
}

#[test]
fn names_are_isolated_and_invisible_characters_are_shown() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    let shown = r"a\u{202e}b\u{7}\u{7f}\u{9}\n";
    assert_eq!(UNSEEN, "a\u{202e}b\u{7}\u{7f}\t\\n");
    let sub = Value::from(format!("shop · {shown}"));
    browser.wait_for(&format!(
        "[...document.querySelectorAll('tbody .sub')].some((sub) => sub.textContent == {sub})"
    ));
    let kinds = "new Set([...document.querySelectorAll('td.name .sub')].map((sub) => sub.tagName))";
    assert_eq!(browser.run(&format!("return [...{kinds}]")), json!(["BDI"]));
    assert_eq!(browser.run("return document.querySelector('tbody a').firstChild.tagName"), "BDI");
    browser.run("location.hash = 'pod/uid-2'");
    browser.wait_for("document.querySelector('h1 bdi')?.textContent == 'pod-2'");
    let text = browser.run("return document.querySelector('main').textContent");
    let text = text.as_str().unwrap();
    assert!(text.contains(shown) && !text.contains('\u{202e}'), "{text}");
}

#[test]
fn a_pod_without_a_cpu_limit_says_so() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    browser.run(
        "const original = fetch; window.fetch = async (path, ...rest) => {
            const answer = await (await original(path, ...rest)).json();
            for (const row of answer.containers ?? []) delete row.limitCores;
            for (const { measures } of answer.points?.containers ?? []) for (const name of ['throttledOwn', 'throttledAncestor', 'limitCores']) delete measures[name];
            return new Response(JSON.stringify(answer));
        }",
    );
    browser.run("location.hash = 'pod/uid-1'");
    browser.wait_for("document.querySelector('main .chart')");
    let cards = browser.run("return [...document.querySelectorAll('.card')].slice(0, 2).map((card) => card.textContent)");
    assert!(cards[0].as_str().unwrap().contains("no CPU limit"), "{cards}");
    assert!(cards[1].as_str().unwrap().ends_with("No CPU limit."), "{cards}");
}
