//! Assembles the request of a step from named sections under a token budget (C1).
//!
//! The sections that change least come first, so that the prompt caches of providers hit. Tools, the
//! system prompt, the agent's prompt and the skill index last as long as the configuration; the
//! workflow and the approved plan last as long as the run; the conversation grows at its end. If the
//! budget is exceeded, only the conversation is shortened.

use super::{
    compaction,
    conversation_window::{self, ConversationWindow},
    skill::{READ_SKILL_TOOL, SkillIndex},
    token_estimate,
};
use crate::{
    env::Rules,
    limits::CONVERSATION_TOKENS_MIN,
    message::Message,
    model::request::{ModelRequest, SystemPrompt},
    policy::Tool,
    preflight::{self, SUBMIT_PLAN_TOOL},
    session::{Run, SessionState},
};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The sections and sizes of a step's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ContextManifest {
    /// The model's name in configuration.
    pub model: String,
    /// Assumed size of the model's context window, in tokens.
    pub window_tokens: u64,
    /// Tokens of the window that are reserved for the response.
    pub output_tokens: u64,
    /// Estimated tokens of all sections.
    pub tokens: u64,
    /// The sections, in request order.
    pub sections: Vec<ContextSection>,
}

/// A section of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ContextSection {
    /// The section's name.
    pub name: SectionName,
    /// Estimated size in tokens.
    pub tokens: u64,
    /// Names of the tools or skills in the section.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<String>,
    /// Number of entries in the section.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub included: Option<usize>,
    /// Number of entries that were omitted because they exceed the budget.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Number of entries that a summary replaces.
    #[serde(skip_serializing_if = "is_zero")]
    pub summarised: usize,
    /// Number of entries that were truncated.
    #[serde(skip_serializing_if = "is_zero")]
    pub cut: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The name of a request section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SectionName {
    /// The tools that the model may call.
    Tools,
    /// The system prompt of all agents.
    System,
    /// The agent's own prompt.
    Agent,
    /// The index of skills.
    Skills,
    /// The workflow that started the run.
    Workflow,
    /// The plan that was approved before the run started.
    Plan,
    /// The messages of the session.
    Conversation,
}

/// Introduces the summary of earlier messages.
const SUMMARY_HEADING: &str = "(Summary of the earlier part of this conversation:)\n\n";

/// Returns the tokens available to the conversation in the next step of `run`.
pub(super) fn conversation_token_budget(run: Option<&Run>, rules: &Rules, model: &str) -> u64 {
    RequestParts::without_conversation(run, rules, model).conversation_tokens()
}

/// Builds the request of the current step. `model` is the model's name in configuration.
pub fn assemble_request(state: &SessionState, rules: &Rules, model: String) -> ModelRequest {
    let run = state.active.run.as_ref();
    if let Some(summarised_messages) = run.and_then(Run::compacting_through) {
        return compaction::build_summary_request(state, rules, model, summarised_messages);
    }
    RequestParts::new(state, rules, &model).into_request(model)
}

/// Describes the sections and sizes of the request for the current step.
pub fn describe_request(state: &SessionState, rules: &Rules, model: String) -> ContextManifest {
    RequestParts::new(state, rules, &model).manifest(model)
}

struct RequestParts<'a> {
    rules: &'a Rules,
    tools: Vec<Arc<Tool>>,
    forced: Option<&'static str>,
    skills: SkillIndex,
    workflow: String,
    plan: String,
    /// The message that replaces the first `summarised` messages.
    summary: Option<Message>,
    summarised: usize,
    window: ConversationWindow,
    window_tokens: u64,
}

impl<'a> RequestParts<'a> {
    fn new(state: &SessionState, rules: &'a Rules, model: &str) -> Self {
        let mut parts = Self::without_conversation(state.active.run.as_ref(), rules, model);
        let mut budget = parts.conversation_tokens();
        let (conversation, mut tokens) =
            (&state.conversation, state.conversation.estimated_tokens());
        if let Some(compacted) = &state.summary {
            parts.summarised = compacted.message_count().min(conversation.len());
            tokens -= compacted.tokens;
            parts.summary = Some(conversation_window::note_message(&format!(
                "{SUMMARY_HEADING}{}",
                compacted.summary
            )));
        }
        budget = budget.saturating_sub(
            parts.summary.as_ref().map_or(0, token_estimate::estimate_message_tokens),
        );
        let newest_first = conversation.newest_first_from(parts.summarised);
        let messages = conversation.len() - parts.summarised;
        parts.window = ConversationWindow::fit(newest_first, (messages, tokens), budget);
        parts
    }

    fn without_conversation(run: Option<&Run>, rules: &'a Rules, model: &str) -> Self {
        let plan = run.and_then(|run| run.preflight.approved());
        let mut parts = Self {
            rules,
            tools: available_tools(rules, run),
            forced: None,
            skills: SkillIndex::default(),
            workflow: run.map(workflow_prompt).unwrap_or_default(),
            plan: plan.map(|plan| plan.to_prompt()).unwrap_or_default(),
            summary: None,
            summarised: 0,
            window: ConversationWindow::default(),
            window_tokens: rules.context.context_window(model),
        };
        if parts.tools.iter().any(|tool| tool.name.as_str() == READ_SKILL_TOOL) {
            parts.skills =
                SkillIndex::from_skills(rules.context.skills.matching(&rules.agent.skills));
        }
        if run.is_some_and(Run::is_planning) {
            parts.force_plan_submission();
        }
        parts
    }

