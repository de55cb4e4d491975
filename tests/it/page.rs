//! The page in headless Chromium under the demo's load. With `CPUWARDEN_SCREENSHOTS=DIR` it also
//! writes the pictures of deploy/docs, and those of the terminal; that of the topology, `sockets`, is
//! from crates/endpoint/tests/ui/look.rs.

#[allow(dead_code, reason = "of the driver, this uses a part")]
#[path = "../../crates/endpoint/tests/ui/browser.rs"]
pub(crate) mod browser;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    Agent, Kubelet, Qos, RealTree, Workload, binary, eventually, http, pod_list, poll, running_pod,
};
use crate::terminal;
use browser::Browser;

/// A name that would become markup if it were ever treated as HTML.
const HOSTILE: &str = "<img src=x onerror=alert(1)>\"'&";

/// Cgroup of the demo's spinner: UID of its pod, and id of its container.
const SPINNER: (&str, &str) = (
    "de300000-0000-4000-8000-000000000001",
    "0000000000000000000000000000000000000000000000000000000000000001",
);

/// Key, name and content of the views of the whole node.
const VIEWS: [(&str, &str, &str); 4] = [
    ("m", "matrix", ".matrix td"),
    ("t", "topology", ".cpu"),
    ("a", "aggressors", "[aria-label=Aggressors] td"),
    ("f", "advice", "[aria-label=Advice] .count:not(:empty)"),
];

/// Largest height of a picture, pixels.
const TALLEST: u32 = 1250;

/// A running demo, which removes its cgroups at its end.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// A browser beside a running demo.
///
/// The demo's workloads have the highest weight. Browser and agents have it too: with less, they
/// would starve beside them on a busy machine.
struct Scene {
    browser: Browser,
    demo: Demo,
    /// Address of the demo's own agent.
    address: SocketAddr,
    tree: RealTree,
}

