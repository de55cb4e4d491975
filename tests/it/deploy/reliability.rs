//! The fault table: tests cover each row, and each named test exists.

use std::path::Path;

use super::read;

/// Cells of each row of the tables.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.contains("::"));
    rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

#[test]
fn every_row_of_the_fault_table_is_held_by_tests_that_exist() {
    let text = read("docs/reliability.md");
    let rows = rows(&text);
    assert!(rows.len() > 35, "{} rows", rows.len());
    for row in &rows {
        assert_eq!(row.len(), 4, "{row:?}");
        let tests: Vec<_> = row[3].split('`').filter_map(|name| name.split_once("::")).collect();
        assert!(!tests.is_empty(), "{row:?}");
        for (file, test) in tests {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
            let source = std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{file}: {error}, of {row:?}"));
            assert!(
                source.contains(&format!("fn {test}(")),
                "no test {test} in {file}, of {row:?}"
            );
        }
    }
    // The figures at the end are not about faults.
    let (faults, _) = text.split_once("## Under floods").unwrap();
    let held_by_nothing = faults.lines().find(|line| {
        line.starts_with("| ") && !line.starts_with("| fault |") && !line.contains("::")
    });
    assert_eq!(held_by_nothing, None);
}
