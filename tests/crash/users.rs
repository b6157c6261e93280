//! Who asks: people who write, cancel, rename, fork, revoke and close, and one who answers questions. What
//! is acknowledged is noted; what is not is asked again where that is safe, under the same id.

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

/// Messages in one session, about.
const MESSAGES_PER_SESSION: usize = 14;
/// ISK that a raised budget has left.
const ROOM: f64 = 10.0;
/// Milliseconds between two things a person does, at most.
const PAUSE_MS: usize = 120;

/// One person with a session at a time, until the play ends; returns their listeners.
pub(crate) async fn run_user(stage: Arc<ClientContext>, seed: u64) -> Vec<JoinHandle<()>> {
    let mut player = SimulatedUser { stage, chance: SeededRng::new(seed), listeners: Vec::new() };
    let mut last = false;
    while !last {
        last = player.stage.is_ending();
        if let Some((session, in_use)) = player.create().await {
            player.use_session(&session).await;
            if last {
                let number = player.stage.number();
                player.submit_message(&session, number, format!("order number {number}")).await;
            }
            in_use.send_replace(false);
        } else {
            retry_pause().await;
        }
    }
    player.listeners
}

struct SimulatedUser {
    stage: Arc<ClientContext>,
    chance: SeededRng,
    listeners: Vec<JoinHandle<()>>,
}

impl SimulatedUser {
    /// A new session, if the answer comes: one that nobody heard of is nobody's.
    async fn create(&mut self) -> Option<(String, watch::Sender<bool>)> {
        let agent = if self.chance.one_in(5) { "hasty" } else { "default" };
        let wish = json!({"autonomy_level": 2, "agent": agent});
        let answer = self.stage.request(Method::POST, "/agent/session", wish).await?;
        let session = answer.body["session_id"].as_str().filter(|_| answer.is_ok())?.to_owned();
        let in_use = self.start_subscribers(&session, ClientCommand::Create);
        Some((session, in_use))
    }

    /// Notes a session, and has it listened to.
    fn start_subscribers(&mut self, session: &str, command: ClientCommand) -> watch::Sender<bool> {
        self.record(session, command);
        let (in_use, use_of) = watch::channel(true);
        for transport in [Transport::Events, Transport::Socket] {
            let (stage, session) = (self.stage.clone(), session.to_owned());
            self.listeners.push(spawn(run_subscriber(stage, session, transport, use_of.clone())));
        }
        in_use
    }

    fn record(&self, session: &str, command: ClientCommand) {
        let session = session.to_owned();
        self.stage.record_acknowledged(AcknowledgedCommand { session, command });
    }

