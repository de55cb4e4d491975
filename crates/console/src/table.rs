//! Plain tables for the terminal.

use std::ops::Range;

/// Renders rows with columns aligned left, two spaces apart.
#[must_use]
pub fn render(rows: &[Vec<String>]) -> String {
    render_with(rows, 0..0)
}

/// Same as [`render`], with the columns in `right` aligned right.
#[must_use]
pub fn render_with(rows: &[Vec<String>], right: Range<usize>) -> String {
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

/// Same as [`render_with`], at most `width` columns wide: of the first two columns, the wider one
/// is cut in the middle.
#[must_use]
pub fn render_within(rows: &[Vec<String>], right: Range<usize>, width: usize) -> String {
    let mut rows = rows.to_vec();
    loop {
        let text = render_with(&rows, right.clone());
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let length = |column: usize| {
            rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
        };
        let Some((longest, column)) = [0, 1].map(|at| (length(at), at)).into_iter().max() else {
            return text;
        };
        let least = longest.unwrap_or(0).saturating_sub(1);
        if widest <= width || least < MIN_CELL {
            return text;
        }
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            *cell = shortened(cell, least);
        }
    }
}

/// Least width to which a cell is cut.
const MIN_CELL: usize = 6;

/// Text of at most this length: names of pods differ at both ends.
fn shortened(text: &str, most: usize) -> String {
    let parts: Vec<char> = text.chars().filter(|char| *char != '…').collect();
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let tail = (most - 1) / 2;
    let (head, tail) = (&parts[..most - 1 - tail], &parts[parts.len() - tail..]);
    head.iter().chain(['…'].iter()).chain(tail).collect()
}

/// Splits a text into lines of at most `width` columns, between words.
#[must_use]
pub fn wrap(text: &str, width: usize) -> String {
    let mut lines = String::new();
    let mut length = 0;
    for word in text.split(' ') {
        let more = word.chars().count();
        if length > 0 && length + 1 + more > width {
            lines.push('\n');
            length = 0;
        } else if length > 0 {
            lines.push(' ');
            length += 1;
        }
        lines.push_str(word);
        length += more;
    }
    lines + "\n"
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
    fn a_row_may_have_more_cells_than_the_others() {
        let rows = [vec!["a".to_owned()], vec!["b".to_owned(), "c".to_owned()]];
        assert_eq!(render(&rows), "a\nb  c\n");
    }

    #[test]
    fn a_table_that_is_too_wide_loses_the_middle_of_its_names() {
        let rows = [["POD", "CONTAINER", "CPUS"], ["shop/checkout-7d9f8b6c5d-x2x4v", "main", "0"]]
            .map(|row| row.map(str::to_owned).to_vec());
        let text = render_within(&rows, 2..3, 30);
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        assert!(text.contains("shop/c") && text.contains("2x4v"), "{text}");
        assert_eq!(render_within(&rows, 2..3, 80), render_with(&rows, 2..3));
        assert!(render_within(&rows, 2..3, 3).contains("sho"), "as narrow as it gets");
    }

    #[test]
    fn long_texts_are_wrapped_between_words() {
        assert_eq!(wrap("one two  three", 8), "one two \nthree\n");
        assert_eq!(wrap("", 8), "\n");
    }

    #[test]
    fn columns_of_numbers_are_aligned_right() {
        assert_eq!(render_with(&rows(), 1..2), "POD          CPUS  BY\na/long-name     0  own\n");
    }
}
