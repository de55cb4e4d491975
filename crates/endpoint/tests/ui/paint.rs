//! A measurement: how long the page of a full node takes to appear.

use serde_json::json;

use crate::browser::Browser;
use crate::support::Server;

const PODS: u64 = 250;
const TIMES: usize = 15;

/// Notes when the table has its first row, milliseconds from the start of the navigation.
const WATCH: &str = "new MutationObserver((_, observer) => {
    if (!document.querySelector('tbody tr')) return;
    window.rowsAt = performance.now();
    observer.disconnect();
}).observe(document, { childList: true, subtree: true })";

/// Whether what the page asks for at first was answered: in the meantime, server and page would slow
/// down the next opening.
const SETTLED: &str = "performance.getEntriesByType('resource').filter((entry) => /history|overview/.test(entry.name)).length >= 3";

/// Prints the median and the longest time to the first paint and to the first row of the table, and
/// the bytes on the wire until then: ten minutes of 250 pods, nothing cached, after a first opening.
#[test]
#[ignore = "a measurement, for benches/README.md"]
fn first_paint_of_250_pods() {
    let server = Server::start(PODS, true);
    (0..=600).for_each(|second| server.second(second));
    let browser = Browser::borrow();
    browser.look(1280, 800, "light");
    browser.devtools("Network.enable", &json!({}));
    browser.devtools("Network.setCacheDisabled", &json!({ "cacheDisabled": true }));
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": WATCH }));
    let mut columns: [Vec<f64>; 3] = Default::default();
    for opening in 0..=TIMES {
        browser.open("about:blank");
        browser.open(&format!("http://{}/", server.address));
        let paint = "performance.getEntriesByName('first-contentful-paint')[0]";
        browser.wait_for(&format!("window.rowsAt && {paint}"));
        let found = browser.run(&format!(
            "const bytes = performance.getEntries().filter((entry) => entry.responseEnd && entry.responseEnd <= rowsAt)
                .reduce((sum, entry) => sum + entry.transferSize, 0);
             return [{paint}.startTime, rowsAt, bytes / 1000]"
        ));
        browser.wait_for(SETTLED);
        if opening == 0 {
            continue;
        }
        for (at, column) in columns.iter_mut().enumerate() {
            column.push(found[at].as_f64().unwrap());
        }
    }
    for (what, mut values) in
        ["first paint, ms", "first row, ms", "on the wire until then, KB"].into_iter().zip(columns)
    {
        values.sort_by(f64::total_cmp);
        println!("{what}: median {:.0}, longest {:.0}", values[TIMES / 2], values[TIMES - 1]);
    }
}
