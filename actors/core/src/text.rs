//! Pure operations on text.

use crate::limits::HEADLINE_CHARS_MAX;

/// Returns the longest start of `text` with at most `bytes_max` bytes that ends on a character
/// boundary.
pub fn truncate(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Returns the first line of `text` that is not blank, truncated to [`HEADLINE_CHARS_MAX`]
/// characters; empty if every line is blank.
///
/// Never truncates inside an ASCII word: a truncated secret would no longer be recognised (E7).
pub fn headline(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let Some((end, next)) = line.char_indices().nth(HEADLINE_CHARS_MAX) else {
        return line.to_owned();
    };
    let separates_words = |c: char| c.is_whitespace() || !c.is_ascii();
    let kept = if separates_words(next) {
        &line[..end]
    } else {
        line[..end].trim_end_matches(|c| !separates_words(c))
    };
    let kept = kept.trim_end();
    if kept.is_empty() { String::new() } else { format!("{kept}…") }
}

/// Returns `number` with a comma between groups of three digits: `3,600`.
pub fn group_digits(number: u128) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.char_indices() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// True if `text` matches `glob`, in which `*` matches any text and every other character itself.
///
/// Runs in time proportional to the sum of both lengths.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let mut pieces = glob.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        // The earliest match leaves the most text for the remaining pieces.
        let Some(start) = rest.find(piece) else { return false };
        rest = &rest[start + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_truncated_on_character_boundary() {
        assert_eq!(truncate("aé€", 0), "");
        assert_eq!(truncate("aé€", 2), "a");
        assert_eq!(truncate("aé€", 3), "aé");
        assert_eq!(truncate("aé€", 99), "aé€");
    }

    #[test]
    fn digits_are_grouped() {
        let grouped = [0, 999, 1000, 3600, 1_234_567].map(group_digits);
        assert_eq!(grouped, ["0", "999", "1,000", "3,600", "1,234,567"]);
    }

    #[test]
    fn headline_is_first_non_blank_line() {
        let max = HEADLINE_CHARS_MAX;
        assert_eq!(headline(" \n\t Buy  ore, \r\nthen sell it."), "Buy  ore,");
        assert_eq!(headline(" \n "), "");
        let words = "ore ".repeat(max);
        assert_eq!(headline(&words), format!("{}ore…", "ore ".repeat(max / 4 - 1)));
        let signs = "鉱".repeat(max);
        assert_eq!(headline(&signs), signs);
        assert_eq!(headline(&format!("{signs}。")), format!("{signs}…"));
    }

    #[test]
    fn e7_headline_contains_no_partial_word() {
        let key = "k3y".repeat(20);
        for before in 0..HEADLINE_CHARS_MAX {
            for start in
                ["a ".repeat(before / 2), "é".repeat(before), format!("{}é", "a".repeat(before))]
            {
                let line = headline(&format!("{start}{key} and more of the same, much more of it"));
                assert!(line.contains(&key) || !line.contains("k3"), "{line}");
            }
        }
        assert_eq!(headline(&key.repeat(2)), "");
    }

    #[test]
    fn glob_matches_whole_text() {
        let yes = [
            ("*", ""),
            ("get_*", "get_item"),
            ("*_list", "a_list"),
            ("a*b*c", "a-b-b-c"),
            ("x", "x"),
        ];
        let no = [
            ("get_*", "forget_it"),
            ("*_list", "lists"),
            ("a*b*c", "a-c-b"),
            ("x", "xx"),
            ("a*a", "a"),
        ];
        assert!(yes.iter().all(|(glob, text)| glob_matches(glob, text)));
        assert!(no.iter().all(|(glob, text)| !glob_matches(glob, text)));
    }
}
