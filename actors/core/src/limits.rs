//! All limits and defaults of the core. `docs/limits.md` describes them for users.

use std::time::Duration;

/// Maximum characters of an id that clients or configuration choose (message, user, agent, tool).
pub const TEXT_ID_CHARS_MAX: usize = 128;
/// Maximum bytes of a user's message (X4).
pub const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of users who are recorded as authors of one message or run (G12).
pub const AUTHORS_MAX: usize = 64;
/// Maximum number of users who edit one call before it runs (G12).
pub const EDITORS_MAX: usize = 64;
/// Maximum number of messages that wait behind a run (X4).
pub const QUEUED_MESSAGES_MAX: usize = 64;
/// Maximum characters of a session's title.
pub const TITLE_CHARS_MAX: usize = 200;
/// Maximum characters of a title that is derived from a message.
pub const HEADLINE_CHARS_MAX: usize = 80;
/// Maximum bytes of a reason or comment.
pub const REASON_BYTES_MAX: usize = 4 * 1024;

/// Default maximum number of steps of a run (S2).
pub const STEPS_PER_RUN_DEFAULT: u32 = 5;
/// Default maximum number of output tokens of a step (S2).
pub const OUTPUT_TOKENS_DEFAULT: u32 = 4096;
/// Default maximum number of tool calls of one session that run at the same time (S3).
pub const PARALLEL_CALLS_DEFAULT: usize = 8;
/// Default maximum number of tool calls of one step. Further calls fail.
pub const CALLS_PER_STEP_DEFAULT: usize = 64;
/// Highest configurable number of tool calls of one step.
pub const CALLS_PER_STEP_MAX: usize = 256;
/// Maximum number of tool calls that are kept of one message. Further calls are only counted.
pub const CALLS_PER_MESSAGE_MAX: usize = 512;

/// Default maximum number of children of one run that work at the same time (S8).
pub const CHILDREN_PER_RUN_DEFAULT: usize = 4;
/// Default maximum depth of child sessions below a root session.
pub const DELEGATION_DEPTH_DEFAULT: u32 = 3;
/// Highest configurable depth of child sessions. Each level increases the nesting of mirrored
/// events.
pub const DELEGATION_DEPTH_MAX: u32 = 8;
/// Maximum nesting levels of a value from a model, a tool or a client: arguments of a call, or a
/// result.
pub const VALUE_LEVELS_MAX: u32 = 64;
/// Maximum characters of a number in such a value.
pub const NUMBER_BYTES_MAX: usize = 1_000;
/// Maximum nesting levels of a mirrored event. Deeper arguments and answers are mirrored as text.
pub const MIRRORED_LEVELS_MAX: u32 = 64;

/// Default maximum bytes of text in one message of the model. Further text is cut off.
pub const MODEL_TEXT_BYTES_DEFAULT: usize = 1024 * 1024;
/// Highest configurable number of bytes of text in one message of the model.
pub const MODEL_TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum bytes of cut-off text that are read of one message. Then the message ends, so that an
/// endless stream ends.
pub const MODEL_EXCESS_TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum bytes of one thinking block, or of its signature.
pub const REASONING_BYTES_MAX: usize = 1024 * 1024;
/// Maximum number of thinking blocks in one message of the model.
pub const MODEL_BLOCKS_MAX: usize = 256;
/// Maximum bytes of the arguments of one call.
pub const ARGUMENTS_BYTES_MAX: usize = 256 * 1024;
/// Maximum bytes that are kept of the arguments of a call beyond the limit of a step.
pub const EXCESS_ARGUMENTS_BYTES_MAX: usize = 2 * 1024;
/// Maximum bytes of a tool's name and of the provider's id of a call together.
pub const TOOL_NAME_BYTES_MAX: usize = 512;
/// Maximum bytes that are kept of arguments that are not a JSON object.
pub const MALFORMED_ARGUMENTS_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of one line of a model's stream.
pub const STREAM_LINE_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Maximum bytes that are kept of the error text of a model provider.
pub const PROVIDER_ERROR_BYTES_MAX: usize = 2 * 1024;

