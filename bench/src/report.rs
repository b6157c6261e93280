//! Tables in Markdown and their statistics.

use std::fmt::Write as _;

/// Returns the value at the quantile `share` (0 to 1) of `values`; NaN if `values` is empty.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Formats the median with the minimum and the maximum.
pub(crate) fn format_median(values: &[f64], digits: usize) -> String {
    match values {
        [] => "–".to_owned(),
        [value] => format!("{value:.digits$}"),
        values => {
            let (min, median, max) =
                (quantile(values, 0.0), quantile(values, 0.5), quantile(values, 1.0));
            format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
        }
    }
}

/// A Markdown table with aligned columns.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    pub(crate) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::from("|");
            for column in 0..columns {
                let cell = row.get(column).map_or("", String::as_str);
                write!(line, " {cell:<width$} |", width = width(column))?;
            }
            writeln!(f, "{line}")?;
            if number == 0 {
                writeln!(f, "|{}", "---|".repeat(columns))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_formatted_with_minimum_and_maximum() {
        assert_eq!(format_median(&[3.0, 1.0, 2.0], 1), "2.0 (1.0–3.0)");
        assert_eq!(format_median(&[1.25], 2), "1.25");
        assert!(quantile(&[], 0.5).is_nan());
    }
}
