//! The line that somebody is typing. Pure: keys in, what they mean out.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Lines that are remembered.
const HISTORY_MAX: usize = 200;
/// Bytes of a line; more is not taken.
const LINE_BYTES_MAX: usize = greenroom_core::limits::MESSAGE_BYTES_MAX;

/// What a key led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyOutcome {
    /// Another line, or nothing.
    Nothing,
    /// The line is done.
    Entered(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D on an empty line.
    End,
    /// Ctrl-Z.
    Suspend,
    /// Ctrl-L.
    Redraw,
}

/// The line, and those before it.
#[derive(Debug, Default)]
pub(super) struct LineEditor {
    letters: Vec<char>,
    cursor: usize,
    history: Vec<String>,
    /// The one of `history` that is shown.
    recalled: Option<usize>,
    /// What was typed before one was.
    draft: String,
}

impl LineEditor {
    /// The line.
    pub(super) fn text(&self) -> String {
        self.letters.iter().collect()
    }

    /// The part of it before the cursor.
    pub(super) fn before_cursor(&self) -> String {
        self.letters[..self.cursor].iter().collect()
    }

    /// Makes that the line; what it was comes back.
    pub(super) fn replace(&mut self, text: &str) -> String {
        let was = self.text();
        self.set_text(text);
        was
    }

