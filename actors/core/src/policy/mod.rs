//! Governance as data, and one pure judge over it (G1 to G7).
//!
//! [`catalog`] says what each tool is, [`settings`] what a user allows, [`matrix`] what a level of
//! autonomy may do with a level of risk, [`expression`] what a call's arguments say, and
//! [`judge`](judge()) brings them together.

pub mod budget;
pub mod catalog;
mod classify;
pub mod constraint;
pub mod cost;
pub mod expression;
pub mod judge;
pub mod matrix;
mod names;
pub mod risk;
pub mod schema;
pub mod settings;
pub mod tool;

pub use budget::{BudgetLimit, Period};
pub use catalog::{Annotations, Catalog, RemoteTool, ServerFacts, ServerTools, UnknownTools};
pub use constraint::Constraint;
pub use cost::{Cost, CostRule};
pub use expression::{Expression, Facts};
pub use judge::{Denial, JudgeContext, Verdict, judge, judge_any};
pub use matrix::{Cell, Matrix, Preset, Ruling};
pub use names::BUILT_IN;
pub use risk::{Autonomy, Risk, RiskSource};
pub use settings::{Settings, SettingsError, SettingsPatch, TooMany, Widening, narrowed};
pub use tool::{Tool, ToolBook};
