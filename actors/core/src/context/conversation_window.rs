//! Selects the part of a conversation that fits into a request.
//!
//! A conversation is divided into rounds. A round is a user message, or an assistant message with
//! the results of its calls. A request contains whole rounds only, so a call is never separated from
//! its result.

use super::token_estimate;
use crate::{
    ids::MessageId,
    limits::CONTEXT_RESULT_BYTES_MIN,
    message::{CallResult, Message},
    text::truncate,
};
use std::sync::Arc;

/// Replaces earlier messages that are left out.
pub(super) const LEFT_OUT_NOTE: &str = "(Earlier messages of this conversation are left out here: they \
    are too long.)";

/// The part of the conversation included in a request.
#[derive(Debug, Default)]
pub(super) struct ConversationWindow {
    /// The messages; the first is a note if earlier messages are left out.
    pub(super) messages: Vec<Message>,
    /// Number of messages left out, from the beginning.
    pub(super) left_out: usize,
    /// Number of truncated results.
    pub(super) cut: usize,
    /// Estimated tokens of `messages`.
    pub(super) tokens: u64,
}

impl ConversationWindow {
    /// Returns the part that fits into `budget` tokens of a conversation with the given number of
    /// messages and tokens. Always includes the last round, with truncated results if it is too large.
    ///
    /// Messages are dropped from the beginning in strides of half the budget. The first included
    /// message therefore stays the same for many steps, and the provider's cache hits. Messages older
    /// than that are not visited, so a long conversation costs no more than a full window.
    pub(super) fn fit<'a>(
        newest_first: impl Iterator<Item = &'a Message>,
        (count, tokens): (usize, u64),
        budget: u64,
    ) -> Self {
        let stride = (budget / 2).max(1);
        let left_out = tokens.saturating_sub(budget).div_ceil(stride).saturating_mul(stride);
        let (mut included, mut rounds) = (Vec::new(), 0_u32);
        // Messages and tokens of the complete rounds, and tokens of all visited messages.
        let (mut kept, mut kept_tokens, mut visited_tokens) = (0, 0, 0);
        for message in newest_first {
            visited_tokens += token_estimate::estimate_message_tokens(message);
            included.push(message);
            if is_result(message) {
                continue;
            }
            if rounds > 0 && tokens.saturating_sub(visited_tokens) < left_out {
                break;
            }
            (kept, kept_tokens, rounds) = (included.len(), visited_tokens, rounds + 1);
        }
        included.truncate(kept);
        let mut window = Self { left_out: count - kept, ..Self::default() };
        if window.left_out > 0 {
            window.messages.push(note_message(LEFT_OUT_NOTE));
        }
        let is_too_large = rounds == 1 && kept_tokens > budget;
        for message in included.into_iter().rev() {
            let message = match message {
                Message::ToolResults(results) if is_too_large => {
                    Message::ToolResults(window.truncate_results(results, budget))
                }
                Message::User { .. } | Message::Assistant(_) | Message::ToolResults(_) => {
                    Message::clone(message)
                }
            };
            window.messages.push(message);
        }
        window.tokens = window.messages.iter().map(token_estimate::estimate_message_tokens).sum();
        window
    }

    /// Returns the results; those longer than an equal share of `budget` are truncated.
    fn truncate_results(&mut self, results: &[CallResult], budget: u64) -> Vec<CallResult> {
        let share =
            budget.saturating_mul(token_estimate::BYTES_PER_TOKEN) / results.len().max(1) as u64;
        let share = usize::try_from(share).unwrap_or(usize::MAX).max(CONTEXT_RESULT_BYTES_MIN);
        let fit = |result: &CallResult| {
            let mut result = result.clone();
            if result.text.len() > share {
                self.cut += 1;
                let kept = truncate(&result.text, share);
                let total = result.text.len();
                result.text =
                    format!("{kept}\n[cut: {} of {total} bytes are shown]", kept.len()).into();
            }
            result
        };
        results.iter().map(fit).collect()
    }
}

/// True if `message` belongs to the round of the message before it.
fn is_result(message: &Message) -> bool {
    match message {
        Message::ToolResults(_) => true,
        Message::User { .. } | Message::Assistant(_) => false,
    }
}

/// Creates a message by Greenroom for the beginning of a conversation.
pub(super) fn note_message(text: &str) -> Message {
    let message_id = MessageId::parse("context").expect("a literal id is valid");
    Message::User { message_id, text: Arc::from(text) }
}

/// Returns the rounds as ranges of message indexes.
pub(super) fn split_rounds(messages: &[&Message]) -> Vec<std::ops::Range<usize>> {
    let mut rounds: Vec<std::ops::Range<usize>> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        match rounds.last_mut() {
            Some(round) if is_result(message) => round.end = index + 1,
            Some(_) | None => rounds.push(index..index + 1),
        }
    }
    rounds
}

