//! Simulated users who write, cancel, rename, fork, revoke and close, and an approver who answers
//! approvals. Acknowledged commands are recorded; the others are repeated under the same id where that
//! is safe.

use crate::{
    harness::{ClientContext, retry_pause},
    history::{AcknowledgedCommand, ClientCommand},
    rng::SeededRng,
    script,
    subscribers::{Transport, run_subscriber},
};
use actix_web::rt::{spawn, task::JoinHandle};
use reqwest::Method;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// Average number of messages per session.
const MESSAGES_PER_SESSION: usize = 14;
/// ISK that are left after a budget was raised.
const ROOM: f64 = 10.0;
/// Maximum pause between two actions of a user, in milliseconds.
const PAUSE_MS: usize = 120;

/// Runs a user with one session at a time until the end; returns their subscribers.
pub(crate) async fn run_user(context: Arc<ClientContext>, seed: u64) -> Vec<JoinHandle<()>> {
    let mut user = SimulatedUser { context, chance: SeededRng::new(seed), subscribers: Vec::new() };
    let mut last = false;
    while !last {
        last = user.context.is_ending();
        if let Some((session, in_use)) = user.create().await {
            user.use_session(&session).await;
            if last {
                let number = user.context.number();
                user.submit_message(&session, number, format!("order number {number}")).await;
            }
            in_use.send_replace(false);
        } else {
            retry_pause().await;
        }
    }
    user.subscribers
}

struct SimulatedUser {
    context: Arc<ClientContext>,
    chance: SeededRng,
    subscribers: Vec<JoinHandle<()>>,
}

impl SimulatedUser {
    /// Creates a session. Without a response the session is unknown and not used.
    async fn create(&mut self) -> Option<(String, watch::Sender<bool>)> {
        let agent = if self.chance.one_in(5) { "hasty" } else { "default" };
        let request = json!({"autonomy_level": 2, "agent": agent});
        let answer = self.context.request(Method::POST, "/agent/session", request).await?;
        let session = answer.body["session_id"].as_str().filter(|_| answer.is_ok())?.to_owned();
        let in_use = self.start_subscribers(&session, ClientCommand::Create);
        Some((session, in_use))
    }

    /// Records a session and starts its subscribers.
    fn start_subscribers(&mut self, session: &str, command: ClientCommand) -> watch::Sender<bool> {
        self.record(session, command);
        let (in_use, use_of) = watch::channel(true);
        for transport in [Transport::Events, Transport::Socket] {
            let (context, session) = (self.context.clone(), session.to_owned());
            self.subscribers.push(spawn(run_subscriber(
                context,
                session,
                transport,
                use_of.clone(),
            )));
        }
        in_use
    }

    fn record(&self, session: &str, command: ClientCommand) {
        let session = session.to_owned();
        self.context.record_acknowledged(AcknowledgedCommand { session, command });
    }

    async fn use_session(&mut self, session: &str) {
        while !self.context.is_ending() && !self.chance.one_in(MESSAGES_PER_SESSION) {
            match self.chance.below(16) {
                0 => self.cancel(session).await,
                1 => self.retitle(session).await,
                2 => self.fork(session).await,
                3..=6 => self.revoke(session).await,
                _ => {
                    let number = self.context.number();
                    let text = script::random_message(&mut self.chance, number);
                    self.submit_message(session, number, text).await;
                }
            }
            let pause = self.chance.below(PAUSE_MS);
            tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        }
        if self.chance.one_in(3) {
            let path = format!("/agent/session/{session}");
            let closed = self.context.request(Method::DELETE, &path, Value::Null).await;
            if closed.is_some_and(|answer| answer.is_ok()) {
                self.record(session, ClientCommand::Close);
            }
        }
    }

    async fn submit_message(&mut self, session: &str, number: u64, text: String) {
        let message_id = format!("message-{number}");
        let on_busy = *self.chance.pick(&["queue", "queue", "steer", "interrupt", "reject"]);
        let mut body = json!({
            "session_id": session, "message": text, "message_id": message_id, "on_busy": on_busy,
        });
        if script::is_planned(&text) {
            // A steering message has no preflight plan of its own.
            body["on_busy"] = json!("queue");
            body["preflight"] = json!(true);
        }
        // Repeat the request until its outcome is known.
        let (run_id, seq) = loop {
            let Some(mut response) = self.context.chat(&body).await else {
                retry_pause().await;
                continue;
            };
            match response.status().as_u16() {
                200 => {}
                503 => {
                    retry_pause().await;
                    continue;
                }
                // Busy, closed or over a limit: the message was not accepted.
                409 | 429 => return,
                status => panic!("{status}: {}", response.text().await.unwrap_or_default()),
            }
            // The status acknowledges the message; the first frame contains its run and `seq`.
            let first = first_frame(&mut response).await;
            let first = first.filter(|frame| frame["message_id"] == message_id);
            let run_id = first.as_ref().and_then(|frame| frame["run_id"].as_str());
            if let Some(run_id) = run_id {
                let seq = first.as_ref().and_then(|frame| frame["seq"].as_u64());
                break (run_id.to_owned(), seq);
            }
            retry_pause().await;
        };
        self.record(session, ClientCommand::Submit { message_id, text, run_id, seq });
    }

    async fn cancel(&self, session: &str) {
        let path = format!("/agent/session/{session}/cancel");
        let answer = self.context.request(Method::POST, &path, json!({})).await;
        let Some(answer) = answer.filter(|answer| answer.is_ok()) else { return };
        let run_id = answer.body["run_id"].as_str().unwrap_or_default().to_owned();
        self.record(session, ClientCommand::Cancel { run_id });
    }

