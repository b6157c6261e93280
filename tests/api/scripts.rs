//! Scripts of the scripted model for tests that need more than the tour.

/// A story of more than 600 characters, some of two to four bytes, in small chunks, so that a
/// client can be disconnected in the middle.
pub(crate) const STORY: &str = r#"
[[rule]]
user = "story"
chunk = { text = 7, delay_ms = 2 }
[[rule.reply]]
for_each = "range(12)"
text = "Zoë über Ærø – 🚀 number {{ item }} of the fleet goes home; "
"#;

/// A message whose stream stalls in the middle on the first request.
pub(crate) const STALLS_ONCE: &str = r#"
[[rule]]
user = "stall"
stall = { after = 40, times = 1 }
[[rule.reply]]
text = "This is the first half of what I say, and then there is a second half of it."
[[rule]]
user = "again"
[[rule.reply]]
text = "Here I am."
"#;
/// The complete message of [`STALLS_ONCE`].
pub(crate) const STALLED_TEXT: &str =
    "This is the first half of what I say, and then there is a second half of it.";

/// Returns a script that calls one tool with these arguments for the message "go", and quotes its
/// result.
pub(crate) fn tool_call_script(tool: &str, arguments: &str) -> String {
    format!(
        r#"
[[rule]]
user = "go"
step = 0
[[rule.reply]]
text = "Calling."
[[rule.reply]]
tool_call = {{ name = "{tool}", arguments = {arguments} }}
[[rule]]
user = "go"
step = 1
[[rule.reply]]
text = "Read: {{{{ last[0].text }}}}"
[[rule]]
user = "again"
[[rule.reply]]
text = "Here I am."
"#
    )
}

/// Arguments of a small market order.
pub(crate) const ORDER: &str =
    r#"{ type_id = 34, region_id = 10000002, side = "buy", quantity = 10, price = 4.12 }"#;
