//! The permission policy as data, and one pure function that evaluates it (G1 to G7).
//!
//! [`catalog`] describes the tools, [`settings`] holds what a user allows, [`ceiling`] what an
//! administrator permits at most, [`matrix`] maps an autonomy level and a risk to a verdict, [`expression`] evaluates conditions on a call's
//! arguments, and [`judge_call`] combines them.
//!
//! The policy does not know sessions, approvals or grants.

pub mod budget_limit;
pub mod catalog;
mod catalog_listing;
mod catalog_match;
pub mod ceiling;
mod classify;
pub mod constraint;
pub mod cost;
mod critical_rule;
pub mod effective_ceiling;
pub mod expression;
pub mod judge;
pub mod matrix;
mod name_words;
pub mod risk;
pub mod schema;
pub mod settings;
pub mod tool;
mod tool_names;
pub mod units;

pub use budget_limit::{BudgetLimit, BudgetPeriod};
pub use catalog::{
    Catalog, RemoteTool, ServerProfile, ServerTools, ToolAnnotations, UnknownToolPolicy,
};
pub use catalog_listing::ListedEntry;
pub use ceiling::{
    Ceiling, CeilingExceeded, CeilingScope, Ceilings, CeilingsTable, InvalidCeilings,
};
pub use constraint::Constraint;
pub use cost::{Cost, CostRule};
pub use critical_rule::{
    Approver, CallParties, CriticalApprovalError, CriticalRule, InvolvedParty,
};
pub use effective_ceiling::{CeilingBudget, CeilingLimit, EffectiveCeiling, OwnedLimit};
pub use expression::{Expression, ExpressionContext};
pub use judge::{Denial, JudgeContext, Verdict, judge_call, judge_tool};
pub use matrix::{Matrix, MatrixCell, MatrixPreset, MatrixVerdict};
pub use risk::{Autonomy, Risk, RiskSource};
pub use settings::{
    Settings, SettingsError, SettingsPatch, TooManyEntries, WideningError, session_settings,
};
pub use tool::{Tool, ToolRegistry};
pub use tool_names::{
    BUILT_IN_SERVER, NameOwners, SERVER_NAME_CHARS_MAX, server_in_tool_names, validate_server_name,
};
pub use units::Units;
