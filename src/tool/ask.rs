//! What servers ask of people while a call runs (T1): MCP's elicitation, in the protocol's two
//! ways. Since 2026-07-28 a call is answered with what it needs, and made again with it; before, the
//! server sends a request of its own in the middle. Used by `call` and `link`.

use greenroom_actors::ports::People;
use greenroom_core::approval::{Elicitation, ElicitationAnswer, Wanted};
use rmcp::model::{
    ClientCapabilities, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, FormElicitationCapability, InputRequest, InputRequests, InputResponses,
    UrlElicitationCapability,
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Questions of one call that wait to be looked at.
const BACKLOG_MAX: usize = 4;
/// A call that was given up may go on asking until its server has heard of that.
const ECHO: Duration = Duration::from_secs(10);
/// Pages that an answer may ask a person to visit before the call is made again.
const PAGES_MAX: usize = 8;

/// What we say that we can do for a server.
pub(super) fn capabilities() -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::default();
    let elicitation = ElicitationCapability::new()
        .with_form(FormElicitationCapability::new().with_schema_validation(true))
        .with_url(UrlElicitationCapability::new());
    capabilities.elicitation = Some(elicitation);
    capabilities
}

/// A question of a server, on its way to the call it belongs to.
pub(super) struct Asked {
    elicitation: Elicitation,
    reply: oneshot::Sender<ElicitationAnswer>,
}

impl Asked {
    /// Puts it to people, until there is an answer or the server gives up.
    pub(super) async fn put(self, people: People) {
        let Self { elicitation, mut reply } = self;
        tokio::select! {
            answer = people.ask(elicitation) => drop(reply.send(answer)),
            () = reply.closed() => {}
        }
    }
}

/// The calls under way over one connection.
#[derive(Clone, Default)]
pub(super) struct Hearing {
    calls: Arc<Mutex<Calls>>,
}

#[derive(Default)]
struct Calls {
    next: u64,
    under_way: HashMap<u64, mpsc::Sender<Asked>>,
    /// When a call was given up last.
    given_up: Option<Instant>,
}

impl Calls {
    /// The call that a question belongs to, if it is certain.
    fn only(&self) -> Option<&mpsc::Sender<Asked>> {
        let may_echo = self.given_up.is_some_and(|at| at.elapsed() < ECHO);
        self.under_way.values().next().filter(|_| self.under_way.len() == 1 && !may_echo)
    }
}

impl Hearing {
    /// A call is under way until the guard is dropped; what it asks comes over the channel.
    pub(super) fn begin(&self) -> (Heard, mpsc::Receiver<Asked>) {
        let (sender, receiver) = mpsc::channel(BACKLOG_MAX);
        let mut calls = self.calls();
        calls.next += 1;
        let number = calls.next;
        calls.under_way.insert(number, sender);
        drop(calls);
        (Heard { hearing: self.clone(), number, is_answered: false }, receiver)
    }

