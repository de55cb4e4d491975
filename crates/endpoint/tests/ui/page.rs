//! The page in a real browser, on a node made by hand. With `CPUWARDEN_SCREENSHOTS=DIR` it also
//! writes a picture of each view.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::{full_report, recorded};
use crate::browser::Browser;
use crate::support::{HOSTILE, Server};

const VICTIMS: &str = "document.querySelectorAll('tbody tr').length > 2";

/// Adds a second to the history, every 300 ms, while `work` runs.
fn while_time_passes(server: &Server, work: impl FnOnce()) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for second in 11.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                server.second(second);
                std::thread::sleep(Duration::from_millis(300));
            }
        });
        // Ends the other thread also when an assertion fails.
        let _end = End(&done);
        work();
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(crate) fn screenshot(browser: &Browser, name: &str) {
    let Some(directory) = std::env::var_os("CPUWARDEN_SCREENSHOTS").map(PathBuf::from) else {
        return;
    };
    for (width, height, size) in [(1280, 800, "wide"), (390, 844, "phone")] {
        for scheme in ["light", "dark"] {
            browser.look(width, height, scheme);
            std::thread::sleep(Duration::from_millis(700));
            browser.screenshot(&directory.join(format!("{name}-{size}-{scheme}.png")));
        }
    }
    browser.look(1280, 800, "light");
}

/// Chooses an entry of the view's list.
fn choose(browser: &Browser, value: &str) {
    browser.run(&format!(
        "const list = document.querySelector('main select'); list.value = '{value}'; list.dispatchEvent(new Event('change'))"
    ));
}

/// Checks that no text of a pod became an element.
fn assert_no_markup(browser: &Browser) {
    assert_eq!(browser.run("return document.querySelectorAll('main img').length"), 0);
}

fn assert_shown(browser: &Browser, text: &str) {
    let text = Value::from(text);
    browser.wait_for(&format!("document.querySelector('main').textContent.includes({text})"));
}

