//! Styled lines that wrap to any width and contain no control characters.

use crate::cli::terminal::{ColorMode, Style, escape_unsafe};
use std::ops::Range;
use unicode_width::UnicodeWidthChar as _;

/// A line, which may need several rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct StyledLine {
    indent: usize,
    parts: Vec<(Option<Style>, String)>,
    rows_max: Option<usize>,
}

impl StyledLine {
    /// Creates an empty line with an indent.
    pub(super) fn with_indent(indent: usize) -> Self {
        Self { indent, ..Self::default() }
    }

    /// Appends `text`, escaped.
    pub(super) fn text(self, text: &str) -> Self {
        self.part(None, text)
    }

    /// Appends `text` in a style, escaped.
    pub(super) fn styled(self, style: Style, text: &str) -> Self {
        self.part(Some(style), text)
    }

    /// Limits the number of rows.
    pub(super) fn rows_max(mut self, rows: usize) -> Self {
        self.rows_max = Some(rows);
        self
    }

    fn part(mut self, style: Option<Style>, text: &str) -> Self {
        self.parts.push((style, escape_unsafe(text)));
        self
    }

    /// Wraps the line into rows of at most `columns` columns; further rows are indented more.
    pub(super) fn wrap_rows(&self, columns: usize, paint: ColorMode) -> Vec<String> {
        let cells: Vec<(char, Option<Style>)> =
            self.parts.iter().flat_map(|(style, text)| text.chars().map(|c| (c, *style))).collect();
        let letters: Vec<char> = cells.iter().map(|(letter, _)| *letter).collect();
        // Narrow terminals have no room for indentation.
        let indent = if columns < 30 { self.indent.min(1) } else { self.indent };
        let further_indent = indent + if columns < 30 { 0 } else { 2 };
        let first_columns = columns.saturating_sub(indent);
        let further_columns = columns.saturating_sub(further_indent);
        let mut ranges = wrap(&letters, first_columns, further_columns, WrapMode::Complete);
        let cut = self.rows_max.is_some_and(|max| ranges.len() > max);
        ranges.truncate(self.rows_max.unwrap_or(usize::MAX));
        let last = ranges.len().saturating_sub(1);
        let row = |(number, range): (usize, Range<usize>)| {
            let indent = if number == 0 { indent } else { further_indent };
            let mut range = range;
            let mark = if cut && number == last {
                // Leave room for the mark.
                while display_width(&letters[range.clone()]) + 1 + indent > columns
                    && !range.is_empty()
                {
                    range.end -= 1;
                }
                "…"
            } else {
                ""
            };
            format!("{:indent$}{}{mark}", "", paint_cells(&cells[range], paint))
        };
        ranges.into_iter().enumerate().map(row).collect()
    }

    /// Returns the text without styles.
    #[cfg(test)]
    pub(super) fn plain_text(&self) -> String {
        let text: String = self.parts.iter().map(|(_, text)| text.as_str()).collect();
        format!("{:indent$}{text}", "", indent = self.indent)
    }
}

fn paint_cells(cells: &[(char, Option<Style>)], paint: ColorMode) -> String {
    let mut out = String::new();
    for run in cells.chunk_by(|cell, next| cell.1 == next.1) {
        let text: String = run.iter().map(|(letter, _)| *letter).collect();
        match run[0].1 {
            Some(style) => out.push_str(&paint.paint(style, &text)),
            None => out.push_str(&text),
        }
    }
    out
}

/// Escapes a text of several lines. Line breaks stay; tabs become spaces.
pub(super) fn escape_unsafe_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let line = line.replace('\t', "    ").replace('\r', "");
        shown.push_str(&escape_unsafe(&line));
        shown.push_str(end);
    }
    shown
}

/// Returns the columns that the letters occupy.
pub(super) fn display_width(letters: &[char]) -> usize {
    letters.iter().map(|letter| letter.width().unwrap_or(0)).sum()
}

/// The completeness of the text to wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrapMode {
    /// The text is complete.
    Complete,
    /// More text may follow. It must not change the rows before the last one.
    Streaming,
}

