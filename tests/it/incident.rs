//! The incident through every surface: `shop/checkout` is slowed, and `batch/report` is the cause. The
//! recording is of the real agent (`tests/fixtures/incident`); alerts and boards are tested in
//! `deploy::prometheus::incident`, metrics, Event and finding on real cgroups in `kernel::contention`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::page::browser::Browser;
use crate::recording::replay_page;
use crate::support::http::{get, serve};
use crate::support::{binary, write_program};
use crate::terminal::Tmux;

const RECORDING: &str = "incident.cpuwarden";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/incident").join(name)
}

/// A file of the incident.
pub(crate) fn saved(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap()
}

/// Standard output of a program, which must succeed.
fn text(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn assert_first_row(table: &str) {
    let first = table.lines().skip_while(|line| !line.contains("LAST MINUTE")).nth(1).unwrap();
    let first = first.trim_start_matches('>').trim_start();
    assert!(first.starts_with("N shop/checkout") && first.contains(" batch/report "), "{table}");
}

/// Checks the verdict about the first victim.
#[track_caller]
fn assert_verdict(verdict: &Value) {
    let summary = verdict["summary"].as_str().unwrap();
    assert!(summary.starts_with("slowed ×") && summary.contains(" by batch/report,"), "{verdict}");
    assert_eq!((&verdict["reason"], &verdict["cause"]), (&"neighbor".into(), &"one".into()));
}

#[test]
fn the_headline_of_a_replay_and_of_top_names_the_victim_and_its_cause() {
    let recording = path(RECORDING);
    let (_replay, address) = replay_page(&recording, &[]);
    let commands = [format!("replay {}", recording.display()), format!("top --address {address}")];
    for (width, command) in [(80, &commands[0]), (200, &commands[0]), (200, &commands[1])] {
        let tmux = Tmux::start(width, 24);
        tmux.keys(&[&format!("{} {command}", binary().display()), "Enter"]);
        tmux.wait_for("q quit");
        tmux.keys(&["$"]);
        let screen = tmux.wait_for("shop/checkout: slowed ");
        // Wrapped at 80 columns.
        let words = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(" by batch/report,"), "{screen}");
        assert_first_row(&screen);
    }
}

#[test]
fn the_page_and_the_json_name_the_victim_and_its_cause() {
    let mut replay = Command::new(binary());
    let frames = text(replay.arg("replay").arg(path(RECORDING)).arg("--output=json"));
    let last: Value = serde_json::from_str(frames.lines().last().unwrap()).unwrap();
    let (_replay, address) = replay_page(&path(RECORDING), &[]);
    let served =
        |path: &str| -> Value { serde_json::from_str(&get(address, path).unwrap().1).unwrap() };
    for frame in [last, served("/api/v1/frame")] {
        assert_eq!(frame["verdicts"][0]["victim"], json!({"namespace": "shop", "pod": "checkout"}));
        assert_verdict(&frame["verdicts"][0]);
    }
    let pods = served("/api/v1/pods");
    let checkout = pods["pods"].as_array().unwrap().iter().find(|pod| pod["pod"] == "checkout");
    assert_verdict(&checkout.unwrap()["verdict"]);
}

/// In Chromium: the headline, the order of the rows, the cause in the first, and the pod's view.
#[test]
fn the_page_in_a_browser_names_the_victim_and_its_cause() {
    let (_replay, address) = replay_page(&path(RECORDING), &[]);
    let browser = Browser::borrow();
    browser.open(&format!("http://{address}/"));
    let text = |selector: &str| format!("document.querySelector('{selector}')?.textContent");
    let row = "[aria-label=Victims] tbody tr";
    let headline = format!(
        r"/^shop\/checkout is slowed (×[\d.]+) by batch\/report, (\d+ s of the last minute)$/.exec({})",
        text(".headline")
    );
    browser.wait_for(&headline);
    let said = browser.run(&format!("return {headline}"));
    let [factor, seconds] = [1, 2].map(|group| said[group].as_str().unwrap().to_owned());
    let names =
        format!("[...document.querySelectorAll('{row} a')].map((name) => name.textContent)");
    browser.wait_for(&format!("{names}.join() == 'checkout,cart,report'"));
    let cause = format!("batch/report{factor} · {seconds}");
    browser.wait_for(&format!("{} == '{cause}'", text(&format!("{row} td.by"))));
    browser.run(&format!("document.querySelector('{row} a').click()"));
    browser.wait_for(&format!("{} == 'checkout'", text("h1")));
    let verdict = format!("Slowed {factor} by batch/report, {seconds}. ");
    browser.wait_for(&format!("{}?.startsWith('{verdict}')", text("p.verdict")));
}

/// A kubectl of one node, whose agent has this address, and the plugin.
fn plugin(directory: &Path, address: std::net::SocketAddr) -> impl Fn(&[&str]) -> String {
    let pod = json!({
        "kind": "Pod",
        "metadata": { "namespace": "shop", "name": "checkout" },
        "spec": { "nodeName": "node-1" },
        "status": { "phase": "Running" },
    });
    let agent = json!({
        "metadata": { "namespace": "cpuwarden", "name": "agent" },
        "spec": {
            "nodeName": "node-1",
            "containers": [{ "ports": [{ "name": "metrics", "containerPort": 9753 }] }],
        },
        "status": { "phase": "Running" },
    });
    let script = format!(
        "#!/bin/sh
case \"$*\" in
*'get --output=json pod/checkout'*) echo '{pod}' ;;
*'get --output=json pods --namespace cpuwarden '*) echo '{}' ;;
*port-forward*) echo 'Forwarding from {address} -> 9753'; exec sleep 600 ;;
esac
",
        json!({ "items": [agent] })
    );
    let (kubectl, plugin) = (directory.join("kubectl"), directory.join("kubectl-cpuwarden"));
    write_program(&kubectl, script.as_bytes());
    symlink(binary(), &plugin).unwrap();
    move |args: &[&str]| text(Command::new(&plugin).args(args).arg("--kubectl").arg(&kubectl))
}

#[test]
fn advice_and_the_plugin_name_the_victim_and_its_cause() {
    let agent = serve(|_| saved("advice.json"));
    let mut advise = Command::new(binary());
    advise.args(["advise", "--address", &agent.to_string()]);
    let directories = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let of_plugin = plugin(directories[0].path(), agent)(&["advise", "checkout", "-n", "shop"]);
    for advice in [text(&mut advise), of_plugin] {
        let checkout = advice.split("shop/checkout").nth(1).unwrap();
        let finding = checkout.lines().find(|line| line.contains("slowed-by-others")).unwrap();
        assert!(finding.contains(" by batch/report,"), "{advice}");
    }
    let (_replay, address) = replay_page(&path(RECORDING), &[]);
    let top = plugin(directories[1].path(), address)(&["top", "checkout", "-n", "shop", "--once"]);
    assert_first_row(&top);
}