fn assert_quiet(browser: &Browser, origin: &str) {
    let console = browser.console();
    assert!(console.is_empty(), "{console:#?}");
    let requests = browser.requests();
    assert!(!requests.is_empty());
    let foreign: Vec<_> = requests.iter().filter(|url| !url.starts_with(origin)).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

#[test]
fn every_view_works_without_an_error_and_a_hostile_name_stays_text() {
    let server = Server::start(16, true).ten_seconds();
    let origin = format!("http://{}/", server.address);
    let browser = Browser::borrow();
    browser.look(1280, 800, "light");
    while_time_passes(&server, || {
        browser.open(&origin);
        browser.wait_for(VICTIMS);
        let first = browser.run("return document.querySelector('tbody a').textContent");
        assert_eq!(first, HOSTILE, "the worst victim is on top, and its name is text");
        assert_no_markup(&browser);
        screenshot(&browser, "victims");
        browser.press("a");
        browser.wait_for("document.body.innerText.includes('Others wait')");
        screenshot(&browser, "aggressors");
        browser.press("m");
        browser.wait_for("document.querySelectorAll('.matrix tbody td').length == 6");
        choose(&browser, "1");
        browser.wait_for("[...document.querySelectorAll('.matrix td')].some((cell) => cell.textContent == '90 ms')");
        choose(&browser, "600");
        browser.wait_for("[...document.querySelectorAll('.matrix td')].some((cell) => cell.textContent.endsWith(' s'))");
        assert_eq!(browser.run("return document.querySelectorAll('.matrix th a').length"), 2);
        screenshot(&browser, "matrix");
        browser.press("t");
        browser.wait_for("document.querySelectorAll('.cpu').length == 2");
        browser.wait_for("document.body.innerText.includes('shop/pod-1 (LSR)')");
        assert_shown(&browser, HOSTILE);
        assert_no_markup(&browser);
        screenshot(&browser, "topology");
        browser.press("f");
        browser.wait_for("document.querySelector('[aria-label=Advice] .count').textContent.startsWith('0 findings')");
        browser.press("Escape");
        browser.wait_for(VICTIMS);
        browser.press("j");
        browser.press("Enter");
        browser.wait_for("document.querySelector('[aria-label=Pod] h1')");
        assert_eq!(browser.run("return document.querySelector('h1').textContent"), HOSTILE);
        browser.wait_for("document.querySelectorAll('.chart path.line').length >= 5");
        // Texts from annotations: the QoS class and the reason of a rejection.
        assert_eq!(browser.run("return document.querySelectorAll('.tag')[1].textContent"), HOSTILE);
        assert_shown(&browser, &format!("Exclusive CPUs rejected: {HOSTILE}."));
        assert_shown(&browser, "The agent set idle to 1 (before: 0) in /kubepods/besteffort/pod0.");
        assert_no_markup(&browser);
        screenshot(&browser, "pod");
        browser.press("Escape");
        browser.press("?");
        browser.wait_for("document.querySelector('dialog').open");
        screenshot(&browser, "help");
        assert_no_markup(&browser);
        assert_quiet(&browser, &origin);
    });
}

/// A page whose agent has recorded two hours, with a chart of them.
#[test]
fn the_page_shows_what_garbage_collection_takes_beside_throttling() {
    let server = Server::start(2, true).ten_seconds();
    let browser = Browser::borrow();
    browser.look(1280, 800, "light");
    while_time_passes(&server, || {
        browser.open(&format!("http://{}/", server.address));
        let row = "[...document.querySelectorAll('tbody tr')].find((row) => row.textContent.includes('2.5 per s'))";
        browser.wait_for(row);
        browser.wait_for(&format!("{row}.textContent.includes('37 %')"));
        browser.open(&format!("http://{}/#pod/uid-1", server.address));
        browser.wait_for("document.body.innerText.includes('Garbage collection')");
        let text = "37 % of its CPU time, 2.5 cycles per s; stopped 2 % of the time; heap live 64 MiB, goal 128 MiB, \
                    limit 256 MiB; GOGC 100; G1 young collection pauses";
        assert_shown(&browser, text);
    });
}

fn open_recorded(server: &Server, browser: &Browser, fragment: &str) {
    browser.look(1280, 800, "light");
    browser.open(&format!("http://{}/{fragment}", server.address));
    browser.wait_for("document.querySelector('.plot path.line')");
    browser.wait_for("document.querySelectorAll('.time option').length == 3");
    browser.run(
        "const list = document.querySelector('.time select'); list.value = '3600'; list.dispatchEvent(new Event('change'))",
    );
    browser.wait_for("document.querySelector('.plot .ticks').textContent.includes('21:20')");
}

/// Presses in the chart at one share of its width, and releases at the other.
fn drag(browser: &Browser, from: f64, to: f64) {
    browser.mouse("mousePressed", ".plot", from);
    browser.mouse("mouseMoved", ".plot", (from + to) / 2.0);
    browser.mouse("mouseMoved", ".plot", to);
    browser.mouse("mouseReleased", ".plot", to);
}

const SHOWN: &str = "document.querySelector('.time .window').textContent";

#[test]
fn a_window_is_dragged_and_lists_aggressors_matrix_and_pods_follow_it() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let server = Server::start_recorded(3, dir.path()).ten_seconds();
    let browser = Browser::borrow();
    open_recorded(&server, &browser, "");
    browser.mouse("mouseMoved", ".plot", 0.5);
    browser
        .wait_for("document.querySelector('.time').textContent.includes('75 % of the time lost')");
    screenshot(&browser, "time");
    // The chart ends at 22:13:30.
    drag(&browser, 0.25, 0.5);
    browser.wait_for("location.hash.includes('seconds=')");
    let first = "document.querySelector('tbody a')?.textContent";
    browser.wait_for(&format!("{first} == 'old'"));
    let seconds = "Number(new URLSearchParams(location.hash.split('?')[1]).get('seconds'))";
    browser.wait_for(&format!("Math.abs({seconds} - 900) < 20"));
    browser.wait_for(&format!("{SHOWN}.startsWith('2023-11-14 21:28:')"));
    browser.wait_for("document.querySelector('.minute').textContent == 'In the window'");
    browser.wait_for(
        "document.querySelector('[data-label^=\"Waited, others\"]').textContent == '50 %'",
    );
    screenshot(&browser, "window");
    browser.press("a");
    browser.wait_for(
        "document.querySelector('[aria-label=Aggressors] tbody')?.textContent.includes('hog')",
    );
    browser.press("m");
    // 900 seconds, half of each.
    browser.wait_for("document.querySelector('.matrix td')?.textContent.match(/^4[45]. s$/)");
    browser.wait_for("document.querySelector('main select').hidden");
    browser.run("location.hash = '#pod/uid-old'");
    browser.wait_for("document.querySelector('h1')?.textContent == 'old'");
    browser.wait_for("location.hash.includes('seconds=')");
    browser.wait_for("document.querySelectorAll('main .ticks span').length > 5");
    screenshot(&browser, "window-pod");
    browser.press("Escape");
    // The window moves by its length, and is dragged.
    browser.wait_for("location.hash.startsWith('#pods?')");
    let hash = browser.run("return location.hash");
    browser.press("[");
    browser.wait_for(&format!("{SHOWN}.startsWith('2023-11-14 21:13:')"));
    browser.run("history.back()");
    browser.wait_for(&format!("{SHOWN}.startsWith('2023-11-14 21:28:')"));
    assert_eq!(browser.run("return location.hash"), hash);
    drag(&browser, 0.4, 0.6);
    browser.wait_for(&format!("{SHOWN}.startsWith('2023-11-14 21:40:')"));
    browser.wait_for(&format!("Math.abs({seconds} - 900) < 20"));
    browser.press("n");
    browser.wait_for(&format!("{first} == {}", Value::from(HOSTILE)));
    browser.wait_for("!location.hash.includes('seconds')");
    // No second comes, so that it is not live for long.
    browser.wait_for("document.querySelector('#live').dataset.state != 'paused'");
    assert_quiet(&browser, &format!("http://{}/", server.address));
}