    /// Takes a key in.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys do nothing")]
    pub(super) fn handle_key(&mut self, key: KeyEvent) -> KeyOutcome {
        if key.kind == KeyEventKind::Release {
            return KeyOutcome::Nothing;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let alt = key.modifiers.contains(KeyModifiers::ALT);
        match key.code {
            KeyCode::Char(letter) if control => return self.handle_control_key(letter),
            KeyCode::Enter if alt => self.insert("\n"),
            KeyCode::Enter => return KeyOutcome::Entered(self.take_line()),
            KeyCode::Char('b') if alt => self.cursor = self.word_before(),
            KeyCode::Char('f') if alt => self.cursor = self.word_after(),
            KeyCode::Char(letter) => self.insert(letter.encode_utf8(&mut [0; 4])),
            KeyCode::Backspace if alt => self.delete_range(self.word_before(), self.cursor),
            KeyCode::Backspace => self.delete_range(self.cursor.saturating_sub(1), self.cursor),
            KeyCode::Delete => self.delete_range(self.cursor, self.cursor + 1),
            KeyCode::Left => self.cursor = self.cursor.saturating_sub(1),
            KeyCode::Right => self.cursor = (self.cursor + 1).min(self.letters.len()),
            KeyCode::Home => self.cursor = 0,
            KeyCode::End => self.cursor = self.letters.len(),
            KeyCode::Up => self.recall_history(true),
            KeyCode::Down => self.recall_history(false),
            _ => {}
        }
        KeyOutcome::Nothing
    }

    /// Takes a text in at the cursor, as it was pasted.
    pub(super) fn insert(&mut self, text: &str) {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        if self.text().len() + text.len() > LINE_BYTES_MAX {
            return;
        }
        let before = self.letters.len();
        self.letters.splice(self.cursor..self.cursor, text.chars());
        self.cursor += self.letters.len() - before;
    }

    fn handle_control_key(&mut self, letter: char) -> KeyOutcome {
        match letter {
            'c' => return KeyOutcome::Interrupt,
            'd' if self.letters.is_empty() => return KeyOutcome::End,
            'd' => self.delete_range(self.cursor, self.cursor + 1),
            'z' => return KeyOutcome::Suspend,
            'l' => return KeyOutcome::Redraw,
            'j' => self.insert("\n"),
            'm' => return KeyOutcome::Entered(self.take_line()),
            'a' => self.cursor = 0,
            'e' => self.cursor = self.letters.len(),
            'b' => self.cursor = self.cursor.saturating_sub(1),
            'f' => self.cursor = (self.cursor + 1).min(self.letters.len()),
            'h' => self.delete_range(self.cursor.saturating_sub(1), self.cursor),
            'k' => self.delete_range(self.cursor, self.letters.len()),
            'u' => self.delete_range(0, self.cursor),
            'w' => self.delete_range(self.word_before(), self.cursor),
            'p' => self.recall_history(true),
            'n' => self.recall_history(false),
            _ => {}
        }
        KeyOutcome::Nothing
    }

    fn take_line(&mut self) -> String {
        let text = self.replace("");
        if !text.trim().is_empty() && self.history.last() != Some(&text) {
            self.history.push(text.clone());
            if self.history.len() > HISTORY_MAX {
                self.history.remove(0);
            }
        }
        text
    }

    fn set_text(&mut self, text: &str) {
        self.letters = text.chars().collect();
        self.cursor = self.letters.len();
        self.recalled = None;
    }

    fn delete_range(&mut self, from: usize, to: usize) {
        let to = to.min(self.letters.len());
        self.letters.drain(from.min(to)..to);
        self.cursor = from.min(self.letters.len());
    }

    fn word_before(&self) -> usize {
        let is_blank = |at: &usize| self.letters[*at].is_whitespace();
        let end = (0..self.cursor).rev().find(|at| !is_blank(at)).map_or(0, |at| at + 1);
        (0..end).rev().find(is_blank).map_or(0, |at| at + 1)
    }

    fn word_after(&self) -> usize {
        let is_blank = |at: &usize| self.letters[*at].is_whitespace();
        let end = self.letters.len();
        let start = (self.cursor..end).find(|at| !is_blank(at)).unwrap_or(end);
        (start..end).find(is_blank).unwrap_or(end)
    }

    fn recall_history(&mut self, older: bool) {
        let now = self.recalled.unwrap_or(self.history.len());
        let next = if older { now.checked_sub(1) } else { Some(now + 1) };
        let Some(next) = next.filter(|next| *next <= self.history.len()) else { return };
        if self.recalled.is_none() {
            self.draft = self.text();
        }
        let text = self.history.get(next).unwrap_or(&self.draft).clone();
        self.set_text(&text);
        self.recalled = (next < self.history.len()).then_some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(editor: &mut LineEditor, code: KeyCode, modifiers: KeyModifiers) -> KeyOutcome {
        editor.handle_key(KeyEvent::new(code, modifiers))
    }

    fn control(editor: &mut LineEditor, letter: char) -> KeyOutcome {
        press(editor, KeyCode::Char(letter), KeyModifiers::CONTROL)
    }

    fn plain(editor: &mut LineEditor, code: KeyCode) -> KeyOutcome {
        press(editor, code, KeyModifiers::NONE)
    }

    #[test]
    fn a_line_is_typed_mended_and_entered() {
        let mut editor = LineEditor::default();
        editor.insert("größe two three");
        control(&mut editor, 'w');
        assert_eq!(editor.text(), "größe two ");
        press(&mut editor, KeyCode::Char('b'), KeyModifiers::ALT);
        assert_eq!(editor.before_cursor(), "größe ");
        plain(&mut editor, KeyCode::Backspace);
        plain(&mut editor, KeyCode::Backspace);
        plain(&mut editor, KeyCode::Char('ß'));
        plain(&mut editor, KeyCode::Delete);
        assert_eq!(editor.text(), "größßwo ");
        control(&mut editor, 'k');
        control(&mut editor, 'a');
        plain(&mut editor, KeyCode::Right);
        control(&mut editor, 'u');
        assert_eq!((editor.text().as_str(), editor.before_cursor().as_str()), ("rößß", ""));
        plain(&mut editor, KeyCode::End);
        press(&mut editor, KeyCode::Enter, KeyModifiers::ALT);
        editor.insert("a\r\nb");
        assert_eq!(
            plain(&mut editor, KeyCode::Enter),
            KeyOutcome::Entered("rößß\na\nb".to_owned())
        );
        assert_eq!(editor.text(), "");
    }

    #[test]
    fn what_was_entered_is_recalled_and_the_draft_kept() {
        let mut editor = LineEditor::default();
        for line in ["one", "two", "two", " "] {
            editor.insert(line);
            plain(&mut editor, KeyCode::Enter);
        }
        editor.insert("draft");
        let mut seen = Vec::new();
        for code in
            [KeyCode::Up, KeyCode::Up, KeyCode::Up, KeyCode::Down, KeyCode::Down, KeyCode::Down]
        {
            plain(&mut editor, code);
            seen.push(editor.text());
        }
        assert_eq!(seen, ["two", "one", "one", "two", "draft", "draft"]);
    }

    #[test]
    fn keys_that_mean_something_to_the_chat() {
        let mut editor = LineEditor::default();
        assert_eq!(control(&mut editor, 'd'), KeyOutcome::End);
        editor.insert("x");
        plain(&mut editor, KeyCode::Home);
        assert_eq!(control(&mut editor, 'd'), KeyOutcome::Nothing, "it erases");
        assert_eq!(editor.text(), "");
        assert_eq!(control(&mut editor, 'c'), KeyOutcome::Interrupt);
        // Nothing panics, whatever is pressed where.
        for code in [KeyCode::Delete, KeyCode::Backspace, KeyCode::Left, KeyCode::Up, KeyCode::F(5)]
        {
            assert_eq!(plain(&mut editor, code), KeyOutcome::Nothing);
        }
    }

    #[test]
    fn x4_a_line_has_its_limit() {
        let mut editor = LineEditor::default();
        editor.insert(&"x".repeat(LINE_BYTES_MAX));
        editor.insert("y");
        assert_eq!(editor.text().len(), LINE_BYTES_MAX);
    }
}
