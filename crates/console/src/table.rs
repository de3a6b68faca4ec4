// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Columns for people.

/// Rows of cells that line up when printed. The last column is never padded.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
    right: &'static [usize],
}

impl Table {
    /// An empty table; the columns in `right` (by index) are right-aligned.
    pub fn new(right: &'static [usize]) -> Self {
        Self { rows: Vec::new(), right }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a row of plain words, such as the heading.
    pub fn heading<'a>(&mut self, cells: impl IntoIterator<Item = &'a str>) {
        self.row(cells.into_iter().map(String::from));
    }

    /// The lines.
    pub fn lines(&self) -> Vec<String> {
        let column_count = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|c| c.chars().count()).max()
        };
        let widths: Vec<_> = (0..column_count).map(|column| width(column).unwrap_or(0)).collect();
        self.rows.iter().map(|row| self.format(row, &widths)).collect()
    }

    fn format(&self, row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths[column];
            let separator = if column == 0 { "" } else { "  " };
            line.push_str(separator);
            if self.right.contains(&column) {
                line.push_str(&format!("{cell:>width$}"));
            } else {
                line.push_str(&format!("{cell:<width$}"));
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[1]);
        table.heading(["tier", "used"]);
        table.row(["fast".into(), "1.00 GB".into()]);
        assert_eq!(table.lines(), ["tier     used", "fast  1.00 GB"]);
    }
}