#[test]
fn a_link_opens_its_time_and_times_are_in_utc_or_local() {
    let dir = tempfile::tempdir().unwrap();
    recorded(dir.path());
    let server = Server::start_recorded(3, dir.path()).ten_seconds();
    let browser = Browser::borrow();
    browser.set_time_zone("Asia/Tokyo");
    open_recorded(&server, &browser, "#pods?to=2023-11-14T21:40:00Z&seconds=60");
    browser.wait_for("document.querySelector('tbody a')?.textContent == 'old'");
    let text = browser.run(&format!("return {SHOWN}"));
    assert_eq!(text, "2023-11-14 21:39:00 to 21:40:00 UTC");
    browser.press("z");
    browser.wait_for(&format!("{SHOWN} == '2023-11-15 06:39:00 to 06:40:00 local'"));
    browser.wait_for(
        "document.querySelector('#facts').textContent.includes('2023-11-15 06:40:00 local')",
    );
    browser.press("z");
    browser.wait_for(
        "document.querySelector('#facts').textContent.includes('2023-11-14 21:40:00 UTC')",
    );
    // No data: the reason with the range.
    browser.run("location.hash = '#pods?to=2023-11-13T21:40:00Z&seconds=60'");
    browser.wait_for("document.querySelector('.time').textContent.includes('no data of this time: the history has 2023-11-14T20:1')");
    browser.run("document.querySelector('.time .tools button[title^=Back]').click()");
    browser.wait_for(&format!("{SHOWN} == 'the latest second'"));
}

