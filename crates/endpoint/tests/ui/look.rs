//! The page on a phone and in both color schemes: nothing is wider than the screen, text has
//! enough contrast, and drawings show what they should.

use serde_json::{Value, json};

use crate::api::full_report;
use crate::browser::{Borrowed, Browser};
use crate::page::screenshot;
use crate::support::{Server, place};

/// Fragment of each view, and an expression that holds once it is drawn.
const VIEWS: [(&str, &str); 6] = [
    ("pods", "document.querySelectorAll('tbody tr').length > 2"),
    ("aggressors", "document.querySelector('[aria-label=Aggressors] tbody tr')"),
    ("matrix", "document.querySelector('.matrix tbody td')"),
    ("topology", "document.querySelector('.cpu')"),
    ("advice", "document.querySelector('.advice tbody tr')"),
    (
        "pod/uid-0",
        "document.querySelector('main .chart path.line') && document.querySelector('.copy')",
    ),
];

/// Least contrast of text, as the Web Content Accessibility Guidelines (AA) demand.
const CONTRAST: f64 = 4.5;

/// Defines `faint(least)`: the texts whose contrast with the background is below `least`.
const CONTRASTS: &str = r"
const parse = (text) => { const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number); return [r, g, b, a]; };
const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);
const path = (element) => element ? [element, ...path(element.parentElement)] : [];
const background = (element) => path(element).reverse().reduce((below, each) => over(parse(getComputedStyle(each).backgroundColor), below), [255, 255, 255, 1]);
const opacity = (element) => path(element).reduce((product, each) => product * Number(getComputedStyle(each).opacity), 1);
const luminance = (color) => [0.2126, 0.7152, 0.0722].reduce((sum, weight, at) => {
    const part = color[at] / 255;
    return sum + weight * (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
}, 0);
const contrast = (element, pseudo) => {
    const below = background(element);
    const color = parse(getComputedStyle(element, pseudo).color);
    const text = over([...color.slice(0, 3), color[3] * opacity(element)], below);
    const [dark, light] = [luminance(text), luminance(below)].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
};
const texts = () => [...document.querySelectorAll('body, body *')].filter((element) => element.getClientRects().length).flatMap((element) => {
    const own = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE).map((node) => node.textContent.trim()).join(' ').trim();
    const label = getComputedStyle(element, '::before').content;
    const list = own ? [[element, null, own]] : [];
    if (label.startsWith('\x22') && label.length > 2) list.push([element, '::before', label]);
    if (element.placeholder) list.push([element, '::placeholder', element.placeholder]);
    return list;
});
const faint = (least) => texts().map(([element, pseudo, text]) => [contrast(element, pseudo), element, pseudo, text]).filter(([value]) => value < least)
    .map(([value, element, pseudo, text]) => `${value.toFixed(2)}: ${text} (${element.tagName} ${element.className} ${pseudo ?? ''})`);
";

/// A browser on a page whose agent has one finding.
fn open(server: &Server) -> Borrowed {
    let browser = Browser::borrow();
    browser.look(390, 844, "light");
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for(VIEWS[0].1);
    let report = serde_json::to_value(full_report()).unwrap();
    let answers = json!({ "advice": [report], "patchCommand": "kubectl patch ".repeat(20) });
    browser.run(&format!(
        "const original = fetch; window.fetch = async (path, ...rest) => {{
            const answer = await (await original(path, ...rest)).json();
            if (path.includes('/pods/')) Object.assign(answer, {answers});
            if (path.endsWith('/advice')) answer.containers = {answers}.advice;
            return new Response(JSON.stringify(answer));
        }}"
    ));
    browser
}

fn show(browser: &Browser, (fragment, is_drawn): (&str, &str)) {
    browser.run(&format!("location.hash = '{fragment}'"));
    browser.wait_for(is_drawn);
}

fn assert_legible(browser: &Browser, what: &str) {
    let faint = browser.run(&format!("{CONTRASTS} return faint({CONTRAST})"));
    assert_eq!(faint, json!([]), "{what}");
}

