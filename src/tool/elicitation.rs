//! MCP elicitation: input that servers request from users during a call (T1). Since revision
//! 2026-07-28 the server's response lists the required input and the client repeats the request;
//! before, the server sends a request during the call. Used by `call` and `mcp_client`.

use greenroom_actors::ports::ElicitationChannel;
use greenroom_core::{
    approval::{Elicitation, ElicitationAnswer, ElicitationMode},
    json::validate_value,
};
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

/// Maximum number of unprocessed elicitations of one call.
const PENDING_ELICITATIONS_MAX: usize = 4;
/// Time for which the server of an abandoned call may still send elicitations for it.
const ABANDONED_GRACE: Duration = Duration::from_secs(10);
/// Maximum number of pages that an error may require the user to visit.
const PAGES_MAX: usize = 8;

/// Returns the client capabilities that are announced to servers.
pub(super) fn client_capabilities() -> ClientCapabilities {
    let mut capabilities = ClientCapabilities::default();
    let elicitation = ElicitationCapability::new()
        .with_form(FormElicitationCapability::new().with_schema_validation(true))
        .with_url(UrlElicitationCapability::new());
    capabilities.elicitation = Some(elicitation);
    capabilities
}

/// An elicitation of a server on its way to its call.
pub(super) struct PendingElicitation {
    elicitation: Elicitation,
    reply: oneshot::Sender<ElicitationAnswer>,
}

impl PendingElicitation {
    /// Requests the answer from users. Ends when it is answered or the server withdraws.
    pub(super) async fn forward(self, channel: ElicitationChannel) {
        let Self { elicitation, mut reply } = self;
        tokio::select! {
            answer = channel.request(elicitation) => drop(reply.send(answer)),
            () = reply.closed() => {}
        }
    }
}

/// The running calls of one connection.
#[derive(Clone, Default)]
pub(super) struct ActiveCalls {
    calls: Arc<Mutex<ActiveCallTable>>,
}

#[derive(Default)]
struct ActiveCallTable {
    next: u64,
    senders: HashMap<u64, mpsc::Sender<PendingElicitation>>,
    /// The time at which the last call was abandoned.
    last_abandoned_at: Option<Instant>,
}

impl ActiveCallTable {
    /// Returns the only call that an elicitation can belong to, if there is exactly one.
    fn sole_call(&self) -> Option<&mpsc::Sender<PendingElicitation>> {
        let is_ambiguous = self.last_abandoned_at.is_some_and(|at| at.elapsed() < ABANDONED_GRACE);
        self.senders.values().next().filter(|_| self.senders.len() == 1 && !is_ambiguous)
    }
}

impl ActiveCalls {
    /// Registers a call until the guard is dropped. The channel receives its elicitations.
    pub(super) fn register(&self) -> (ActiveCallGuard, mpsc::Receiver<PendingElicitation>) {
        let (sender, receiver) = mpsc::channel(PENDING_ELICITATIONS_MAX);
        let mut calls = self.lock();
        calls.next += 1;
        let number = calls.next;
        calls.senders.insert(number, sender);
        drop(calls);
        (ActiveCallGuard { active_calls: self.clone(), number, is_answered: false }, receiver)
    }