/// Default time limit of one attempt of a tool call (T4).
pub const TOOL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// Default maximum bytes of a tool's result (T4).
pub const TOOL_RESULT_BYTES_DEFAULT: usize = 256 * 1024;
/// Maximum bytes of a tool's error text.
pub const TOOL_ERROR_BYTES_MAX: usize = 8 * 1024;
/// Maximum bytes of a progress message.
pub const PROGRESS_MESSAGE_BYTES_MAX: usize = 1024;

/// Default size of a model's context window, in tokens (C1).
pub const CONTEXT_TOKENS_DEFAULT: u64 = 128_000;
/// Minimum tokens that a request reserves for the conversation.
pub const CONVERSATION_TOKENS_MIN: u64 = 2_000;
/// Minimum bytes of a tool result that is shortened to fit a request.
pub const CONTEXT_RESULT_BYTES_MIN: usize = 1024;
/// Maximum bytes of the front matter of a skill or workflow.
pub const FRONT_MATTER_BYTES_MAX: usize = 16 * 1024;
/// Maximum characters of a skill's name (C2).
pub const SKILL_NAME_CHARS_MAX: usize = 64;
/// Maximum characters of a skill's description.
pub const SKILL_DESCRIPTION_CHARS_MAX: usize = 1024;
/// Maximum bytes of the skill index in a model request.
pub const SKILLS_INDEX_BYTES_MAX: usize = 16 * 1024;

/// Default threshold of compaction, in percent of the conversation's token budget (C4).
pub const COMPACT_AT_DEFAULT: u8 = 70;
/// Percent of the conversation's token budget that compaction keeps unchanged for the newest steps.
pub const COMPACTION_KEEP_PERCENT: u64 = 30;
/// Percent of the conversation's token budget that a summary may use.
pub const SUMMARY_PERCENT_MAX: u64 = 20;
/// Maximum bytes of a summary.
pub const SUMMARY_BYTES_MAX: usize = 16 * 1024;
/// Maximum output tokens of the model call that writes a summary.
pub const SUMMARY_TOKENS_MAX: u32 = 2_048;
/// Maximum bytes of one message in the input of the model call that writes a summary.
pub const SUMMARY_INPUT_BYTES_MAX: usize = 4 * 1024;

/// Maximum bytes of a workflow file (C3).
pub const WORKFLOW_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of inputs of a workflow.
pub const WORKFLOW_INPUTS_MAX: usize = 64;
/// Maximum bytes of one workflow input.
pub const WORKFLOW_INPUT_VALUE_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of tool globs of a workflow.
pub const WORKFLOW_TOOLS_MAX: usize = 1_000;
/// Maximum bytes of a rendered workflow template.
pub const WORKFLOW_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Maximum work of rendering a workflow template, in instructions.
pub const WORKFLOW_FUEL: u64 = 100_000;

/// Default number of retries after the first attempt, of a tool call (R2) or a step (M3).
pub const RETRIES_DEFAULT: u32 = 3;
/// Default upper bound of the delay before the first retry.
pub const RETRY_BASE_DEFAULT: Duration = Duration::from_secs(1);
/// Default upper bound of the delay before a retry, and the longest `retry-after` that is
/// respected.
pub const RETRY_CAP_DEFAULT: Duration = Duration::from_secs(30);

/// Default time limit of an approval (G10).
pub const APPROVAL_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);
/// Maximum amount of a cost, of a budget and of a price per million tokens (G6).
pub const AMOUNT_MAX: u128 = 10_u128.pow(24);
/// Maximum decimals to which the costs in a unit are rounded; configured as `decimals`.
pub const AMOUNT_DECIMALS_MAX: u8 = 9;
/// Maximum number of budgets of one agent (G6).
pub const BUDGETS_MAX: usize = 64;
/// Maximum number of grants of one session (G9).
pub const GRANTS_MAX: usize = 64;
/// Maximum number of steps of a preflight plan (G14).
pub const PREFLIGHT_STEPS_MAX: usize = 64;
/// Maximum number of warnings of a preflight plan.
pub const PREFLIGHT_WARNINGS_MAX: usize = 32;
/// Maximum bytes of each text of a preflight plan, and of a tool name in it.
pub const PREFLIGHT_TEXT_BYTES_MAX: usize = 1024;
/// Maximum number of elicitations of one attempt (T1). Further ones are cancelled.
pub const ELICITATIONS_PER_ATTEMPT_MAX: u32 = 16;
/// Maximum bytes of the message of an elicitation; the rest is cut.
pub const ELICITATION_MESSAGE_BYTES_MAX: usize = 8 * 1024;
/// Maximum bytes of the form schema of an elicitation.
pub const ELICITATION_SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// Maximum bytes of the page address of an elicitation.
pub const ELICITATION_URL_BYTES_MAX: usize = 2 * 1024;
/// Maximum bytes of the filled-in values of an elicitation form.
pub const ELICITATION_ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of closed approvals that a live session keeps in memory to answer repeated
/// decisions. Older ones are read from the store.
pub const CLOSED_APPROVALS_MAX: usize = 256;

