//! The load: clients that send messages and read the streams to their ends, and verify that every
//! stream is complete.

use crate::{
    delta_marker::ReceivedDeltas,
    http::Connection,
    target::{BenchTarget, RunningTarget, StreamMarkers},
};
use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::time::Duration;

/// A client with its own connection.
pub(crate) struct Client {
    connection: Connection,
    target: BenchTarget,
    markers: StreamMarkers,
    token: &'static str,
}

impl Client {
    /// Connects to a running target.
    pub(crate) async fn connect(running: &RunningTarget) -> anyhow::Result<Self> {
        let connection = Connection::open(running.address).await?;
        let target = running.target;
        Ok(Self { connection, target, markers: target.markers(), token: running.token() })
    }

    /// Creates a session for the provider's model `model`. Only Greenroom creates sessions by a
    /// request; the other targets create them with the first message.
    pub(crate) async fn session(&mut self, model: &str, number: usize) -> anyhow::Result<Session> {
        let id = match self.target {
            BenchTarget::Greenroom(_) => {
                let body = json!({"agent": model, "user_id": format!("user-{number}")});
                let response =
                    self.request_json("POST", "/agent/session", &body.to_string()).await?;
                response["session_id"].as_str().context("no session_id")?.to_owned()
            }
            BenchTarget::BareRelay
            | BenchTarget::MinimalRelay(_)
            | BenchTarget::AiSdk
            | BenchTarget::FastApi
            | BenchTarget::LangGraph => format!("{model}-{number}"),
        };
        Ok(Session { id, model: model.to_owned() })
    }

    /// Changes the title of a Greenroom session, which commits one event.
    pub(crate) async fn rename(&mut self, session: &Session, title: &str) -> anyhow::Result<()> {
        let path = format!("/agent/session/{}/settings", session.id);
        let body = json!({"title": title}).to_string();
        let response = self.request_json("PATCH", &path, &body).await?;
        ensure!(response["title"] == title, "the title is {}", response["title"]);
        Ok(())
    }

    /// Returns the number of the last event of a Greenroom session.
    pub(crate) async fn head(&mut self, session: &Session) -> anyhow::Result<u64> {
        let path = format!("/agent/session/{}", session.id);
        let response = self.request_json("GET", &path, "").await?;
        response["head"].as_u64().context("no head")
    }

    /// Sends a request and reads the JSON response.
    async fn request_json(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<Value> {
        self.connection.send_request(method, path, self.token, body).await?;
        let mut response = Vec::new();
        while let Some(line) = self.connection.line().await? {
            response.extend_from_slice(&line);
        }
        Ok(serde_json::from_slice(&response)?)
    }

    /// Sends a message and reads the head of its stream.
    pub(crate) async fn send(&mut self, session: &Session) -> anyhow::Result<()> {
        let message = "What is the price of Tritanium?";
        let Session { id, model } = session;
        let (path, body) = match self.target {
            BenchTarget::Greenroom(_) => {
                ("/agent/chat/stream", json!({"session_id": id, "message": message}))
            }
            BenchTarget::BareRelay
            | BenchTarget::MinimalRelay(_)
            | BenchTarget::AiSdk
            | BenchTarget::FastApi
            | BenchTarget::LangGraph => {
                ("/chat", json!({"session": id, "model": model, "message": message}))
            }
        };
        self.connection.send_request("POST", path, self.token, &body.to_string()).await
    }

    /// Subscribes to a session from its first event.
    pub(crate) async fn follow(&mut self, session: &Session) -> anyhow::Result<()> {
        let path = match self.target {
            BenchTarget::Greenroom(_) => format!("/agent/session/{}/events", session.id),
            BenchTarget::BareRelay
            | BenchTarget::MinimalRelay(_)
            | BenchTarget::AiSdk
            | BenchTarget::FastApi
            | BenchTarget::LangGraph => "/follow".to_owned(),
        };
        self.connection.send_request("GET", &path, self.token, "").await
    }

    /// Reads until `deltas` deltas are received.
    pub(crate) async fn read_deltas(
        &mut self,
        received: &mut ReceivedDeltas,
        deltas: u32,
    ) -> anyhow::Result<()> {
        while received.deltas < deltas {
            let line = self.connection.line().await?.context("the stream ended early")?;
            if line.starts_with(self.markers.delta.as_bytes()) {
                received.record_markers(&line)?;
            }
        }
        Ok(())
    }

    /// Reads the stream to the end of the run and verifies that it is complete.
    pub(crate) async fn finish(&mut self, received: &mut ReceivedDeltas) -> anyhow::Result<()> {
        let (mut ends, mut results) = (0, 0);
        let StreamMarkers { delta, result, end, .. } = self.markers;
        while let Some(line) = self.connection.line().await? {
            if line.starts_with(delta.as_bytes()) {
                received.record_markers(&line)?;
            } else if line.starts_with(end.as_bytes()) {
                ends += 1;
            } else if result.is_some_and(|result| line.starts_with(result.as_bytes())) {
                results += 1;
            }
        }
        ensure!(received.is_complete(), "got {} deltas", received.deltas);
        ensure!(ends == self.markers.ends, "got {ends} ends of the run");
        ensure!(result.is_none() || results == 1, "got {results} tool results");
        Ok(())
    }

    /// Runs one complete run.
    pub(crate) async fn run(&mut self, session: &Session) -> anyhow::Result<ReceivedDeltas> {
        let mut received = ReceivedDeltas::default();
        self.send(session).await?;
        self.finish(&mut received).await?;
        Ok(received)
    }
}

/// A session of a target.
pub(crate) struct Session {
    id: String,
    model: String,
}

/// Concurrent clients, each with one session per run, so that no conversation grows. The sessions
/// exist before the measurement starts.
pub(crate) struct ClientPool {
    clients: Vec<(Client, Vec<Session>)>,
}

impl ClientPool {
    /// Connects the clients and creates their sessions, numbered from `first`; advances `first`.
    pub(crate) async fn connect(
        running: &RunningTarget,
        model: &str,
        (clients, runs): (usize, usize),
        first: &mut usize,
    ) -> anyhow::Result<Self> {
        // Concurrently, because the server closes a connection that is idle for a long time.
        let connect = |numbers: std::ops::Range<usize>| async move {
            let mut client = Client::connect(running).await?;
            let mut sessions = Vec::new();
            for number in numbers {
                sessions.push(client.session(model, number).await?);
            }
            anyhow::Ok((client, sessions))
        };
        let numbers =
            (0..clients).map(|client| *first + client * runs..*first + (client + 1) * runs);
        let clients_with_sessions = try_join_all(numbers.map(connect)).await?;
        *first += clients * runs;
        Ok(Self { clients: clients_with_sessions })
    }

    /// Runs all runs and returns what each received. Clients start `start_interval` apart.
    pub(crate) async fn run(self, start_interval: Duration) -> anyhow::Result<Vec<ReceivedDeltas>> {
        let run_client = |delay, (mut client, sessions): (Client, Vec<Session>)| async move {
            tokio::time::sleep(delay).await;
            let mut received = Vec::new();
            for session in &sessions {
                received.push(client.run(session).await?);
            }
            anyhow::Ok(received)
        };
        let delays = (0..).map(|number: u32| start_interval * number);
        let tasks: Vec<_> = delays
            .zip(self.clients)
            .map(|(delay, client)| tokio::spawn(run_client(delay, client)))
            .collect();
        let mut received = Vec::new();
        for task in tasks {
            received.extend(task.await??);
        }
        Ok(received)
    }
}