    async fn retitle(&self, session: &str) {
        let title = format!("Title {}", self.context.number());
        let path = format!("/agent/session/{session}/settings");
        let answer = self.context.request(Method::PATCH, &path, json!({"title": title})).await;
        if answer.is_some_and(|answer| answer.is_ok()) {
            self.record(session, ClientCommand::Retitle { title });
        }
    }

    /// Revokes the first grant of the session, if there is one.
    async fn revoke(&self, session: &str) {
        let path = format!("/agent/session/{session}/grants");
        let listed = self.context.request(Method::GET, &path, Value::Null).await;
        let grant =
            listed.and_then(|it| it.body["grants"][0]["grant_id"].as_str().map(str::to_owned));
        let Some(grant_id) = grant else { return };
        let answer =
            self.context.request(Method::DELETE, &format!("{path}/{grant_id}"), Value::Null).await;
        if answer.is_some_and(|answer| answer.is_ok()) {
            self.record(session, ClientCommand::Revoke { grant_id });
        }
    }

    async fn fork(&mut self, session: &str) {
        let path = format!("/agent/session/{session}");
        let read = self.context.request(Method::GET, &path, Value::Null).await;
        let Some(head) = read.and_then(|answer| answer.body["head"].as_u64()) else { return };
        let at_seq = self.chance.next() % head + 1;
        let path = format!("/agent/session/{session}/fork");
        let answer = self.context.request(Method::POST, &path, json!({"at_seq": at_seq})).await;
        let Some(answer) = answer.filter(|answer| answer.is_ok()) else { return };
        let id = answer.body["session_id"].as_str().unwrap_or_default();
        let command = ClientCommand::Fork { from: session.to_owned(), at_seq };
        // No messages are sent to the fork; it is read at the end.
        self.start_subscribers(id, command).send_replace(false);
    }
}

/// Returns the first complete frame of a stream.
async fn first_frame(response: &mut reqwest::Response) -> Option<Value> {
    let mut unread = Vec::new();
    loop {
        unread.extend_from_slice(&response.chunk().await.ok()??);
        let text = String::from_utf8_lossy(&unread);
        let mut blocks = text.split_inclusive("\n\n").filter(|block| block.ends_with("\n\n"));
        let data =
            blocks.find_map(|block| block.lines().find_map(|line| line.strip_prefix("data: ")));
        if let Some(data) = data {
            return serde_json::from_str(data).ok();
        }
    }
}

/// Answers open approvals at random times until the end.
pub(crate) async fn run_approver(context: Arc<ClientContext>, seed: u64) {
    let mut chance = SeededRng::new(seed);
    while !context.is_ending() {
        let pause = chance.below(60);
        tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        let waiting = list_pending_approvals(&context).await;
        if !waiting.is_empty() {
            answer_approval(&context, &mut chance, pick_approval(&waiting, seed)).await;
        }
    }
}

/// Picks one of the open approvals.
fn pick_approval(waiting: &[Value], seed: u64) -> &Value {
    &waiting[usize::try_from(seed % waiting.len() as u64).unwrap_or_default()]
}

/// Lists the open approvals, at most one page.
pub(crate) async fn list_pending_approvals(context: &ClientContext) -> Vec<Value> {
    let path = "/agent/approvals?state=pending&limit=200";
    let answer = context.request_with_retry(Method::GET, path, Value::Null).await;
    answer.body["approvals"].as_array().cloned().unwrap_or_default()
}

/// Answers an approval and records the answer if it was accepted.
pub(crate) async fn answer_approval(
    context: &ClientContext,
    chance: &mut SeededRng,
    approval: &Value,
) {
    let decision = match approval["kind"].as_str() {
        Some("plan" | "preflight") => *chance.pick(&["approve", "approve", "approve", "reject"]),
        Some("unknown_outcome") => *chance.pick(&["retry", "done", "failed"]),
        Some("budget") => *chance.pick(&["raise", "raise", "stop"]),
        Some("elicitation") => *chance.pick(&["answer", "answer", "reject"]),
        other => panic!("unexpected kind of approval: {other:?}"),
    };
    let mut body = json!({"decision": decision});
    match decision {
        // `done` needs a result.
        "done" => body["value"] = json!({"said": "a person"}),
        "raise" => {
            let amount = |key: &str| approval[key].as_f64().unwrap_or_default();
            body["value"] = json!(amount("spent") + amount("needed") + ROOM);
        }
        // A value that no other answer to the same call has.
        "answer" => body["value"] = json!({"hangar": "north", "crates": context.number() % 99 + 1}),
        // Critical calls cannot have a grant.
        "approve" if approval["kind"] == "plan" && !chance.one_in(4) => {
            let mut steps = approval["steps"].as_array().into_iter().flatten();
            if steps.all(|step| step["risk"] != "critical") {
                body["for_session"] = json!({});
            }
        }
        _ => {}
    }
    let approval_id = approval["approval_id"].as_str().unwrap_or_default().to_owned();
    let path = format!("/agent/approvals/{approval_id}");
    let answer = context.request(Method::POST, &path, body).await;
    if answer.is_some_and(|answer| answer.is_ok()) {
        let session = approval["session_id"].as_str().unwrap_or_default().to_owned();
        let decision = decision.to_owned();
        context.record_acknowledged(AcknowledgedCommand {
            session,
            command: ClientCommand::Decide { approval_id, decision },
        });
    }
}