#[test]
fn a_pod_shows_its_aggressors_over_the_chosen_time() {
    let server = Server::start(3, true);
    (0..=400).for_each(|second| server.second(second));
    let browser = Browser::borrow();
    browser.open(&format!("http://{}/#pod/uid-0", server.address));
    let line = "document.querySelector('[aria-label^=\"Waited for whom\"] path.line')";
    browser.wait_for(line);
    let points = |seconds: &str| {
        choose(&browser, seconds);
        // The first point of a line is a move, the others are lines.
        let count = format!("{line}?.getAttribute('d').split('L').length");
        let expected = seconds.parse::<u32>().unwrap().min(400);
        browser.wait_for(&format!("{count} == {expected}"));
    };
    ["60", "600", "300"].iter().for_each(|seconds| points(seconds));
    assert_shown(&browser, "shop/pod-1");
}

#[test]
fn findings_show_their_change_the_command_and_injected_variables_as_text() {
    let server = Server::start(3, true).ten_seconds();
    let mut report = full_report();
    report.injected[0].value = HOSTILE.to_owned();
    let limit = json!({ "name": "app", "resources": { "limits": { "cpu": HOSTILE } } });
    let patch = json!({ "spec": { "template": { "spec": { "containers": [limit] } } } });
    report.findings[0].patch = Some(patch);
    let report = serde_json::to_value(report).unwrap();
    let browser = Browser::borrow();
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for(VICTIMS);
    let command = format!("kubectl patch {HOSTILE}");
    // This server has no findings of its own.
    browser.run(&format!(
        "const original = fetch; window.fetch = async (path, ...rest) => {{
            const answer = await (await original(path, ...rest)).json();
            if (path.includes('/pods/')) Object.assign(answer, {{ advice: [{report}], patchCommand: {} }});
            if (path.endsWith('/advice')) answer.containers = [{report}];
            return new Response(JSON.stringify(answer));
        }}",
        Value::from(command.as_str())
    ));
    browser.press("f");
    assert_shown(&browser, "1 finding by workload, in 1 of 1 containers");
    assert_shown(&browser, &format!("resources.limits.cpu = {HOSTILE}"));
    assert_no_markup(&browser);
    screenshot(&browser, "advice");
    browser.run("document.querySelector('.advice a').click()");
    browser.wait_for("document.querySelector('.copy')");
    assert_eq!(browser.run("return document.querySelector('.copy pre').textContent"), command);
    assert_shown(&browser, &format!("resources.limits.cpu = {HOSTILE}"));
    assert_shown(&browser, &format!("GOMAXPROCS={HOSTILE}"));
    assert_shown(&browser, "set at creation, but the limits now give 1");
    browser.run("document.querySelector('.copy button').click()");
    browser.wait_for("document.querySelector('.copy button').textContent == 'Copied'");
    assert_no_markup(&browser);
    screenshot(&browser, "findings");
}

