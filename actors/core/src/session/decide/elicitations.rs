//! Questions of running tools to people (T1). The call goes on running: it is the tool that waits.
//! Whatever ends the attempt ends its questions.

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
    /// Asks a person. With nobody there to ask, the tool is told that nobody will say (G13).
    pub(super) fn decide_elicitation_requested(
        &mut self,
        call_id: CallId,
        attempt_id: AttemptId,
        ask: u32,
        elicitation: Elicitation,
    ) -> Reply {
        let Some(call) = self.call(call_id).filter(|call| {
            matches!(call.phase, CallPhase::Running { attempt_id: running, .. } if running == attempt_id)
        }) else {
            return Reply::Done; // The attempt is over, and so is its question.
        };
        let (tool, risk) = (call.tool.clone(), call.risk);
        let known = self.env.rules.tool(&tool);
        let server = known.map(|tool| tool.server.to_string()).unwrap_or_default();
        let answer = match elicitation.validated() {
            Ok(_) if self.env.rules.agent.headless => ElicitationAnswer::Declined,
            Ok(elicitation) if ask <= ELICITATIONS_PER_ATTEMPT_MAX => {
                let purpose = format!("Answer {}", truncate(&tool, 128));
                let asked = ToolElicitation {
                    call_id,
                    attempt_id,
                    elicitation_number: ask,
                    tool,
                    server,
                    elicitation,
                };
                self.request_approval(ApprovalSubject::Elicitation(asked), purpose, risk);
                return Reply::Done;
            }
            Ok(_) | Err(_) => ElicitationAnswer::Cancelled,
        };
        self.effects.push(Effect::AnswerElicitation {
            attempt_id,
            elicitation_number: ask,
            answer,
        });
        Reply::Done
    }

    /// The tool does not wait any more.
    pub(super) fn decide_elicitation_withdrawn(
        &mut self,
        attempt_id: AttemptId,
        ask: u32,
    ) -> Reply {
        self.cancel_elicitations(|asked| {
            asked.attempt_id == attempt_id && asked.elicitation_number == ask
        });
        Reply::Done
    }

    /// The attempt is over: nobody waits for answers to its questions.
    pub(super) fn cancel_elicitations_of(&mut self, attempt_id: AttemptId) {
        self.cancel_elicitations(|asked| asked.attempt_id == attempt_id);
    }

    fn cancel_elicitations(&mut self, is_moot: impl Fn(&ToolElicitation) -> bool) {
        let moot = self.active.approvals.iter().filter_map(|open| match &open.approval.subject {
            ApprovalSubject::Elicitation(asked) => {
                is_moot(asked).then_some(open.approval.approval_id)
            }
            ApprovalSubject::Plan { .. }
            | ApprovalSubject::Budget(_)
            | ApprovalSubject::UnknownOutcome(_)
            | ApprovalSubject::Preflight(_) => None,
        });
        for approval_id in moot.collect::<Vec<_>>() {
            self.emit(SessionEvent::ApprovalCancelled { approval_id });
        }
    }

    pub(super) fn resolve_elicitation(
        &mut self,
        approval_id: ApprovalId,
        asked: &ToolElicitation,
        word: RecordedAnswer,
    ) -> Result<(), Rejection> {
        let answer = match &word.resolution {
            Resolution::Answer(value) => asked
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
        self.emit_answer(approval_id, word);
        self.answer_elicitation(asked, answer);
        Ok(())
    }

    pub(super) fn answer_elicitation(
        &mut self,
        asked: &ToolElicitation,
        answer: ElicitationAnswer,
    ) {
        let ToolElicitation { attempt_id, elicitation_number: ask, .. } = *asked;
        self.effects.push(Effect::AnswerElicitation {
            attempt_id,
            elicitation_number: ask,
            answer,
        });
    }
}
