//! Preflight (G14): a plan from the model before its first step, a checklist of it for a person,
//! and what their word covers afterwards.

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

/// Bytes of text that make about one token.
const PROMPT_BYTES_PER_TOKEN: u64 = 4;

impl DecisionBuilder<'_> {
    /// Asks the model for its plan, if budgets have room for that and somebody is there to look.
    pub(super) fn start_planning(&mut self) {
        if self.env.rules.agent.headless {
            let warning = "there is no plan: nobody is there to look at it";
            return self.emit(SessionEvent::PreflightSkipped { warning: warning.to_owned() });
        }
        if self.ensure_step_budget() {
            self.start_planning_attempt(1);
        }
    }

    /// Starts attempt number `attempt` of the call for the plan. It is no step, and there is no
    /// message of it.
    pub(super) fn start_planning_attempt(&mut self, attempt: u32) {
        let Some(run_id) = self.active.run.as_ref().map(|run| run.run_id) else { return };
        let (attempt_id, model) = (AttemptId(self.env.uuid()), self.model());
        let (named, planning, compacting) = (model.clone(), true, None);
        self.emit(SessionEvent::StepStarted {
            attempt_id,
            attempt,
            model: named,
            planning,
            compacting,
        });
        let (step, message_id) = (0, None);
        self.effects.push(Effect::StartModel { run_id, step, attempt_id, message_id, model });
    }

    /// The model answered with its plan, or with something else: then people are asked as usual.
    pub(super) fn finish_planning(&mut self, completion: Completion) {
        let Completion { message, usage, stop_reason } = completion;
        let spending = self.price_usage(usage);
        self.emit(SessionEvent::StepCompleted { usage: spending, stop_reason });
        match PreflightPlan::from_message(&message) {
            Err(problem) => {
                let warning = format!("{problem}; you are asked about calls as they come");
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

    /// The plan as a person sees it: each step judged as its call would be now.
    fn build_checklist(&self, plan: PreflightPlan, planning: TokenUsage) -> Checklist {
        let mut notes = ChecklistNotes { warnings: plan.warnings, levels: BTreeSet::new() };
        let steps: Vec<_> = plan
            .steps
            .into_iter()
            .zip(1..)
            .map(|(step, position)| self.build_checklist_step(step, position, &mut notes))
            .collect();
        let estimated_cost = self.estimate_cost(&steps, planning, &mut notes);
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
        let mut checked = ChecklistStep {
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
        let Some(name) = checked.tool_name.as_deref() else { return checked };
        let Some(tool) = self.tool(name) else {
            notes.warn(position, &format!("there is no tool named `{}`", truncate(name, 128)));
            checked.risk = Risk::default();
            return checked;
        };
        (checked.risk, checked.server) = (tool.risk, Some(tool.server.to_string()));
        if let Some(reason) = &tool.unavailable_reason {
            notes.warn(position, &format!("{name} can't be called now: {reason}"));
        }
        let verdict = match &checked.arguments {
            Some(arguments) => match tool.validate(arguments) {
                Ok(()) => self.verdict(&tool, arguments),
                Err(problem) => {
                    notes.warn(position, &format!("invalid arguments of {name}: {problem}"));
                    return checked;
                }
            },
            None => self.verdict_without_arguments(&tool),
        };
        match verdict {
            Verdict::Allow { cost, .. } | Verdict::OverBudget { cost, .. } => checked.cost = cost,
            Verdict::Ask { cost, .. } => {
                (checked.cost, checked.needs_approval) = (cost, true);
                if checked.arguments.is_none() && tool.risk > Risk::WriteLowRisk {
                    let said = "it says no arguments, so you will be asked when the call comes";
                    notes.warn(position, said);
                }
            }
            Verdict::Deny(Denial { reason, required_level }) => {
                notes.warn(position, &format!("it will be denied: {reason}"));
                notes.levels.extend(required_level);
            }
        }
        checked
    }

    /// What the plan's model calls may cost: one for each step with a tool and one for the answer,
    /// within the run's limit.
    fn estimate_cost(
        &self,
        steps: &[ChecklistStep],
        planning: TokenUsage,
        notes: &mut ChecklistNotes,
    ) -> CostEstimate {
        let agent = &self.env.rules.agent;
        let with_tool = steps.iter().filter(|step| step.tool_name.is_some()).count() as u64;
        let (wanted, most) = (with_tool.saturating_add(1), u64::from(agent.max_steps));
        if wanted > most {
            notes.warnings.push(format!(
                "the plan may need {wanted} model calls, and a run has {most} at most"
            ));
        }
        let mut planning = planning;
        if planning.input_tokens == 0 {
            planning.input_tokens = self.conversation_bytes() / PROMPT_BYTES_PER_TOKEN;
            notes.warnings.push(
                "the model did not say how many tokens it read; the estimate counts the \
                 conversation's characters"
                    .to_owned(),
            );
        }
        let price = self.env.rules.prices.get(&self.model());
        if price.is_none() {
            let model = self.model();
            notes.warnings.push(format!("the price of the model `{model}` is not known"));
        }
        CostEstimate::from_plan_usage(planning, wanted.min(most), agent.max_tokens, price)
    }

    /// Bytes of text that the model reads, tools aside.
    fn conversation_bytes(&self) -> u64 {
        let bytes = |message: &Message| match message {
            Message::User { text, .. } => text.len(),
            Message::Assistant(said) => said.text.len(),
            Message::ToolResults(results) => results.iter().map(|result| result.text.len()).sum(),
        };
        let said = self.session.conversation.messages().into_iter().map(bytes);
        (said.sum::<usize>() + self.env.rules.agent.system.len()) as u64
    }

    pub(super) fn resolve_preflight(
        &mut self,
        approval_id: ApprovalId,
        checklist: &Checklist,
        word: RecordedAnswer,
    ) -> Result<(), Rejection> {
        let (by, reason) = (word.by.clone(), word.reason.clone());
        match &word.resolution {
            Resolution::Approve(edits) => {
                let steps = self.approved_steps(checklist, edits)?.into();
                self.emit_answer(approval_id, word);
                self.emit(SessionEvent::PreflightApproved { approval_id, by, reason, steps });
            }
            Resolution::Reject => {
                self.emit_answer(approval_id, word);
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

    /// The steps with a person's changes, each of which is checked as the call would be.
    fn approved_steps(
        &self,
        checklist: &Checklist,
        edits: &[ChecklistStepEdit],
    ) -> Result<Vec<ApprovedPreflightStep>, Rejection> {
        let mut by_position = BTreeMap::new();
        for edit in edits {
            if by_position.insert(edit.position, edit).is_some() {
                return Err(Rejection::AmbiguousAnswer);
            }
        }
        let approved = |step: &ChecklistStep| match by_position.remove(&step.position) {
            Some(edit) => self.apply_step_edit(step, edit),
            None => Ok(to_approved_step(step)),
        };
        let approved = checklist.steps.iter().map(approved).collect::<Result<_, _>>()?;
        match by_position.keys().next() {
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
        let shown = to_approved_step(step);
        if edit.skip {
            return Ok(ApprovedPreflightStep { skipped: true, ..shown });
        }
        if let Some(arguments) = &edit.arguments {
            let original = shown.arguments.as_ref().unwrap_or(&Value::Null);
            validate_no_placeholders(original, arguments).map_err(|replacement| {
                let problem = format!("step {}: {replacement}", step.position);
                Rejection::InvalidAnswer { problem }
            })?;
        }
        let tool_name = edit.tool_name.clone().or_else(|| shown.tool_name.clone());
        let is_other_tool = tool_name != shown.tool_name;
        let kept = shown.arguments.clone().filter(|_| !is_other_tool);
        let arguments = edit.arguments.clone().or(kept);
        let digest = arguments.as_ref().map(Digest::hash_json);
        let mut description = edit.description.clone().unwrap_or_else(|| shown.description.clone());
        description.truncate(description.floor_char_boundary(PREFLIGHT_TEXT_BYTES_MAX));
        let (mut risk, mut server) = (shown.risk, shown.server.clone());
        if is_other_tool || digest != shown.digest {
            let checked =
                self.validate_step_edit(step.risk, tool_name.as_deref(), arguments.as_ref());
            let tool = checked.map_err(|problem| {
                let problem = format!("step {}: {problem}", step.position);
                Rejection::InvalidAnswer { problem }
            })?;
            (risk, server) = (tool.risk, Some(tool.server.to_string()));
        }
        let position = step.position;
        let skipped = false;
        let made = ApprovedPreflightStep {
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
        Ok(ApprovedPreflightStep { edited: made != shown, ..made })
    }

    /// The tool of a step as a person changed it; the error says why it can't be approved so.
    fn validate_step_edit(
        &self,
        shown: Risk,
        tool: Option<&str>,
        arguments: Option<&Value>,
    ) -> Result<Arc<Tool>, String> {
        let Some(name) = tool else { return Err("there are arguments, and no tool".to_owned()) };
        let missing = || format!("there is no tool named `{}`", truncate(name, 128));
        let tool = self.tool(name).ok_or_else(missing)?;
        // Who may agree to what is critical was asked by the step as it was shown (G12).
        if tool.risk == Risk::Critical && shown != Risk::Critical {
            return Err(format!("{name} is critical, and can't be put into a plan by a change"));
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

    /// The step of the run's approved plan that covers the call, if one does. It answers a question
    /// and never lifts a denial: the judge comes first.
    pub(super) fn preflight_authorization(
        &self,
        tool: &Tool,
        arguments: &Value,
    ) -> Option<CallAuthorization> {
        let plan = self.active.run.as_ref()?.preflight.approved()?;
        let step = plan.covering_step(tool, Digest::hash_json(arguments))?;
        Some(CallAuthorization::Preflight {
            approval_id: plan.approval_id,
            step,
            by: plan.by.clone(),
        })
    }
}

/// What people should know of a plan, gathered step by step.
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
