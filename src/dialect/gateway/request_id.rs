//! The ids that clients choose for their requests. Pure.
//!
//! A random id identifies a request wherever it arrives. An id without randomness, such as a counter
//! that begins at "1" on each connection, identifies a request only on its connection or in its
//! session.

use greenroom_core::{ids::MessageId, json::Digest, limits::TEXT_ID_CHARS_MAX};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Characters of a ULID: 10 of time and 16 random ones.
const ULID_CHARS: usize = 26;
/// Characters of an id of nanoid.
const NANOID_CHARS: usize = 21;
/// Minimum different characters of a random id. Excludes padded counters, and practically no random
/// id: a ULID has fewer once in 10⁷.
const DIFFERENT_CHARS_MIN: usize = 6;
/// Separates the id of a request from the digest of its content in the id of its message.
const DIGEST_SEPARATOR: char = '~';
/// Characters of the digest in the id of a message.
const DIGEST_CHARS: usize = 16;

/// True if the form of the id contains at least 64 random bits: a UUID of version 4 or 7, a ULID, or
/// an id of nanoid.
pub fn is_random(id: &MessageId) -> bool {
    let id = id.as_str();
    let different: BTreeSet<char> = id.chars().collect();
    different.len() >= DIFFERENT_CHARS_MIN && (is_random_uuid(id) || is_ulid(id) || is_nanoid(id))
}

fn is_random_uuid(id: &str) -> bool {
    let uuid = Uuid::try_parse(id).ok();
    uuid.is_some_and(|uuid| {
        uuid.get_variant() == uuid::Variant::RFC4122 && matches!(uuid.get_version_num(), 4 | 7)
    })
}

/// True for Crockford's base 32 within 128 bits.
fn is_ulid(id: &str) -> bool {
    let is_digit = |byte: u8| {
        byte.is_ascii_alphanumeric()
            && !matches!(byte.to_ascii_uppercase(), b'I' | b'L' | b'O' | b'U')
    };
    id.len() == ULID_CHARS && id.bytes().all(is_digit) && matches!(id.as_bytes()[0], b'0'..=b'7')
}

fn is_nanoid(id: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    id.len() == NANOID_CHARS && id.bytes().all(is_digit)
}

/// Returns the id of the message of a request whose own id another message of the session has. It
/// depends on the content, so that a repeated request has the same message.
pub fn message_id_with_digest(request_id: &MessageId, digest: Digest) -> MessageId {
    let digest: String = digest
        .as_bytes()
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .take(DIGEST_CHARS)
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect();
    with_suffix(request_id, &digest)
}

/// True if the message with this id may belong to the request.
pub fn is_message_of(message_id: &MessageId, request_id: &MessageId) -> bool {
    let has_suffix = || {
        let (_, suffix) = message_id.as_str().rsplit_once(DIGEST_SEPARATOR)?;
        let is_digest =
            suffix.len() == DIGEST_CHARS && suffix.bytes().all(|c| c.is_ascii_hexdigit());
        (is_digest && with_suffix(request_id, suffix) == *message_id).then_some(())
    };
    message_id == request_id || has_suffix().is_some()
}

fn with_suffix(request_id: &MessageId, suffix: &str) -> MessageId {
    let kept = TEXT_ID_CHARS_MAX - DIGEST_CHARS - 1;
    let prefix: String = request_id.as_str().chars().take(kept).collect();
    let text = format!("{prefix}{DIGEST_SEPARATOR}{suffix}");
    // The text has no more characters than an id may have.
    MessageId::parse(&text).unwrap_or_else(|_| request_id.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> MessageId {
        MessageId::parse(text).unwrap()
    }

    #[test]
    fn s5_id_is_random_by_its_form() {
        for (text, expected) in [
            ("f81d4fae-7dec-4d2a-a765-00a0c91e6bf6", true),
            ("0198c0de-7a1b-7c3d-9e5f-00a0c91e6bf6", true),
            ("F81D4FAE7DEC4D2AA76500A0C91E6BF6", true),
            ("01JDX6P3M8Q2V7N4K9T5R1W0ZB", true),
            ("01jdx6p3m8q2v7n4k9t5r1w0zb", true),
            ("V1StGXR8_Z5jdHi6B-myT", true),
            // Counters and names.
            ("1", false),
            ("r-1", false),
            ("request-1", false),
            ("00000000-0000-4000-8000-000000000001", false),
            ("00000000000000000000000001", false),
            ("000000000000000000001", false),
            // Versions without randomness, and wrong lengths or characters.
            ("f81d4fae-7dec-11d0-a765-00a0c91e6bf6", false),
            ("f81d4fae-7dec-5d2a-a765-00a0c91e6bf6", false),
            ("01JDX6P3M8Q2V7N4K9T5R1W0Z", false),
            ("81JDX6P3M8Q2V7N4K9T5R1W0ZB", false),
            ("01JDX6P3M8Q2V7N4K9T5R1W0ZU", false),
            ("V1StGXR8_Z5jdHi6B-my", false),
            ("V1StGXR8 Z5jdHi6B-myT", false),
        ] {
            assert_eq!(is_random(&id(text)), expected, "{text}");
        }
    }

    #[test]
    fn s5_message_id_with_digest_belongs_to_its_request() {
        let (first, second) = (Digest::hash_bytes(b"a"), Digest::hash_bytes(b"b"));
        let long = "x".repeat(TEXT_ID_CHARS_MAX);
        for request_id in ["1", "1~2", &long] {
            let request_id = id(request_id);
            let message_id = message_id_with_digest(&request_id, first);
            assert_eq!(message_id, message_id_with_digest(&request_id, first));
            assert_ne!(message_id, message_id_with_digest(&request_id, second));
            assert!(is_message_of(&message_id, &request_id), "{message_id}");
            assert!(is_message_of(&request_id, &request_id));
            assert!(!is_message_of(&message_id, &id("2")));
        }
        assert_eq!(message_id_with_digest(&id("1"), first).as_str(), "1~ca978112ca1bbdca");
        assert!(!is_message_of(&id("1~2"), &id("1")));
    }
}
