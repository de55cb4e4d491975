//! The fault table: tests cover each row, and each named test exists.

use std::path::Path;

use super::read;

/// Cells of each row of the tables, without the rows of headings.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| fault |"));
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn every_fault_has_tests_that_exist() {
    let (page, tests) = (read("docs/reliability.md"), read("evidence/reliability.md"));
    let (faults, tests) = (rows(&page), rows(&tests));
    assert!(faults.len() > 35, "{} rows", faults.len());
    let first = |rows: &[Vec<&str>]| rows.iter().map(|row| row[0].to_owned()).collect::<Vec<_>>();
    assert_eq!(first(&faults), first(&tests), "rows of docs and of evidence");
    for row in &faults {
        assert!(row.len() == 3 && row.iter().all(|cell| !cell.is_empty()), "{row:?}");
    }
    for row in &tests {
        assert_eq!(row.len(), 2, "{row:?}");
        let named: Vec<_> = row[1].split('`').filter_map(|name| name.split_once("::")).collect();
        assert!(!named.is_empty(), "{row:?}");
        for (file, test) in named {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            let source = std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{file}: {error}, of {row:?}"));
            assert!(
                source.contains(&format!("fn {test}(")),
                "no test {test} in {file}, of {row:?}"
            );
        }
    }
}
