//! What servers ask of people while a call runs (T1): MCP's elicitation, in the protocol's two
//! ways. Since 2026-07-28 a call is answered with what it needs, and made again with it; before, the
//! server sends a request of its own in the middle. Used by `call` and `link`.

use greenroom_actors::ports::ElicitationChannel;
use greenroom_core::approval::{Elicitation, ElicitationAnswer, ElicitationMode};
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
const PENDING_ELICITATIONS_MAX: usize = 4;
/// A call that was given up may go on asking until its server has heard of that.
const ABANDONED_GRACE: Duration = Duration::from_secs(10);
/// Pages that an answer may ask a person to visit before the call is made again.
const PAGES_MAX: usize = 8;

/// What we say that we can do for a server.
pub(super) fn client_capabilities() -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::default();
    let elicitation = ElicitationCapability::new()
        .with_form(FormElicitationCapability::new().with_schema_validation(true))
        .with_url(UrlElicitationCapability::new());
    capabilities.elicitation = Some(elicitation);
    capabilities
}

/// A question of a server, on its way to the call it belongs to.
pub(super) struct PendingElicitation {
    elicitation: Elicitation,
    reply: oneshot::Sender<ElicitationAnswer>,
}

impl PendingElicitation {
    /// Puts it to people, until there is an answer or the server gives up.
    pub(super) async fn forward(self, people: ElicitationChannel) {
        let Self { elicitation, mut reply } = self;
        tokio::select! {
            answer = people.request(elicitation) => drop(reply.send(answer)),
            () = reply.closed() => {}
        }
    }
}

/// The calls under way over one connection.
#[derive(Clone, Default)]
pub(super) struct ActiveCalls {
    calls: Arc<Mutex<ActiveCallTable>>,
}

#[derive(Default)]
struct ActiveCallTable {
    next: u64,
    senders: HashMap<u64, mpsc::Sender<PendingElicitation>>,
    /// When a call was given up last.
    last_abandoned_at: Option<Instant>,
}

impl ActiveCallTable {
    /// The call that a question belongs to, if it is certain.
    fn sole_call(&self) -> Option<&mpsc::Sender<PendingElicitation>> {
        let may_echo = self.last_abandoned_at.is_some_and(|at| at.elapsed() < ABANDONED_GRACE);
        self.senders.values().next().filter(|_| self.senders.len() == 1 && !may_echo)
    }
}

impl ActiveCalls {
    /// A call is under way until the guard is dropped; what it asks comes over the channel.
    pub(super) fn register(&self) -> (ActiveCallGuard, mpsc::Receiver<PendingElicitation>) {
        let (sender, receiver) = mpsc::channel(PENDING_ELICITATIONS_MAX);
        let mut calls = self.lock();
        calls.next += 1;
        let number = calls.next;
        calls.senders.insert(number, sender);
        drop(calls);
        (ActiveCallGuard { hearing: self.clone(), number, is_answered: false }, receiver)
    }

