//! Every bound of the core in one place. `docs/limits.md` explains them to people.

use std::time::Duration;

/// Characters of an id that people choose (message, user, agent, tool).
pub const TEXT_ID_CHARS_MAX: usize = 128;
/// Bytes of a user's message (X4).
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Messages waiting behind a run (X4).
pub const QUEUED_MESSAGES_MAX: usize = 64;
/// Characters of a session's title.
pub const TITLE_CHARS_MAX: usize = 200;
/// Characters of one that is made of a message.
pub const HEADLINE_CHARS_MAX: usize = 80;
/// Bytes of a person's reason or comment.
pub const REASON_BYTES_MAX: usize = 4 * 1024;

/// Steps of a run where the agent's profile says nothing (S2).
pub const STEPS_PER_RUN_DEFAULT: u32 = 5;
/// Output tokens of a step where the agent's profile says nothing (S2).
pub const OUTPUT_TOKENS_DEFAULT: u32 = 4096;
/// Tool calls running at once in one session (S3).
pub const PARALLEL_CALLS_DEFAULT: usize = 8;
/// Tool calls a model may propose in one step.
pub const CALLS_PER_STEP_MAX: usize = 64;

/// Children of one run that work at once where configuration says nothing (S8).
pub const CHILDREN_PER_RUN_DEFAULT: usize = 4;
/// Sessions below one that people started, from parent to child, where configuration says nothing.
pub const DELEGATION_DEPTH_DEFAULT: u32 = 3;
/// The same at most: each level makes what is mirrored nest deeper.
pub const DELEGATION_DEPTH_MAX: u32 = 8;
/// Levels of a value from a model, a tool or a person: of a call's arguments, or of a result.
pub const VALUE_LEVELS_MAX: u32 = 64;
/// Levels of an event that is mirrored; arguments and answers that go deeper are told as text.
pub const MIRRORED_LEVELS_MAX: u32 = 64;

/// Bytes of text, or of one thinking block, in one message of the model.
pub const MODEL_TEXT_BYTES_MAX: usize = 1024 * 1024;
/// Thinking blocks in one message of the model.
pub const MODEL_BLOCKS_MAX: usize = 256;
/// Bytes of one call's arguments.
pub const ARGUMENTS_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a tool's name and of a provider's id for a call, together.
pub const TOOL_NAME_BYTES_MAX: usize = 512;
/// Bytes kept of arguments that are not JSON.
pub const MALFORMED_ARGUMENTS_BYTES_MAX: usize = 2 * 1024;
/// Bytes of one line of a model's stream.
pub const STREAM_LINE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes kept of what a model's provider says of an error.
pub const PROVIDER_ERROR_BYTES_MAX: usize = 2 * 1024;

/// Time for one attempt of a tool where nothing else is said (T4).
pub const TOOL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Bytes of a tool's result that are kept (T4).
pub const TOOL_RESULT_BYTES_DEFAULT: usize = 256 * 1024;
/// Bytes of a tool's error text.
pub const TOOL_ERROR_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a progress message.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 1024;

/// Tokens that a model's context is taken to hold where configuration says nothing (C1).
pub const CONTEXT_TOKENS_DEFAULT: u64 = 128_000;
/// Tokens that a conversation may always have, whatever else there is.
pub const CONVERSATION_TOKENS_MIN: u64 = 2_000;
/// Bytes that a result keeps when a request has no room for all of it.
pub const CONTEXT_RESULT_BYTES_MIN: usize = 1024;
/// Bytes of the front matter of a skill or a workflow.
pub const FRONT_MATTER_BYTES_MAX: usize = 16 * 1024;
/// Characters of a skill's name (C2).
pub const SKILL_NAME_CHARS_MAX: usize = 64;
/// Characters of a skill's description.
pub const SKILL_DESCRIPTION_CHARS_MAX: usize = 1024;
/// Bytes of the index of skills that a model is shown.
pub const SKILLS_INDEX_BYTES_MAX: usize = 16 * 1024;

/// Percent of a conversation's room at which its older part is summarised, where configuration says
/// nothing (C4).
pub const COMPACT_AT_DEFAULT: u8 = 70;
/// Percent of that room that the newest rounds keep as they are.
pub const COMPACTION_KEEP_PERCENT: u64 = 30;
/// Percent of that room that a summary may take.
pub const SUMMARY_PERCENT_MAX: u64 = 20;
/// Bytes of a summary.
pub const SUMMARY_BYTES_MAX: usize = 16 * 1024;
/// Output tokens of the call that makes one.
pub const SUMMARY_TOKENS_MAX: u32 = 2_048;
/// Bytes of one message that the call that makes one is shown.
pub const SUMMARY_INPUT_BYTES_MAX: usize = 4 * 1024;

