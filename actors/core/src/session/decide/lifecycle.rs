//! Creates, changes and closes a session (S1), and records feedback (C5).

use super::{DecisionBuilder, Rejection, Reply};
use crate::{
    feedback::Feedback,
    ids::{AgentName, RunId, UserId},
    limits::FEEDBACK_PER_SESSION_MAX,
    model::completion::Completion,
    policy::{Settings, SettingsPatch, WideningError},
    session::{Lifecycle, SessionEvent},
    usage::ModelUsage,
};

impl DecisionBuilder<'_> {
    pub(super) fn decide_create_session(
        &mut self,
        owner: UserId,
        agent: AgentName,
        title: Option<String>,
        settings: Settings,
    ) -> Reply {
        let settings = settings.into();
        self.emit(SessionEvent::SessionCreated { owner, agent, title, settings, parent: None });
        Reply::Done
    }

    pub(super) fn decide_change_settings(
        &mut self,
        patch: SettingsPatch,
        title: Option<Option<String>>,
        changed_by: UserId,
    ) -> Result<Reply, Rejection> {
        self.ensure_open()?;
        let settings = patch.apply_unchecked(&self.active.settings);
        let title = title.unwrap_or_else(|| self.active.title.clone());
        if self.owner_and_parent.is_some() {
            let to_rejection = |error: WideningError| Rejection::ChildSettingsWidened {
                problem: error.to_string(),
            };
            settings.validate_within(&self.active.settings).map_err(to_rejection)?;
        }
        self.set_settings(settings, title, changed_by);
        Ok(Reply::Done)
    }

    pub(super) fn set_settings(
        &mut self,
        settings: Settings,
        title: Option<String>,
        changed_by: UserId,
    ) {
        if settings != *self.active.settings || title != self.active.title {
            let (settings, by) = (settings.into(), changed_by);
            let event = SessionEvent::SessionSettingsChanged { settings, title, by };
            self.emit_for(None, None, event);
            self.narrow_children();
        }
    }

    pub(super) fn decide_close_session(
        &mut self,
        closed_by: UserId,
        partial: Option<Completion>,
    ) -> Reply {
        if self.active.lifecycle == Lifecycle::Closed {
            return Reply::Done;
        }
        self.cancel_run(&closed_by, partial);
        if !self.close_if_child() {
            self.close_session(closed_by);
        }
        Reply::Done
    }

    /// Closes the session. Queued messages are cancelled.
    pub(super) fn close_session(&mut self, closed_by: UserId) {
        while let Some(queued) = self.active.queue.front() {
            let run_id = Some(queued.run_id);
            let (by, usage) = (closed_by.clone(), ModelUsage::default());
            let event = SessionEvent::RunCancelled { by, message_id: None, usage };
            self.emit_for(run_id, None, event);
        }
        self.emit_for(None, None, SessionEvent::SessionClosed { by: closed_by });
    }

    pub(super) fn ensure_open(&self) -> Result<(), Rejection> {
        match self.active.lifecycle {
            Lifecycle::Open => Ok(()),
            Lifecycle::Closed => Err(Rejection::SessionClosed),
            Lifecycle::NotCreated => Err(Rejection::UnknownSession),
        }
    }

    /// Records feedback, also on a closed session.
    pub(super) fn decide_give_feedback(
        &mut self,
        feedback: Feedback,
        run_id: Option<RunId>,
        given_by: UserId,
    ) -> Result<Reply, Rejection> {
        let limit = FEEDBACK_PER_SESSION_MAX;
        if self.session.feedback_count >= limit {
            return Err(Rejection::FeedbackLimitReached { limit });
        }
        self.emit_for(run_id, None, SessionEvent::FeedbackGiven { feedback, by: given_by });
        Ok(Reply::Done)
    }
}
