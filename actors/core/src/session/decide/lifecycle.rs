//! Creating, changing and closing a session (S1).

use super::{Deciding, Rejection, Reply};
use crate::{
    feedback::Feedback,
    ids::{AgentName, RunId, UserId},
    limits::FEEDBACK_PER_SESSION_MAX,
    model::completion::Completion,
    policy::{Settings, SettingsPatch, Widening},
    session::{Lifecycle, SessionEvent},
    usage::Spending,
};

impl Deciding<'_> {
    pub(super) fn create(
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

    pub(super) fn change_settings(
        &mut self,
        change: SettingsPatch,
        title: Option<Option<String>>,
        by: UserId,
    ) -> Result<Reply, Rejection> {
        self.must_be_open()?;
        let settings = change.onto(&self.active.settings);
        let title = title.unwrap_or_else(|| self.active.title.clone());
        if self.child_of.is_some() {
            let widens = |error: Widening| Rejection::WidensChild { problem: error.to_string() };
            settings.check_within(&self.active.settings).map_err(widens)?;
        }
        self.set_settings(settings, title, by);
        Ok(Reply::Done)
    }

    pub(super) fn set_settings(&mut self, settings: Settings, title: Option<String>, by: UserId) {
        if settings != *self.active.settings || title != self.active.title {
            let settings = settings.into();
            let event = SessionEvent::SessionSettingsChanged { settings, title, by };
            self.emit_for(None, None, event);
            self.narrow_children();
        }
    }

    pub(super) fn close(&mut self, by: UserId, partial: Option<Completion>) -> Reply {
        if self.active.lifecycle == Lifecycle::Closed {
            return Reply::Done;
        }
        self.cancel_run(&by, partial);
        if !self.close_if_done() {
            self.close_for_good(by);
        }
        Reply::Done
    }

    /// What is queued does not run, and nothing more is taken.
    pub(super) fn close_for_good(&mut self, by: UserId) {
        while let Some(queued) = self.active.queue.front() {
            let run_id = Some(queued.run_id);
            let (by, usage) = (by.clone(), Spending::default());
            let event = SessionEvent::RunCancelled { by, message_id: None, usage };
            self.emit_for(run_id, None, event);
        }
        self.emit_for(None, None, SessionEvent::SessionClosed { by });
    }

    pub(super) fn must_be_open(&self) -> Result<(), Rejection> {
        match self.active.lifecycle {
            Lifecycle::Open => Ok(()),
            Lifecycle::Closed => Err(Rejection::SessionClosed),
            Lifecycle::Vacant => Err(Rejection::UnknownSession),
        }
    }

    /// Keeps it. Of a closed session, too: what was said can still be judged.
    pub(super) fn give_feedback(
        &mut self,
        feedback: Feedback,
        run_id: Option<RunId>,
        by: UserId,
    ) -> Result<Reply, Rejection> {
        let limit = FEEDBACK_PER_SESSION_MAX;
        if self.session.feedback >= limit {
            return Err(Rejection::TooMuchFeedback { limit });
        }
        self.emit_for(run_id, None, SessionEvent::FeedbackGiven { feedback, by });
        Ok(Reply::Done)
    }
}