/// Maximum time for which the catalog may allow results to be reused (T6).
pub const RESULT_CACHE_TTL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Maximum number of feedback entries of one session (C5).
pub const FEEDBACK_PER_SESSION_MAX: u32 = 10_000;

/// Maximum number of tools of one server. Further tools are ignored.
pub const TOOLS_PER_SERVER_MAX: usize = 1_000;
/// Maximum number of short tool names that one server owns, including those that it does not list any
/// more.
pub const SHORT_NAMES_PER_SERVER_MAX: usize = 4_000;
/// Maximum bytes of a tool's description.
pub const TOOL_DESCRIPTION_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of values in a tool's schema, both as written and with references resolved.
pub const SCHEMA_NODES_MAX: usize = 50_000;
/// Maximum nesting levels of a tool's schema.
pub const SCHEMA_DEPTH_MAX: usize = 64;
/// Maximum bytes of keys and strings in a tool's schema.
pub const SCHEMA_TEXT_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of times that a recursive definition of a schema may be validated for one call.
pub const SCHEMA_CHECKS_MAX: usize = 1 << 16;
/// Maximum number of distinct references in a tool's schema.
pub const SCHEMA_DISTINCT_REFERENCES_MAX: usize = 100;
/// Maximum bytes of one compiled pattern of a tool's schema.
pub const SCHEMA_PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Maximum number of blocked tools in the settings of one user.
pub const BLOCKED_TOOLS_MAX: usize = 1_000;
/// Maximum number of allowed regions in the settings of one user.
pub const ALLOWED_REGIONS_MAX: usize = 1_000;
/// Maximum number of ceilings of agents, and of users, each in configuration and in the database.
pub const CEILINGS_MAX: usize = 1_000;
/// Maximum number of budget limits of one ceiling.
pub const CEILING_BUDGETS_MAX: usize = 16;
/// Maximum characters of a budget's unit.
pub const BUDGET_UNIT_CHARS_MAX: usize = 16;
/// Maximum number of retries that the catalog may set for a tool.
pub const RETRIES_MAX: u32 = 20;
/// Maximum `result_bytes_max` that the catalog may set for a tool.
pub const TOOL_RESULT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Maximum bytes of one catalog expression (G5).
pub const EXPRESSION_BYTES_MAX: usize = 4 * 1024;
/// Maximum number of operators and brackets in one expression.
pub const EXPRESSION_OPERATORS_MAX: usize = 256;
/// Maximum recursion depth of the expression parser.
pub const EXPRESSION_NESTING_MAX: u16 = 24;
/// Maximum nesting levels of a parsed expression.
pub const EXPRESSION_DEPTH_MAX: usize = 24;
/// Maximum number of nested or chained loops (`all`, `exists`, `map` …) of an expression.
pub const EXPRESSION_LOOPS_MAX: usize = 2;
/// Maximum work of evaluating one expression: evaluated nodes times the size of their inputs.
pub const EXPRESSION_WORK_MAX: u64 = 1_000_000_000;
/// Maximum nesting levels of arguments that expressions evaluate.
pub const EXPRESSION_ARGUMENTS_DEPTH_MAX: usize = 128;
/// Maximum number of constraints of one catalog entry.
pub const CATALOG_ENTRY_CONSTRAINTS_MAX: usize = 64;
/// Maximum bytes of the key that an `exclusive` expression yields (T8).
pub const EXCLUSIVE_KEY_BYTES_MAX: usize = 256;