    /// Returns the tokens available to the conversation.
    fn conversation_tokens(&self) -> u64 {
        let reserved = self.fixed_tokens() + u64::from(self.rules.agent.max_tokens);
        self.window_tokens.saturating_sub(reserved).max(CONVERSATION_TOKENS_MIN)
    }

    /// Forces a call of the plan submission tool; the model still sees its other tools (G14).
    fn force_plan_submission(&mut self) {
        self.tools.retain(|tool| tool.name.as_str() != SUBMIT_PLAN_TOOL);
        self.tools.push(preflight::submit_plan_tool());
        self.forced = Some(SUBMIT_PLAN_TOOL);
    }

    fn tools_tokens(&self) -> u64 {
        self.tools
            .iter()
            .map(|tool| token_estimate::estimate_tokens(self.rules.declared_bytes(tool)))
            .sum()
    }

    fn fixed_tokens(&self) -> u64 {
        let agent = &self.rules.agent;
        let texts = [
            &*self.rules.context.system,
            &agent.system,
            &self.skills.text,
            &self.workflow,
            &self.plan,
        ];
        let texts = texts.iter().map(|text| token_estimate::estimate_tokens(text.len() as u64));
        self.tools_tokens() + texts.sum::<u64>()
    }

    fn into_request(self, model: String) -> ModelRequest {
        let (context, agent) = (&self.rules.context, &self.rules.agent);
        ModelRequest {
            model,
            system: SystemPrompt {
                stable: join_non_blank(&[&context.system, &agent.system, &self.skills.text]),
                per_run: join_non_blank(&[&self.workflow, &self.plan]),
            },
            messages: self.summary.into_iter().chain(self.window.messages).collect(),
            tools: self.tools,
            max_tokens: agent.max_tokens,
            forced_tool: self.forced.map(str::to_owned),
            message_limits: self.rules.message_limits,
            trace_context: None,
        }
    }

    fn manifest(self, model: String) -> ContextManifest {
        use SectionName as S;
        let (context, agent) = (&self.rules.context, &self.rules.agent);
        let text_section =
            |name, text: &str| section(name, token_estimate::estimate_tokens(text.len() as u64));
        let tool_name = |tool: &Arc<Tool>| tool.name.as_str().to_owned();
        let summary = self.summary.as_ref().map_or(0, token_estimate::estimate_message_tokens);
        let notes = usize::from(self.window.left_out > 0);
        let sections = [
            ContextSection {
                items: self.tools.iter().map(tool_name).collect(),
                ..section(S::Tools, self.tools_tokens())
            },
            text_section(S::System, &context.system),
            text_section(S::Agent, &agent.system),
            ContextSection {
                items: self.skills.names.clone(),
                left_out: self.skills.left_out,
                ..text_section(S::Skills, &self.skills.text)
            },
            text_section(S::Workflow, &self.workflow),
            text_section(S::Plan, &self.plan),
            ContextSection {
                included: Some(self.window.messages.len() - notes),
                left_out: self.window.left_out,
                cut: self.window.cut,
                summarised: self.summarised,
                ..section(S::Conversation, self.window.tokens + summary)
            },
        ];
        let tokens = sections.iter().map(|section| section.tokens).sum();
        let is_present = |section: &ContextSection| section.tokens > 0 || section.left_out > 0;
        ContextManifest {
            model,
            window_tokens: self.window_tokens,
            output_tokens: u64::from(agent.max_tokens),
            tokens,
            sections: sections.into_iter().filter(is_present).collect(),
        }
    }
}

fn section(name: SectionName, tokens: u64) -> ContextSection {
    let (items, included) = (Vec::new(), None);
    ContextSection { name, tokens, items, included, left_out: 0, summarised: 0, cut: 0 }
}

/// Returns the tools that the model may call, by name.
fn available_tools(rules: &Rules, run: Option<&Run>) -> Vec<Arc<Tool>> {
    let may_call = |tool: &&Arc<Tool>| {
        let name = tool.name.as_str();
        let in_run = run.is_none_or(|run| run.can_use_tool(name));
        tool.unavailable_reason.is_none() && rules.agent.can_use_tool(name) && in_run
    };
    rules.tools().filter(may_call).cloned().collect()
}

/// Returns the prompt text of the workflow that started `run`; empty without a workflow.
fn workflow_prompt(run: &Run) -> String {
    let Some(workflow) = &run.workflow else { return String::new() };
    format!("The user started the workflow `{}`. Carry it out:\n\n{}", workflow.name, workflow.text)
}

fn join_non_blank(texts: &[&str]) -> String {
    let non_blank: Vec<&str> =
        texts.iter().copied().filter(|text| !text.trim().is_empty()).collect();
    non_blank.join("\n\n")
}

#[cfg(test)]
#[path = "assembler_tests.rs"]
mod tests;