#[test]
fn findings_with_a_change_and_a_large_effect_come_first_and_infos_last() {
    let server = Server::start(3, true).ten_seconds();
    let finding = |kind: &str, severity: &str, share: f64, has_patch: bool| {
        let evidence = if share > 0.0 { json!({ "throttledShare": share }) } else { json!({}) };
        let mut finding =
            json!({ "kind": kind, "severity": severity, "evidence": evidence, "windows": 0 });
        if has_patch {
            finding["patch"] = json!({ "spec": {} });
        }
        finding
    };
    let mut findings = vec![
        finding("request-above-use", "info", 0.0, true),
        finding("no-memory-limit", "warning", 0.0, false),
        finding("throttled-by-ancestor", "warning", 0.9, false),
        finding("limit-too-tight-for-bursts", "warning", 0.1, true),
        finding("throttled-by-own-quota", "warning", 0.5, true),
    ];
    findings.extend(vec![finding("heap-limit-unset", "info", 0.0, false)]);
    let mut report = serde_json::to_value(full_report()).unwrap();
    report["workload"] = json!({ "kind": "Deployment", "name": "cart" });
    report["findings"] = findings.into();
    let mut reports = vec![report.clone()];
    // Two more pods of the workload, and nine other containers with one finding each.
    report["findings"] = json!([finding("throttled-by-own-quota", "warning", 0.4, true)]);
    reports.extend(["cart-2", "cart-3"].map(|pod| {
        report["pod"] = pod.into();
        report.clone()
    }));
    report["findings"] = json!([finding("heap-limit-unset", "info", 0.0, false)]);
    reports.extend((1..10).map(|number| {
        report["workload"]["name"] = format!("web-{number}").into();
        report.clone()
    }));
    let answer = json!({ "containers": reports });
    let browser = Browser::borrow();
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for(VICTIMS);
    browser.run(&format!("window.fetch = async () => new Response(JSON.stringify({answer}))"));
    browser.press("f");
    browser.wait_for("document.querySelector('.advice tbody tr')");
    let titles = browser.run(
        "return [...document.querySelectorAll('.advice tbody tr')].map((row) => row.children[1].firstChild.textContent)",
    );
    let expected = [
        "Throttled by its own limit",
        "Limit too tight for bursts",
        "Throttled by a limit above it",
        "No memory limit",
        "Request far above use",
    ];
    assert_eq!(&titles.as_array().unwrap()[..5], &expected.map(Value::from)[..], "{titles}");
    assert_eq!(titles.as_array().unwrap().len(), 12, "a part of them");
    let more = "document.querySelector('[aria-label=Advice] .more')";
    let button = browser.run(&format!("return [{more}.hidden, {more}.textContent]"));
    assert_eq!(button, json!([false, "Show the other 3"]));
    browser.run(&format!("{more}.click()"));
    browser.wait_for("document.querySelectorAll('.advice tbody tr').length == 15");
    assert_eq!(browser.run(&format!("return {more}.hidden")), true);
    let place = "document.querySelector('.advice tbody .sub').textContent";
    let place = browser.run(&format!("return {place}"));
    assert!(place.as_str().unwrap().ends_with(" · 3 pods of Deployment cart"), "{place}");
    browser.run(
        "const input = document.querySelector('[aria-label=Advice] input'); input.value = 'WEB-3 heap'; \
         input.dispatchEvent(new Event('input'))",
    );
    browser.wait_for("document.querySelectorAll('.advice tbody tr').length == 1");
    let note =
        browser.run("return document.querySelector('[aria-label=Advice] .count').textContent");
    let expected = "1 of 15 findings by workload, in 12 of 12 containers";
    assert!(note.as_str().unwrap().starts_with(expected), "{note}");
}

#[test]
fn the_table_can_be_filtered_sorted_and_paused() {
    let server = Server::start(16, true).ten_seconds();
    let browser = Browser::borrow();
    while_time_passes(&server, || {
        browser.open(&format!("http://{}/", server.address));
        browser.wait_for(VICTIMS);
        let sorted = browser.run("return document.querySelector('th[aria-sort]').textContent");
        assert_eq!(sorted, "Last minuteorder: verdict");
        // The selected row is not shown as such before the first key.
        browser.run(
            "window.marks = 0; new MutationObserver((changes) => { window.marks += changes.length; })
                .observe(document.querySelector('tbody tr'), { attributeFilter: ['class'] })",
        );
        let time = "[...document.getElementById('facts').children].find((fact) => fact.title.startsWith('End of')).textContent";
        for _ in 0..2 {
            let now = browser.run(&format!("return {time}"));
            browser.wait_for(&format!("{time} != {now}"));
        }
        assert_eq!(browser.run("return window.marks"), 0);
        browser.press("/");
        browser.run("const i = document.querySelector('input'); i.value = 'POD-15'; i.dispatchEvent(new Event('input'))");
        browser.wait_for("document.querySelectorAll('tbody tr').length == 1");
        browser.run("const i = document.querySelector('input'); i.value = ''; i.dispatchEvent(new Event('input')); i.blur()");
        browser.run("document.querySelector('th button').click()");
        browser.wait_for("document.querySelectorAll('tbody a')[1].textContent == 'pod-1'");
        browser.press("p");
        browser.wait_for("document.getElementById('live').textContent == 'paused'");
        let paused = browser.run(&format!("return {time}"));
        browser.run(
            "window.received = 0; new EventSource('api/v1/stream')
                .addEventListener('frame', () => { window.received += 1; })",
        );
        browser.wait_for("window.received > 4");
        assert_eq!(browser.run(&format!("return {time}")), paused);
        browser.press("p");
        browser.wait_for(&format!("{time} != {paused}"));
    });
}

