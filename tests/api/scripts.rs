//! What the scripted model says where the tour is not enough.

/// A story of 600 characters with two- to four-byte ones among them, in small pieces, so that a
/// client can be cut off in the middle.
pub(crate) const STORY: &str = r#"
[[rule]]
user = "story"
chunk = { text = 7, delay_ms = 2 }
[[rule.reply]]
for_each = "range(12)"
text = "Zoë über Ærø – 🚀 number {{ item }} of the fleet goes home; "
"#;

/// A message that stops in its middle the first time it is asked for.
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
/// The whole of it.
pub(crate) const STALLED_TEXT: &str =
    "This is the first half of what I say, and then there is a second half of it.";

/// Calls one tool with these arguments when told to go, and reads its result back.
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

/// Arguments of a small order.
pub(crate) const ORDER: &str =
    r#"{ type_id = 34, region_id = 10000002, side = "buy", quantity = 10, price = 4.12 }"#;
