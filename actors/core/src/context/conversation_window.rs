//! Which part of a conversation a request has room for.
//!
//! A conversation is cut into rounds: what a person said, or what the model said with the results of
//! its calls. A round is in the request or it is not; a call never loses its result.

use super::token_estimate;
use crate::{
    ids::MessageId,
    limits::CONTEXT_RESULT_BYTES_MIN,
    message::{CallResult, Message},
    text::truncate,
};
use std::sync::Arc;

/// What stands where earlier messages are left out.
pub(super) const LEFT_OUT_NOTE: &str = "(Earlier messages of this conversation are left out here: they \
    are too long.)";

/// What of a conversation is told.
#[derive(Debug, Default)]
pub(super) struct ConversationWindow {
    /// The messages, a note on what is missing first if something is.
    pub(super) messages: Vec<Message>,
    /// Messages from the beginning that are not among them.
    pub(super) left_out: usize,
    /// Results that are cut.
    pub(super) cut: usize,
    /// Tokens of the messages.
    pub(super) tokens: u64,
}

impl ConversationWindow {
    /// The part that fits into `budget` tokens of a conversation of so many messages and tokens; of
    /// the last round, whatever it takes, with its results cut if need be.
    ///
    /// What is left out goes in strides of half the budget, from the conversation's beginning. So the
    /// beginning of what is told stays as it is for many steps, and the provider's cache hits. Nothing
    /// older than it is looked at, so that a long conversation costs no more than a full window.
    pub(super) fn fit<'a>(
        newest_first: impl Iterator<Item = &'a Message>,
        (count, tokens): (usize, u64),
        budget: u64,
    ) -> Self {
        let stride = (budget / 2).max(1);
        let left_out = tokens.saturating_sub(budget).div_ceil(stride).saturating_mul(stride);
        let (mut told, mut rounds) = (Vec::new(), 0_u32);
        // Messages and tokens of the rounds that are whole.
        let (mut kept, mut kept_tokens, mut walked) = (0, 0, 0);
        for message in newest_first {
            walked += token_estimate::estimate_message_tokens(message);
            told.push(message);
            if is_result(message) {
                continue;
            }
            if rounds > 0 && tokens.saturating_sub(walked) < left_out {
                break;
            }
            (kept, kept_tokens, rounds) = (told.len(), walked, rounds + 1);
        }
        told.truncate(kept);
        let mut window = Self { left_out: count - kept, ..Self::default() };
        if window.left_out > 0 {
            window.messages.push(note_message(LEFT_OUT_NOTE));
        }
        let is_too_large = rounds == 1 && kept_tokens > budget;
        for message in told.into_iter().rev() {
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

    /// The results, the long ones cut so that all together have room.
    fn truncate_results(&mut self, results: &[CallResult], budget: u64) -> Vec<CallResult> {
        let share =
            budget.saturating_mul(token_estimate::BYTES_PER_TOKEN) / results.len().max(1) as u64;
        let share = usize::try_from(share).unwrap_or(usize::MAX).max(CONTEXT_RESULT_BYTES_MIN);
        let fit = |result: &CallResult| {
            let mut result = result.clone();
            if result.text.len() > share {
                self.cut += 1;
                let kept = truncate(&result.text, share);
                let all = result.text.len();
                result.text =
                    format!("{kept}\n[cut: {} of {all} bytes are shown]", kept.len()).into();
            }
            result
        };
        results.iter().map(fit).collect()
    }
}

/// Whether it belongs to the round before it.
fn is_result(message: &Message) -> bool {
    match message {
        Message::ToolResults(_) => true,
        Message::User { .. } | Message::Assistant(_) => false,
    }
}

/// A remark of ours at the beginning of a conversation.
pub(super) fn note_message(text: &str) -> Message {
    let message_id = MessageId::parse("context").expect("it is a short word");
    Message::User { message_id, text: Arc::from(text) }
}

/// The rounds, by the places of their messages.
pub(super) fn split_rounds(messages: &[&Message]) -> Vec<std::ops::Range<usize>> {
    let mut rounds: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match rounds.last_mut() {
            Some(round) if is_result(message) => round.end = at + 1,
            Some(_) | None => rounds.push(at..at + 1),
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

    fn said(calls: usize) -> Message {
        let call = |n: usize| ProposedCall {
            call_id: CallId(Uuid::from_u128(n as u128)),
            provider_id: String::new(),
            tool: "t".to_owned(),
            arguments: Arguments::Json(json!({})),
        };
        let calls = (0..calls).map(call).collect();
        let said = AssistantMessage { text: "said".to_owned(), calls, ..Default::default() };
        Message::Assistant(Arc::new(said))
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
    fn c1_a_conversation_that_fits_is_kept_whole() {
        let messages = [user("hello"), said(1), results(&["42"]), said(0)];
        let found = window(&messages, 1000);
        assert_eq!(found.messages, messages);
        assert_eq!((found.left_out, found.cut), (0, 0));
        assert_eq!(window(&[], 10).messages, []);
    }

    #[test]
    fn c1_oldest_rounds_are_dropped_first_and_calls_keep_their_results() {
        let mut messages = vec![user("begin")];
        for _ in 0..40 {
            messages.extend([said(2), results(&["a result", "another"])]);
        }
        for budget in 1..2000 {
            let found = window(&messages, budget);
            let kept = &messages[found.left_out..];
            assert!(!matches!(kept[0], Message::ToolResults(_)), "{budget}: torn");
            if found.left_out > 0 {
                assert_eq!(found.messages[0], note_message(LEFT_OUT_NOTE));
                assert_eq!(found.messages.len(), kept.len() + 1);
            }
            let room = budget.max(total_tokens(&messages.iter().collect::<Vec<_>>()[79..]));
            assert!(
                found.tokens
                    <= room + token_estimate::estimate_message_tokens(&note_message(LEFT_OUT_NOTE)),
                "{budget}"
            );
        }
    }

    #[test]
    fn c1_the_beginning_stays_for_many_steps() {
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
        let looked_at = std::cell::Cell::new(0);
        let newest_first = messages.iter().rev().inspect(|_| looked_at.set(looked_at.get() + 1));
        let found = ConversationWindow::fit(newest_first, all, 40 * each);
        assert!((20..=40).contains(&(found.messages.len() - 1)), "{}", found.messages.len());
        assert_eq!(looked_at.get(), found.messages.len(), "the note's place is one more");
    }

    #[test]
    fn c1_the_last_round_stays_with_its_results_cut() {
        let long = "é".repeat(20_000);
        let messages = [user("go"), said(2), results(&[&long, "short"])];
        let found = window(&messages, 3_000);
        assert_eq!(found.cut, 1);
        let Some(Message::ToolResults(told)) = found.messages.last() else { panic!("no results") };
        assert!(told[0].text.ends_with("[cut: 4500 of 40000 bytes are shown]"), "{}", told[0].text);
        assert_eq!(&*told[1].text, "short");
    }
}