    /// A question that a server sent by itself. It does not say which call it belongs to: with
    /// several under way, or one that was just given up, the wrong person might be asked, so nobody
    /// is.
    pub(super) async fn put(
        &self,
        params: ElicitRequestParams,
        withdrawn: CancellationToken,
    ) -> ElicitResult {
        let Some(elicitation) = read(params) else {
            return answer(ElicitationAnswer::Declined);
        };
        let only = self.calls().only().cloned();
        let Some(call) = only else {
            let calls = self.calls().under_way.len();
            tracing::warn!(
                calls,
                "a tool server asks a person something and does not say for which call: declined"
            );
            return answer(ElicitationAnswer::Declined);
        };
        let (reply, answered) = oneshot::channel();
        if call.try_send(Asked { elicitation, reply }).is_err() {
            return answer(ElicitationAnswer::Cancelled);
        }
        tokio::select! {
            answered = answered => answer(answered.unwrap_or(ElicitationAnswer::Cancelled)),
            () = withdrawn.cancelled() => answer(ElicitationAnswer::Cancelled),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is under way.
pub(super) struct Heard {
    hearing: Hearing,
    number: u64,
    is_answered: bool,
}

impl Heard {
    /// The server is done with it, and asks nothing more.
    pub(super) fn answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for Heard {
    fn drop(&mut self) {
        let mut calls = self.hearing.calls();
        calls.under_way.remove(&self.number);
        if !self.is_answered {
            calls.given_up = Some(Instant::now());
        }
    }
}

/// What a call needs before it is made again.
#[derive(Debug)]
pub(super) enum Needed {
    /// Answers, under the server's names for them, and its state back (since 2026-07-28).
    Input { requests: InputRequests, state: Option<String> },
    /// That a person has visited these pages (2025-11-25, error -32042).
    Pages(Vec<Elicitation>),
}

impl Needed {
    /// The pages that an error names.
    pub(super) fn of_error(data: Option<&Value>) -> Option<Self> {
        let listed = data?["elicitations"].as_array()?;
        let page = |item: &Value| {
            let url = item["url"].as_str()?.to_owned();
            let message = item["message"].as_str().unwrap_or_default().to_owned();
            Some(Elicitation { message, wanted: Wanted::Url { url } })
        };
        let pages: Vec<_> = listed.iter().take(PAGES_MAX).filter_map(page).collect();
        (!pages.is_empty()).then_some(Self::Pages(pages))
    }
}

/// What the call is made again with.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Given {
    pub(super) responses: Option<InputResponses>,
    pub(super) state: Option<String>,
}

/// Gets what is needed from people, one question after the other. Errs with why the call can't go
/// on.
pub(super) async fn get(needed: Needed, people: &People) -> Result<Given, String> {
    match needed {
        Needed::Input { requests, state } => {
            let mut responses = InputResponses::new();
            for (name, request) in requests {
                let response = respond(request, people).await?;
                responses.insert(name, response);
            }
            let responses = (!responses.is_empty()).then_some(responses);
            Ok(Given { responses, state })
        }
        Needed::Pages(pages) => {
            for page in pages {
                if !matches!(people.ask(page).await, ElicitationAnswer::Accepted(_)) {
                    return Err(
                        "the tool needs a person to visit a page first, and nobody did".to_owned()
                    );
                }
            }
            Ok(Given::default())
        }
    }
}

async fn respond(request: InputRequest, people: &People) -> Result<Value, String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match request {
        InputRequest::Elicitation(request) => {
            let said = match read(request.params) {
                Some(elicitation) => people.ask(elicitation).await,
                None => ElicitationAnswer::Declined,
            };
            serde_json::to_value(answer(said)).map_err(|error| error.to_string())
        }
        InputRequest::ListRoots(_) => Ok(json!({"roots": []})),
        _ => Err("the tool asks for something that was not offered".to_owned()),
    }
}

fn read(params: ElicitRequestParams) -> Option<Elicitation> {
    match params {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema = serde_json::to_value(requested_schema).ok()?;
            Some(Elicitation { message, wanted: Wanted::Form { schema } })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            Some(Elicitation { message, wanted: Wanted::Url { url } })
        }
        _ => None,
    }
}

fn answer(answer: ElicitationAnswer) -> ElicitResult {
    match answer {
        ElicitationAnswer::Accepted(None) => ElicitResult::new(ElicitationAction::Accept),
        ElicitationAnswer::Accepted(Some(content)) => {
            ElicitResult::new(ElicitationAction::Accept).with_content(content)
        }
        ElicitationAnswer::Declined => ElicitResult::new(ElicitationAction::Decline),
        ElicitationAnswer::Cancelled => ElicitResult::new(ElicitationAction::Cancel),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t1_a_question_belongs_to_a_call_only_where_that_is_certain() {
        let hearing = Hearing::default();
        let is_certain = || hearing.calls().only().is_some();
        let (mut one, _asked) = hearing.begin();
        assert!(is_certain());
        let (mut other, _asked) = hearing.begin();
        assert!(!is_certain(), "two are under way");
        one.answered();
        drop(one);
        assert!(is_certain(), "the server is done with the one");
        let (third, _asked) = hearing.begin();
        drop(third);
        assert!(!is_certain(), "the server may not have heard yet that it was given up");
        other.answered();
    }
}
