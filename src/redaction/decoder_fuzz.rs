//! Fuzz tests of the redactor, which parses what models and tools wrote: no text causes a panic, and
//! a secret never remains.

use super::{REDACTED, Redactor};
use crate::hostile_input;
use proptest::prelude::*;

const SECRET: &str = "s3cr3t-s3cr3t";

const TEXTS: &[&str] = &[
    r#"{"password": "a b", 'token': 'x', "text": "{\"api_key\": \"y\"}", "n": [1, "s3cr3t-s3cr3t"]}"#,
    "Authorization: Bearer abc, password=hunter2; see \\\"secret\\\": \\\"v\\\" s3cr3t-s3cr3t",
];

const VALUES: &[&str] = &[
    r#"{"password":"a","nested":[{"token":["x","s3cr3t-s3cr3t"]},"{\"secret\":\"y\"}"],"s3cr3t-s3cr3t":1}"#,
];

proptest! {
    #[test]
    fn e7_texts_are_redacted_once_and_for_all(text in hostile_input::text(TEXTS)) {
        let redactor = Redactor::new([SECRET.to_owned()]);
        let redacted = redactor.redact_text(&text).into_owned();
        prop_assert!(!redacted.contains(SECRET), "{redacted}");
        prop_assert_eq!(redactor.redact_text(&redacted), redacted.as_str());
    }

    #[test]
    fn e7_values_are_redacted_and_restored(
        original in hostile_input::json(VALUES),
        edited in hostile_input::json(VALUES),
    ) {
        let redactor = Redactor::new([SECRET.to_owned()]);
        let redacted = redactor.redact_value(original.clone());
        prop_assert!(!redacted.to_string().contains(SECRET));
        redactor.restore(&original, edited);
        if !original.to_string().contains(REDACTED) {
            prop_assert_eq!(redactor.restore(&original, redactor.redact_value(original.clone())), original.clone());
        }
    }
}
