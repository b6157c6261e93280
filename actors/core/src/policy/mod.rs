//! Governance as data, and one pure judge over it (G1 to G7).
//!
//! [`catalog`] says what each tool is, [`settings`] what a user allows, [`matrix`] what a level of
//! autonomy may do with a level of risk, and [`judge`](judge()) brings them together.

pub mod budget;
pub mod catalog;
mod classify;
pub mod judge;
pub mod matrix;
mod names;
pub mod risk;
pub mod schema;
pub mod settings;
pub mod tool;

pub use budget::{BudgetLimit, Period};
pub use catalog::{Annotations, Catalog, RemoteTool, ServerFacts, ServerTools, UnknownTools};
pub use judge::{Denial, Verdict, judge};
pub use matrix::{Cell, Matrix, Preset, Ruling};
pub use risk::{Autonomy, Risk, RiskSource};
pub use settings::{Settings, SettingsError, SettingsPatch, TooMany, Widening, narrowed};
pub use tool::{Tool, ToolBook};
