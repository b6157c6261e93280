//! The terminal as rows: what was said goes up and stays; below it, drawn anew each time, are the row
//! of text that is not whole, what goes on, and the line that is being typed. Pure: it makes the text
//! that draws.
//!
//! No row is as wide as the terminal, so that none wraps by itself and the count of rows is right.

use super::{
    line_editor::LineEditor,
    machine::LiveArea,
    styled_line::{StyledLine, WrapMode, display_width, escape_unsafe_lines, wrap},
};
use crate::cli::terminal::ColorMode;

/// Takes what is drawn away, from where the cursor stands.
const ERASE_BELOW: &str = "\u{1b}[J";
const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

/// The size of a terminal that does not know its own, as behind a serial line.
const COLUMNS_USUAL: usize = 80;
const ROWS_USUAL: usize = 24;

/// What is on the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    paint: ColorMode,
    columns: usize,
    rows: usize,
    /// Text that is not a whole row yet; safe.
    partial_row: String,
    /// Rows that stay, and are not written yet.
    finished_rows: Vec<String>,
    drawn: DrawnArea,
}

/// What is drawn below, to be taken away before the next drawing.
#[derive(Debug, Default)]
struct DrawnArea {
    /// Columns of each row.
    widths: Vec<usize>,
    /// The row that the cursor is on.
    cursor_row: usize,
}

impl Screen {
    /// An empty one of that size.
    pub(super) fn new(paint: ColorMode, columns: u16, rows: u16) -> Self {
        let mut screen = Self {
            paint,
            columns: 0,
            rows: 0,
            partial_row: String::new(),
            finished_rows: Vec::new(),
            drawn: DrawnArea::default(),
        };
        screen.resize(columns, rows);
        screen
    }

    /// The terminal has that size now; 0 is not known. What was drawn has been wrapped to it.
    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        let known = |size: u16, usual| if size == 0 { usual } else { usize::from(size) };
        let (columns, rows) =
            (known(columns, COLUMNS_USUAL).max(4), known(rows, ROWS_USUAL).max(3));
        let DrawnArea { widths, cursor_row } = &mut self.drawn;
        if columns < self.columns {
            let taken = |width: &usize| width.div_ceil(columns).max(1);
            *cursor_row = widths.iter().take(*cursor_row + 1).map(taken).sum::<usize>();
            *cursor_row = cursor_row.saturating_sub(1);
        }
        (self.columns, self.rows) = (columns, rows);
    }

    /// More of the agent's text.
    pub(super) fn push_text(&mut self, text: &str) {
        for piece in escape_unsafe_lines(text).split_inclusive('\n') {
            let (piece, is_whole) = match piece.strip_suffix('\n') {
                Some(piece) => (piece, true),
                None => (piece, false),
            };
            self.partial_row.push_str(piece);
            self.finish_rows();
            if is_whole {
                let row = std::mem::take(&mut self.partial_row);
                self.finished_rows.push(row.trim_end().to_owned());
            }
        }
    }

    /// The text is whole.
    pub(super) fn end_text(&mut self) {
        if !self.partial_row.is_empty() {
            let row = std::mem::take(&mut self.partial_row);
            self.finished_rows.push(row.trim_end().to_owned());
        }
    }

    /// A line that stays.
    pub(super) fn push_line(&mut self, line: &StyledLine) {
        self.end_text();
        self.finished_rows.extend(line.wrap_rows(self.columns - 1, self.paint));
    }

    /// What draws all that has changed.
    pub(super) fn draw(&mut self, live: &LiveArea, editor: &LineEditor) -> String {
        let mut out = self.erase();
        for row in self.finished_rows.drain(..) {
            out.push_str(&row);
            out.push_str("\r\n");
        }
        let (typed, cursor) = self.input_rows(&live.prompt, editor);
        let mut rows: Vec<String> = Vec::new();
        if !self.partial_row.is_empty() {
            rows.push(self.partial_row.clone());
        }
        let statuses =
            live.lines.iter().flat_map(|line| line.wrap_rows(self.columns - 1, self.paint));
        let room = self.rows.saturating_sub(typed.len() + rows.len() + 1);
        rows.extend(statuses.take(room));
        // What is typed is seen from its end.
        let hidden = typed.len().saturating_sub(self.rows - 1);
        let cursor_row = rows.len() + cursor.0.saturating_sub(hidden);
        rows.extend(typed.into_iter().skip(hidden));
        out.push_str(&rows.join("\r\n"));
        let up = rows.len() - 1 - cursor_row.min(rows.len() - 1);
        if up > 0 {
            out.push_str(&format!("\u{1b}[{up}A"));
        }
        out.push_str(&format!("\r{}{SHOW_CURSOR}", cursor_right(cursor.1)));
        let widths =
            rows.iter().map(|row| display_width(&row.chars().collect::<Vec<_>>())).collect();
        self.drawn = DrawnArea { widths, cursor_row };
        out
    }

    /// What takes the drawing away and leaves the cursor at the beginning of a row.
    pub(super) fn clear(&mut self) -> String {
        self.end_text();
        let mut out = self.erase();
        for row in self.finished_rows.drain(..) {
            out.push_str(&row);
            out.push_str("\r\n");
        }
        out + SHOW_CURSOR
    }

    fn erase(&mut self) -> String {
        let DrawnArea { cursor_row, .. } = std::mem::take(&mut self.drawn);
        let up = if cursor_row > 0 { format!("\u{1b}[{cursor_row}A") } else { String::new() };
        format!("{HIDE_CURSOR}{up}\r{ERASE_BELOW}")
    }

    /// Rows of the open text that can't change any more.
    fn finish_rows(&mut self) {
        let letters: Vec<char> = self.partial_row.chars().collect();
        let mut rows = wrap(&letters, self.columns - 1, self.columns - 1, WrapMode::Streaming);
        let Some(last) = rows.pop().filter(|_| !rows.is_empty()) else { return };
        let text = |range: std::ops::Range<usize>| letters[range].iter().collect::<String>();
        self.finished_rows.extend(rows.into_iter().map(text));
        self.partial_row = letters[last.start..].iter().collect();
    }

    /// The rows of the line that is being typed, and where the cursor is in them.
    fn input_rows(&self, prompt: &str, editor: &LineEditor) -> (Vec<String>, (usize, usize)) {
        let shown = |text: &str| escape_unsafe_lines(text).replace('\n', "↵");
        let whole: Vec<char> = format!("{prompt}{}", shown(&editor.text())).chars().collect();
        let before = prompt.chars().count() + shown(&editor.before_cursor()).chars().count();
        let columns = self.columns - 1;
        let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
        let mut cursor = (0, 0);
        for (at, letter) in whole.iter().enumerate() {
            let width = display_width(&[*letter]);
            if used + width > columns {
                rows.push(std::mem::take(&mut row));
                used = 0;
            }
            if at == before {
                cursor = (rows.len(), used);
            }
            row.push(*letter);
            used += width;
        }
        rows.push(row);
        if before >= whole.len() {
            if used >= columns {
                rows.push(String::new());
                used = 0;
            }
            cursor = (rows.len() - 1, used);
        }
        (rows, cursor)
    }
}