/// Splits `letters` into rows: between words, or within a word that is too long for a row. The first
/// row has `first_columns` columns, each further row `further_columns`. Blanks at a break belong to no
/// row. Returns at least one row.
pub(super) fn wrap(
    letters: &[char],
    first_columns: usize,
    further_columns: usize,
    mode: WrapMode,
) -> Vec<Range<usize>> {
    let mut rows = Vec::new();
    let (mut start, mut used, mut blank) = (0, 0, None);
    let mut at = 0;
    while at < letters.len() {
        let columns = if rows.is_empty() { first_columns } else { further_columns }.max(2);
        let width = letters[at].width().unwrap_or(0);
        if letters[at] == ' ' && used > 0 {
            blank = Some(at);
        }
        if used + width <= columns {
            used += width;
            at += 1;
            continue;
        }
        let (end, next) = match blank {
            // A blank that does not fit ends the row and is dropped.
            _ if letters[at] == ' ' => (at, at + 1),
            Some(blank)
                if mode == WrapMode::Streaming
                    || first_word_fits(&letters[blank + 1..], further_columns) =>
            {
                (blank, blank + 1)
            }
            Some(_) | None => (at, at),
        };
        rows.push(start..trimmed_end(letters, start, end));
        (start, used, blank, at) = (next, 0, None, next);
    }
    rows.push(start..letters.len());
    rows
}

/// True if the first word fits into the columns.
fn first_word_fits(letters: &[char], columns: usize) -> bool {
    let word = letters.iter().take_while(|letter| **letter != ' ');
    word.take(columns + 1).map(|letter| letter.width().unwrap_or(0)).sum::<usize>() <= columns
}

fn trimmed_end(letters: &[char], start: usize, end: usize) -> usize {
    let blanks = letters[start..end].iter().rev().take_while(|letter| **letter == ' ').count();
    end - blanks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, columns: usize) -> Vec<String> {
        let letters: Vec<char> = text.chars().collect();
        let row = |range: Range<usize>| letters[range].iter().collect();
        wrap(&letters, columns, columns, WrapMode::Streaming).into_iter().map(row).collect()
    }

    #[test]
    fn rows_break_between_words_and_within_long_words() {
        assert_eq!(rows("one two three", 7), ["one two", "three"]);
        assert_eq!(rows("one two  three", 7), ["one two", " three"]);
        assert_eq!(rows("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(rows("  indented code", 10), ["  indented", "code"]);
        assert_eq!(rows("東京タワー", 4), ["東京", "タワ", "ー"]);
        assert_eq!(rows("", 4), [""]);
        assert_eq!(rows("ab ", 2), ["ab", ""]);
    }

    #[test]
    fn more_text_changes_the_last_row_only() {
        let text = "the quick brown fox – jumps over 東京 and extraordinarily long words  again";
        let letters: Vec<char> = text.chars().collect();
        for columns in 2..30 {
            let mut before: Vec<Range<usize>> = Vec::new();
            for end in 0..=letters.len() {
                let rows = wrap(&letters[..end], columns, columns, WrapMode::Streaming);
                let stable = before.len().saturating_sub(1);
                assert_eq!(rows[..stable], before[..stable], "{columns} columns, {end} letters");
                before = rows;
            }
            assert!(before.iter().all(|row| display_width(&letters[row.clone()]) <= columns));
        }
    }

    #[test]
    fn x5_text_cannot_control_the_terminal() {
        let evil = "\u{1b}[2Jok\u{9b}31m\r\nnext\tline\u{7}\u{202e}";
        assert_eq!(
            escape_unsafe_lines(evil),
            "\\u{1b}[2Jok\\u{9b}31m\nnext    line\\u{7}\\u{202e}"
        );
        let line = StyledLine::with_indent(0).text(evil).plain_text();
        assert!(!line.chars().any(char::is_control), "{line}");
    }

    #[test]
    fn cut_line_ends_with_a_mark() {
        let line = StyledLine::with_indent(2).text("one two three four five").rows_max(2);
        assert_eq!(line.wrap_rows(12, ColorMode::PLAIN), [" one two", " three four…"]);
        assert_eq!(line.wrap_rows(80, ColorMode::PLAIN), ["  one two three four five"]);
        let long = StyledLine::with_indent(2).text("→ abcdefghijklmnopqrstuvwxyz");
        assert_eq!(
            long.wrap_rows(12, ColorMode::PLAIN),
            [" → abcdefghi", " jklmnopqrst", " uvwxyz"]
        );
        let narrow = StyledLine::with_indent(2).text("abcdefghijklmnop").rows_max(1);
        assert_eq!(narrow.wrap_rows(5, ColorMode::PLAIN), [" abc…"]);
    }
}
