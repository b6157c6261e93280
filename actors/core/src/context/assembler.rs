//! The request of a step, put together from named sections under a budget of tokens (C1).
//!
//! What changes least comes first, so that providers' prompt caches hit: tools, what all agents are
//! told, the agent's own prompt and the index of its skills last as long as the configuration; the
//! workflow and the approved plan as long as the run; the conversation grows at its end. Only the
//! conversation gives way when there is no room.

use super::{
    compaction,
    skill::{Index, READ_SKILL},
    tokens,
    window::{self, Window},
};
use crate::{
    env::Rules,
    limits::CONVERSATION_TOKENS_MIN,
    message::Message,
    model::request::{ModelRequest, SystemPrompt},
    policy::Tool,
    preflight::{self, SUBMIT_PLAN},
    session::{Run, SessionState},
};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// What a step's request consists of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Manifest {
    /// The model, by its name in configuration.
    pub model: String,
    /// The tokens that its context is taken to hold.
    pub window_tokens: u64,
    /// Of them kept free for the answer.
    pub output_tokens: u64,
    /// Tokens of everything that is told, as estimated.
    pub tokens: u64,
    /// What is told, in order.
    pub sections: Vec<Section>,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Section {
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
const SUMMARY_OF: &str = "(Summary of the earlier part of this conversation:)\n\n";

/// The tokens that the conversation may have in the next step of `run`.
pub(super) fn room_for_conversation(run: Option<&Run>, rules: &Rules, model: &str) -> u64 {
    Parts::before_conversation(run, rules, model).room()
}

/// The request for the step that is going. `model` is the name configuration gives it.
pub fn assemble(state: &SessionState, rules: &Rules, model: String) -> ModelRequest {
    let run = state.active.run.as_ref();
    if let Some(through) = run.and_then(Run::compacting) {
        return compaction::request(state, rules, model, through);
    }
    Parts::of(state, rules, &model).into_request(model)
}

/// What that request consists of.
pub fn inspect(state: &SessionState, rules: &Rules, model: String) -> Manifest {
    Parts::of(state, rules, &model).manifest(model)
}

struct Parts<'a> {
    rules: &'a Rules,
    tools: Vec<Arc<Tool>>,
    forced: Option<&'static str>,
    skills: Index,
    workflow: String,
    plan: String,
    /// What is told in place of the messages that are summarised, and how many those are.
    summary: Option<Message>,
    summarised: usize,
    window: Window,
    window_tokens: u64,
}

impl<'a> Parts<'a> {
    fn of(state: &SessionState, rules: &'a Rules, model: &str) -> Self {
        let mut parts = Self::before_conversation(state.active.run.as_ref(), rules, model);
        let mut left = parts.room();
        let (conversation, mut told) = (&state.conversation, state.conversation.tokens());
        if let Some(compacted) = &state.compacted {
            parts.summarised = compacted.messages().min(conversation.len());
            told -= compacted.tokens;
            parts.summary = Some(window::note(&format!("{SUMMARY_OF}{}", compacted.summary)));
        }
        left = left.saturating_sub(parts.summary.as_ref().map_or(0, tokens::of_message));
        let newest_first = conversation.newest_first_after(parts.summarised);
        let messages = conversation.len() - parts.summarised;
        parts.window = Window::of(newest_first, (messages, told), left);
        parts
    }

    fn before_conversation(run: Option<&Run>, rules: &'a Rules, model: &str) -> Self {
        let plan = run.and_then(|run| run.preflight.approved());
        let mut parts = Self {
            rules,
            tools: offered(rules, run),
            forced: None,
            skills: Index::default(),
            workflow: run.map(workflow_of).unwrap_or_default(),
            plan: plan.map(|plan| plan.for_model()).unwrap_or_default(),
            summary: None,
            summarised: 0,
            window: Window::default(),
            window_tokens: rules.context.window_of(model),
        };
        if parts.tools.iter().any(|tool| tool.name.as_str() == READ_SKILL) {
            parts.skills = Index::of(rules.context.skills.matching(&rules.agent.skills));
        }
        if run.is_some_and(Run::is_planning) {
            parts.ask_for_plan();
        }
        parts
    }

