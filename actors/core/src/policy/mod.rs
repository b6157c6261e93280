//! Governance as data, and one pure judge over it (G1 to G7).
//!
//! [`catalog`] says what each tool is, [`settings`] what a user allows, [`matrix`] what a level of
//! autonomy may do with a level of risk, and [`judge`] brings them together.

pub mod catalog;
pub mod judge;
pub mod matrix;
pub mod risk;
pub mod settings;
pub mod tool;

pub use judge::{Denial, Verdict, judge};
pub use matrix::{Matrix, Ruling};
pub use risk::{Autonomy, Risk, RiskSource};
pub use settings::Settings;
pub use tool::{Tool, ToolBook};
