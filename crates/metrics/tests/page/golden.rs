//! Golden pages of the maximal snapshot. `UPDATE_GOLDEN=1` rewrites them; review the difference.

use metrics::{Exposition, Format};

use crate::{NO_CAP, snapshots};

fn check(format: Format, file: &str) {
    let mut exposition = Exposition::new(NO_CAP);
    check_page(exposition.render(&snapshots::maximal(), &snapshots::agent(), format), file);
}

fn check_page(page: &[u8], file: &str) {
    let path = format!("{}/tests/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, page).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let page = std::str::from_utf8(page).expect("a page is UTF-8");
    for (n, (line, expected)) in page.lines().zip(golden.lines()).enumerate() {
        assert_eq!(line, expected, "{file}:{}", n + 1);
    }
    assert_eq!(page.lines().count(), golden.lines().count(), "{file}");
}

#[test]
fn the_text_page_is_golden() {
    check(Format::Text, "maximal.txt");
}

#[test]
fn the_cadvisor_page_is_golden_without_exited_containers() {
    let mut exposition = Exposition::new(NO_CAP);
    let page = exposition.render_cadvisor(&snapshots::maximal(), &snapshots::agent(), Format::Text);
    assert!(!String::from_utf8_lossy(page).contains("container=\"gone\""));
    check_page(page, "cadvisor.txt");
}

#[test]
fn the_openmetrics_page_is_golden() {
    check(Format::OpenMetrics, "maximal.openmetrics.txt");
}