    /// Handles an elicitation that a server sent as a request of its own. The request does not name
    /// its call: with several running calls, or a recently abandoned one, the elicitation might reach
    /// the wrong user, so it is declined.
    pub(super) async fn handle_elicitation(
        &self,
        params: ElicitRequestParams,
        withdrawn: CancellationToken,
    ) -> ElicitResult {
        let Some(elicitation) = parse_elicitation(params) else {
            return to_elicit_result(ElicitationAnswer::Declined);
        };
        let sole_call = self.lock().sole_call().cloned();
        let Some(call) = sole_call else {
            let calls = self.lock().senders.len();
            tracing::warn!(
                calls,
                "declined an elicitation of a tool server: it can't be assigned to a call"
            );
            return to_elicit_result(ElicitationAnswer::Declined);
        };
        let (reply, answer) = oneshot::channel();
        if call.try_send(PendingElicitation { elicitation, reply }).is_err() {
            return to_elicit_result(ElicitationAnswer::Cancelled);
        }
        tokio::select! {
            answer = answer => to_elicit_result(answer.unwrap_or(ElicitationAnswer::Cancelled)),
            () = withdrawn.cancelled() => to_elicit_result(ElicitationAnswer::Cancelled),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ActiveCallTable> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a call registered as running.
pub(super) struct ActiveCallGuard {
    active_calls: ActiveCalls,
    number: u64,
    is_answered: bool,
}

impl ActiveCallGuard {
    /// Records that the server has answered, so that it sends no further elicitations for the call.
    pub(super) fn mark_answered(&mut self) {
        self.is_answered = true;
    }
}

impl Drop for ActiveCallGuard {
    fn drop(&mut self) {
        let mut calls = self.active_calls.lock();
        calls.senders.remove(&self.number);
        if !self.is_answered {
            calls.last_abandoned_at = Some(Instant::now());
        }
    }
}

/// The input that a server requires before the request is repeated.
#[derive(Debug)]
pub(super) enum RequiredInput {
    /// Requests by the server's names, and the state to return (since 2026-07-28).
    Requests { requests: InputRequests, state: Option<String> },
    /// Pages that the user must visit (2025-11-25, error -32042).
    Pages(Vec<Elicitation>),
}

impl RequiredInput {
    /// Parses the pages that an error names.
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

/// The input with which the request is repeated.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CollectedInput {
    pub(super) responses: Option<InputResponses>,
    pub(super) state: Option<String>,
}

/// Collects the required input, one elicitation after the other. An error means that the call cannot
/// continue.
pub(super) async fn collect_input(
    required: RequiredInput,
    channel: &ElicitationChannel,
) -> Result<CollectedInput, String> {
    match required {
        RequiredInput::Requests { requests, state } => {
            let mut responses = InputResponses::new();
            for (name, request) in requests {
                let response = collect_response(request, channel).await?;
                responses.insert(name, response);
            }
            let responses = (!responses.is_empty()).then_some(responses);
            Ok(CollectedInput { responses, state })
        }
        RequiredInput::Pages(pages) => {
            for page in pages {
                if !matches!(channel.request(page).await, ElicitationAnswer::Accepted(_)) {
                    return Err(
                        "the tool requires the user to visit a page first, which was not done"
                            .to_owned(),
                    );
                }
            }
            Ok(CollectedInput::default())
        }
    }
}

async fn collect_response(
    request: InputRequest,
    channel: &ElicitationChannel,
) -> Result<Value, String> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "the SDK's enum may grow")]
    match request {
        InputRequest::Elicitation(request) => {
            let answer = match parse_elicitation(request.params) {
                Some(elicitation) => channel.request(elicitation).await,
                None => ElicitationAnswer::Declined,
            };
            serde_json::to_value(to_elicit_result(answer)).map_err(|error| error.to_string())
        }
        InputRequest::ListRoots(_) => Ok(json!({"roots": []})),
        _ => Err("the tool requires input of a kind that the client does not support".to_owned()),
    }
}

pub(super) fn parse_elicitation(params: ElicitRequestParams) -> Option<Elicitation> {
    match params {
        ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
            let schema = serde_json::to_value(requested_schema).ok()?;
            // The log can't hold every value.
            validate_value(&schema).ok()?;
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
        let active_calls = ActiveCalls::default();
        let has_sole_call = || active_calls.lock().sole_call().is_some();
        let (mut first, _elicitations) = active_calls.register();
        assert!(has_sole_call());
        let (mut second, _elicitations) = active_calls.register();
        assert!(!has_sole_call(), "two calls are running");
        first.mark_answered();
        drop(first);
        assert!(has_sole_call(), "the first call is answered");
        let (third, _elicitations) = active_calls.register();
        drop(third);
        assert!(!has_sole_call(), "the server may still send elicitations of the abandoned call");
        second.mark_answered();
    }
}
