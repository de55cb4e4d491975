//! Plain tables for the terminal.

/// Renders rows with aligned columns, two spaces apart.
pub(super) fn render(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let rows = [["POD", "CPUS"], ["a/long-name", "0"]].map(|row| row.map(str::to_owned).to_vec());
    assert_eq!(render(&rows), "POD          CPUS\na/long-name  0\n");
}