    async fn use_session(&mut self, session: &str) {
        while !self.stage.is_ending() && !self.chance.one_in(MESSAGES_PER_SESSION) {
            match self.chance.below(16) {
                0 => self.cancel(session).await,
                1 => self.retitle(session).await,
                2 => self.fork(session).await,
                3..=6 => self.revoke(session).await,
                _ => {
                    let number = self.stage.number();
                    let text = script::random_message(&mut self.chance, number);
                    self.submit_message(session, number, text).await;
                }
            }
            let pause = self.chance.below(PAUSE_MS);
            tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        }
        if self.chance.one_in(3) {
            let path = format!("/agent/session/{session}");
            let closed = self.stage.request(Method::DELETE, &path, Value::Null).await;
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
            // What steers has no plan of its own.
            body["on_busy"] = json!("queue");
            body["preflight"] = json!(true);
        }
        // The same until it is known what became of it.
        let (run_id, seq) = loop {
            let Some(mut response) = self.stage.chat(&body).await else {
                retry_pause().await;
                continue;
            };
            match response.status().as_u16() {
                200 => {}
                503 => {
                    retry_pause().await;
                    continue;
                }
                // Busy, closed, too much: it was not done.
                409 | 429 => return,
                status => panic!("{status}: {}", response.text().await.unwrap_or_default()),
            }
            // It is acknowledged by its status; where it stands, its first frame says.
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
        let answer = self.stage.request(Method::POST, &path, json!({})).await;
        let Some(answer) = answer.filter(|answer| answer.is_ok()) else { return };
        let run_id = answer.body["run_id"].as_str().unwrap_or_default().to_owned();
        self.record(session, ClientCommand::Cancel { run_id });
    }

    async fn retitle(&self, session: &str) {
        let title = format!("Title {}", self.stage.number());
        let path = format!("/agent/session/{session}/settings");
        let answer = self.stage.request(Method::PATCH, &path, json!({"title": title})).await;
        if answer.is_some_and(|answer| answer.is_ok()) {
            self.record(session, ClientCommand::Retitle { title });
        }
    }

    /// Takes back an approval that holds for the session, if there is one.
    async fn revoke(&self, session: &str) {
        let path = format!("/agent/session/{session}/grants");
        let listed = self.stage.request(Method::GET, &path, Value::Null).await;
        let grant =
            listed.and_then(|it| it.body["grants"][0]["grant_id"].as_str().map(str::to_owned));
        let Some(grant_id) = grant else { return };
        let answer =
            self.stage.request(Method::DELETE, &format!("{path}/{grant_id}"), Value::Null).await;
        if answer.is_some_and(|answer| answer.is_ok()) {
            self.record(session, ClientCommand::Revoke { grant_id });
        }
    }

    async fn fork(&mut self, session: &str) {
        let path = format!("/agent/session/{session}");
        let read = self.stage.request(Method::GET, &path, Value::Null).await;
        let Some(head) = read.and_then(|answer| answer.body["head"].as_u64()) else { return };
        let at_seq = self.chance.next() % head + 1;
        let path = format!("/agent/session/{session}/fork");
        let answer = self.stage.request(Method::POST, &path, json!({"at_seq": at_seq})).await;
        let Some(answer) = answer.filter(|answer| answer.is_ok()) else { return };
        let id = answer.body["session_id"].as_str().unwrap_or_default();
        let command = ClientCommand::Fork { from: session.to_owned(), at_seq };
        // Nothing is said there; at the end it is read.
        self.start_subscribers(id, command).send_replace(false);
    }
}

/// The first frame of a stream, if it comes.
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

/// One who answers what waits, now and then, until nothing is to be answered any more.
pub(crate) async fn run_approver(stage: Arc<ClientContext>, seed: u64) {
    let mut chance = SeededRng::new(seed);
    while !stage.is_ending() {
        let pause = chance.below(60);
        tokio::time::sleep(Duration::from_millis(pause as u64)).await;
        let waiting = list_pending_approvals(&stage).await;
        if !waiting.is_empty() {
            answer_approval(&stage, &mut chance, pick_approval(&waiting, seed)).await;
        }
    }
}

/// One of those that wait.
fn pick_approval(waiting: &[Value], seed: u64) -> &Value {
    &waiting[usize::try_from(seed % waiting.len() as u64).unwrap_or_default()]
}

/// The questions that wait, on one page.
pub(crate) async fn list_pending_approvals(stage: &ClientContext) -> Vec<Value> {
    let path = "/agent/approvals?state=pending&limit=200";
    let answer = stage.request_with_retry(Method::GET, path, Value::Null).await;
    answer.body["approvals"].as_array().cloned().unwrap_or_default()
}

/// Answers one question, and notes it if that was taken.
pub(crate) async fn answer_approval(
    stage: &ClientContext,
    chance: &mut SeededRng,
    question: &Value,
) {
    let decision = match question["kind"].as_str() {
        Some("plan" | "preflight") => *chance.pick(&["approve", "approve", "approve", "reject"]),
        Some("unknown_outcome") => *chance.pick(&["retry", "done", "failed"]),
        Some("budget") => *chance.pick(&["raise", "raise", "stop"]),
        Some("elicitation") => *chance.pick(&["answer", "answer", "reject"]),
        other => panic!("nobody asked for a question of the kind {other:?}"),
    };
    let mut body = json!({"decision": decision});
    match decision {
        // To say that it failed, or what came of it, one must have looked.
        "done" => body["value"] = json!({"said": "a person"}),
        "raise" => {
            let amount = |key: &str| question[key].as_f64().unwrap_or_default();
            body["value"] = json!(amount("spent") + amount("needed") + ROOM);
        }
        // A number that no other answer to the same call has.
        "answer" => body["value"] = json!({"hangar": "north", "crates": stage.number() % 99 + 1}),
        // What is critical is asked for every time.
        "approve" if question["kind"] == "plan" && !chance.one_in(4) => {
            let mut steps = question["steps"].as_array().into_iter().flatten();
            if steps.all(|step| step["risk"] != "critical") {
                body["for_session"] = json!({});
            }
        }
        _ => {}
    }
    let approval_id = question["approval_id"].as_str().unwrap_or_default().to_owned();
    let path = format!("/agent/approvals/{approval_id}");
    let answer = stage.request(Method::POST, &path, body).await;
    if answer.is_some_and(|answer| answer.is_ok()) {
        let session = question["session_id"].as_str().unwrap_or_default().to_owned();
        let decision = decision.to_owned();
        stage.record_acknowledged(AcknowledgedCommand {
            session,
            command: ClientCommand::Decide { approval_id, decision },
        });
    }
}
