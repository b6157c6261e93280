//! Checks the log: complete, with every acknowledged command, and every run ended or visibly waiting.

use super::{Report, Rule, collect_calls, text};
use crate::history::{AcknowledgedCommand, ClientCommand, History, Session};
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn check(history: &History, report: &mut Report) {
    for (id, session) in &history.sessions {
        check_complete(history, id, session, report);
        check_runs(id, session, report);
        check_runs_of_messages(id, session, report);
    }
    for (call_id, call) in collect_calls(history) {
        let is_open = history.sessions[call.session].status == "waiting"
            && !has_ended(&history.sessions[call.session], call.run_id);
        let ends = call.ends.len();
        report.check(ends == 1 || (is_open && ends == 0), Rule::RunsEndOrWait, || {
            format!("call {call_id} ({}) of session {} has {ends} ends", call.tool, call.session)
        });
    }
    for acknowledged in &history.acknowledged {
        let session = history.sessions.get(&acknowledged.session);
        let is_in_log = session.is_some_and(|session| is_logged(acknowledged, session));
        report.check(is_in_log, Rule::AcknowledgedIsLogged, || format!("{acknowledged:?}"));
    }
}

/// Checks that `seq` starts at 1 without gaps, equals the database, and belongs to one owner.
fn check_complete(history: &History, id: &str, session: &Session, report: &mut Report) {
    let seqs: Vec<_> = session.events.iter().map(|event| event["seq"].as_u64()).collect();
    let expected: Vec<_> = (1..=seqs.len() as u64).map(Some).collect();
    report.check(seqs == expected && !seqs.is_empty(), Rule::LogIsComplete, || {
        format!("the events of session {id} are {seqs:?}")
    });
    let stored = history.stored.get(id).cloned().unwrap_or_default();
    let is_same = stored.iter().copied().map(Some).eq(seqs.iter().copied());
    report.check(is_same, Rule::LogIsComplete, || {
        format!("session {id} has {} events; in the database: {stored:?}", seqs.len())
    });
}

fn has_ended(session: &Session, run_id: &str) -> bool {
    session.events.iter().any(|event| is_end(event) && text(event, "run_id") == run_id)
}

fn is_end(event: &Value) -> bool {
    ["done", "error"].contains(&text(event, "type"))
}

/// Checks that each run has exactly one end; the last run may wait if the session shows it.
fn check_runs(id: &str, session: &Session, report: &mut Report) {
    let mut ends = BTreeMap::<&str, u32>::new();
    for event in &session.events {
        let run_id = text(event, "run_id");
        if text(event, "type") == "run_started" {
            ends.entry(run_id).or_default();
        } else if is_end(event) {
            *ends.entry(run_id).or_default() += 1;
        }
    }
    let open: Vec<_> = ends.iter().filter(|(_, ends)| **ends == 0).map(|(run, _)| *run).collect();
    let is_waiting = session.status == "waiting" && !session.pending_approvals.is_empty();
    let may_be_open = usize::from(is_waiting);
    report.check(open.len() <= may_be_open, Rule::RunsEndOrWait, || {
        let (status, pending) = (&session.status, &session.pending_approvals);
        format!("session {id} is {status}; pending approvals: {pending:?}, open runs: {open:?}")
    });
    let is_settled = is_waiting || ["idle", "closed"].contains(&session.status.as_str());
    report.check(is_settled, Rule::RunsEndOrWait, || {
        format!("session {id} is still {}", session.status)
    });
    for (run_id, ends) in ends {
        report.check(ends <= 1, Rule::RunsEndOrWait, || format!("run {run_id} has {ends} ends"));
    }
}

/// Checks that each message is in the conversation once and has one run.
fn check_runs_of_messages(id: &str, session: &Session, report: &mut Report) {
    let mut runs = BTreeMap::<&str, u32>::new();
    let mut accepted = BTreeMap::<&str, u32>::new();
    for event in &session.events {
        let message_id = text(event, "message_id");
        match text(event, "type") {
            "run_started" => *runs.entry(message_id).or_default() += 1,
            "message_accepted" => *accepted.entry(message_id).or_default() += 1,
            _ => {}
        }
    }
    for (label, counts) in [("runs", runs), ("places in the conversation", accepted)] {
        for (message_id, count) in counts {
            report.check(count == 1, Rule::OneRunForOneMessage, || {
                format!("message {message_id} of session {id} has {count} {label}")
            });
        }
    }
}

fn is_logged(acknowledged: &AcknowledgedCommand, session: &Session) -> bool {
    let has = |is_match: &dyn Fn(&Value) -> bool| session.events.iter().any(is_match);
    let is_kind = |kind: &'static str| move |event: &Value| text(event, "type") == kind;
    match &acknowledged.command {
        ClientCommand::Create => session.events.first().is_some_and(is_kind("session_created")),
        ClientCommand::Submit { message_id, text: message_text, run_id, seq } => has(&|event| {
            ["message_queued", "message_accepted"].contains(&text(event, "type"))
                && text(event, "message_id") == message_id
                && text(event, "text") == message_text
                && text(event, "run_id") == run_id
                && seq.is_none_or(|seq| event["seq"] == seq)
        }),
        ClientCommand::Cancel { run_id } => has(&|event| {
            is_kind("done")(event)
                && event["outcome"] == "cancelled"
                && text(event, "run_id") == run_id
        }),
        ClientCommand::Decide { approval_id, decision } => has(&|event| {
            is_kind("approval_decided")(event)
                && text(event, "plan_id") == approval_id
                && has_answer(event, decision)
        }),
        ClientCommand::Retitle { title } => has(&|event| {
            is_kind("session_settings_changed")(event) && text(event, "title") == title
        }),
        ClientCommand::Fork { from, at_seq } => session.events.first().is_some_and(|event| {
            is_kind("session_forked")(event)
                && text(event, "from") == from
                && event["at_seq"] == *at_seq
        }),
        ClientCommand::Revoke { grant_id } => {
            has(&|event| is_kind("grant_revoked")(event) && text(event, "grant_id") == grant_id)
        }
        ClientCommand::Close => has(&is_kind("session_closed")),
    }
}

/// Returns true if a recorded answer equals the acknowledged one.
fn has_answer(event: &Value, decision: &str) -> bool {
    let approved = match decision {
        "approve" => true,
        "reject" => false,
        _ => return text(&event["answer"], "decision") == decision,
    };
    // The decision on a preflight plan covers the whole plan.
    let steps = event["steps"].as_array();
    text(&event["answer"], "decision") == decision
        || steps.is_some_and(|steps| steps.iter().any(|step| step["approved"] == approved))
}