    /// The tokens that the conversation may have.
    fn room(&self) -> u64 {
        let taken = self.tokens_before_conversation() + u64::from(self.rules.agent.max_tokens);
        self.window_tokens.saturating_sub(taken).max(CONVERSATION_TOKENS_MIN)
    }

    /// The model sees its tools and must submit what it means to do with them (G14).
    fn ask_for_plan(&mut self) {
        self.tools.retain(|tool| tool.name.as_str() != SUBMIT_PLAN);
        self.tools.push(preflight::tool());
        self.forced = Some(SUBMIT_PLAN);
    }

    fn tools_tokens(&self) -> u64 {
        self.tools.iter().map(|tool| tokens::of_bytes(self.rules.declared_bytes(tool))).sum()
    }

    fn tokens_before_conversation(&self) -> u64 {
        let agent = &self.rules.agent;
        let texts = [
            &*self.rules.context.system,
            &agent.system,
            &self.skills.text,
            &self.workflow,
            &self.plan,
        ];
        let texts = texts.iter().map(|text| tokens::of_bytes(text.len() as u64));
        self.tools_tokens() + texts.sum::<u64>()
    }

    fn into_request(self, model: String) -> ModelRequest {
        let (context, agent) = (&self.rules.context, &self.rules.agent);
        ModelRequest {
            model,
            system: SystemPrompt {
                lasting: joined(&[&context.system, &agent.system, &self.skills.text]),
                of_run: joined(&[&self.workflow, &self.plan]),
            },
            messages: self.summary.into_iter().chain(self.window.messages).collect(),
            tools: self.tools,
            max_tokens: agent.max_tokens,
            forced_tool: self.forced.map(str::to_owned),
            trace: None,
        }
    }

    fn manifest(self, model: String) -> Manifest {
        use SectionName as S;
        let (context, agent) = (&self.rules.context, &self.rules.agent);
        let of_text = |name, text: &str| section(name, tokens::of_bytes(text.len() as u64));
        let names = |tool: &Arc<Tool>| tool.name.as_str().to_owned();
        let summary = self.summary.as_ref().map_or(0, tokens::of_message);
        let notes = usize::from(self.window.left_out > 0);
        let sections = [
            Section {
                items: self.tools.iter().map(names).collect(),
                ..section(S::Tools, self.tools_tokens())
            },
            of_text(S::System, &context.system),
            of_text(S::Agent, &agent.system),
            Section {
                items: self.skills.names.clone(),
                left_out: self.skills.left_out,
                ..of_text(S::Skills, &self.skills.text)
            },
            of_text(S::Workflow, &self.workflow),
            of_text(S::Plan, &self.plan),
            Section {
                included: Some(self.window.messages.len() - notes),
                left_out: self.window.left_out,
                cut: self.window.cut,
                summarised: self.summarised,
                ..section(S::Conversation, self.window.tokens + summary)
            },
        ];
        let tokens = sections.iter().map(|section| section.tokens).sum();
        let is_told = |section: &Section| section.tokens > 0 || section.left_out > 0;
        Manifest {
            model,
            window_tokens: self.window_tokens,
            output_tokens: u64::from(agent.max_tokens),
            tokens,
            sections: sections.into_iter().filter(is_told).collect(),
        }
    }
}

fn section(name: SectionName, tokens: u64) -> Section {
    let (items, included) = (Vec::new(), None);
    Section { name, tokens, items, included, left_out: 0, summarised: 0, cut: 0 }
}

/// The tools that the model may call, by name.
fn offered(rules: &Rules, run: Option<&Run>) -> Vec<Arc<Tool>> {
    let may_call = |tool: &&Arc<Tool>| {
        let name = tool.name.as_str();
        let in_run = run.is_none_or(|run| run.may_use(name));
        tool.unavailable.is_none() && rules.agent.may_use(name) && in_run
    };
    rules.tools().filter(may_call).cloned().collect()
}

/// What the model is told of the workflow that the run was started with.
fn workflow_of(run: &Run) -> String {
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
