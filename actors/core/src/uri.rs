//! What a URI of a resource may not hold.
//!
//! Rights to resources are globs over their URIs as they are written, while a server may read `..` as
//! "one up" and `%2e` as a dot. So a URI that would mean another place than it says is for nobody.

/// Whether some segment of `uri` is `.` or `..`, however often it is percent-encoded.
///
/// What separates segments is `/` or `\`, encoded or not, and the marks around a path and its parts.
/// Spaces and control characters count as absent, since parsers of URIs strip them. Takes time in
/// proportion to the length.
pub fn has_dot_segment(uri: &str) -> bool {
    let plain = fully_decode(uri);
    plain.split(|byte| b"/\\:?#;&=".contains(byte)).any(|part| matches!(part, b"." | b".."))
}

/// The bytes of `uri` with nothing left to decode.
fn fully_decode(uri: &str) -> Vec<u8> {
    let mut plain = Vec::with_capacity(uri.len());
    for byte in uri.bytes() {
        plain.push(byte);
        // What was decoded may complete the next: `%252e` is `%2e`, and that a dot.
        while let Some(byte) = last_encoded(&plain) {
            plain.truncate(plain.len() - 3);
            plain.push(byte);
        }
        plain.pop_if(|byte| *byte <= b' ' || *byte == 0x7f);
    }
    plain
}

/// The byte that the end of `plain` stands for.
fn last_encoded(plain: &[u8]) -> Option<u8> {
    let [.., b'%', high, low] = *plain else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn x5_dot_segments_are_found_however_they_are_written() {
        for uri in [
            "file:///handbook/../secret.md",
            "file:///handbook/%2e%2e/secret.md",
            "file:///handbook/%2E./secret.md",
            "file:///handbook/%252e%252E/secret.md",
            "file:///handbook/%25252e./secret.md",
            "file:///handbook/%%32e./secret.md",
            "file:///handbook/..%2fsecret.md",
            "file:///handbook%2F..%5csecret.md",
            "file:///handbook\\..\\secret.md",
            "file:///handbook/./a.md",
            "file:///handbook/..",
            "file:///handbook/..?v=1",
            "file:///handbook/..;a/secret.md",
            "file:///handbook/.\t./secret.md",
            "file:///handbook/.%0a./secret.md",
            "file:///handbook/.. /secret.md",
            "file:../secret.md",
            "api://files?path=../secret.md",
            "../secret.md",
        ] {
            assert!(has_dot_segment(uri), "{uri}");
        }
    }

    #[test]
    fn x5_dots_within_a_segment_are_none() {
        for uri in [
            "",
            "file:///handbook/a.md",
            "file:///handbook/.hidden",
            "file:///handbook/a..b/...",
            "file:///handbook/%2e%2ea",
            "file:///handbook/100%",
            "file:///handbook/{name}.md",
            "demo://resource/dynamic/text/7?v=1.2..1.3",
        ] {
            assert!(!has_dot_segment(uri), "{uri}");
        }
    }

    /// `text` with some of its characters percent-encoded, in either case.
    fn encoded(text: &str) -> impl Strategy<Value = String> + use<> {
        let ways = |character: char| {
            let code = u32::from(character);
            prop::sample::select(vec![
                character.to_string(),
                format!("%{code:02x}"),
                format!("%{code:02X}"),
            ])
        };
        let pieces: Vec<_> = text.chars().map(ways).collect();
        pieces.prop_map(|pieces| pieces.concat())
    }

    /// The same, time after time.
    fn encoded_repeatedly(text: String) -> impl Strategy<Value = String> {
        let once = |text: BoxedStrategy<String>| text.prop_flat_map(|it| encoded(&it)).boxed();
        (0..4).prop_flat_map(move |times| {
            (0..times).fold(Just(text.clone()).boxed(), |it, _| once(it))
        })
    }

    proptest! {
        #[test]
        fn x5_no_encoding_hides_a_dot_segment(
            uri in ("[a-z.%]{0,4}", "[/\\\\]", "\\.\\.?", "([/\\\\][a-z0-9.%]{0,4})?").prop_flat_map(
                |(before, up, dots, after)| {
                    encoded_repeatedly(format!("{up}{dots}{after}"))
                        .prop_map(move |rest| format!("file:///{before}{rest}"))
                },
            )
        ) {
            prop_assert!(has_dot_segment(&uri), "{uri}");
        }

        #[test]
        fn x5_names_are_no_dot_segments(
            uri in prop::collection::vec("[a-z0-9_-]{1,4}(\\.{1,2}[a-z]{0,2})?", 1..5)
                .prop_flat_map(|names| encoded_repeatedly(format!("file:///{}", names.join("/"))))
        ) {
            prop_assert!(!has_dot_segment(&uri), "{uri}");
        }
    }
}