pub(super) fn total_tokens(messages: &[&Message]) -> u64 {
    messages.iter().map(|message| token_estimate::estimate_message_tokens(message)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ids::CallId,
        message::{Arguments, AssistantMessage, ProposedCall},
    };
    use serde_json::json;
    use uuid::Uuid;

    fn user(text: &str) -> Message {
        Message::User { message_id: MessageId::parse("m").unwrap(), text: text.into() }
    }

    fn assistant(calls: usize) -> Message {
        let call = |n: usize| ProposedCall {
            call_id: CallId(Uuid::from_u128(n as u128)),
            provider_id: String::new(),
            tool: "t".to_owned(),
            arguments: Arguments::Json(json!({})),
        };
        let calls = (0..calls).map(call).collect();
        let message = AssistantMessage { text: "said".to_owned(), calls, ..Default::default() };
        Message::Assistant(Arc::new(message))
    }

    fn results(texts: &[&str]) -> Message {
        let result = |(n, text): (usize, &&str)| CallResult {
            call_id: CallId(Uuid::from_u128(n as u128)),
            provider_id: String::new(),
            tool: "t".to_owned(),
            text: (*text).into(),
            is_error: false,
        };
        Message::ToolResults(texts.iter().enumerate().map(result).collect())
    }

    fn window(messages: &[Message], budget: u64) -> ConversationWindow {
        let all = (messages.len(), total_tokens(&messages.iter().collect::<Vec<_>>()));
        ConversationWindow::fit(messages.iter().rev(), all, budget)
    }

    #[test]
    fn c1_fitting_conversation_is_included_completely() {
        let messages = [user("hello"), assistant(1), results(&["42"]), assistant(0)];
        let window_of_all = window(&messages, 1000);
        assert_eq!(window_of_all.messages, messages);
        assert_eq!((window_of_all.left_out, window_of_all.cut), (0, 0));
        assert_eq!(window(&[], 10).messages, []);
    }

    #[test]
    fn c1_oldest_rounds_are_dropped_first_and_calls_keep_their_results() {
        let mut messages = vec![user("begin")];
        for _ in 0..40 {
            messages.extend([assistant(2), results(&["a result", "another"])]);
        }
        for budget in 1..2000 {
            let window = window(&messages, budget);
            let kept = &messages[window.left_out..];
            assert!(!matches!(kept[0], Message::ToolResults(_)), "{budget}: split round");
            if window.left_out > 0 {
                assert_eq!(window.messages[0], note_message(LEFT_OUT_NOTE));
                assert_eq!(window.messages.len(), kept.len() + 1);
            }
            let tokens_max = budget.max(total_tokens(&messages.iter().collect::<Vec<_>>()[79..]));
            assert!(
                window.tokens
                    <= tokens_max
                        + token_estimate::estimate_message_tokens(&note_message(LEFT_OUT_NOTE)),
                "{budget}"
            );
        }
    }

    #[test]
    fn c1_first_included_message_stays_for_many_steps() {
        let messages: Vec<_> = (0..400).map(|n| user(&format!("message {n:04}"))).collect();
        let budget = 40 * token_estimate::estimate_message_tokens(&messages[0]);
        let starts: Vec<_> = (1..=400).map(|n| window(&messages[..n], budget).left_out).collect();
        assert!(starts.is_sorted());
        let moves = starts.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((10..25).contains(&moves), "{moves} new beginnings in 400 messages");
    }

    #[test]
    fn c1_omitted_messages_are_not_visited() {
        let messages: Vec<_> = (0..10_000).map(|n| user(&format!("message {n:04}"))).collect();
        let each = token_estimate::estimate_message_tokens(&messages[0]);
        let all = (messages.len(), each * messages.len() as u64);
        let visited = std::cell::Cell::new(0);
        let newest_first = messages.iter().rev().inspect(|_| visited.set(visited.get() + 1));
        let window = ConversationWindow::fit(newest_first, all, 40 * each);
        assert!((20..=40).contains(&(window.messages.len() - 1)), "{}", window.messages.len());
        assert_eq!(visited.get(), window.messages.len(), "the note replaces one visited message");
    }

    #[test]
    fn c1_last_round_is_kept_with_truncated_results() {
        let long = "é".repeat(20_000);
        let messages = [user("go"), assistant(2), results(&[&long, "short"])];
        let window = window(&messages, 3_000);
        assert_eq!(window.cut, 1);
        let Some(Message::ToolResults(results)) = window.messages.last() else {
            panic!("no results")
        };
        assert!(
            results[0].text.ends_with("[cut: 4500 of 40000 bytes are shown]"),
            "{}",
            results[0].text
        );
        assert_eq!(&*results[1].text, "short");
    }
}
