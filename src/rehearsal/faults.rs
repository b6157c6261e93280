//! Fault injection: selects the fault of an attempt and applies it to a stream.
//!
//! Pure, except for the bounded attempt counter. Does not know either wire format. Called by `server`
//! after a reply is encoded.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;

use super::script::{FaultSpec, StatusFault, StreamBreak, StreamPacing};

/// Maximum number of chat histories whose attempts are counted; the oldest is dropped.
pub(super) const CONVERSATIONS_MAX: usize = 10_000;

/// The fault of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptedFault {
    /// An error status.
    Fail(StatusFault),
    /// An error event inside the stream.
    Error(StreamBreak),
    /// The connection is closed inside the stream.
    Cut(StreamBreak),
    /// The stream stalls without ending.
    Stall(StreamBreak),
}

impl FaultSpec {
    /// Returns the fault of attempt number `attempt` (from 0); `None` if the attempt succeeds.
    pub fn for_attempt(&self, attempt: u32) -> Option<ScriptedFault> {
        let schedule = [
            self.fail.clone().map(|fail| (fail.times, ScriptedFault::Fail(fail))),
            self.error.clone().map(|error| (error.times, ScriptedFault::Error(error))),
            self.cut.clone().map(|cut| (cut.times, ScriptedFault::Cut(cut))),
            self.stall.clone().map(|stall| (stall.times, ScriptedFault::Stall(stall))),
        ];
        let mut before = 0_u32;
        for (times, fault) in schedule.into_iter().flatten() {
            let Some(times) = times else { return Some(fault) };
            before = before.saturating_add(times);
            if attempt < before {
                return Some(fault);
            }
        }
        None
    }
}

/// The index of a rule and the digest of a chat history.
type AttemptKey = (usize, [u8; 32]);

/// Counts attempts by rule and chat history, so that concurrent chats do not affect each other.
#[derive(Debug, Default)]
pub(super) struct AttemptCounter {
    counts: HashMap<AttemptKey, u32>,
    order: VecDeque<AttemptKey>,
}

impl AttemptCounter {
    /// Returns the fault of the next attempt. Resets the count when an attempt succeeds.
    pub(super) fn next(
        &mut self,
        rule: usize,
        conversation: [u8; 32],
        spec: &FaultSpec,
    ) -> Option<ScriptedFault> {
        let key = (rule, conversation);
        let attempt = self.counts.get(&key).copied().unwrap_or(0);
        let fault = spec.for_attempt(attempt);
        if fault.is_none() {
            if self.counts.remove(&key).is_some() {
                self.order.retain(|known| *known != key);
            }
            return None;
        }
        if self.counts.insert(key, attempt.saturating_add(1)).is_none() {
            self.order.push_back(key);
        }
        if self.order.len() > CONVERSATIONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        fault
    }
}

/// An encoded event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SseFrame {
    /// The text on the wire.
    pub text: String,
    /// The number of characters of content; 0 for a structural event.
    pub content: usize,
}

impl SseFrame {
    /// Creates a structural frame.
    pub(super) fn plain(text: String) -> Self {
        Self { text, content: 0 }
    }
}

/// One action on the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SocketAction {
    /// Write these bytes in a separate write.
    Write(Bytes),
    /// Wait.
    Wait(Duration),
    /// Close the connection without completing the response.
    Cut,
    /// Send nothing more and keep the connection open.
    Stall,
}

