//! The input line. Pure: maps keys to outcomes.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Maximum number of lines in the history.
const HISTORY_MAX: usize = 200;
/// Maximum bytes of a line; further input is ignored.
const LINE_BYTES_MAX: usize = greenroom_core::limits::MESSAGE_BYTES_MAX;

/// The outcome of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyOutcome {
    /// The key changed the line or had no effect.
    Nothing,
    /// The line was entered.
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

/// The input line and its history.
#[derive(Debug, Default)]
pub(super) struct LineEditor {
    letters: Vec<char>,
    cursor: usize,
    history: Vec<String>,
    /// Index of the history line shown, if any.
    recalled: Option<usize>,
    /// The text typed before a history line was shown.
    draft: String,
}

impl LineEditor {
    /// Returns the text of the line.
    pub(super) fn text(&self) -> String {
        self.letters.iter().collect()
    }

    /// Returns the text before the cursor.
    pub(super) fn before_cursor(&self) -> String {
        self.letters[..self.cursor].iter().collect()
    }

    /// Replaces the text and returns the previous one.
    pub(super) fn replace(&mut self, text: &str) -> String {
        let previous = self.text();
        self.set_text(text);
        previous
    }

    /// Handles a key.
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

    /// Inserts a text at the cursor.
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
        let is_blank = |index: &usize| self.letters[*index].is_whitespace();
        let end =
            (0..self.cursor).rev().find(|index| !is_blank(index)).map_or(0, |index| index + 1);
        (0..end).rev().find(is_blank).map_or(0, |index| index + 1)
    }

    fn word_after(&self) -> usize {
        let is_blank = |index: &usize| self.letters[*index].is_whitespace();
        let end = self.letters.len();
        let start = (self.cursor..end).find(|index| !is_blank(index)).unwrap_or(end);
        (start..end).find(is_blank).unwrap_or(end)
    }

    fn recall_history(&mut self, older: bool) {
        let current = self.recalled.unwrap_or(self.history.len());
        let next = if older { current.checked_sub(1) } else { Some(current + 1) };
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
    fn line_is_typed_edited_and_entered() {
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
    fn history_is_recalled_and_the_draft_kept() {
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
    fn control_keys_have_outcomes() {
        let mut editor = LineEditor::default();
        assert_eq!(control(&mut editor, 'd'), KeyOutcome::End);
        editor.insert("x");
        plain(&mut editor, KeyCode::Home);
        assert_eq!(control(&mut editor, 'd'), KeyOutcome::Nothing, "it deletes the letter");
        assert_eq!(editor.text(), "");
        assert_eq!(control(&mut editor, 'c'), KeyOutcome::Interrupt);
        // No key panics on an empty line.
        for code in [KeyCode::Delete, KeyCode::Backspace, KeyCode::Left, KeyCode::Up, KeyCode::F(5)]
        {
            assert_eq!(plain(&mut editor, code), KeyOutcome::Nothing);
        }
    }

    #[test]
    fn x4_line_length_is_limited() {
        let mut editor = LineEditor::default();
        editor.insert(&"x".repeat(LINE_BYTES_MAX));
        editor.insert("y");
        assert_eq!(editor.text().len(), LINE_BYTES_MAX);
    }
}
