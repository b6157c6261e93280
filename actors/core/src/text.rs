//! Small, pure operations on text.

use crate::limits::HEADLINE_CHARS_MAX;

/// The longest start of `text` that has at most `bytes_max` bytes and ends between characters.
pub fn truncate(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// The first line of `text` that says something, at most [`HEADLINE_CHARS_MAX`] characters of it; empty
/// where there is none.
///
/// It is never cut inside a word of ASCII: half a secret is not known for one any more (E7).
pub fn headline(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let Some((end, next)) = line.char_indices().nth(HEADLINE_CHARS_MAX) else {
        return line.to_owned();
    };
    let parts_words = |c: char| c.is_whitespace() || !c.is_ascii();
    let kept = if parts_words(next) {
        &line[..end]
    } else {
        line[..end].trim_end_matches(|c| !parts_words(c))
    };
    let kept = kept.trim_end();
    if kept.is_empty() { String::new() } else { format!("{kept}…") }
}

/// Whether `text` matches `glob`, in which `*` stands for any text and all else for itself.
///
/// Takes time in proportion to both lengths, whatever they hold.
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let mut pieces = glob.split('*');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = pieces.next_back() else { return rest.is_empty() };
    for piece in pieces {
        // The earliest match leaves the most for the pieces that follow.
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_cuts_inside_a_character() {
        assert_eq!(truncate("aé€", 0), "");
        assert_eq!(truncate("aé€", 2), "a");
        assert_eq!(truncate("aé€", 3), "aé");
        assert_eq!(truncate("aé€", 99), "aé€");
    }

    #[test]
    fn a_headline_is_a_short_line() {
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
    fn e7_a_headline_has_no_part_of_a_word() {
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
    fn globs_match_whole_names() {
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