#[test]
fn a_pause_holds_the_figures_when_other_keys_are_pressed() {
    let server = Server::start(16, true).ten_seconds();
    let browser = Browser::borrow();
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for("document.querySelector('.strip')?.ariaLabel.startsWith('last 10 seconds')");
    browser.press("p");
    browser.run(
        "const stream = new EventSource('api/v1/stream');
        stream.addEventListener('frame', (event) => { window.received = JSON.parse(event.data).atMs; });
        window.figures = () => [...document.querySelectorAll('tbody tr')].map((row) => row.textContent + row.querySelector('.strip').ariaLabel).sort()",
    );
    let figures =
        || browser.run("return [document.querySelector('.count')?.textContent, figures()]");
    let press = |keys: &[&str]| keys.iter().for_each(|key| browser.press(key));
    let victims = figures();
    assert_eq!(victims[0], "16 of 16 containers");
    press(&["a"]);
    browser.wait_for("document.querySelector('[aria-label=Aggressors] tbody tr')");
    let aggressors = figures();
    for second in 11..14 {
        server.second_of(second, 5);
        let at = 1_700_000_000_000 + 1000 * second;
        browser.wait_for(&format!("window.received == {at}"));
    }
    press(&["s"]);
    assert_eq!(figures(), aggressors, "sorted");
    press(&["Escape"]);
    browser.wait_for("document.querySelector('[aria-label=Victims]')");
    assert_eq!(figures(), victims, "another view and back");
    press(&["j", "s"]);
    assert_eq!(figures(), victims, "selected and sorted");
    let filter = |text: &str| {
        browser.run(&format!("const i = document.querySelector('input'); i.value = '{text}'; i.dispatchEvent(new Event('input'))"));
    };
    filter("pod-15");
    assert_eq!(figures()[0], "1 of 16 containers");
    filter("");
    assert_eq!(figures(), victims, "filtered and not filtered");
    let notice = "document.getElementById('notice')";
    press(&["m"]);
    browser
        .wait_for(&format!("{notice}.textContent.includes('The pause does not freeze this view')"));
    press(&["Escape"]);
    browser.wait_for(&format!("{notice}.hidden"));
    press(&["p"]);
    browser.wait_for("document.querySelector('.count').textContent == '5 of 5 containers'");
}

#[test]
fn times_are_in_utc_wherever_the_browser_is() {
    let server = Server::start(3, true).ten_seconds();
    let browser = Browser::borrow();
    browser.set_time_zone("Asia/Tokyo");
    browser.open(&format!("http://{}/#pod/uid-0", server.address));
    browser.wait_for("document.getElementById('facts').textContent.includes('at 22:13:30 UTC')");
    browser.wait_for("document.querySelector('main .ticks span')");
    let ticks =
        "[...document.querySelector('main .ticks').children].map((tick) => tick.textContent)";
    assert_eq!(browser.run(&format!("return {ticks}")), json!(["22:13:25"]));
    // What arrives meanwhile draws the chart again.
    browser.wait_for(
        "(() => {
            const chart = document.querySelector('main .chart');
            const clientX = chart.getBoundingClientRect().right;
            chart.dispatchEvent(new PointerEvent('pointermove', { clientX }));
            return document.querySelector('main').textContent.includes('22:13:30 UTC: used ');
        })()",
    );
}

/// The reason is the chart's value with its command, or the kernel's refusal with the remedy.
#[test]
fn a_page_without_the_trace_says_why_and_what_to_do() {
    let command = "profile=monitor. To see who waits for whom: helm upgrade cpuwarden CHART --namespace cpuwarden \
                   --reset-then-reuse-values --set profile=trace";
    let refused = "not_permitted: add the capabilities BPF and PERFMON, and run as root";
    for (reason, shown) in [(format!("off: {command}"), command), (refused.to_owned(), refused)] {
        let server = Server::start(3, true);
        (0..=10).for_each(|second| server.untraced_second(second, &reason));
        let browser = Browser::borrow();
        browser.open(&format!("http://{}/", server.address));
        browser.wait_for("!document.getElementById('notice').hidden");
        let notice = browser.run("return document.getElementById('notice').textContent");
        assert_eq!(notice, json!(format!("Waits are not traced on this node: {shown}")));
    }
}

