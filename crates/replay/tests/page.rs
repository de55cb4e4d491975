//! The page on a recording, in a real browser.

#![allow(clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "of the driver, this uses a part")]
#[path = "../../endpoint/tests/ui/browser.rs"]
mod browser;

use api::{ContainerFrame, CpuFrame, Frame};
use browser::Browser;
use replay::Page;
use timeline::recording::{self, Origin, Recording};

/// 2026-11-22T03:00:00Z.
const THREE: u64 = 1_795_316_400_000;

fn frame(second: u64) -> Frame {
    let row = ContainerFrame {
        namespace: "shop".to_owned(),
        pod: "checkout".to_owned(),
        uid: "uid-1".to_owned(),
        ..ContainerFrame::default()
    };
    let mut frame = Frame {
        at_ms: THREE + second * 1000,
        seconds: 1.0,
        containers: vec![row],
        ..Frame::default()
    };
    frame.node.cpus = (0..2).map(|cpu| CpuFrame { cpu, ..CpuFrame::default() }).collect();
    frame
}

#[test]
fn the_page_says_that_it_is_a_recording_and_what_that_does_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording");
    let frames: Vec<Frame> = (0..60).map(frame).collect();
    std::fs::write(&path, recording::encode(&frames, &Origin::default()).unwrap()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let recording = Recording::open(&path).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let page = runtime.block_on(async { Page::start(recording, THREE + 59_000, address).unwrap() });

    let browser = Browser::borrow();
    browser.look(360, 800, "light");
    browser.open(&format!("http://{}/", page.address()));
    let state = |text: &str| {
        browser.wait_for(&format!("document.getElementById('live').textContent == '{text}'"));
    };
    state("recording 2026-11-22 03:00:59 UTC");
    browser.wait_for(
        "document.getElementById('facts').textContent.includes('at 2026-11-22 03:00:59 UTC')",
    );
    browser.press("p");
    state("paused, recording 2026-11-22 03:00:59 UTC");
    let is_wide = "return document.documentElement.scrollWidth > innerWidth";
    assert_eq!(browser.run(is_wide), false, "wider than the screen of a phone");
    // After the last second, no more come.
    browser.run("const now = performance.now(); performance.now = () => now + 60000");
    browser.press("p");
    state("recording 2026-11-22 03:00:59 UTC");

    let shown = |text: &str| {
        browser.wait_for(&format!("document.querySelector('main').textContent.includes('{text}')"));
    };
    browser.press("t");
    shown("The owners of CPUs are not known");
    let owned = "return document.querySelectorAll('.cpu:not(.o-0)').length";
    assert_eq!(browser.run(owned), 0);
    let no_findings = "A recording has no findings.";
    let text = "return document.querySelector('main').innerText.trim()";
    browser.press("f");
    shown(no_findings);
    assert_eq!(browser.run(text), format!("Advice\n\n{no_findings}"));
    browser.run("location.hash = 'pod/uid-1'");
    shown(no_findings);
    assert!(!browser.run(text).as_str().unwrap().contains("Nothing to change"));
    assert!(browser.console().is_empty(), "{:?}", browser.console());
    runtime.block_on(page.stop());
}
