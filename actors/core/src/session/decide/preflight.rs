//! Preflight (G14): requests a plan from the model before its first step, presents it to a human as
//! a checklist, and authorizes the calls that the approved plan covers.

use super::{DecisionBuilder, Rejection};
use crate::{
    approval::{ApprovalSubject, RecordedAnswer, Resolution, validate_no_placeholders},
    ids::{ApprovalId, AttemptId},
    json::Digest,
    limits::PREFLIGHT_TEXT_BYTES_MAX,
    message::Message,
    model::completion::Completion,
    policy::{Autonomy, Denial, Risk, Tool, Verdict},
    preflight::{
        ApprovedPreflightStep, Checklist, ChecklistStep, ChecklistStepEdit, CostEstimate,
        PreflightPlan, PreflightPlanStep,
    },
    session::{CallAuthorization, Effect, SessionEvent},
    text::truncate,
    usage::TokenUsage,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Approximate number of bytes per token, for the estimate of input tokens.
const PROMPT_BYTES_PER_TOKEN: u64 = 4;

impl DecisionBuilder<'_> {
    /// Requests the plan from the model, if budgets have room for the call. A headless profile
    /// skips the preflight.
    pub(super) fn start_planning(&mut self) {
        if self.env.rules.agent.headless {
            let warning = "no plan was requested: the agent is headless";
            return self.emit(SessionEvent::PreflightSkipped { warning: warning.to_owned() });
        }
        if self.ensure_step_budget() {
            self.start_planning_attempt(1);
        }
    }

    /// Starts an attempt of the model call for the plan. The call is not a step and has no message.
    pub(super) fn start_planning_attempt(&mut self, attempt: u32) {
        let Some(run_id) = self.active.run.as_ref().map(|run| run.run_id) else { return };
        let (attempt_id, model) = (AttemptId(self.env.uuid()), self.model());
        let (planning, compacting) = (true, None);
        self.emit(SessionEvent::StepStarted {
            attempt_id,
            attempt,
            model: model.clone(),
            planning,
            compacting,
        });
        let (step, message_id) = (0, None);
        self.effects.push(Effect::StartModel { run_id, step, attempt_id, message_id, model });
    }

    /// Handles the model's answer to the request for a plan: requests approval of the plan, or
    /// skips the preflight if there is none.
    pub(super) fn finish_planning(&mut self, completion: Completion) {
        let Completion { message, usage, stop_reason, dropped_calls: _ } = completion;
        let priced_usage = self.price_usage(usage);
        self.emit(SessionEvent::StepCompleted { usage: priced_usage, stop_reason });
        let plan = match stop_reason.is_refused() {
            true => Err("the model refused to write a plan".to_owned()),
            false => PreflightPlan::from_message(&message),
        };
        match plan {
            Err(problem) => {
                let warning = format!("{problem}; normal approval rules apply");
                self.emit(SessionEvent::PreflightSkipped { warning });
            }
            Ok(plan) => {
                let checklist = self.build_checklist(plan, usage);
                let steps = checklist.steps.len();
                let noun = if steps == 1 { "step" } else { "steps" };
                let (purpose, risk) =
                    (format!("Carry out a plan of {steps} {noun}"), checklist.max_risk());
                self.request_approval(ApprovalSubject::Preflight(checklist), purpose, risk);
            }
        }
    }

    /// Converts the plan into a checklist. Each step is evaluated by the policy as its call would
    /// be now.
    fn build_checklist(&self, plan: PreflightPlan, planning_usage: TokenUsage) -> Checklist {
        let mut notes = ChecklistNotes { warnings: plan.warnings, levels: BTreeSet::new() };
        let steps: Vec<_> = plan
            .steps
            .into_iter()
            .zip(1..)
            .map(|(step, position)| self.build_checklist_step(step, position, &mut notes))
            .collect();
        let estimated_cost = self.estimate_cost(&steps, planning_usage, &mut notes);
        let costs: Vec<_> = steps.iter().filter_map(|step| step.cost.as_ref()).collect();
        notes.warnings.extend(self.budget_warnings(&estimated_cost, &costs));
        let required_permissions =
            notes.levels.iter().map(|level| format!("autonomy level {level}")).collect();
        Checklist { steps, estimated_cost, required_permissions, warnings: notes.warnings }
    }

    fn build_checklist_step(
        &self,
        step: PreflightPlanStep,
        position: u32,
        notes: &mut ChecklistNotes,
    ) -> ChecklistStep {
        let PreflightPlanStep { description, tool: tool_name, arguments } = step;
        let digest = arguments.as_ref().map(Digest::hash_json);
        let mut checklist_step = ChecklistStep {
            position,
            description,
            tool_name,
            server: None,
            arguments,
            digest,
            risk: Risk::ReadOnly,
            needs_approval: false,
            cost: None,
        };
        let Some(name) = checklist_step.tool_name.as_deref() else { return checklist_step };
        let Some(tool) = self.tool(name) else {
            notes.warn(position, &format!("there is no tool named `{}`", truncate(name, 128)));
            checklist_step.risk = Risk::default();
            return checklist_step;
        };
        (checklist_step.risk, checklist_step.server) = (tool.risk, Some(tool.server.to_string()));
        if let Some(reason) = &tool.unavailable_reason {
            notes.warn(position, &format!("{name} is unavailable: {reason}"));
        }
        let verdict = match &checklist_step.arguments {
            Some(arguments) => match tool.validate(arguments) {
                Ok(()) => self.verdict(&tool, arguments),
                Err(problem) => {
                    notes.warn(position, &format!("invalid arguments for {name}: {problem}"));
                    return checklist_step;
                }
            },
            None => self.verdict_without_arguments(&tool),
        };
        match verdict {
            Verdict::Allow { cost, .. } | Verdict::OverBudget { cost, .. } => {
                checklist_step.cost = cost;
            }
            Verdict::Ask { cost, .. } => {
                (checklist_step.cost, checklist_step.needs_approval) = (cost, true);
                if self.is_subject_to_critical_rule(&tool) {
                    let warning = "the call is critical and will need its own approval";
                    notes.warn(position, warning);
                } else if checklist_step.arguments.is_none() && tool.risk > Risk::WriteLowRisk {
                    let warning = "no arguments are given; the call will need approval";
                    notes.warn(position, warning);
                }
            }
            Verdict::Deny(Denial { reason, required_level }) => {
                notes.warn(position, &format!("the call will be denied: {reason}"));
                notes.levels.extend(required_level);
            }
        }
        checklist_step
    }

    /// Estimates the cost of the plan's model calls: one for each step with a tool and one for the
    /// answer, limited by the run's maximum number of steps.
    fn estimate_cost(
        &self,
        steps: &[ChecklistStep],
        planning_usage: TokenUsage,
        notes: &mut ChecklistNotes,
    ) -> CostEstimate {
        let agent = &self.env.rules.agent;
        let tool_steps = steps.iter().filter(|step| step.tool_name.is_some()).count() as u64;
        let needed_calls = tool_steps.saturating_add(1);
        let calls_max = u64::from(agent.max_steps);
        if needed_calls > calls_max {
            notes.warnings.push(format!(
                "the plan may need {needed_calls} model calls; the limit of a run is {calls_max}"
            ));
        }
        let mut planning_usage = planning_usage;
        if planning_usage.input_tokens == 0 {
            planning_usage.input_tokens = self.conversation_bytes() / PROMPT_BYTES_PER_TOKEN;
            notes.warnings.push(
                "the model did not report its input tokens; the estimate is based on the \
                 conversation's size"
                    .to_owned(),
            );
        }
        let price = self.env.rules.prices.get(&self.model());
        if price.is_none() {
            let model = self.model();
            notes.warnings.push(format!("the price of the model `{model}` is unknown"));
        }
        let calls = needed_calls.min(calls_max);
        CostEstimate::from_plan_usage(planning_usage, calls, agent.max_tokens, price)
    }

    /// Returns the bytes of text in a model request, without tool definitions.
    fn conversation_bytes(&self) -> u64 {
        let bytes = |message: &Message| match message {
            Message::User { text, .. } => text.len(),
            Message::Assistant(message) => message.text.len(),
            Message::ToolResults(results) => results.iter().map(|result| result.text.len()).sum(),
        };
        let sizes = self.session.conversation.messages().into_iter().map(bytes);
        (sizes.sum::<usize>() + self.env.rules.agent.system.len()) as u64
    }

    pub(super) fn resolve_preflight(
        &mut self,
        approval_id: ApprovalId,
        checklist: &Checklist,
        answer: RecordedAnswer,
    ) -> Result<(), Rejection> {
        let (by, reason) = (answer.by.clone(), answer.reason.clone());
        match &answer.resolution {
            Resolution::Approve(edits) => {
                let steps = self.approved_steps(checklist, edits)?.into();
                self.emit_answer(approval_id, answer);
                self.emit(SessionEvent::PreflightApproved { approval_id, by, reason, steps });
            }
            Resolution::Reject => {
                self.emit_answer(approval_id, answer);
                self.cancel_run(&by, None);
            }
            Resolution::Retry
            | Resolution::Done(_)
            | Resolution::Failed
            | Resolution::Raise(_)
            | Resolution::Stop
            | Resolution::Answer(_) => {}
        }
        Ok(())
    }

    /// Returns the steps with the human's edits. Each edit is checked as its call would be.
    fn approved_steps(
        &self,
        checklist: &Checklist,
        edits: &[ChecklistStepEdit],
    ) -> Result<Vec<ApprovedPreflightStep>, Rejection> {
        let mut edits_by_position = BTreeMap::new();
        for edit in edits {
            if edits_by_position.insert(edit.position, edit).is_some() {
                return Err(Rejection::AmbiguousAnswer);
            }
        }
        let approve = |step: &ChecklistStep| match edits_by_position.remove(&step.position) {
            Some(edit) => self.apply_step_edit(step, edit),
            None => Ok(to_approved_step(step)),
        };
        let approved = checklist.steps.iter().map(approve).collect::<Result<_, _>>()?;
        match edits_by_position.keys().next() {
            Some(position) => {
                let problem = format!("the plan has no step {position}");
                Err(Rejection::InvalidAnswer { problem })
            }
            None => Ok(approved),
        }
    }

    fn apply_step_edit(
        &self,
        step: &ChecklistStep,
        edit: &ChecklistStepEdit,
    ) -> Result<ApprovedPreflightStep, Rejection> {
        let original = to_approved_step(step);
        if edit.skip {
            return Ok(ApprovedPreflightStep { skipped: true, ..original });
        }
        if let Some(arguments) = &edit.arguments {
            let shown_arguments = original.arguments.as_ref().unwrap_or(&Value::Null);
            validate_no_placeholders(shown_arguments, arguments).map_err(|placeholder| {
                let problem = format!("step {}: {placeholder}", step.position);
                Rejection::InvalidAnswer { problem }
            })?;
        }
        let tool_name = edit.tool_name.clone().or_else(|| original.tool_name.clone());
        let is_other_tool = tool_name != original.tool_name;
        let kept = original.arguments.clone().filter(|_| !is_other_tool);
        let arguments = edit.arguments.clone().or(kept);
        let is_unchanged =
            |digest: &Digest| arguments.as_ref().is_some_and(|now| digest.matches(now));
        let digest = original
            .digest
            .filter(is_unchanged)
            .or_else(|| arguments.as_ref().map(Digest::hash_json));
        let mut description =
            edit.description.clone().unwrap_or_else(|| original.description.clone());
        description.truncate(description.floor_char_boundary(PREFLIGHT_TEXT_BYTES_MAX));
        let (mut risk, mut server) = (original.risk, original.server.clone());
        if is_other_tool || digest != original.digest {
            let validated =
                self.validate_step_edit(step.risk, tool_name.as_deref(), arguments.as_ref());
            let tool = validated.map_err(|problem| {
                let problem = format!("step {}: {problem}", step.position);
                Rejection::InvalidAnswer { problem }
            })?;
            (risk, server) = (tool.risk, Some(tool.server.to_string()));
        }
        let position = step.position;
        let skipped = false;
        let edited = ApprovedPreflightStep {
            position,
            description,
            tool_name,
            server,
            arguments,
            digest,
            risk,
            edited: false,
            skipped,
        };
        Ok(ApprovedPreflightStep { edited: edited != original, ..edited })
    }

    /// Validates an edited step and returns its tool, or the reason why the step can't be approved.
    fn validate_step_edit(
        &self,
        shown_risk: Risk,
        tool_name: Option<&str>,
        arguments: Option<&Value>,
    ) -> Result<Arc<Tool>, String> {
        let Some(name) = tool_name else { return Err("arguments require a tool".to_owned()) };
        let missing = || format!("there is no tool named `{}`", truncate(name, 128));
        let tool = self.tool(name).ok_or_else(missing)?;
        // Only a critical step that the plan showed can be approved.
        if tool.risk == Risk::Critical && shown_risk != Risk::Critical {
            return Err(format!("{name} is critical; an edit can't add a critical call to a plan"));
        }
        let verdict = match arguments {
            Some(arguments) => {
                tool.validate(arguments)?;
                self.verdict(&tool, arguments)
            }
            None => self.verdict_without_arguments(&tool),
        };
        match verdict {
            Verdict::Deny(denial) => Err(denial.reason),
            Verdict::Allow { .. } | Verdict::Ask { .. } | Verdict::OverBudget { .. } => Ok(tool),
        }
    }

    /// Returns the authorization by a step of the run's approved plan that covers the call. It
    /// replaces an approval and never overrides a denial: the policy is evaluated first. It does not
    /// cover a call to which the rule for critical calls applies (G12).
    pub(super) fn preflight_authorization(
        &self,
        tool: &Tool,
        arguments: &Value,
    ) -> Option<CallAuthorization> {
        if self.is_subject_to_critical_rule(tool) {
            return None;
        }
        let plan = self.active.run.as_ref()?.preflight.approved()?;
        let step = plan.covering_step(tool, arguments)?;
        Some(CallAuthorization::Preflight {
            approval_id: plan.approval_id,
            step,
            by: plan.by.clone(),
        })
    }
}

/// The warnings and required autonomy levels collected while a checklist is built.
struct ChecklistNotes {
    warnings: Vec<String>,
    levels: BTreeSet<Autonomy>,
}

impl ChecklistNotes {
    fn warn(&mut self, position: u32, problem: &str) {
        self.warnings.push(format!("step {position}: {problem}"));
    }
}

fn to_approved_step(step: &ChecklistStep) -> ApprovedPreflightStep {
    ApprovedPreflightStep {
        position: step.position,
        description: step.description.clone(),
        tool_name: step.tool_name.clone(),
        server: step.server.clone(),
        arguments: step.arguments.clone(),
        digest: step.digest,
        risk: step.risk,
        edited: false,
        skipped: false,
    }
}
