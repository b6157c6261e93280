//! The calls of child sessions that are open when the run of the root session ends. Pure.
//!
//! A run that is cancelled ends at once, and its child sessions end their calls afterwards (S6, S8).
//! A stream of one run ends with the run, so in the dialects in which each call has exactly one
//! result, [`OpenChildCalls`] supplies the results that would come too late.

use greenroom_actors::feed::{FeedItem, FeedKind};
use greenroom_core::{
    call::CallFailureReason,
    cursor::Cursor,
    delegation::{SourceEvent, resolve_source_event},
    ids::{AgentName, CallId, RunId, Seq, SessionId},
    policy::Risk,
    session::{EventRecord, SessionEvent},
};
use std::sync::Arc;

/// The open calls of child sessions within a run, in the order in which they were proposed.
#[derive(Debug, Default)]
pub struct OpenChildCalls(Vec<OpenCall>);

#[derive(Debug)]
struct OpenCall {
    call_id: CallId,
    tool: String,
    risk: Risk,
    /// The child session, its profile and its run.
    session_id: SessionId,
    agent: AgentName,
    run_id: Option<RunId>,
    /// The call that the child session works for.
    parent_call_id: CallId,
}

impl OpenChildCalls {
    /// Records the calls that an event of the run starts or ends.
    pub fn apply_event(&mut self, session_id: SessionId, agent: &AgentName, record: &EventRecord) {
        let source = resolve_source_event(session_id, agent, record);
        let SourceEvent { session_id, agent, parent_call_id: Some(parent_call_id), record } =
            source
        else {
            return;
        };
        if let SessionEvent::ToolCallStarted { call_id, tool, risk, .. } = &record.event {
            self.0.push(OpenCall {
                call_id: *call_id,
                tool: tool.clone(),
                risk: *risk,
                session_id,
                agent: agent.clone(),
                run_id: record.run_id,
                parent_call_id,
            });
        } else if let SessionEvent::ToolCallCompleted { call_id, .. }
        | SessionEvent::ToolCallFailed { call_id, .. }
        | SessionEvent::AuthorizationDenied { call_id, .. } = &record.event
        {
            self.0.retain(|open| open.call_id != *call_id);
        }
    }

    /// Records the item. If it ends the run, returns a failure of each open call, to be delivered
    /// before the item. Their cursor is the one before the item, so that a client that disconnects
    /// in between receives them again (E2).
    pub fn take_ended_by(&mut self, item: &FeedItem) -> Vec<FeedItem> {
        let FeedKind::Event(record) = &item.kind else { return Vec::new() };
        if !record.event.ends_run() {
            self.apply_event(item.session_id, &item.agent, record);
            return Vec::new();
        }
        let seq = Seq(record.seq.0.saturating_sub(1));
        let failed_item = |open: OpenCall| FeedItem {
            session_id: item.session_id,
            agent: item.agent.clone(),
            cursor: Cursor { seq, ..item.cursor },
            kind: FeedKind::Event(open.failed_with_run(record).into()),
        };
        self.0.drain(..).map(failed_item).collect()
    }
}

impl OpenCall {
    /// Returns the mirrored failure of the call, at the position of the event that ends the run.
    fn failed_with_run(self, run_end: &EventRecord) -> EventRecord {
        let maybe_ran = self.risk > Risk::ReadOnly;
        let effect = if maybe_ran { "; it may have taken effect" } else { "" };
        let error = format!("the run ended before {} reported the result{effect}", self.agent);
        let failed = SessionEvent::ToolCallFailed {
            call_id: self.call_id,
            tool: self.tool,
            reason: CallFailureReason::Cancelled,
            error,
            retries_exhausted: false,
            attempts: 0,
            maybe_ran,
        };
        let record =
            EventRecord { run_id: self.run_id, step: None, event: failed, ..run_end.clone() };
        let event = SessionEvent::ChildEvent {
            session_id: self.session_id,
            agent: self.agent,
            call_id: self.parent_call_id,
            event: Arc::new(record),
        };
        EventRecord { event, ..run_end.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dialect::{Dialect, samples},
        redaction::Redactor,
    };
    use greenroom_core::Timestamp;
    use serde_json::{Value, json};

    /// Returns the item of an event of the child session `CHILD`.
    fn child_item(seq: u64, kind: &str, payload: &Value) -> FeedItem {
        let event = json!({
            "seq": 1, "at": samples::AT, "run_id": samples::SECOND_RUN, "step": 1, "type": kind,
            "payload": payload,
        });
        let payload = json!({
            "session_id": samples::CHILD, "agent": "researcher", "call_id": samples::CALL,
            "event": event,
        });
        samples::feed_item(samples::record(seq, "child_event", &payload))
    }

    fn started(seq: u64, call_id: &str, risk: &str) -> FeedItem {
        let payload = json!({
            "call_id": call_id, "provider_id": "p", "tool": "buy", "arguments": {"json": {}},
            "digest": samples::DIGEST, "risk": risk, "parallel": false, "repeatable": false,
        });
        child_item(seq, "tool_call_started", &payload)
    }

    fn cancelled(seq: u64) -> FeedItem {
        let usage =
            json!({"input_tokens": 1, "output_tokens": 1, "cached_tokens": 0, "cost_usd": null});
        let payload = json!({"by": "u", "usage": usage});
        samples::feed_item(samples::record(seq, "run_cancelled", &payload))
    }

    #[test]
    fn s8_open_child_calls_get_one_result_when_the_run_ends() {
        let mut open_calls = OpenChildCalls::default();
        let own = json!({
            "call_id": samples::ID, "provider_id": "p", "tool": "delegate",
            "arguments": {"json": {}}, "digest": samples::DIGEST, "risk": "read_only",
            "parallel": true, "repeatable": true,
        });
        let completed = json!({"call_id": samples::CALL, "tool": "buy", "output": {"text": "5"}});
        for item in [
            samples::feed_item(samples::record(1, "tool_call_started", &own)),
            started(2, samples::CALL, "write_high_risk"),
            started(3, samples::SECOND_CALL, "write_high_risk"),
            started(4, samples::GRANDCHILD, "read_only"),
            child_item(5, "tool_call_completed", &completed),
            samples::text(5, 3, "abc"),
        ] {
            assert_eq!(open_calls.take_ended_by(&item), []);
        }
        let ended = open_calls.take_ended_by(&cancelled(6));
        assert_eq!(open_calls.take_ended_by(&cancelled(6)), []);
        let redactor = Redactor::default();
        let mut results = Vec::new();
        for item in &ended {
            Dialect::Task.encode(item, Timestamp(0), &redactor, |frame| {
                assert_eq!(frame.cursor, Some(Cursor::after_seq(Seq(5))));
                results.push(serde_json::to_value(frame.flat()).unwrap());
            });
        }
        let found = |result: &Value| {
            ["call_id", "agent_id", "task_id", "type", "reason", "success", "seq", "error"]
                .map(|name| result[name].clone())
        };
        let expected = |call_id: &str, effect: &str| {
            let error = format!("the run ended before researcher reported the result{effect}");
            [
                json!(call_id),
                json!(samples::CHILD),
                json!(samples::SECOND_RUN),
                json!("tool_result"),
                json!("cancelled"),
                json!(false),
                json!(6),
                json!(error),
            ]
        };
        assert_eq!(
            results.iter().map(found).collect::<Vec<_>>(),
            [
                expected(samples::SECOND_CALL, "; it may have taken effect"),
                expected(samples::GRANDCHILD, ""),
            ]
        );
    }
}
