//! Elicitations of running tools (T1). The call stays running while the tool waits. The end of an
//! attempt cancels its elicitations.

use super::{DecisionBuilder, Rejection, Reply};
use crate::{
    approval::{
        ApprovalSubject, Elicitation, ElicitationAnswer, RecordedAnswer, Resolution,
        ToolElicitation,
    },
    call::CallPhase,
    ids::{ApprovalId, AttemptId, CallId},
    limits::ELICITATIONS_PER_ATTEMPT_MAX,
    session::{Effect, SessionEvent},
    text::truncate,
};

impl DecisionBuilder<'_> {
    /// Requests an approval for the elicitation. In a headless profile the tool is sent a refusal
    /// (G13).
    pub(super) fn decide_elicitation_requested(
        &mut self,
        call_id: CallId,
        attempt_id: AttemptId,
        elicitation_number: u32,
        elicitation: Elicitation,
    ) -> Reply {
        let Some(call) = self.call(call_id).filter(|call| {
            matches!(call.phase, CallPhase::Running { attempt_id: running, .. } if running == attempt_id)
        }) else {
            return Reply::Done; // The attempt has ended, and so have its elicitations.
        };
        let (tool, risk) = (call.tool.clone(), call.risk);
        let registered = self.env.rules.tool(&tool);
        let server = registered.map(|tool| tool.server.to_string()).unwrap_or_default();
        let answer = match elicitation.validated() {
            Ok(_) if self.env.rules.agent.headless => ElicitationAnswer::Declined,
            Ok(elicitation) if elicitation_number <= ELICITATIONS_PER_ATTEMPT_MAX => {
                let purpose = format!("Answer {}", truncate(&tool, 128));
                let request = ToolElicitation {
                    call_id,
                    attempt_id,
                    elicitation_number,
                    tool,
                    server,
                    elicitation,
                };
                self.request_approval(ApprovalSubject::Elicitation(request), purpose, risk);
                return Reply::Done;
            }
            Ok(_) | Err(_) => ElicitationAnswer::Cancelled,
        };
        self.effects.push(Effect::AnswerElicitation { attempt_id, elicitation_number, answer });
        Reply::Done
    }

    /// Cancels an elicitation that the tool withdrew.
    pub(super) fn decide_elicitation_withdrawn(
        &mut self,
        attempt_id: AttemptId,
        elicitation_number: u32,
    ) -> Reply {
        self.cancel_elicitations(|request| {
            request.attempt_id == attempt_id && request.elicitation_number == elicitation_number
        });
        Reply::Done
    }

    /// Cancels the open elicitations of an attempt that has ended.
    pub(super) fn cancel_elicitations_of(&mut self, attempt_id: AttemptId) {
        self.cancel_elicitations(|request| request.attempt_id == attempt_id);
    }

    fn cancel_elicitations(&mut self, should_cancel: impl Fn(&ToolElicitation) -> bool) {
        let cancelled =
            self.active.approvals.iter().filter_map(|open| match &open.approval.subject {
                ApprovalSubject::Elicitation(request) => {
                    should_cancel(request).then_some(open.approval.approval_id)
                }
                ApprovalSubject::Plan { .. }
                | ApprovalSubject::Budget(_)
                | ApprovalSubject::UnknownOutcome(_)
                | ApprovalSubject::Preflight(_) => None,
            });
        for approval_id in cancelled.collect::<Vec<_>>() {
            self.emit(SessionEvent::ApprovalCancelled { approval_id });
        }
    }

    pub(super) fn resolve_elicitation(
        &mut self,
        approval_id: ApprovalId,
        request: &ToolElicitation,
        answer: RecordedAnswer,
    ) -> Result<(), Rejection> {
        let tool_answer = match &answer.resolution {
            Resolution::Answer(value) => request
                .elicitation
                .validate_answer(value)
                .map_err(|problem| Rejection::InvalidAnswer { problem })?,
            Resolution::Reject => ElicitationAnswer::Declined,
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Failed
            | Resolution::Raise(_)
            | Resolution::Stop
            | Resolution::Approve(_) => return Ok(()),
        };
        self.emit_answer(approval_id, answer);
        self.answer_elicitation(request, tool_answer);
        Ok(())
    }

    pub(super) fn answer_elicitation(
        &mut self,
        request: &ToolElicitation,
        answer: ElicitationAnswer,
    ) {
        let ToolElicitation { attempt_id, elicitation_number, .. } = *request;
        self.effects.push(Effect::AnswerElicitation { attempt_id, elicitation_number, answer });
    }
}
