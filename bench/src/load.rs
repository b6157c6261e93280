//! The load: sessions that each send a message and read the stream to its end, making sure that all
//! of it came.

use crate::{
    delta_marker::ReceivedDeltas,
    http::Connection,
    target::{BenchTarget, RunningTarget, StreamMarkers},
};
use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use serde_json::{Value, json};
use std::time::Duration;

/// A client with a connection of its own.
pub(crate) struct Client {
    connection: Connection,
    contestant: BenchTarget,
    dialect: StreamMarkers,
    token: &'static str,
}

impl Client {
    /// Connects.
    pub(crate) async fn connect(running: &RunningTarget) -> anyhow::Result<Self> {
        let connection = Connection::open(running.address).await?;
        let contestant = running.contestant;
        Ok(Self { connection, contestant, dialect: contestant.dialect(), token: running.token() })
    }

    /// A fresh session for the provider's model `model`. Peers make theirs with the first message.
    pub(crate) async fn session(&mut self, model: &str, number: usize) -> anyhow::Result<Session> {
        let id = match self.contestant {
            BenchTarget::Greenroom(_) => {
                let body = json!({"agent": model, "user_id": format!("user-{number}")});
                let told = self.request_json("POST", "/agent/session", &body.to_string()).await?;
                told["session_id"].as_str().context("no session_id")?.to_owned()
            }
            BenchTarget::BareRelay
            | BenchTarget::MinimalRelay(_)
            | BenchTarget::AiSdk
            | BenchTarget::FastApi
            | BenchTarget::LangGraph => format!("{model}-{number}"),
        };
        Ok(Session { id, model: model.to_owned() })
    }

    /// Gives a session of Greenroom another title, which is one event.
    pub(crate) async fn rename(&mut self, session: &Session, title: &str) -> anyhow::Result<()> {
        let path = format!("/agent/session/{}/settings", session.id);
        let told = self.request_json("PATCH", &path, &json!({"title": title}).to_string()).await?;
        ensure!(told["title"] == title, "the title is {}", told["title"]);
        Ok(())
    }

    /// The number of the last event of a session of Greenroom.
    pub(crate) async fn head(&mut self, session: &Session) -> anyhow::Result<u64> {
        let told = self.request_json("GET", &format!("/agent/session/{}", session.id), "").await?;
        told["head"].as_u64().context("no head")
    }

    /// Sends a request, and reads the answer whole.
    async fn request_json(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<Value> {
        self.connection.send_request(method, path, self.token, body).await?;
        let mut told = Vec::new();
        while let Some(line) = self.connection.line().await? {
            told.extend_from_slice(&line);
        }
        Ok(serde_json::from_slice(&told)?)
    }

    /// Sends a message; the stream begins.
    pub(crate) async fn send(&mut self, session: &Session) -> anyhow::Result<()> {
        let message = "What is the price of Tritanium?";
        let Session { id, model } = session;
        let (path, body) = match self.contestant {
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

    /// Follows a session from its beginning, as one of many who do.
    pub(crate) async fn follow(&mut self, session: &Session) -> anyhow::Result<()> {
        let path = match self.contestant {
            BenchTarget::Greenroom(_) => format!("/agent/session/{}/events", session.id),
            BenchTarget::BareRelay
            | BenchTarget::MinimalRelay(_)
            | BenchTarget::AiSdk
            | BenchTarget::FastApi
            | BenchTarget::LangGraph => "/follow".to_owned(),
        };
        self.connection.send_request("GET", &path, self.token, "").await
    }

    /// Reads until so many deltas were heard.
    pub(crate) async fn read_deltas(
        &mut self,
        heard: &mut ReceivedDeltas,
        deltas: u32,
    ) -> anyhow::Result<()> {
        while heard.deltas < deltas {
            let line = self.connection.line().await?.context("the stream ended early")?;
            if line.starts_with(self.dialect.delta.as_bytes()) {
                heard.record_markers(&line)?;
            }
        }
        Ok(())
    }

    /// Reads the stream to the run's end, and makes sure that nothing is missing.
    pub(crate) async fn finish(&mut self, heard: &mut ReceivedDeltas) -> anyhow::Result<()> {
        let (mut ends, mut results) = (0, 0);
        let StreamMarkers { delta, result, end, .. } = self.dialect;
        while let Some(line) = self.connection.line().await? {
            if line.starts_with(delta.as_bytes()) {
                heard.record_markers(&line)?;
            } else if line.starts_with(end.as_bytes()) {
                ends += 1;
            } else if result.is_some_and(|result| line.starts_with(result.as_bytes())) {
                results += 1;
            }
        }
        ensure!(heard.is_complete(), "a run told {} deltas", heard.deltas);
        ensure!(ends == self.dialect.ends, "a run ended {ends} times");
        ensure!(result.is_none() || results == 1, "a run told {results} results");
        Ok(())
    }

    /// One run, whole.
    pub(crate) async fn run(&mut self, session: &Session) -> anyhow::Result<ReceivedDeltas> {
        let mut heard = ReceivedDeltas::default();
        self.send(session).await?;
        self.finish(&mut heard).await?;
        Ok(heard)
    }
}

/// A session of a contestant.
pub(crate) struct Session {
    id: String,
    model: String,
}

/// `clients` clients at once, each with `runs` runs, each of these in a session of its own, so that
/// no conversation grows. Made beforehand.
pub(crate) struct ClientPool {
    clients: Vec<(Client, Vec<Session>)>,
}

impl ClientPool {
    /// Connects all and makes their sessions. `first` numbers these; it goes on from there.
    pub(crate) async fn connect(
        running: &RunningTarget,
        model: &str,
        (clients, runs): (usize, usize),
        first: &mut usize,
    ) -> anyhow::Result<Self> {
        // All at once: a connection that waits long for the others is closed.
        let gather = |numbers: std::ops::Range<usize>| async move {
            let mut client = Client::connect(running).await?;
            let mut sessions = Vec::new();
            for number in numbers {
                sessions.push(client.session(model, number).await?);
            }
            anyhow::Ok((client, sessions))
        };
        let numbers =
            (0..clients).map(|client| *first + client * runs..*first + (client + 1) * runs);
        let gathered = try_join_all(numbers.map(gather)).await?;
        *first += clients * runs;
        Ok(Self { clients: gathered })
    }

    /// All runs; what was heard of each. A client begins so long after the one before it.
    pub(crate) async fn run(self, apart: Duration) -> anyhow::Result<Vec<ReceivedDeltas>> {
        let one = |begins_after, (mut client, sessions): (Client, Vec<Session>)| async move {
            tokio::time::sleep(begins_after).await;
            let mut heard = Vec::new();
            for session in &sessions {
                heard.push(client.run(session).await?);
            }
            anyhow::Ok(heard)
        };
        let waits = (0..).map(|number: u32| apart * number);
        let tasks: Vec<_> = waits
            .zip(self.clients)
            .map(|(begins_after, client)| tokio::spawn(one(begins_after, client)))
            .collect();
        let mut heard = Vec::new();
        for task in tasks {
            heard.extend(task.await??);
        }
        Ok(heard)
    }
}