/// Width of the page's content, and of the screen.
fn widths(browser: &Browser) -> (u64, u64) {
    let widths = browser
        .run("const page = document.documentElement; return [page.scrollWidth, page.clientWidth]");
    (widths[0].as_u64().unwrap(), widths[1].as_u64().unwrap())
}

#[test]
fn every_view_fits_a_phone() {
    let server = Server::start(16, true).ten_seconds();
    let browser = open(&server);
    for width in [390, 360] {
        browser.look(width, 844, "light");
        for view in VIEWS {
            show(&browser, view);
            let (scroll, client) = widths(&browser);
            assert!(scroll <= client, "{}: {scroll} px on a screen of {client} px", view.0);
        }
    }
}

#[test]
fn text_has_contrast_in_both_color_schemes() {
    let server = Server::start(16, true).ten_seconds();
    let browser = open(&server);
    let classes = |selector: &str, class: &str, step: usize| {
        browser.run(&format!(
            "document.querySelectorAll('{selector}').forEach((cell) => {{ cell.className = '{class}{step}'; }})"
        ));
    };
    for (width, scheme) in [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")] {
        browser.look(width, 844, scheme);
        for view in VIEWS {
            show(&browser, view);
            let what = format!("{} at {width} px, {scheme}", view.0);
            assert_legible(&browser, &what);
            for step in 0..=5 {
                match view.0 {
                    "matrix" => classes(".matrix tbody td", "heat-", step),
                    "topology" => classes(".cpu", "cpu load-", step),
                    _ => continue,
                }
                assert_legible(&browser, &format!("{what}, step {step}"));
            }
        }
        browser.press("?");
        browser.wait_for("document.querySelector('dialog').open");
        assert_legible(&browser, "help");
        browser.run("document.querySelector('dialog').close()");
    }
}

#[test]
fn the_seconds_of_a_strip_are_equally_wide() {
    let server = Server::start(3, true);
    (0..=70).for_each(|second| server.second(second));
    let browser = open(&server);
    for (width, strip) in [(390, 300), (1280, 180)] {
        browser.look(width, 800, "light");
        show(&browser, VIEWS[1]);
        show(&browser, VIEWS[0]);
        browser.wait_for(&format!("document.querySelector('.strip').width == {strip}"));
        let drawn = browser.run(
            "const canvas = document.querySelector('.strip');
            const { data } = canvas.getContext('2d').getImageData(0, 5, canvas.width, 1);
            const box = canvas.getBoundingClientRect();
            return [box.width, [...data].filter((_, at) => at % 4 == 3).map((alpha) => alpha ? '#' : ' ').join('')]",
        );
        assert_eq!(drawn[0], strip, "the picture is not stretched");
        let cells: Vec<&str> = drawn[1].as_str().unwrap().split_whitespace().collect();
        assert_eq!(cells, vec!["#".repeat(strip / 60 - 1); 60]);
    }
}

#[test]
fn the_aggressors_have_the_minute_before_the_page_was_opened_and_can_be_sorted() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    show(&browser, VIEWS[1]);
    let strip = "document.querySelector('[aria-label=Aggressors] .strip').ariaLabel";
    browser.wait_for(&format!("{strip}.startsWith('last 10 seconds')"));
    let names = "[...document.querySelectorAll('[aria-label=Aggressors] tbody .pod')].map((name) => name.textContent)";
    let first = |browser: &Browser| browser.run(&format!("return {names}[0]"));
    assert_eq!(first(&browser), "pod-1", "others wait longest for it");
    let sort = |title: &str| {
        let title = Value::from(title);
        browser.run(&format!(
            "[...document.querySelectorAll('[aria-label=Aggressors] th button')].find((button) => button.textContent.includes({title})).click()"
        ));
        browser.run("return document.querySelector('[aria-label=Aggressors] [aria-sort]').textContent.trim()")
    };
    assert_eq!(sort("Pod"), "Pod");
    assert_ne!(first(&browser), "pod-1", "by name");
    browser.press("s");
    assert_eq!(first(&browser), "pod-1");
}

