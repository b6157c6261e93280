//! Tracks which text a client has, so that text is withdrawn only where some was sent. Pure.

use super::ServerMessage;
use greenroom_core::{cursor::Cursor, ids::MessageId};

/// The message whose text the client received last.
#[derive(Debug)]
pub struct SentText {
    message_id: Option<MessageId>,
    /// True until the first delta of a stream that resumes inside a message, whose id is not known.
    is_inside_message: bool,
}

impl SentText {
    /// Starts at the cursor of a stream.
    pub fn from_cursor(cursor: Cursor) -> Self {
        Self { message_id: None, is_inside_message: cursor.offset > 0 }
    }

    /// Records a message that is sent. Removes the text that withdraws a message of which the client
    /// has no text.
    pub fn apply(&mut self, message: &mut ServerMessage) {
        let ServerMessage::ChatStreamDelta { delta, message_id, discarded, .. } = message else {
            return;
        };
        let has_text = self.is_inside_message || self.message_id == *message_id;
        if *discarded && !has_text {
            delta.clear();
        }
        self.message_id = message_id.clone().filter(|_| !*discarded);
        self.is_inside_message = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the deltas that a client receives; each is `(message, discarded)`.
    fn sent(cursor: &str, messages: &[(&str, bool)]) -> Vec<String> {
        let mut sent_text = SentText::from_cursor(cursor.parse().unwrap());
        let mut send = |(id, discarded): &(&str, bool)| {
            let mut message = ServerMessage::ChatStreamDelta {
                request_id: MessageId::parse("r-1").unwrap(),
                delta: if *discarded { "withdrawn" } else { "text" }.to_owned(),
                message_id: Some(MessageId::parse(id).unwrap()),
                discarded: *discarded,
                notice: false,
            };
            sent_text.apply(&mut message);
            let ServerMessage::ChatStreamDelta { delta, .. } = message else { panic!() };
            delta
        };
        messages.iter().map(&mut send).collect()
    }

    #[test]
    fn m3_only_text_that_was_sent_is_withdrawn() {
        let (text, discard) = (false, true);
        let interrupted = [("a", text), ("a", discard), ("b", text)];
        assert_eq!(sent("7", &interrupted), ["text", "withdrawn", "text"]);
        // The stream starts after the text of `a`, which was not stored.
        assert_eq!(sent("7", &[("a", discard), ("b", text)]), ["", "text"]);
        assert_eq!(sent("7", &[("a", text), ("b", discard)]), ["text", ""]);
        // The client received the text before the cursor.
        assert_eq!(sent("7.3", &[("a", discard), ("b", discard)]), ["withdrawn", ""]);
    }
}