fn cursor_right(columns: usize) -> String {
    if columns > 0 { format!("\u{1b}[{columns}C") } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::chat::render;

    /// A terminal, and what is written to it.
    struct TestTerminal {
        terminal: vt100::Parser,
        screen: Screen,
        editor: LineEditor,
        live: LiveArea,
    }

    impl TestTerminal {
        fn new(columns: u16, rows: u16) -> Self {
            Self {
                terminal: terminal(columns, rows),
                screen: Screen::new(ColorMode::PLAIN, columns, rows),
                editor: LineEditor::default(),
                live: LiveArea { lines: Vec::new(), prompt: "› ".to_owned() },
            }
        }

        fn draw(&mut self) -> Vec<String> {
            let drawn = self.screen.draw(&self.live, &self.editor);
            self.terminal.process(drawn.as_bytes());
            self.rows()
        }

        fn rows(&self) -> Vec<String> {
            let text = self.terminal.screen().contents();
            text.lines().map(|row| row.trim_end().to_owned()).collect()
        }

        fn cursor(&self) -> (u16, u16) {
            self.terminal.screen().cursor_position()
        }
    }

    fn terminal(columns: u16, rows: u16) -> vt100::Parser {
        let size = |count: u16| std::num::NonZeroU16::new(count).unwrap();
        vt100::Parser::new(size(rows), size(columns), 100)
    }

    #[test]
    fn text_grows_above_what_goes_on_and_what_is_typed() {
        let mut glass = TestTerminal::new(40, 10);
        glass.live.lines = vec![render::note_line("thinking …")];
        glass.editor.insert("next");
        assert_eq!(glass.draw(), ["thinking …", "› next"]);
        assert_eq!(glass.cursor(), (1, 6));
        for piece in ["Hel", "lo\nwor", "ld"] {
            glass.screen.push_text(piece);
            glass.draw();
        }
        assert_eq!(glass.rows(), ["Hello", "world", "thinking …", "› next"]);
        glass.screen.push_line(&render::note_line("done"));
        glass.live.lines.clear();
        assert_eq!(glass.draw(), ["Hello", "world", "done", "› next"]);
        let left = glass.screen.clear();
        glass.terminal.process(left.as_bytes());
        assert_eq!(
            (glass.rows(), glass.cursor()),
            (vec!["Hello".into(), "world".into(), "done".into()], (3, 0))
        );
    }

    #[test]
    fn however_text_comes_in_pieces_it_looks_the_same() {
        let text = "Stück um Stück kommt der Text, 東京 auch,\nund\n\n  eingerückter Code mit vielen Worten. ";
        let letters: Vec<char> = text.chars().collect();
        for columns in [12, 20, 33, 80] {
            let mut whole = TestTerminal::new(columns, 30);
            whole.screen.push_text(text);
            let expected = whole.draw();
            for size in 1..9 {
                let mut glass = TestTerminal::new(columns, 30);
                for piece in letters.chunks(size) {
                    glass.screen.push_text(&piece.iter().collect::<String>());
                    glass.draw();
                }
                assert_eq!(glass.rows(), expected, "{columns} columns, {size} at once");
            }
        }
    }

    #[test]
    fn a_long_line_wraps_and_the_cursor_is_where_one_types() {
        let mut glass = TestTerminal::new(10, 6);
        glass.editor.insert("abcdefgh東");
        assert_eq!(glass.draw(), ["› abcdefg", "h東"]);
        assert_eq!(glass.cursor(), (1, 3));
        for _ in 0..3 {
            glass.editor.handle_key(crossterm::event::KeyCode::Left.into());
        }
        glass.draw();
        assert_eq!(glass.cursor(), (0, 8));
        // Just full: the cursor has a row of its own.
        glass.editor.replace("abcdefg");
        glass.draw();
        assert_eq!(glass.cursor(), (1, 0));
    }

    #[test]
    fn more_than_fits_shows_its_end_and_what_is_typed() {
        let mut glass = TestTerminal::new(20, 5);
        let line = |number: usize| render::note_line(&format!("call {number}"));
        glass.live.lines = (1..9).map(line).collect();
        glass.screen.push_text("some text");
        assert_eq!(glass.draw(), ["some text", "call 1", "call 2", "›"]);
        glass.live.lines.clear();
        assert_eq!(glass.draw(), ["some text", "›"]);
        glass.editor.insert(&"x".repeat(149));
        let rows = glass.draw();
        assert_eq!(rows.len(), 5);
        assert!(rows.last().unwrap().starts_with('x'));
        glass.editor.replace("");
        assert_eq!(glass.draw(), ["some text", "›"]);
    }

    #[test]
    fn a_terminal_that_becomes_narrow_is_drawn_anew() {
        let mut glass = TestTerminal::new(60, 12);
        glass.screen.push_text("a text that stands here and is not whole yet");
        glass.editor.insert("and something typed below it");
        glass.draw();
        // A real one wraps what it has; here that is done by hand.
        let old = glass.rows();
        glass.terminal = terminal(30, 12);
        let again: Vec<String> = old.iter().map(|row| row.replace('\n', "")).collect();
        glass.terminal.process(again.join("\r\n").as_bytes());
        glass.screen.resize(30, 12);
        let rows = glass.draw();
        assert_eq!(rows.iter().filter(|row| row.contains('›')).count(), 1, "{rows:?}");
    }

    #[test]
    fn a_terminal_that_does_not_know_its_size_is_taken_for_a_usual_one() {
        let mut glass = TestTerminal::new(80, 24);
        glass.screen.resize(0, 0);
        let text = format!("{}and the rest", "x".repeat(66));
        glass.screen.push_text(&text);
        assert_eq!(glass.draw(), [text.as_str(), "›"]);
    }

    #[test]
    fn x5_what_the_agent_says_moves_nothing() {
        let mut glass = TestTerminal::new(60, 10);
        glass.screen.push_text("safe\u{1b}[2J\u{1b}[H\u{9b}1;1H\rforged\u{8}\u{8}");
        glass.screen.push_line(&StyledLine::with_indent(0).text("line\u{1b}[1A\u{1b}[2K"));
        let rows = glass.draw();
        assert_eq!(rows[0], "safe\\u{1b}[2J\\u{1b}[H\\u{9b}1;1Hforged\\u{8}\\u{8}");
        assert_eq!(rows[1], "line\\u{1b}[1A\\u{1b}[2K");
    }
}