/// Bytes of a workflow's file (C3).
pub const WORKFLOW_BYTES_MAX: usize = 64 * 1024;
/// Inputs of a workflow.
pub const WORKFLOW_INPUTS_MAX: usize = 64;
/// Bytes of one input's text.
pub const WORKFLOW_INPUT_BYTES_MAX: usize = 16 * 1024;
/// Globs over tools of a workflow.
pub const WORKFLOW_TOOLS_MAX: usize = 1_000;
/// Bytes that a workflow's template may make.
pub const WORKFLOW_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Work that rendering a workflow's template may take, in instructions.
pub const WORKFLOW_FUEL: u64 = 100_000;

/// Retries after the first attempt, of a tool call (R2) or a step (M3).
pub const RETRIES_DEFAULT: u32 = 3;
/// First delay before a retry.
pub const RETRY_BASE_DEFAULT: Duration = Duration::from_secs(1);
/// Longest delay before a retry; also the longest `retry-after` that is waited for.
pub const RETRY_CAP_DEFAULT: Duration = Duration::from_secs(30);

/// Time a person has to answer where nothing else is said (G10).
pub const APPROVAL_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);
/// Budgets of one agent (G6).
pub const BUDGETS_MAX: usize = 64;
/// Grants of one session (G9).
pub const GRANTS_MAX: usize = 64;
/// Steps of a plan that a model submits before it begins (G14).
pub const PREFLIGHT_STEPS_MAX: usize = 64;
/// Warnings that a model may add to such a plan.
pub const PREFLIGHT_WARNINGS_MAX: usize = 32;
/// Bytes kept of each text of such a plan; also of a tool's name in it.
pub const PREFLIGHT_TEXT_BYTES_MAX: usize = 1024;
/// Questions that one attempt of a tool may put to people (T1); later ones are cancelled.
pub const ELICITATIONS_PER_ATTEMPT_MAX: u32 = 16;
/// Bytes kept of what a tool says to a person when it asks.
pub const ELICITATION_MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Bytes of the schema of a form that a tool asks to be filled in.
pub const ELICITATION_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the address of a page that a tool asks a person to visit.
pub const ELICITATION_URL_BYTES_MAX: usize = 2 * 1024;
/// Bytes of what a person fills in.
pub const ELICITATION_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Closed approvals a live session remembers to answer a repeated decision; older ones are read
/// from the store.
pub const CLOSED_APPROVALS_MAX: usize = 256;

/// How long the catalog may let results be used again (T6).
pub const RESULT_CACHE_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Times people may give feedback in one session (C5).
pub const FEEDBACK_PER_SESSION_MAX: u32 = 10_000;

/// Tools of one server; further ones are left out.
pub const TOOLS_PER_SERVER_MAX: usize = 1_000;
/// Bytes of a tool's description.
pub const TOOL_DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// Values in a tool's schema, as written and with references followed.
pub const SCHEMA_NODES_MAX: usize = 50_000;
/// Nesting of a tool's schema.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// Bytes of keys and texts in a tool's schema.
pub const SCHEMA_TEXT_BYTES_MAX: usize = 256 * 1024;
/// Times a recursive definition of a tool's schema may have to be checked for one call.
pub const SCHEMA_CHECKS_MAX: usize = 1 << 16;
/// Different references in a tool's schema.
pub const SCHEMA_REFERENCES_MAX: usize = 100;
/// Bytes of one compiled pattern of a tool's schema.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Blocked tools in one user's settings.
pub const BLOCKED_TOOLS_MAX: usize = 1_000;
/// Allowed regions in one user's settings.
pub const ALLOWED_REGIONS_MAX: usize = 1_000;
/// Characters of a budget's unit.
pub const BUDGET_UNIT_CHARS_MAX: usize = 16;
/// Retries that the catalog may allow one tool.
pub const RETRIES_MAX: u32 = 20;
/// Bytes of a result that the catalog may let one tool keep.
pub const TOOL_RESULT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of one expression of the catalog (G5).
pub const EXPRESSION_BYTES_MAX: usize = 4 * 1024;
/// Operators and brackets in one expression.
pub const EXPRESSION_OPERATORS_MAX: usize = 256;
/// Brackets within each other in an expression, as the parser counts.
pub const EXPRESSION_NESTING_MAX: u16 = 24;
/// Levels of a parsed expression.
pub const EXPRESSION_DEPTH_MAX: usize = 24;
/// Loops (`all`, `exists`, `map` …) of an expression within or after each other.
pub const EXPRESSION_LOOPS_MAX: usize = 2;
/// Work of evaluating one expression: parts evaluated, times what each may look at.
pub const EXPRESSION_WORK_MAX: u64 = 1_000_000_000;
/// Nesting of arguments that expressions look at.
pub const EXPRESSION_ARGUMENTS_DEPTH_MAX: usize = 128;
/// Constraints of one entry of the catalog.
pub const CONSTRAINTS_MAX: usize = 64;
/// Bytes of the key that an `exclusive` expression gives (T8).
pub const EXCLUSIVE_KEY_BYTES_MAX: usize = 256;
