//! Detects dot segments in resource URIs.
//!
//! Permissions for resources are globs over URIs as written, but a server may resolve `..` to the
//! parent folder and `%2e` to a dot. A URI that contains a dot segment, and so may address another
//! resource than its text suggests, is therefore denied to every agent.

/// True if a segment of `uri` is `.` or `..`, with any number of percent-encodings.
///
/// Segments are separated by `/` or `\`, encoded or not, and by the delimiters of a URI's path and
/// query. Spaces and control characters are ignored, because URI parsers strip them. Runs in time
/// proportional to the length.
pub fn has_dot_segment(uri: &str) -> bool {
    let decoded = fully_decode(uri);
    decoded.split(|byte| b"/\\:?#;&=".contains(byte)).any(|part| matches!(part, b"." | b".."))
}

/// Returns the bytes of `uri`, percent-decoded until no encoding is left.
fn fully_decode(uri: &str) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(uri.len());
    for byte in uri.bytes() {
        decoded.push(byte);
        // A decoded byte may complete another encoding: `%252e` is `%2e`, which is a dot.
        while let Some(byte) = decode_last(&decoded) {
            decoded.truncate(decoded.len() - 3);
            decoded.push(byte);
        }
        decoded.pop_if(|byte| *byte <= b' ' || *byte == 0x7f);
    }
    decoded
}

/// Returns the byte that the last three bytes of `bytes` encode, if they are a percent-encoding.
fn decode_last(bytes: &[u8]) -> Option<u8> {
    let [.., b'%', high, low] = *bytes else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some(digit(high)? << 4 | digit(low)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn x5_dot_segments_are_found_in_every_encoding() {
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
    fn x5_dots_within_a_segment_are_accepted() {
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

    /// Generates `text` with some characters percent-encoded, with hexadecimal digits of either case.
    fn encoded(text: &str) -> impl Strategy<Value = String> + use<> {
        let encodings = |character: char| {
            let code = u32::from(character);
            prop::sample::select(vec![
                character.to_string(),
                format!("%{code:02x}"),
                format!("%{code:02X}"),
            ])
        };
        let pieces: Vec<_> = text.chars().map(encodings).collect();
        pieces.prop_map(|pieces| pieces.concat())
    }

    /// Generates `text` encoded up to three times.
    fn encoded_repeatedly(text: String) -> impl Strategy<Value = String> {
        let encode_once =
            |strategy: BoxedStrategy<String>| strategy.prop_flat_map(|text| encoded(&text)).boxed();
        (0..4).prop_flat_map(move |times| {
            (0..times).fold(Just(text.clone()).boxed(), |strategy, _| encode_once(strategy))
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
        fn x5_names_are_not_dot_segments(
            uri in prop::collection::vec("[a-z0-9_-]{1,4}(\\.{1,2}[a-z]{0,2})?", 1..5)
                .prop_flat_map(|names| encoded_repeatedly(format!("file:///{}", names.join("/"))))
        ) {
            prop_assert!(!has_dot_segment(&uri), "{uri}");
        }
    }
}