impl Scene {
    fn new() -> Self {
        let tree = RealTree::new();
        let mut driver = tree.above().child("browser").command("chromedriver");
        driver.stdin(Stdio::null());
        let browser = Browser::start(driver);
        browser.look(1280, 800, "light");
        let address = http::free_address();
        let mut demo = tree.above().child("demo").command(binary());
        demo.args(["demo", "--duration=20m", "--listen", &address.to_string()]);
        let demo = Demo(demo.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
        wait_for_data(address);
        Self { browser, demo, address, tree }
    }

    /// The demo's root for pods, relative to the cgroup hierarchies.
    fn kubepods(&self) -> String {
        format!("cpuwarden-demo-{}/kubepods", self.demo.0.id())
    }

    /// Checks that the page has loaded only from this origin and that its console is empty.
    fn assert_quiet(&self, origin: &str) {
        let console = self.browser.console();
        assert!(console.is_empty(), "{console:#?}");
        let requests = self.browser.requests();
        assert!(requests.len() > 5, "{requests:?}");
        let foreign: Vec<_> = requests.iter().filter(|url| !url.starts_with(origin)).collect();
        assert!(foreign.is_empty(), "{foreign:?}");
    }

    /// Writes pictures of the current view.
    fn screenshot(&self, name: &str) {
        let Some(directory) = pictures() else { return };
        for (width, size) in [(1280, "wide"), (390, "phone")] {
            for scheme in ["light", "dark"] {
                self.browser.look(width, 800, scheme);
                // Some frames are drawn in the new size and colors.
                std::thread::sleep(Duration::from_millis(2500));
                // A picture ends below a row, not inside it.
                let height = self.browser.run(&format!(
                    "scrollTo(0, 0);
                    const rows = [...document.querySelectorAll('main .tools, main .legend, main .card, main .socket, main tr')].map((row) => row.getBoundingClientRect());
                    const isInside = (end) => rows.some((row) => row.top < end - 1 && row.bottom > end + 1);
                    const ends = rows.map((row) => row.bottom).filter((end) => end <= {TALLEST} && !isInside(end));
                    return Math.ceil(Math.max(...ends))"
                ));
                let height = u32::try_from(height.as_u64().unwrap()).unwrap();
                self.browser.look(width, height, scheme);
                std::thread::sleep(Duration::from_millis(500));
                self.browser.screenshot(&directory.join(format!("{name}-{size}-{scheme}.png")));
            }
        }
        self.browser.look(1280, 800, "light");
    }
}

/// Directory of the pictures, if any are wanted.
fn pictures() -> Option<PathBuf> {
    std::env::var_os("CPUWARDEN_SCREENSHOTS").map(PathBuf::from)
}

/// Waits until the spinner has a recommended limit, which needs five minutes of history.
fn wait_for_a_change(address: SocketAddr) {
    let path = format!("/api/v1/pods/{}", SPINNER.0);
    let has_change =
        || http::get(address, &path).is_ok_and(|(_, answer)| answer.contains("\"patchCommand\""));
    let (every, limit) = (Duration::from_secs(1), Duration::from_secs(600));
    poll(every, limit, || "a recommended limit".to_owned(), has_change);
}

fn wait_for_data(address: SocketAddr) {
    eventually("the first second", || {
        http::get(address, "/api/v1/frame").is_ok_and(|(status, _)| status == 200)
    });
}

/// The row of a pod, as an expression.
fn row(pod: &str) -> String {
    let pod = Value::from(pod);
    format!(
        "[...document.querySelectorAll('tbody tr')].find((row) => row.querySelector('a').textContent == {pod})"
    )
}

/// A figure of the card with this title, as an expression: the number that follows `label`.
fn figure(card: &str, label: &str) -> String {
    format!(
        "Number(/{label} (\\d+)/.exec([...document.querySelectorAll('.card')].find((card) => card.querySelector('h2').textContent == '{card}')?.textContent)?.[1])"
    )
}

#[test]
fn the_page_shows_the_cause_and_names_as_text_under_load() {
    let scene = Scene::new();
    assert_the_spinner_loses_most_by_its_own_limit(&scene);
    assert_a_hostile_name_and_annotation_are_text(&scene);
}

fn assert_the_spinner_loses_most_by_its_own_limit(scene: &Scene) {
    let browser = &scene.browser;
    let origin = format!("http://{}/", scene.address);
    if pictures().is_some() {
        wait_for_a_change(scene.address);
    }
    browser.open(&origin);
    // On a busy machine a service that really waits for others comes first, and this one waits for
    // them too.
    let cause = format!("{}?.textContent", row("checkout"));
    browser.wait_for(&format!("/its own limit|several/.test({cause})"));
    let strip = format!("{}.querySelector('.strip').ariaLabel", row("checkout"));
    browser.wait_for(&format!("{strip}.includes('of the time')"));
    let first = browser.run(&format!("return {strip}"));
    browser.wait_for(&format!("{strip} != {first}"));
    scene.screenshot("victims");
    // A busy kernel may end a period late, so that single seconds are throttled less.
    browser.run(&format!("{}.querySelector('a').click()", row("checkout")));
    browser.wait_for("document.querySelector('h1')?.textContent == 'checkout'");
    let (own, share) =
        (figure("Throttled", "by its own limit"), figure("Throttled", "of the time"));
    // On a busy machine it waits for others meanwhile, which leaves less of its quota to wait for.
    let others = ["others", "system"].map(|cause| figure("Waited", cause));
    let all = format!("{own} + ({} || 0) + ({} || 0) > 50", others[0], others[1]);
    browser.wait_for(&format!("{share} > 50 && {own} > 0 && {all}"));
    // Only its container has a limit.
    browser.wait_for(&format!("!({} > 5)", figure("Throttled", "by a limit above")));
    let line = "document.querySelector('.chart path.c-own.line').getAttribute('d')";
    let before = browser.run(&format!("return {line}"));
    browser.wait_for(&format!("{line} != {before}"));
    scene.screenshot("pod");
    for (key, view, content) in VIEWS {
        browser.press(key);
        browser.wait_for(&format!("document.querySelector('{content}')"));
        scene.screenshot(view);
    }
    scene.assert_quiet(&origin);
    if let Some(directory) = pictures() {
        terminal::picture::write(browser, scene.address, &directory);
    }
}

#[test]
fn the_answer_for_a_pod_has_the_command_that_advise_prints() {
    let tree = RealTree::beside_others();
    let (uid, id) = SPINNER;
    let container = tree.pod(Qos::Burstable, uid).child(id);
    container.set_quota_usec(10_000, 100_000);
    container.set_memory_limit_bytes(64 << 20);
    let _running = container.spawn(&Workload::Spin { threads: 1 });
    let mut pod = running_pod(uid, "shop", "checkout-0", id);
    pod["metadata"]["ownerReferences"] =
        json!([{ "kind": "StatefulSet", "name": "checkout", "controller": true }]);
    let kubelet = Kubelet::start(pod_list(&[pod]));
    let mut flags = kubelet.flags();
    let kubepods = tree.kubepods().path().display();
    flags.extend([format!("--kubepods={kubepods}"), "--sched-trace=off".to_owned()]);
    let agent = Agent::start_in(&tree.above().child("agent"), &flags);
    let address = agent.address();
    wait_for_data(address);
    let printed = || {
        let advise = Command::new(binary())
            .args(["advise", "--address", &address.to_string()])
            .output()
            .unwrap();
        let text = String::from_utf8(advise.stdout).unwrap();
        let command = text.lines().find(|line| line.trim().starts_with("kubectl"));
        command.map(|line| line.trim().to_owned())
    };
    eventually("a command", || printed().is_some());
    // Another finding may appear between the two requests.
    eventually("the same command in the answer", || {
        let (_, answer) = agent.get(&format!("/api/v1/pods/{uid}"));
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let command = answer["patchCommand"].as_str().map(str::to_owned);
        command.is_some() && command == printed()
    });
    assert!(printed().unwrap().starts_with("kubectl --namespace shop patch statefulset checkout "));
}

/// The demo's spinner, with a name, a QoS class, an owner and annotations that look like markup.
fn hostile_pod() -> Value {
    let (uid, id) = SPINNER;
    let mut pod = running_pod(uid, "shop", HOSTILE, id);
    pod["metadata"]["labels"] = json!({ "koordinator.sh/qosClass": HOSTILE });
    pod["metadata"]["annotations"] = json!({
        "scheduling.koordinator.sh/resource-spec": HOSTILE,
        "cpuwarden.io/inject-env": HOSTILE,
    });
    pod["metadata"]["ownerReferences"] =
        json!([{ "kind": "StatefulSet", "name": HOSTILE, "controller": true }]);
    pod
}

/// On the page of another agent for the demo's cgroups.
fn assert_a_hostile_name_and_annotation_are_text(scene: &Scene) {
    let kubelet = Kubelet::start(pod_list(&[hostile_pod()]));
    let mut flags = kubelet.flags();
    flags.extend([format!("--kubepods={}", scene.kubepods()), "--pinning=observe".to_owned()]);
    let agent = Agent::start_in(&scene.tree.above().child("agent"), &flags);
    wait_for_data(agent.address());
    let browser = &scene.browser;
    // The page of the demo may ask for data until then.
    browser.open("about:blank");
    browser.requests();
    let origin = format!("http://{}/", agent.address());
    browser.open(&origin);
    let row = row(HOSTILE);
    browser.wait_for(&row);
    let assert_no_markup = || {
        let images = browser.run("return document.querySelectorAll('main img').length");
        assert_eq!(images, 0);
    };
    assert_no_markup();
    browser.run(&format!("{row}.querySelector('a').click()"));
    let title = "document.querySelector('h1')?.textContent";
    browser.wait_for(&format!("{title} == {}", Value::from(HOSTILE)));
    assert_eq!(browser.run("return document.querySelectorAll('.tag')[1].textContent"), HOSTILE);
    browser.wait_for(&format!("{} > 50", figure("Throttled", "of the time")));
    assert_no_markup();
    for (key, _, content) in VIEWS {
        browser.press(key);
        browser.wait_for(&format!("document.querySelector('{content}')"));
        assert_no_markup();
    }
    scene.assert_quiet(&origin);
}