#[test]
fn a_pod_shows_its_limit_and_its_aggressors_in_the_colors_of_the_legend() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    show(&browser, VIEWS[5]);
    let last = browser.run("return [...document.querySelectorAll('main .chart')][0].querySelector('path:last-of-type').classList[1]");
    assert_eq!(last, "c-limit", "the dashed limit is above the use");
    let line = "getComputedStyle(document.querySelector('.keys .k-limit')).borderTopStyle";
    assert_eq!(browser.run(&format!("return {line}")), "dashed");
    let colors = browser.run(
        "return [...document.querySelectorAll('.bars [class^=k-pair]')].map((key) => [
            getComputedStyle(key).borderTopColor,
            getComputedStyle(key.parentElement.nextElementSibling.nextElementSibling.firstElementChild).backgroundColor])",
    );
    let colors = colors.as_array().unwrap();
    assert!(colors.len() >= 2 && colors[0] != colors[1], "{colors:?}");
    assert!(colors.iter().all(|color| color[0] == color[1]), "{colors:?}");
}

#[test]
fn contention_is_shown_by_class() {
    let server = Server::start(3, true).ten_seconds();
    let browser = open(&server);
    browser.wait_for("/by class Guaranteed\\s0\\s%, Burstable\\s25.?–.?50\\s%/.test(document.getElementById('facts').textContent)");
}

/// A made-up node: two sockets of two L3 caches with four cores of two threads each. Two pods have
/// CPUs of their own.
fn two_sockets() -> Value {
    let cpu = |cpu: u32| {
        let core = cpu % 16;
        let (owner, busy) = match core {
            0 | 1 => ("shop/checkout-0 (LSR)", 0.85),
            8..12 => ("search/index-0 (LSE)", 0.55),
            _ => ("share", f64::from(core * 5 % 11) / 20.0),
        };
        json!({"cpu": cpu, "core": core, "l3": core / 4, "die": null, "numaNode": core / 8,
            "socket": core / 8, "kind": null, "owner": owner, "busy": busy})
    };
    json!({"cpus": (0..32).map(cpu).collect::<Vec<_>>()})
}

#[test]
fn the_topology_of_two_sockets_is_drawn_by_cache_core_and_thread() {
    let server = Server::start(3, true);
    (0..3).for_each(|second| server.second_on(second, (0..32).map(place).collect()));
    let browser = open(&server);
    browser.look(1280, 800, "light");
    let topology = two_sockets();
    browser.run(&format!("window.fetch = async () => new Response(JSON.stringify({topology}))"));
    show(&browser, ("topology", "document.querySelectorAll('.core').length == 16"));
    let shapes = "[...document.querySelectorAll('.socket')].map((socket) => [
        socket.querySelectorAll('.cache').length,
        ...[...socket.querySelectorAll('.core')].map((core) => core.children.length)])";
    let socket = json!([2, 2, 2, 2, 2, 2, 2, 2, 2]);
    assert_eq!(browser.run(&format!("return {shapes}")), json!([socket, socket]));
    let owned = "document.querySelectorAll('.cpu:not(.o-0)').length";
    assert_eq!(browser.run(&format!("return {owned}")), 12);
    let (scroll, client) = widths(&browser);
    assert!(scroll <= client, "{scroll} px on a screen of {client} px");
    screenshot(&browser, "sockets");
}

#[test]
fn a_column_without_a_value_is_hidden_and_the_table_fits() {
    let browser = Browser::borrow();
    browser.look(1280, 800, "light");
    // Only the second container has a collector.
    for (containers, is_shown) in [(1, false), (2, true)] {
        let server = Server::start(containers, true).ten_seconds();
        browser.open(&format!("http://{}/", server.address));
        browser.wait_for(&format!("document.querySelectorAll('tbody tr').length == {containers}"));
        let collector = "Boolean(document.querySelector('th.gc').offsetWidth)";
        browser.wait_for(&format!("{collector} == {is_shown}"));
        let cut = "const panel = document.querySelector('.scroll'); return panel.scrollWidth - panel.clientWidth";
        assert!(is_shown || browser.run(cut) == 0, "{}", browser.run(cut));
    }
}
