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
/// ISK that remain after a budget was raised.
const REMAINING_AFTER_RAISE: f64 = 10.0;
/// Maximum pause between two actions of a user, in milliseconds.
const PAUSE_MS: usize = 120;

/// Runs a user with one session at a time until the end; returns their subscribers.
pub(crate) async fn run_user(context: Arc<ClientContext>, seed: u64) -> Vec<JoinHandle<()>> {
    let mut user = SimulatedUser { context, rng: SeededRng::new(seed), subscribers: Vec::new() };
    let mut is_last = false;
    while !is_last {
        is_last = user.context.is_ending();
        if let Some((session, in_use)) = user.create().await {
            user.use_session(&session).await;
            if is_last {
                let number = user.context.next_number();
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
    rng: SeededRng,
    subscribers: Vec<JoinHandle<()>>,
}

impl SimulatedUser {
    /// Creates a session. Without a response the session is unknown and not used.
    async fn create(&mut self) -> Option<(String, watch::Sender<bool>)> {
        let agent = if self.rng.one_in(5) { "hasty" } else { "default" };
        let request = json!({"autonomy_level": 2, "agent": agent});
        let response = self.context.request(Method::POST, "/agent/session", request).await?;
        let session = response.body["session_id"].as_str().filter(|_| response.is_ok())?.to_owned();
        let in_use = self.start_subscribers(&session, ClientCommand::Create);
        Some((session, in_use))
    }

    /// Records a session and starts its subscribers.
    fn start_subscribers(&mut self, session: &str, command: ClientCommand) -> watch::Sender<bool> {
        self.record(session, command);
        let (in_use, in_use_receiver) = watch::channel(true);
        for transport in [Transport::Events, Transport::Socket] {
            let (context, session) = (self.context.clone(), session.to_owned());
            self.subscribers.push(spawn(run_subscriber(
                context,
                session,
                transport,
                in_use_receiver.clone(),
            )));
        }
        in_use
    }

    fn record(&self, session: &str, command: ClientCommand) {
        let session = session.to_owned();
        self.context.record_acknowledged(AcknowledgedCommand { session, command });
    }

    async fn use_session(&mut self, session: &str) {
        while !self.context.is_ending() && !self.rng.one_in(MESSAGES_PER_SESSION) {
            match self.rng.next_below(16) {
                0 => self.cancel(session).await,
                1 => self.retitle(session).await,
                2 => self.fork(session).await,
                3..=6 => self.revoke(session).await,
                _ => {
                    let number = self.context.next_number();
                    let text = script::random_message(&mut self.rng, number);
                    self.submit_message(session, number, text).await;
                }
            }
            let pause = self.rng.next_below(PAUSE_MS);
            tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        }
        if self.rng.one_in(3) {
            let path = format!("/agent/session/{session}");
            let closed = self.context.request(Method::DELETE, &path, Value::Null).await;
            if closed.is_some_and(|response| response.is_ok()) {
                self.record(session, ClientCommand::Close);
            }
        }
    }

    async fn submit_message(&mut self, session: &str, number: u64, text: String) {
        let message_id = format!("message-{number}");
        let on_busy = *self.rng.pick(&["queue", "queue", "steer", "interrupt", "reject"]);
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
            let first = read_first_frame(&mut response).await;
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
        let response = self.context.request(Method::POST, &path, json!({})).await;
        let Some(response) = response.filter(|response| response.is_ok()) else { return };
        let run_id = response.body["run_id"].as_str().unwrap_or_default().to_owned();
        self.record(session, ClientCommand::Cancel { run_id });
    }

    async fn retitle(&self, session: &str) {
        let title = format!("Title {}", self.context.next_number());
        let path = format!("/agent/session/{session}/settings");
        let response = self.context.request(Method::PATCH, &path, json!({"title": title})).await;
        if response.is_some_and(|response| response.is_ok()) {
            self.record(session, ClientCommand::Retitle { title });
        }
    }

    /// Revokes the first grant of the session, if there is one.
    async fn revoke(&self, session: &str) {
        let path = format!("/agent/session/{session}/grants");
        let listed = self.context.request(Method::GET, &path, Value::Null).await;
        let first_grant = listed.and_then(|response| {
            response.body["grants"][0]["grant_id"].as_str().map(str::to_owned)
        });
        let Some(grant_id) = first_grant else { return };
        let response =
            self.context.request(Method::DELETE, &format!("{path}/{grant_id}"), Value::Null).await;
        if response.is_some_and(|response| response.is_ok()) {
            self.record(session, ClientCommand::Revoke { grant_id });
        }
    }

    async fn fork(&mut self, session: &str) {
        let path = format!("/agent/session/{session}");
        let read = self.context.request(Method::GET, &path, Value::Null).await;
        let Some(head) = read.and_then(|response| response.body["head"].as_u64()) else { return };
        let at_seq = self.rng.next() % head + 1;
        let path = format!("/agent/session/{session}/fork");
        let response = self.context.request(Method::POST, &path, json!({"at_seq": at_seq})).await;
        let Some(response) = response.filter(|response| response.is_ok()) else { return };
        let id = response.body["session_id"].as_str().unwrap_or_default();
        let command = ClientCommand::Fork { from: session.to_owned(), at_seq };
        // No messages are sent to the fork; it is read at the end.
        self.start_subscribers(id, command).send_replace(false);
    }
}

/// Reads the first complete frame of a stream.
async fn read_first_frame(response: &mut reqwest::Response) -> Option<Value> {
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
    let mut rng = SeededRng::new(seed);
    while !context.is_ending() {
        let pause = rng.next_below(60);
        tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        let pending = list_pending_approvals(&context).await;
        if !pending.is_empty() {
            answer_approval(&context, &mut rng, pick_approval(&pending, seed)).await;
        }
    }
}

/// Picks one of the open approvals.
fn pick_approval(pending: &[Value], seed: u64) -> &Value {
    &pending[usize::try_from(seed % pending.len() as u64).unwrap_or_default()]
}

/// Lists the open approvals, at most one page.
pub(crate) async fn list_pending_approvals(context: &ClientContext) -> Vec<Value> {
    let path = "/agent/approvals?state=pending&limit=200";
    let response = context.request_with_retry(Method::GET, path, Value::Null).await;
    response.body["approvals"].as_array().cloned().unwrap_or_default()
}

/// Answers an approval and records the answer if it was accepted.
pub(crate) async fn answer_approval(
    context: &ClientContext,
    rng: &mut SeededRng,
    approval: &Value,
) {
    let decision = match approval["kind"].as_str() {
        Some("plan" | "preflight") => *rng.pick(&["approve", "approve", "approve", "reject"]),
        Some("unknown_outcome") => *rng.pick(&["retry", "done", "failed"]),
        Some("budget") => *rng.pick(&["raise", "raise", "stop"]),
        Some("elicitation") => *rng.pick(&["answer", "answer", "reject"]),
        other => panic!("unexpected kind of approval: {other:?}"),
    };
    let mut body = json!({"decision": decision});
    match decision {
        // `done` needs a result.
        "done" => body["value"] = json!({"answered_by": "human"}),
        "raise" => {
            let amount = |key: &str| approval[key].as_f64().unwrap_or_default();
            body["value"] = json!(amount("spent") + amount("needed") + REMAINING_AFTER_RAISE);
        }
        // A value that no other answer to the same call has.
        "answer" => {
            body["value"] = json!({"hangar": "north", "crates": context.next_number() % 99 + 1})
        }
        // Critical calls cannot have a grant.
        "approve" if approval["kind"] == "plan" && !rng.one_in(4) => {
            let mut steps = approval["steps"].as_array().into_iter().flatten();
            if steps.all(|step| step["risk"] != "critical") {
                body["for_session"] = json!({});
            }
        }
        _ => {}
    }
    let approval_id = approval["approval_id"].as_str().unwrap_or_default().to_owned();
    let path = format!("/agent/approvals/{approval_id}");
    let response = context.request(Method::POST, &path, body).await;
    if response.is_some_and(|response| response.is_ok()) {
        let session = approval["session_id"].as_str().unwrap_or_default().to_owned();
        let decision = decision.to_owned();
        context.record_acknowledged(AcknowledgedCommand {
            session,
            command: ClientCommand::Decide { approval_id, decision },
        });
    }
}