#[test]
fn the_page_reconnects_after_the_agent_was_gone() {
    let server = Server::start(3, true).ten_seconds();
    let address = server.address;
    let browser = Browser::borrow();
    while_time_passes(&server, || {
        browser.open(&format!("http://{address}/"));
        browser.wait_for("document.getElementById('live').textContent == 'live'");
    });
    assert!(server.stops_within(Duration::from_secs(10)));
    browser.wait_for("document.getElementById('live').textContent == 'reconnecting'");
    browser.press("p");
    browser.wait_for("document.getElementById('live').textContent == 'paused'");
    browser.press("p");
    // The end of a pause is no new connection.
    assert_eq!(browser.run("return document.getElementById('live').textContent"), "reconnecting");
    let again = Server::start_at(address, 3, true).ten_seconds();
    while_time_passes(&again, || {
        browser.wait_for("document.getElementById('live').textContent == 'live'");
    });
}

#[test]
fn the_page_reports_that_no_data_comes() {
    let server = Server::start(3, true).ten_seconds();
    let browser = Browser::borrow();
    browser.open(&format!("http://{}/", server.address));
    let state = "document.getElementById('live').dataset.state";
    browser.wait_for(&format!("{state} == 'silent'"));
    let text = "document.getElementById('live').textContent";
    browser.wait_for(&format!("/^no data for \\d+ s$/.test({text})"));
    while_time_passes(&server, || browser.wait_for(&format!("{state} == 'live'")));
    // A pause shows old figures on purpose.
    browser.press("p");
    browser.wait_for(&format!("{state} == 'paused'"));
    browser.press("p");
    browser.wait_for(&format!("{state} == 'silent'"));
}

#[test]
fn a_page_that_is_left_ends_its_stream_and_begins_another_on_the_way_back() {
    let server = Server::start(3, true).ten_seconds();
    let browser = Browser::borrow();
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for("document.querySelector('tbody tr')");
    browser.run(
        "setInterval(async () => {
            const { agent } = await (await fetch('api/v1/node')).json();
            window.streams = agent.eventStreams;
        }, 100)",
    );
    browser.wait_for("window.streams === 1");
    // As when the browser keeps the page, which it does not always do.
    let pass = |event| {
        browser.run(&format!(
            "dispatchEvent(new PageTransitionEvent('{event}', {{ persisted: true }}))"
        ));
    };
    pass("pagehide");
    browser.wait_for("window.streams === 0");
    pass("pageshow");
    browser.wait_for("window.streams === 1");
}

#[test]
fn an_opened_page_asks_once_and_lays_out_the_table_as_a_whole() {
    let server = Server::start(100, true).ten_seconds();
    let browser = Browser::borrow();
    browser.devtools("Performance.enable", &json!({}));
    browser.open(&format!("http://{}/", server.address));
    browser.wait_for(
        "performance.getEntriesByType('resource').filter((entry) => entry.name.includes('history')).length == 2",
    );
    browser.wait_for("document.querySelector('.plot .ticks')");
    let count = |part: &str| browser.requests().iter().filter(|url| url.contains(part)).count();
    assert_eq!(count("/api/v1/overview"), 1);
    let metrics = browser.devtools("Performance.getMetrics", &json!({}))["metrics"].clone();
    let of = |metric: &&Value| metric["name"] == "LayoutCount";
    let layouts = metrics.as_array().unwrap().iter().find(of).unwrap()["value"].as_f64().unwrap();
    // Sixty rows are shown.
    assert!(layouts < 40.0, "{layouts}");
    browser.devtools("Performance.disable", &json!({}));
}