    /// A question that a server sent by itself. It does not say which call it belongs to: with
    /// several under way, or one that was just given up, the wrong person might be asked, so nobody
    /// is.
    pub(super) async fn handle_elicitation(
        &self,
        params: ElicitRequestParams,
        withdrawn: CancellationToken,
    ) -> ElicitResult {
        let Some(elicitation) = parse_elicitation(params) else {
            return to_elicit_result(ElicitationAnswer::Declined);
        };
        let only = self.lock().sole_call().cloned();
        let Some(call) = only else {
            let calls = self.lock().senders.len();
            tracing::warn!(
                calls,
                "a tool server asks a person something and does not say for which call: declined"
            );
            return to_elicit_result(ElicitationAnswer::Declined);
        };
        let (reply, answered) = oneshot::channel();
        if call.try_send(PendingElicitation { elicitation, reply }).is_err() {
            return to_elicit_result(ElicitationAnswer::Cancelled);
        }
        tokio::select! {
            answered = answered => to_elicit_result(answered.unwrap_or(ElicitationAnswer::Cancelled)),
            () = withdrawn.cancelled() => to_elicit_result(ElicitationAnswer::Cancelled),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ActiveCallTable> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that is under way.
pub(super) struct ActiveCallGuard {
    hearing: ActiveCalls,
    number: u64,
    is_answered: bool,
}

impl ActiveCallGuard {
    /// The server is done with it, and asks nothing more.
    pub(super) fn mark_answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for ActiveCallGuard {
    fn drop(&mut self) {
        let mut calls = self.hearing.lock();
        calls.senders.remove(&self.number);
        if !self.is_answered {
            calls.last_abandoned_at = Some(Instant::now());
        }
    }
}

/// What a call needs before it is made again.
#[derive(Debug)]
pub(super) enum RequiredInput {
    /// Answers, under the server's names for them, and its state back (since 2026-07-28).
    Requests { requests: InputRequests, state: Option<String> },
    /// That a person has visited these pages (2025-11-25, error -32042).
    Pages(Vec<Elicitation>),
}

impl RequiredInput {
    /// The pages that an error names.
    pub(super) fn from_error_data(data: Option<&Value>) -> Option<Self> {
        let listed = data?["elicitations"].as_array()?;
        let page = |item: &Value| {
            let url = item["url"].as_str()?.to_owned();
            let message = item["message"].as_str().unwrap_or_default().to_owned();
            Some(Elicitation { message, mode: ElicitationMode::Url { url } })
        };
        let pages: Vec<_> = listed.iter().take(PAGES_MAX).filter_map(page).collect();
        (!pages.is_empty()).then_some(Self::Pages(pages))
    }
}

/// What the call is made again with.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CollectedInput {
    pub(super) responses: Option<InputResponses>,
    pub(super) state: Option<String>,
}

/// Gets what is needed from people, one question after the other. Errs with why the call can't go
/// on.
pub(super) async fn collect_input(
    needed: RequiredInput,
    people: &ElicitationChannel,
) -> Result<CollectedInput, String> {
    match needed {
        RequiredInput::Requests { requests, state } => {
            let mut responses = InputResponses::new();
            for (name, request) in requests {
                let response = collect_response(request, people).await?;
                responses.insert(name, response);
            }
            let responses = (!responses.is_empty()).then_some(responses);
            Ok(CollectedInput { responses, state })
        }
        RequiredInput::Pages(pages) => {
            for page in pages {
                if !matches!(people.request(page).await, ElicitationAnswer::Accepted(_)) {
                    return Err(
                        "the tool needs a person to visit a page first, and nobody did".to_owned()
                    );
                }
            }
            Ok(CollectedInput::default())
        }
    }
}

async fn collect_response(
    request: InputRequest,
    people: &ElicitationChannel,
) -> Result<Value, String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match request {
        InputRequest::Elicitation(request) => {
            let said = match parse_elicitation(request.params) {
                Some(elicitation) => people.request(elicitation).await,
                None => ElicitationAnswer::Declined,
            };
            serde_json::to_value(to_elicit_result(said)).map_err(|error| error.to_string())
        }
        InputRequest::ListRoots(_) => Ok(json!({"roots": []})),
        _ => Err("the tool asks for something that was not offered".to_owned()),
    }
}

fn parse_elicitation(params: ElicitRequestParams) -> Option<Elicitation> {
    match params {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema = serde_json::to_value(requested_schema).ok()?;
            Some(Elicitation { message, mode: ElicitationMode::Form { schema } })
        }
        ElicitRequestParams::UrlElicitationParams { message, url, .. } => {
            Some(Elicitation { message, mode: ElicitationMode::Url { url } })
        }
        _ => None,
    }
}

fn to_elicit_result(answer: ElicitationAnswer) -> ElicitResult {
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
    fn t1_elicitation_is_assigned_only_to_a_sole_active_call() {
        let hearing = ActiveCalls::default();
        let is_certain = || hearing.lock().sole_call().is_some();
        let (mut one, _asked) = hearing.register();
        assert!(is_certain());
        let (mut other, _asked) = hearing.register();
        assert!(!is_certain(), "two are under way");
        one.mark_answered();
        drop(one);
        assert!(is_certain(), "the server is done with the one");
        let (third, _asked) = hearing.register();
        drop(third);
        assert!(!is_certain(), "the server may not have heard yet that it was given up");
        other.mark_answered();
    }
}
