//! The terminal as rows. Finished rows scroll up and stay; below them is the live part, drawn anew
//! each time: the unfinished row of text, the status lines and the input line. Pure: produces the
//! text to write to the terminal.
//!
//! Every row is narrower than the terminal. The terminal therefore never wraps a row, and the row
//! count is exact.

use super::{
    line_editor::LineEditor,
    machine::LiveArea,
    styled_line::{StyledLine, WrapMode, display_width, escape_unsafe_lines, wrap},
};
use crate::cli::terminal::ColorMode;

/// Erases from the cursor to the end of the screen.
const ERASE_BELOW: &str = "\u{1b}[J";
const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

/// The assumed size of a terminal that does not report one, such as a serial line.
const COLUMNS_DEFAULT: usize = 80;
const ROWS_DEFAULT: usize = 24;

/// The content of the terminal.
#[derive(Debug)]
pub(super) struct Screen {
    paint: ColorMode,
    columns: usize,
    rows: usize,
    /// Text that does not fill a row yet; escaped.
    partial_row: String,
    /// Finished rows that are not written yet.
    finished_rows: Vec<String>,
    drawn: DrawnArea,
}

/// The live part as drawn last, erased before the next drawing.
#[derive(Debug, Default)]
struct DrawnArea {
    /// Columns of each row.
    widths: Vec<usize>,
    /// The row of the cursor.
    cursor_row: usize,
}

impl Screen {
    /// Creates an empty screen.
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

    /// Sets the size of the terminal; 0 is unknown. The terminal has wrapped the drawn rows to it.
    pub(super) fn resize(&mut self, columns: u16, rows: u16) {
        let size_or = |size: u16, default| if size == 0 { default } else { usize::from(size) };
        let (columns, rows) =
            (size_or(columns, COLUMNS_DEFAULT).max(4), size_or(rows, ROWS_DEFAULT).max(3));
        let DrawnArea { widths, cursor_row } = &mut self.drawn;
        if columns < self.columns {
            let row_count = |width: &usize| width.div_ceil(columns).max(1);
            *cursor_row = widths.iter().take(*cursor_row + 1).map(row_count).sum::<usize>();
            *cursor_row = cursor_row.saturating_sub(1);
        }
        (self.columns, self.rows) = (columns, rows);
    }

    /// Appends to the agent's text.
    pub(super) fn push_text(&mut self, text: &str) {
        for piece in escape_unsafe_lines(text).split_inclusive('\n') {
            let (piece, is_complete) = match piece.strip_suffix('\n') {
                Some(piece) => (piece, true),
                None => (piece, false),
            };
            self.partial_row.push_str(piece);
            self.finish_rows();
            if is_complete {
                let row = std::mem::take(&mut self.partial_row);
                self.finished_rows.push(row.trim_end().to_owned());
            }
        }
    }

    /// Ends the agent's text.
    pub(super) fn end_text(&mut self) {
        if !self.partial_row.is_empty() {
            let row = std::mem::take(&mut self.partial_row);
            self.finished_rows.push(row.trim_end().to_owned());
        }
    }

    /// Adds a finished line.
    pub(super) fn push_line(&mut self, line: &StyledLine) {
        self.end_text();
        self.finished_rows.extend(line.wrap_rows(self.columns - 1, self.paint));
    }

