//! Tracks the users who requested and edited critical calls, and checks that only others approve
//! them (G12).

use crate::session_simulation::user;
use greenroom_core::{
    approval::Role,
    authors::Authors,
    ids::{CallId, MessageId, RunId, UserId},
    policy::{CriticalRule, Risk},
    session::{CallAuthorization, EventRecord, SessionEvent},
};
use std::collections::{BTreeMap, BTreeSet};

/// State derived from the log so far.
#[derive(Default)]
pub(crate) struct CriticalCallTracker {
    /// The rule in force.
    pub(crate) rule: CriticalRule,
    /// The users who wrote each queued message.
    queued: BTreeMap<MessageId, Authors>,
    active_run: Option<RunId>,
    /// The users who wrote the messages of the active run.
    run_authors: Option<Authors>,
    /// The approver who edited the run's preflight plan.
    plan_editor: Option<UserId>,
    calls: BTreeMap<CallId, CriticalCallTrack>,
}

#[derive(Default)]
struct CriticalCallTrack {
    editors: BTreeSet<UserId>,
    approver: Option<(UserId, Option<Role>)>,
}

impl CriticalCallTracker {
    pub(crate) fn new(rule: CriticalRule) -> Self {
        Self { rule, ..Self::default() }
    }

    pub(crate) fn check_event(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        self.check_authors(record);
        if let E::ToolCallStarted { call_id, risk: Risk::Critical, .. } = &record.event {
            self.calls.insert(*call_id, CriticalCallTrack::default());
        }
        if let E::PreflightApproved { by, steps, .. } = &record.event {
            let is_edited = steps.iter().any(|step| step.edited && !step.skipped);
            self.plan_editor = is_edited.then(|| by.clone());
        }
        if let E::ApprovalDecided { steps, .. } = &record.event {
            for step in steps.iter().filter(|step| step.edited.is_some()) {
                if let Some(call) = self.calls.get_mut(&step.call_id) {
                    call.editors.insert(step.by.clone());
                }
            }
        }
        if let E::ToolCallAllowed { call_id, by, .. } = &record.event
            && let Some(call) = self.calls.get_mut(call_id)
        {
            match by {
                // An earlier approval keeps its effect.
                CallAuthorization::Policy { .. } => {}
                CallAuthorization::Approval { by, role, .. } => {
                    call.approver = Some((by.clone(), *role));
                }
                CallAuthorization::Grant { .. } => panic!("G9: a grant covers a critical call"),
                CallAuthorization::Preflight { .. } => call.approver = None,
            }
        }
        if let E::ToolCallAttemptStarted { call_id, .. } = &record.event
            && let Some(call) = self.calls.get(call_id)
        {
            self.check_start(call);
        }
    }

    /// A message has the authors that its queue entries recorded.
    fn check_authors(&mut self, record: &EventRecord) {
        use SessionEvent as E;
        if let E::MessageQueued { message_id, authors, .. } = &record.event {
            self.queued.insert(message_id.clone(), authors.clone());
        }
        if let E::QueuedMessageChanged { message_id, by, .. } = &record.event {
            self.queued.entry(message_id.clone()).or_default().add(by);
        }
        if let E::MessageAccepted { message_id, authors, .. } = &record.event {
            assert!(authors.is_complete(), "G12: an author is not recorded");
            if let Some(expected) = self.queued.remove(message_id) {
                assert_eq!(*authors, expected, "G12: other authors than of the queued message");
            }
            self.run_authors.get_or_insert_with(|| authors.clone()).add_all(authors);
        }
        if let E::RunStarted { .. } = &record.event {
            self.active_run = record.run_id;
        }
        // The run of a queued message can end before it starts.
        if record.event.ends_run() && record.run_id == self.active_run {
            (self.run_authors, self.plan_editor) = (None, None);
        }
    }

    /// A critical call starts only with an approval that meets the rule.
    fn check_start(&self, call: &CriticalCallTrack) {
        if !self.rule.requires_approval() {
            return;
        }
        let (by, role) = call.approver.as_ref().expect("G12: a critical call without approval");
        assert!(*role >= self.rule.min_role, "G12: the role of the approver is too low");
        if self.rule.four_eyes {
            let authors = self.run_authors.as_ref().expect("a call has a run");
            assert_ne!(*by, user("ann"), "G12: the owner approved");
            assert!(!authors.contains(by), "G12: an author approved");
            assert!(!call.editors.contains(by), "G12: an editor approved");
            assert_ne!(Some(by), self.plan_editor.as_ref(), "G12: the plan's editor approved");
        }
    }
}
