//! Sample input of the parsers and encoders.

use greenroom::{
    dialect::{Dialect, gateway},
    redaction::Redactor,
};
use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{
    Timestamp,
    call::ToolOutput,
    cursor::Cursor,
    ids::{AgentName, CallId, MessageId, RunId, Seq, SessionId},
    session::{EventRecord, SessionEvent},
};
use std::hint::black_box;
use uuid::Uuid;

/// Parts of a provider's stream: its start and one text delta.
pub(crate) struct WireSample {
    pub(crate) start: &'static str,
    pub(crate) delta: &'static str,
}

pub(crate) const ANTHROPIC: WireSample = WireSample {
    start: "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\n\n\
            event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    delta: "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"twelve chars\"}}\n\n",
};

pub(crate) const OPENAI: WireSample = WireSample {
    start: "",
    delta: "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"twelve chars\"},\"finish_reason\":null}]}\n\n",
};

fn item(kind: FeedKind) -> FeedItem {
    let agent = AgentName::parse("trader").expect("a valid name");
    let cursor = Cursor { seq: Seq(7), offset: 300 };
    FeedItem { session_id: SessionId(Uuid::from_u128(1)), agent, cursor, kind }
}

pub(crate) fn message_id() -> MessageId {
    MessageId::parse("0198c0de-0000-7000-8000-000000000001").expect("a valid id")
}

pub(crate) fn record(seq: u64, event: SessionEvent) -> EventRecord {
    let run_id = Some(RunId(Uuid::from_u128(2)));
    EventRecord { seq: Seq(seq), at: Timestamp(1), run_id, step: Some(1), event }
}

/// Returns a text delta as a subscriber receives it.
pub(crate) fn delta() -> FeedItem {
    let run_id = RunId(Uuid::from_u128(2));
    let text = "twelve chars".into();
    item(FeedKind::Delta { run_id, step: 1, message_id: message_id(), text })
}

/// Returns the event of a tool's result as a subscriber receives it. Every dialect encodes it.
pub(crate) fn event() -> FeedItem {
    let call_id = CallId(Uuid::from_u128(3));
    let text = "Some forty words of text would stand here. ".repeat(8);
    let output = ToolOutput { text, ..ToolOutput::default() };
    let completed =
        SessionEvent::ToolCallCompleted { call_id, tool: "get_price".to_owned(), output };
    item(FeedKind::Event(record(7, completed).into()))
}

/// Encodes an item as JSON in a REST dialect.
pub(crate) fn encode(dialect: Dialect, item: &FeedItem, redactor: &Redactor) {
    let mut frames = 0;
    dialect.encode(item, Timestamp(1), redactor, |frame| {
        black_box(serde_json::to_string(&frame.flat()).expect("a frame is valid JSON"));
        frames += 1;
    });
    assert_eq!(frames, 1, "the dialect encodes the item");
}

/// Encodes an item as JSON in the gateway dialect.
pub(crate) fn encode_for_gateway(item: &FeedItem, run: &gateway::FollowedRun, redactor: &Redactor) {
    let mut frames = 0;
    gateway::encode(item, run, Timestamp(1), redactor, &mut |frame| {
        black_box(serde_json::to_string(&frame).expect("a frame is valid JSON"));
        frames += 1;
    });
    assert_eq!(frames, 1, "the dialect encodes the item");
}

/// Returns the run whose frames the gateway encodes.
pub(crate) fn followed_run() -> gateway::FollowedRun {
    gateway::FollowedRun {
        request_id: message_id(),
        accepted_seq: Seq(1),
        model: "m".to_owned(),
        include_native: false,
        approvals: gateway::ApprovalSnapshot::default(),
    }
}
