//! Terminal output of the commands: escaping, colours, wrapping and printing.
//!
//! Much of the output comes from models and tools. [`escape_unsafe`] makes it safe: no byte of such
//! a text reaches the terminal as a control sequence.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

/// Maximum columns of a printed line.
pub(super) const COLUMNS: usize = 100;

/// Characters that are not control characters but change the display of the text around them:
/// direction marks and overrides, invisible and tag characters, and line separators. The dashboard
/// escapes the same characters (`web/src/components/escaped_text.tsx`).
const DECEPTIVE: [(char, char); 26] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Gives the symbol before it an emoji presentation (`⚠️`); allowed after a symbol.
const EMOJI_VARIATION_SELECTOR: char = '\u{fe0f}';

/// Returns `text` as one line that is safe to print: control characters and characters that hide or
/// reorder text are escaped.
pub(super) fn escape_unsafe(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            EMOJI_VARIATION_SELECTOR if shown.ends_with(is_symbol) => shown.push(letter),
            '\n' => shown.push_str("\\n"),
            '\r' => shown.push_str("\\r"),
            '\t' => shown.push_str("\\t"),
            _ if letter.is_control() || is_deceptive(letter) => {
                shown.extend(letter.escape_unicode());
            }
            _ => shown.push(letter),
        }
    }
    shown
}

fn is_symbol(letter: char) -> bool {
    matches!(letter, '\u{2190}'..='\u{2bff}' | '\u{1f000}'..='\u{1faff}') && !is_deceptive(letter)
}

fn is_deceptive(letter: char) -> bool {
    DECEPTIVE.iter().any(|(first, last)| (*first..=*last).contains(&letter))
}

/// Returns the first `columns` characters of `text`; a cut text ends with `…`.
pub(super) fn truncate(text: &str, columns: usize) -> String {
    if text.chars().count() <= columns {
        return text.to_owned();
    }
    text.chars().take(columns.saturating_sub(1)).chain(['…']).collect()
}

/// Breaks `text` into lines of at most `columns` characters, between words where possible. A longer
/// word is broken at the end of the line.
pub(super) fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let mut rest: Vec<char> = word.chars().collect();
        if used > 0 && used + 1 + rest.len() > columns {
            lines.push(String::new());
            used = 0;
        }
        while !rest.is_empty() {
            if used == columns {
                lines.push(String::new());
                used = 0;
            }
            let space = usize::from(used > 0);
            let fitting = rest.len().min(columns - used - space);
            let line = lines.last_mut().expect("there is always a line");
            line.extend(std::iter::repeat_n(' ', space).chain(rest.drain(..fitting)));
            used += space + fitting;
        }
    }
    lines
}

/// Appends `label` and, next to it, `text`, wrapped in its own column.
pub(super) fn push_labelled(out: &mut String, indent: usize, label: &str, text: &str) {
    let label_columns = label.chars().count().max(10) + 2;
    let mut before = format!("{:indent$}{label:<width$}", "", width = label_columns);
    for line in wrap(text, COLUMNS.saturating_sub(indent + label_columns)) {
        push_line(out, &format!("{before}{line}"));
        before = " ".repeat(indent + label_columns);
    }
}

/// Appends a line without trailing blanks.
pub(super) fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

/// Formats a count with its noun, as in `1 tool` and `2 tools`.
pub(super) fn pluralize(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Formats a duration in its two largest units, as in `9m 41s`.
pub(super) fn format_duration(duration: Duration) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];
    let seconds = duration.as_secs();
    let mut text = String::new();
    let largest = UNITS.iter().position(|(_, size)| seconds >= *size).unwrap_or(3);
    let mut rest = seconds;
    for (unit, size) in &UNITS[largest..UNITS.len().min(largest + 2)] {
        let count = rest / size;
        rest %= size;
        if count > 0 || text.is_empty() {
            let space = if text.is_empty() { "" } else { " " };
            // Writing to a `String` does not fail.
            write!(text, "{space}{count}{unit}").unwrap_or_default();
        }
    }
    text
}

/// A text style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

/// Enables or disables colours.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColorMode {
    on: bool,
}

impl ColorMode {
    /// No colours.
    pub(super) const PLAIN: Self = Self { on: false };

    /// Enables colours if standard output is a terminal, `NO_COLOR` is unset or empty and `TERM` is
    /// not `dumb`.
    pub(super) fn for_stdout() -> Self {
        let is_allowed = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { on: is_allowed && !dumb && io::stdout().is_terminal() }
    }

    /// Returns `text` in the style. Pad the text before: escape sequences occupy no columns.
    pub(super) fn paint(self, style: Style, text: &str) -> String {
        if !self.on || text.is_empty() {
            return text.to_owned();
        }
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Red => "31",
            Style::Green => "32",
            Style::Yellow => "33",
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }
}

/// Prints to standard output. A closed pipe is not an error.
pub(super) fn print(text: &str) -> io::Result<()> {
    print_while_read(text).map(|_| ())
}

/// Prints to standard output. Returns false once the reader has closed the pipe.
pub(super) fn print_while_read(text: &str) -> io::Result<bool> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prints a line to standard error. A failed write is ignored.
pub(super) fn print_status(line: &str) {
    writeln!(io::stderr().lock(), "{line}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_deceptive_characters_are_escaped() {
        let forged = "ok\u{1b}[2J\u{9b}31m\r\nApproved\u{7}\u{202e}txt\u{200b}\u{7f}\u{e0041}";
        let shown = escape_unsafe(forged);
        let expected = "ok\\u{1b}[2J\\u{9b}31m\\r\\nApproved\\u{7}\\u{202e}txt\\u{200b}\\u{7f}\
                        \\u{e0041}";
        assert_eq!(shown, expected);
        assert_eq!(escape_unsafe("Größe 東京 – fine ⚠\u{fe0f}"), "Größe 東京 – fine ⚠\u{fe0f}");
        let unseen = "\u{ad}\u{34f}\u{3164}\u{fe0f}\u{e0100}";
        assert_eq!(escape_unsafe(unseen), "\\u{ad}\\u{34f}\\u{3164}\\u{fe0f}\\u{e0100}");
    }

    #[test]
    fn wrap_breaks_between_words_and_inside_long_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefghij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(wrap("a bcdef", 3), ["a", "bcd", "ef"]);
        assert_eq!(wrap("", 5), [""]);
        for columns in 1..12 {
            let lines = wrap("the quick brown fox jumps over extraordinarily", columns);
            assert!(lines.iter().all(|line| line.chars().count() <= columns), "{lines:?}");
        }
    }

    #[test]
    fn truncated_text_ends_with_ellipsis() {
        assert_eq!(truncate("abc", 3), "abc");
        assert_eq!(truncate("abcd", 3), "ab…");
    }

    #[test]
    fn pluralize_keeps_one_singular() {
        assert_eq!(
            [0, 1, 2].map(|count| pluralize(count, "tool")),
            ["0 tools", "1 tool", "2 tools"]
        );
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (581, "9m 41s"),
            (3_600, "1h"),
            (3_605, "1h"),
            (90_061, "1d 1h"),
        ] {
            assert_eq!(format_duration(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn paint_adds_escapes_only_with_colours() {
        assert_eq!(ColorMode { on: true }.paint(Style::Red, "no"), "\u{1b}[31mno\u{1b}[0m");
        assert_eq!(ColorMode::PLAIN.paint(Style::Red, "no"), "no");
    }
}