    /// Returns the output that draws all changes.
    pub(super) fn draw(&mut self, live: &LiveArea, editor: &LineEditor) -> String {
        let mut out = self.erase();
        for row in self.finished_rows.drain(..) {
            out.push_str(&row);
            out.push_str("\r\n");
        }
        let (input, cursor) = self.input_rows(&live.prompt, editor);
        let mut rows: Vec<String> = Vec::new();
        if !self.partial_row.is_empty() {
            rows.push(self.partial_row.clone());
        }
        let statuses =
            live.lines.iter().flat_map(|line| line.wrap_rows(self.columns - 1, self.paint));
        let room = self.rows.saturating_sub(input.len() + rows.len() + 1);
        rows.extend(statuses.take(room));
        // An input that does not fit shows its last rows.
        let hidden = input.len().saturating_sub(self.rows - 1);
        let cursor_row = rows.len() + cursor.0.saturating_sub(hidden);
        rows.extend(input.into_iter().skip(hidden));
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

    /// Returns the output that erases the live part and leaves the cursor at the start of a row.
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

    /// Moves the rows of the unfinished text that can no longer change to the finished rows.
    fn finish_rows(&mut self) {
        let letters: Vec<char> = self.partial_row.chars().collect();
        let mut rows = wrap(&letters, self.columns - 1, self.columns - 1, WrapMode::Streaming);
        let Some(last) = rows.pop().filter(|_| !rows.is_empty()) else { return };
        let text = |range: std::ops::Range<usize>| letters[range].iter().collect::<String>();
        self.finished_rows.extend(rows.into_iter().map(text));
        self.partial_row = letters[last.start..].iter().collect();
    }

    /// Returns the rows of the prompt and the input line, and the cursor as (row, column).
    fn input_rows(&self, prompt: &str, editor: &LineEditor) -> (Vec<String>, (usize, usize)) {
        let shown = |text: &str| escape_unsafe_lines(text).replace('\n', "↵");
        let letters: Vec<char> = format!("{prompt}{}", shown(&editor.text())).chars().collect();
        let before = prompt.chars().count() + shown(&editor.before_cursor()).chars().count();
        let columns = self.columns - 1;
        let (mut rows, mut row, mut used) = (Vec::new(), String::new(), 0);
        let mut cursor = (0, 0);
        for (index, letter) in letters.iter().enumerate() {
            let width = display_width(&[*letter]);
            if used + width > columns {
                rows.push(std::mem::take(&mut row));
                used = 0;
            }
            if index == before {
                cursor = (rows.len(), used);
            }
            row.push(*letter);
            used += width;
        }
        rows.push(row);
        if before >= letters.len() {
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

    /// An emulated terminal and the screen that writes to it.
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
    fn text_is_drawn_above_status_and_input() {
        let mut display = TestTerminal::new(40, 10);
        display.live.lines = vec![render::note_line("thinking …")];
        display.editor.insert("next");
        assert_eq!(display.draw(), ["thinking …", "› next"]);
        assert_eq!(display.cursor(), (1, 6));
        for piece in ["Hel", "lo\nwor", "ld"] {
            display.screen.push_text(piece);
            display.draw();
        }
        assert_eq!(display.rows(), ["Hello", "world", "thinking …", "› next"]);
        display.screen.push_line(&render::note_line("done"));
        display.live.lines.clear();
        assert_eq!(display.draw(), ["Hello", "world", "done", "› next"]);
        let clear = display.screen.clear();
        display.terminal.process(clear.as_bytes());
        assert_eq!(
            (display.rows(), display.cursor()),
            (vec!["Hello".into(), "world".into(), "done".into()], (3, 0))
        );
    }

    #[test]
    fn pieces_of_any_size_are_drawn_alike() {
        let text = "Stück um Stück kommt der Text, 東京 auch,\nund\n\n  eingerückter Code mit vielen Worten. ";
        let letters: Vec<char> = text.chars().collect();
        for columns in [12, 20, 33, 80] {
            let mut undivided = TestTerminal::new(columns, 30);
            undivided.screen.push_text(text);
            let expected = undivided.draw();
            for size in 1..9 {
                let mut display = TestTerminal::new(columns, 30);
                for piece in letters.chunks(size) {
                    display.screen.push_text(&piece.iter().collect::<String>());
                    display.draw();
                }
                assert_eq!(display.rows(), expected, "{columns} columns, {size} at once");
            }
        }
    }

    #[test]
    fn long_input_wraps_and_the_cursor_follows() {
        let mut display = TestTerminal::new(10, 6);
        display.editor.insert("abcdefgh東");
        assert_eq!(display.draw(), ["› abcdefg", "h東"]);
        assert_eq!(display.cursor(), (1, 3));
        for _ in 0..3 {
            display.editor.handle_key(crossterm::event::KeyCode::Left.into());
        }
        display.draw();
        assert_eq!(display.cursor(), (0, 8));
        // A full row: the cursor is on a row of its own.
        display.editor.replace("abcdefg");
        display.draw();
        assert_eq!(display.cursor(), (1, 0));
    }

    #[test]
    fn input_larger_than_the_screen_shows_its_end() {
        let mut display = TestTerminal::new(20, 5);
        let line = |number: usize| render::note_line(&format!("call {number}"));
        display.live.lines = (1..9).map(line).collect();
        display.screen.push_text("some text");
        assert_eq!(display.draw(), ["some text", "call 1", "call 2", "›"]);
        display.live.lines.clear();
        assert_eq!(display.draw(), ["some text", "›"]);
        display.editor.insert(&"x".repeat(149));
        let rows = display.draw();
        assert_eq!(rows.len(), 5);
        assert!(rows.last().unwrap().starts_with('x'));
        display.editor.replace("");
        assert_eq!(display.draw(), ["some text", "›"]);
    }

    #[test]
    fn narrower_terminal_is_redrawn() {
        let mut display = TestTerminal::new(60, 12);
        display.screen.push_text("an unfinished text that is longer than the new width");
        display.editor.insert("and something typed below it");
        display.draw();
        // A real terminal wraps its rows; the emulated one does not.
        let old = display.rows();
        display.terminal = terminal(30, 12);
        let wrapped_rows: Vec<String> = old.iter().map(|row| row.replace('\n', "")).collect();
        display.terminal.process(wrapped_rows.join("\r\n").as_bytes());
        display.screen.resize(30, 12);
        let rows = display.draw();
        assert_eq!(rows.iter().filter(|row| row.contains('›')).count(), 1, "{rows:?}");
    }

    #[test]
    fn terminal_without_size_has_the_default_size() {
        let mut display = TestTerminal::new(80, 24);
        display.screen.resize(0, 0);
        let text = format!("{}and the rest", "x".repeat(66));
        display.screen.push_text(&text);
        assert_eq!(display.draw(), [text.as_str(), "›"]);
    }

    #[test]
    fn x5_agent_text_cannot_move_the_cursor() {
        let mut display = TestTerminal::new(60, 10);
        display.screen.push_text("safe\u{1b}[2J\u{1b}[H\u{9b}1;1H\rforged\u{8}\u{8}");
        display.screen.push_line(&StyledLine::with_indent(0).text("line\u{1b}[1A\u{1b}[2K"));
        let rows = display.draw();
        assert_eq!(rows[0], "safe\\u{1b}[2J\\u{1b}[H\\u{9b}1;1Hforged\\u{8}\\u{8}");
        assert_eq!(rows[1], "line\\u{1b}[1A\\u{1b}[2K");
    }
}
