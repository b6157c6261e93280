//! Which part of a conversation a request has room for.
//!
//! A conversation is cut into rounds: what a person said, or what the model said with the results of
//! its calls. A round is in the request or it is not; a call never loses its result.

use super::tokens;
use crate::{
    ids::MessageId,
    limits::CONTEXT_RESULT_BYTES_MIN,
    message::{CallResult, Message},
    text::cut,
};
use std::sync::Arc;

/// What stands where earlier messages are left out.
pub(super) const LEFT_OUT: &str = "(Earlier messages of this conversation are left out here: they \
    are too long.)";

/// What of a conversation is told.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The messages, a note on what is missing first if something is.
    pub(super) messages: Vec<Message>,
    /// Messages from the beginning that are not among them.
    pub(super) left_out: usize,
    /// Results that are cut.
    pub(super) cut: usize,
    /// Tokens of the messages.
    pub(super) tokens: u64,
}

impl Window {
    /// The part of `messages` that fits into `budget` tokens; of the last round, whatever it takes,
    /// with its results cut if need be.
    ///
    /// What is left out goes in strides: once the rounds outgrow the budget, the oldest go until half
    /// of it is free. So the beginning stays as it is for many steps, and the provider's cache hits.
    /// It depends on the messages alone, the earlier before the later.
    pub(super) fn of(messages: &[&Message], budget: u64) -> Self {
        let rounds = rounds(messages);
        let sizes: Vec<u64> = rounds.iter().map(|round| size(&messages[round.clone()])).collect();
        let (mut first, mut sum) = (0, 0);
        for (at, size) in sizes.iter().enumerate() {
            sum += size;
            if sum > budget {
                while first < at && sum > budget / 2 {
                    sum -= sizes[first];
                    first += 1;
                }
            }
        }
        let start = rounds.get(first).map_or(messages.len(), |round| round.start);
        let mut window = Self { left_out: start, ..Self::default() };
        if start > 0 {
            window.messages.push(note(LEFT_OUT));
        }
        let last = rounds.last().map_or(0, |round| round.start);
        let is_too_large = sum > budget && first + 1 >= rounds.len();
        for (at, message) in messages.iter().enumerate().skip(start) {
            let message = match message {
                Message::ToolResults(results) if is_too_large && at > last => {
                    Message::ToolResults(window.fitted(results, budget))
                }
                Message::User { .. } | Message::Assistant(_) | Message::ToolResults(_) => {
                    Message::clone(message)
                }
            };
            window.messages.push(message);
        }
        window.tokens = window.messages.iter().map(tokens::of_message).sum();
        window
    }

    /// The results, the long ones cut so that all together have room.
    fn fitted(&mut self, results: &[CallResult], budget: u64) -> Vec<CallResult> {
        let share = budget.saturating_mul(tokens::BYTES_PER_TOKEN) / results.len().max(1) as u64;
        let share = usize::try_from(share).unwrap_or(usize::MAX).max(CONTEXT_RESULT_BYTES_MIN);
        let fit = |result: &CallResult| {
            let mut result = result.clone();
            if result.text.len() > share {
                self.cut += 1;
                let kept = cut(&result.text, share);
                let all = result.text.len();
                result.text =
                    format!("{kept}\n[cut: {} of {all} bytes are shown]", kept.len()).into();
            }
            result
        };
        results.iter().map(fit).collect()
    }
}

/// A remark of ours at the beginning of a conversation.
pub(super) fn note(text: &str) -> Message {
    let message_id = MessageId::parse("context").expect("it is a short word");
    Message::User { message_id, text: Arc::from(text) }
}

/// The rounds, by the places of their messages.
pub(super) fn rounds(messages: &[&Message]) -> Vec<std::ops::Range<usize>> {
    let mut rounds: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        match (message, rounds.last_mut()) {
            (Message::ToolResults(_), Some(round)) => round.end = at + 1,
            (Message::User { .. } | Message::Assistant(_) | Message::ToolResults(_), _) => {
                rounds.push(at..at + 1);
            }
        }
    }
    rounds
}

pub(super) fn size(messages: &[&Message]) -> u64 {
    messages.iter().map(|message| tokens::of_message(message)).sum()
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

    fn window(messages: &[Message], budget: u64) -> Window {
        Window::of(&messages.iter().collect::<Vec<_>>(), budget)
    }

    #[test]
    fn c1_what_has_room_is_told_whole() {
        let messages = [user("hello"), said(1), results(&["42"]), said(0)];
        let found = window(&messages, 1000);
        assert_eq!(found.messages, messages);
        assert_eq!((found.left_out, found.cut), (0, 0));
        assert_eq!(window(&[], 10).messages, []);
    }

    #[test]
    fn c1_the_oldest_rounds_go_first_and_no_call_loses_its_result() {
        let mut messages = vec![user("begin")];
        for _ in 0..40 {
            messages.extend([said(2), results(&["a result", "another"])]);
        }
        for budget in 1..2000 {
            let found = window(&messages, budget);
            let kept = &messages[found.left_out..];
            assert!(!matches!(kept[0], Message::ToolResults(_)), "{budget}: torn");
            if found.left_out > 0 {
                assert_eq!(found.messages[0], note(LEFT_OUT));
                assert_eq!(found.messages.len(), kept.len() + 1);
            }
            let room = budget.max(size(&messages.iter().collect::<Vec<_>>()[79..]));
            assert!(found.tokens <= room + tokens::of_message(&note(LEFT_OUT)), "{budget}");
        }
    }

    #[test]
    fn c1_the_beginning_stays_for_many_steps() {
        let messages: Vec<_> = (0..400).map(|n| user(&format!("message {n:04}"))).collect();
        let budget = 40 * tokens::of_message(&messages[0]);
        let starts: Vec<_> = (1..=400).map(|n| window(&messages[..n], budget).left_out).collect();
        assert!(starts.is_sorted());
        let moves = starts.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert!((10..25).contains(&moves), "{moves} new beginnings in 400 messages");
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
