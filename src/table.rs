//! Plain tables for the terminal.

use std::ops::Range;

/// Renders rows with columns aligned left, two spaces apart.
pub(crate) fn render(rows: &[Vec<String>]) -> String {
    render_with(rows, 0..0)
}

/// Same as [`render`], with the columns in `right` aligned right.
pub(crate) fn render_with(rows: &[Vec<String>], right: Range<usize>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match right
            .contains(&column)
        {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> [Vec<String>; 2] {
        [["POD", "CPUS", "BY"], ["a/long-name", "0", "own"]]
            .map(|row| row.map(str::to_owned).to_vec())
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        assert_eq!(render(&rows()), "POD          CPUS  BY\na/long-name  0     own\n");
    }

    #[test]
    fn columns_of_numbers_are_aligned_right() {
        assert_eq!(render_with(&rows(), 1..2), "POD          CPUS  BY\na/long-name     0  own\n");
    }
}
