//! Questions of running tools to people (T1). The call goes on running: it is the tool that waits.
//! Whatever ends the attempt ends its questions.

use super::{Deciding, Rejection, Reply};
use crate::{
    approval::{Elicitation, ElicitationAnswer, ElicitationQuestion, Question, Resolution, Word},
    call::CallPhase,
    ids::{ApprovalId, AttemptId, CallId},
    limits::ELICITATIONS_PER_ATTEMPT_MAX,
    session::{Effect, SessionEvent},
    text::cut,
};

impl Deciding<'_> {
    /// Asks a person. With nobody there to ask, the tool is told that nobody will say (G13).
    pub(super) fn tool_asked(
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
        let answer = match elicitation.checked() {
            Ok(_) if self.env.rules.agent.headless => ElicitationAnswer::Declined,
            Ok(elicitation) if ask <= ELICITATIONS_PER_ATTEMPT_MAX => {
                let purpose = format!("Answer {}", cut(&tool, 128));
                let asked =
                    ElicitationQuestion { call_id, attempt_id, ask, tool, server, elicitation };
                self.ask(Question::Elicitation(asked), purpose, risk);
                return Reply::Done;
            }
            Ok(_) | Err(_) => ElicitationAnswer::Cancelled,
        };
        self.effects.push(Effect::AnswerTool { attempt_id, ask, answer });
        Reply::Done
    }

    /// The tool does not wait any more.
    pub(super) fn tool_ask_withdrawn(&mut self, attempt_id: AttemptId, ask: u32) -> Reply {
        self.forget_asks(|asked| asked.attempt_id == attempt_id && asked.ask == ask);
        Reply::Done
    }

    /// The attempt is over: nobody waits for answers to its questions.
    pub(super) fn forget_asks_of(&mut self, attempt_id: AttemptId) {
        self.forget_asks(|asked| asked.attempt_id == attempt_id);
    }

    fn forget_asks(&mut self, is_moot: impl Fn(&ElicitationQuestion) -> bool) {
        let moot = self.active.approvals.iter().filter_map(|open| match &open.approval.question {
            Question::Elicitation(asked) => is_moot(asked).then_some(open.approval.approval_id),
            Question::Plan { .. }
            | Question::Budget(_)
            | Question::UnknownOutcome(_)
            | Question::Preflight(_) => None,
        });
        for approval_id in moot.collect::<Vec<_>>() {
            self.emit(SessionEvent::ApprovalCancelled { approval_id });
        }
    }

    pub(super) fn resolve_elicitation(
        &mut self,
        approval_id: ApprovalId,
        asked: &ElicitationQuestion,
        word: Word,
    ) -> Result<(), Rejection> {
        let answer = match &word.resolution {
            Resolution::Answer(value) => asked
                .elicitation
                .accept(value)
                .map_err(|problem| Rejection::InvalidAnswer { problem })?,
            Resolution::Reject => ElicitationAnswer::Declined,
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Failed
            | Resolution::Raise(_)
            | Resolution::Stop
            | Resolution::Approve(_) => return Ok(()),
        };
        self.note_word(approval_id, word);
        self.answer_tool(asked, answer);
        Ok(())
    }

    pub(super) fn answer_tool(&mut self, asked: &ElicitationQuestion, answer: ElicitationAnswer) {
        let ElicitationQuestion { attempt_id, ask, .. } = *asked;
        self.effects.push(Effect::AnswerTool { attempt_id, ask, answer });
    }
}
