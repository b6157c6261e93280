//! Redacts credentials after `Bearer` and `Basic` in text (E7).

use super::REDACTED;
use memchr::memchr2_iter;

/// Minimum characters of a credential. Shorter words follow `bearer` and `basic` in prose.
const CREDENTIAL_CHARS_MIN: usize = 8;
/// Words of prose after `bearer`.
const BEARER_PROSE: [&str; 4] = ["authentication", "authorization", "credential", "credentials"];

/// Returns `text` with the credentials replaced, or `None` if it has none.
pub(super) fn redact_credentials(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut clean, mut copied) = (String::new(), 0);
    for start in memchr2_iter(b'b', b'B', bytes) {
        let is_word_start = start == 0 || !bytes[start - 1].is_ascii_alphanumeric();
        if start < copied || !is_word_start {
            continue;
        }
        let Some((scheme_length, is_credential)) = parse_scheme(&bytes[start..]) else { continue };
        let after = start + scheme_length;
        let spaces = bytes[after..].iter().take_while(|byte| **byte == b' ').count();
        if spaces == 0 {
            continue;
        }
        let from = after + spaces;
        let is_credential_byte =
            |byte: &&u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
        let length = bytes[from..].iter().take_while(is_credential_byte).count();
        let credential = text[from..from + length].trim_end_matches('.');
        if credential.len() < CREDENTIAL_CHARS_MIN || !is_credential(credential) {
            continue;
        }
        clean.push_str(&text[copied..from]);
        clean.push_str(REDACTED);
        copied = from + credential.len();
    }
    (copied > 0).then(|| clean + &text[copied..])
}

/// Tells whether a text after a scheme is a credential.
type CredentialTest = fn(&str) -> bool;

/// Returns the length of the scheme at the start of `bytes`, and the test for its credentials.
fn parse_scheme(bytes: &[u8]) -> Option<(usize, CredentialTest)> {
    let is_scheme = |scheme: &[u8]| {
        bytes.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    if is_scheme(b"bearer") {
        return Some((6, |text| !BEARER_PROSE.iter().any(|word| text.eq_ignore_ascii_case(word))));
    }
    // Base64 of a user and a password has digits or capitals, the words after "basic" have none.
    let is_base64 = |text: &str| {
        text.bytes().skip(1).any(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase())
    };
    is_scheme(b"basic").then_some((5, is_base64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e7_bearer_and_basic_credentials_in_text_are_redacted() {
        for (text, redacted) in [
            ("Bearer abcdefgh", Some("Bearer [redacted]")),
            ("sent bearer  a.b-c_d/e+f== twice", Some("sent bearer  [redacted] twice")),
            (
                "(Basic dXNlcjpwYXNz), BEARER 12345678.",
                Some("(Basic [redacted]), BEARER [redacted]."),
            ),
            ("Bearer [redacted]", None),
            ("bearer of bad news, basic understanding, Bearer authentication", None),
            ("Basic Authentication failed; a bare Bearer", None),
            ("forbearer abcdefghij", None),
            ("bearerabcdefghij b", None),
        ] {
            assert_eq!(redact_credentials(text).as_deref(), redacted, "{text}");
        }
    }
}
