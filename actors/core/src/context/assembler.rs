//! The request of a step, put together from named sections under a budget of tokens (C1).
//!
//! What changes least comes first, so that providers' prompt caches hit: tools, what all agents are
//! told, the agent's own prompt and the index of its skills last as long as the configuration; the
//! workflow and the approved plan as long as the run; the conversation grows at its end. Only the
//! conversation gives way when there is no room.

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

/// What a step's request consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ContextManifest {
    /// The model, by its name in configuration.
    pub model: String,
    /// The tokens that its context is taken to hold.
    pub window_tokens: u64,
    /// Of them kept free for the answer.
    pub output_tokens: u64,
    /// Tokens of everything that is told, as estimated.
    pub tokens: u64,
    /// What is told, in order.
    pub sections: Vec<ContextSection>,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ContextSection {
    /// Which.
    pub name: SectionName,
    /// Its size in tokens, as estimated.
    pub tokens: u64,
    /// What it consists of: names of tools and skills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub items: Vec<String>,
    /// How many entries it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub included: Option<usize>,
    /// Entries for which there is no room.
    #[serde(skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// Entries that a summary stands for.
    #[serde(skip_serializing_if = "is_zero")]
    pub summarised: usize,
    /// Entries that are cut.
    #[serde(skip_serializing_if = "is_zero")]
    pub cut: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// The parts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SectionName {
    /// What the model may call.
    Tools,
    /// What every agent is told.
    System,
    /// The agent's own prompt.
    Agent,
    /// The index of skills.
    Skills,
    /// The workflow that the run was started with.
    Workflow,
    /// What a person approved before the run began.
    Plan,
    /// What was said.
    Conversation,
}

/// What stands before the summary of what was said before.
const SUMMARY_HEADING: &str = "(Summary of the earlier part of this conversation:)\n\n";

/// The tokens that the conversation may have in the next step of `run`.
pub(super) fn conversation_token_budget(run: Option<&Run>, rules: &Rules, model: &str) -> u64 {
    RequestParts::without_conversation(run, rules, model).conversation_tokens()
}

/// The request for the step that is going. `model` is the name configuration gives it.
pub fn assemble_request(state: &SessionState, rules: &Rules, model: String) -> ModelRequest {
    let run = state.active.run.as_ref();
    if let Some(through) = run.and_then(Run::compacting_through) {
        return compaction::build_summary_request(state, rules, model, through);
    }
    RequestParts::new(state, rules, &model).into_request(model)
}

/// What that request consists of.
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
    /// What is told in place of the messages that are summarised, and how many those are.
    summary: Option<Message>,
    summarised: usize,
    window: ConversationWindow,
    window_tokens: u64,
}

impl<'a> RequestParts<'a> {
    fn new(state: &SessionState, rules: &'a Rules, model: &str) -> Self {
        let mut parts = Self::without_conversation(state.active.run.as_ref(), rules, model);
        let mut left = parts.conversation_tokens();
        let (conversation, mut told) = (&state.conversation, state.conversation.estimated_tokens());
        if let Some(compacted) = &state.summary {
            parts.summarised = compacted.message_count().min(conversation.len());
            told -= compacted.tokens;
            parts.summary = Some(conversation_window::note_message(&format!(
                "{SUMMARY_HEADING}{}",
                compacted.summary
            )));
        }
        left = left.saturating_sub(
            parts.summary.as_ref().map_or(0, token_estimate::estimate_message_tokens),
        );
        let newest_first = conversation.newest_first_from(parts.summarised);
        let messages = conversation.len() - parts.summarised;
        parts.window = ConversationWindow::fit(newest_first, (messages, told), left);
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

    /// The tokens that the conversation may have.
    fn conversation_tokens(&self) -> u64 {
        let taken = self.fixed_tokens() + u64::from(self.rules.agent.max_tokens);
        self.window_tokens.saturating_sub(taken).max(CONVERSATION_TOKENS_MIN)
    }

    /// The model sees its tools and must submit what it means to do with them (G14).
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
                stable: joined(&[&context.system, &agent.system, &self.skills.text]),
                per_run: joined(&[&self.workflow, &self.plan]),
            },
            messages: self.summary.into_iter().chain(self.window.messages).collect(),
            tools: self.tools,
            max_tokens: agent.max_tokens,
            forced_tool: self.forced.map(str::to_owned),
            trace_context: None,
        }
    }

    fn manifest(self, model: String) -> ContextManifest {
        use SectionName as S;
        let (context, agent) = (&self.rules.context, &self.rules.agent);
        let of_text =
            |name, text: &str| section(name, token_estimate::estimate_tokens(text.len() as u64));
        let names = |tool: &Arc<Tool>| tool.name.as_str().to_owned();
        let summary = self.summary.as_ref().map_or(0, token_estimate::estimate_message_tokens);
        let notes = usize::from(self.window.left_out > 0);
        let sections = [
            ContextSection {
                items: self.tools.iter().map(names).collect(),
                ..section(S::Tools, self.tools_tokens())
            },
            of_text(S::System, &context.system),
            of_text(S::Agent, &agent.system),
            ContextSection {
                items: self.skills.names.clone(),
                left_out: self.skills.left_out,
                ..of_text(S::Skills, &self.skills.text)
            },
            of_text(S::Workflow, &self.workflow),
            of_text(S::Plan, &self.plan),
            ContextSection {
                included: Some(self.window.messages.len() - notes),
                left_out: self.window.left_out,
                cut: self.window.cut,
                summarised: self.summarised,
                ..section(S::Conversation, self.window.tokens + summary)
            },
        ];
        let tokens = sections.iter().map(|section| section.tokens).sum();
        let is_told = |section: &ContextSection| section.tokens > 0 || section.left_out > 0;
        ContextManifest {
            model,
            window_tokens: self.window_tokens,
            output_tokens: u64::from(agent.max_tokens),
            tokens,
            sections: sections.into_iter().filter(is_told).collect(),
        }
    }
}

fn section(name: SectionName, tokens: u64) -> ContextSection {
    let (items, included) = (Vec::new(), None);
    ContextSection { name, tokens, items, included, left_out: 0, summarised: 0, cut: 0 }
}

/// The tools that the model may call, by name.
fn available_tools(rules: &Rules, run: Option<&Run>) -> Vec<Arc<Tool>> {
    let may_call = |tool: &&Arc<Tool>| {
        let name = tool.name.as_str();
        let in_run = run.is_none_or(|run| run.can_use_tool(name));
        tool.unavailable_reason.is_none() && rules.agent.can_use_tool(name) && in_run
    };
    rules.tools().filter(may_call).cloned().collect()
}

/// What the model is told of the workflow that the run was started with.
fn workflow_prompt(run: &Run) -> String {
    let Some(workflow) = &run.workflow else { return String::new() };
    format!("The user started the workflow `{}`. Carry it out:\n\n{}", workflow.name, workflow.text)
}

fn joined(texts: &[&str]) -> String {
    let said: Vec<&str> = texts.iter().copied().filter(|text| !text.trim().is_empty()).collect();
    said.join("\n\n")
}

#[cfg(test)]
#[path = "assembler_tests.rs"]
mod tests;