/// Converts the frames of a stream to socket actions: applies the pacing, then the fault, then the
/// byte splitting. `error` is the frame of a mid-stream error.
pub(super) fn schedule(
    frames: Vec<SseFrame>,
    pacing: &StreamPacing,
    fault: Option<&ScriptedFault>,
    error: Option<SseFrame>,
) -> VecDeque<SocketAction> {
    let mut actions = VecDeque::new();
    let split = pacing.wire_split.unwrap_or(usize::MAX);
    let after = match fault {
        Some(ScriptedFault::Error(at) | ScriptedFault::Cut(at) | ScriptedFault::Stall(at)) => {
            Some(at.after)
        }
        Some(ScriptedFault::Fail(_)) | None => None,
    };
    let mut sent = 0;
    for frame in frames {
        if let Some(after) = after
            && frame.content > 0
            && sent + frame.content > after
        {
            push_break(&mut actions, frame, fault, error, split);
            return actions;
        }
        if frame.content > 0 && sent > 0 && pacing.chunk_delay_ms > 0 {
            actions.push_back(SocketAction::Wait(Duration::from_millis(pacing.chunk_delay_ms)));
        }
        sent += frame.content;
        write(&mut actions, frame.text.as_bytes(), split);
    }
    // The content is shorter than `after`: the fault occurs before the last write.
    if after.is_some()
        && let Some(last) = actions.pop_back()
    {
        let text = match last {
            SocketAction::Write(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            SocketAction::Wait(_) | SocketAction::Cut | SocketAction::Stall => String::new(),
        };
        push_break(&mut actions, SseFrame::plain(text), fault, error, split);
    }
    actions
}

fn push_break(
    actions: &mut VecDeque<SocketAction>,
    frame: SseFrame,
    fault: Option<&ScriptedFault>,
    error: Option<SseFrame>,
    split: usize,
) {
    match fault {
        Some(ScriptedFault::Cut(_)) => {
            // Writes half an event, as an interrupted connection does.
            write(actions, &frame.text.as_bytes()[..frame.text.len() / 2], split);
            actions.push_back(SocketAction::Cut);
        }
        Some(ScriptedFault::Stall(_)) => actions.push_back(SocketAction::Stall),
        Some(ScriptedFault::Error(_)) => {
            if let Some(error) = error {
                write(actions, error.text.as_bytes(), split);
            }
        }
        Some(ScriptedFault::Fail(_)) | None => {}
    }
}

fn write(actions: &mut VecDeque<SocketAction>, bytes: &[u8], split: usize) {
    for piece in bytes.chunks(split) {
        actions.push_back(SocketAction::Write(Bytes::copy_from_slice(piece)));
    }
}

/// Splits text into pieces of at most `chars` characters.
pub(super) fn split_by_chars(text: &str, chars: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(chars).map_or(rest.len(), |(index, _)| index);
        let (piece, tail) = rest.split_at(end);
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// Splits text into pieces of about `bytes` bytes, never inside a character.
pub(super) fn split_by_bytes(text: &str, bytes: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut end = bytes.min(rest.len());
        while !rest.is_char_boundary(end) {
            end += 1;
        }
        let (piece, tail) = rest.split_at(end);
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn break_after(after: usize, times: Option<u32>) -> StreamBreak {
        StreamBreak { after, times, status: None, message: None }
    }

    #[test]
    fn faults_occur_in_order_until_an_attempt_succeeds() {
        let fail = StatusFault { times: Some(2), ..StatusFault::default() };
        let spec = FaultSpec {
            fail: Some(fail.clone()),
            cut: Some(break_after(4, Some(1))),
            ..FaultSpec::default()
        };
        let mut attempts = AttemptCounter::default();
        let mut next = |conversation: u8| attempts.next(0, [conversation; 32], &spec);
        assert_eq!(next(1), Some(ScriptedFault::Fail(fail.clone())));
        assert_eq!(next(2), Some(ScriptedFault::Fail(fail.clone())), "another chat history");
        assert_eq!(next(1), Some(ScriptedFault::Fail(fail.clone())));
        assert_eq!(next(1), Some(ScriptedFault::Cut(break_after(4, Some(1)))));
        assert_eq!(next(1), None);
        assert_eq!(next(1), Some(ScriptedFault::Fail(fail)), "the count is reset");
    }

    #[test]
    fn number_of_counted_chat_histories_is_bounded() {
        let spec = FaultSpec { cut: Some(break_after(0, Some(1))), ..FaultSpec::default() };
        let mut attempts = AttemptCounter::default();
        for rule in 0..=CONVERSATIONS_MAX {
            assert!(attempts.next(rule, [0; 32], &spec).is_some());
        }
        assert_eq!(attempts.counts.len(), CONVERSATIONS_MAX);
        assert!(attempts.next(0, [0; 32], &spec).is_some(), "the oldest is dropped");
        assert_eq!(attempts.next(CONVERSATIONS_MAX, [0; 32], &spec), None);
    }

    fn played(fault: Option<ScriptedFault>, pacing: StreamPacing) -> Vec<SocketAction> {
        let delta = |text: &str| SseFrame { text: text.to_owned(), content: text.len() };
        let frames = vec![
            SseFrame::plain("<".into()),
            delta("abcd"),
            delta("efgh"),
            SseFrame::plain(">".into()),
        ];
        schedule(frames, &pacing, fault.as_ref(), Some(SseFrame::plain("!".into()))).into()
    }

    fn writes(texts: &[&'static str]) -> Vec<SocketAction> {
        texts.iter().map(|text| SocketAction::Write(Bytes::from_static(text.as_bytes()))).collect()
    }

    #[test]
    fn stream_breaks_at_the_scripted_position() {
        let pacing = StreamPacing::default();
        let actions = |texts: &[&'static str], end: Option<SocketAction>| {
            writes(texts).into_iter().chain(end).collect::<Vec<_>>()
        };
        let cases = [
            (None, actions(&["<", "abcd", "efgh", ">"], None)),
            (
                Some(ScriptedFault::Cut(break_after(0, None))),
                actions(&["<", "ab"], Some(SocketAction::Cut)),
            ),
            (
                Some(ScriptedFault::Cut(break_after(4, None))),
                actions(&["<", "abcd", "ef"], Some(SocketAction::Cut)),
            ),
            (
                Some(ScriptedFault::Stall(break_after(5, None))),
                actions(&["<", "abcd"], Some(SocketAction::Stall)),
            ),
            (Some(ScriptedFault::Error(break_after(4, None))), actions(&["<", "abcd", "!"], None)),
            // The content is shorter than `after`: breaks before the end.
            (
                Some(ScriptedFault::Stall(break_after(99, None))),
                actions(&["<", "abcd", "efgh"], Some(SocketAction::Stall)),
            ),
            (
                Some(ScriptedFault::Error(break_after(99, None))),
                actions(&["<", "abcd", "efgh", "!"], None),
            ),
        ];
        for (fault, expected) in cases {
            assert_eq!(played(fault.clone(), pacing), expected, "{fault:?}");
        }
    }

    #[test]
    fn pacing_waits_between_deltas_and_splits_bytes() {
        let wait = SocketAction::Wait(Duration::from_millis(30));
        let slow = StreamPacing { chunk_delay_ms: 30, ..StreamPacing::default() };
        let mut expected = writes(&["<", "abcd"]);
        expected.push(wait);
        expected.extend(writes(&["efgh", ">"]));
        assert_eq!(played(None, slow), expected);

        let split = StreamPacing { wire_split: Some(3), ..StreamPacing::default() };
        assert_eq!(played(None, split), writes(&["<", "abc", "d", "efg", "h", ">"]));
    }

    #[test]
    fn split_never_breaks_a_character() {
        assert_eq!(split_by_chars("äöü🚀x", 2), ["äö", "ü🚀", "x"]);
        assert_eq!(split_by_bytes("aä🚀b", 1), ["a", "ä", "🚀", "b"]);
        assert_eq!(split_by_bytes("abcde", 2), ["ab", "cd", "e"]);
        assert!(split_by_chars("", 3).is_empty());
    }
}
