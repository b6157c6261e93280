//! Small, pure operations on text.

/// The longest start of `text` that has at most `bytes_max` bytes and ends between characters.
pub fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
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
        assert_eq!(cut("aé€", 0), "");
        assert_eq!(cut("aé€", 2), "a");
        assert_eq!(cut("aé€", 3), "aé");
        assert_eq!(cut("aé€", 99), "aé€");
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
