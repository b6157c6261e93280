//! The policy table: autonomy × risk → verdict (G3).
//!
//! The presets are defined here as literal tables. Configuration starts from one preset and may
//! change cells. [`judge_call`](super::judge_call) evaluates the table and handles headless agents.

use super::{Autonomy, Risk, Settings};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;
use utoipa::ToSchema;

/// The verdict of the table for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixVerdict {
    /// The call may run.
    Allow,
    /// The call needs approval.
    Ask,
    /// The call must not run.
    Deny,
}

/// The content of one cell: a verdict, or a condition that leads to a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MatrixCell {
    /// The call may run.
    Allow,
    /// The call needs approval.
    Ask,
    /// The call needs approval, unless the user's `require_confirmation` is false.
    Confirm,
    /// The call needs approval, unless it has a cost and a budget covers the cost.
    Budget,
    /// The call must not run.
    Deny,
}

impl MatrixCell {
    fn resolve(self, settings: &Settings, is_affordable: bool) -> MatrixVerdict {
        match self {
            Self::Allow => MatrixVerdict::Allow,
            Self::Ask => MatrixVerdict::Ask,
            Self::Budget if is_affordable => MatrixVerdict::Allow,
            Self::Budget => MatrixVerdict::Ask,
            Self::Confirm if settings.require_confirmation => MatrixVerdict::Ask,
            Self::Confirm => MatrixVerdict::Allow,
            Self::Deny => MatrixVerdict::Deny,
        }
    }
}

/// A predefined table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatrixPreset {
    /// The default.
    #[default]
    Interactive,
    /// [`MatrixPreset::Interactive`], but denies every critical call, and write_high_risk at L1.
    Strict,
    /// [`MatrixPreset::Interactive`], but asks in every cell that denies.
    AskFirst,
}

impl MatrixPreset {
    /// All presets.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Strict, Self::AskFirst];

    /// Returns the name in configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Strict => "strict",
            Self::AskFirst => "ask_first",
        }
    }

    fn cells(self) -> MatrixCells {
        match self {
            Self::Interactive => INTERACTIVE,
            Self::Strict => STRICT,
            Self::AskFirst => ASK_FIRST,
        }
    }
}

/// The cells: one row per autonomy level, one column per risk, both in ascending order.
type MatrixCells = [[MatrixCell; Risk::ALL.len()]; Autonomy::ALL.len()];

const ALLOW: MatrixCell = MatrixCell::Allow;
const ASK: MatrixCell = MatrixCell::Ask;
const BUDGET: MatrixCell = MatrixCell::Budget;
const CONFIRM: MatrixCell = MatrixCell::Confirm;
const DENY: MatrixCell = MatrixCell::Deny;

#[rustfmt::skip]
const INTERACTIVE: MatrixCells = [
    //   read_only  write_low  write_high  critical
    /* L0 */ [ALLOW, DENY,     DENY,       DENY],
    /* L1 */ [ALLOW, ALLOW,    ASK,        DENY],
    /* L2 */ [ALLOW, ALLOW,    CONFIRM,    ASK],
    /* L3 */ [ALLOW, ALLOW,    ALLOW,      BUDGET],
];

#[rustfmt::skip]
const STRICT: MatrixCells = [
    //   read_only  write_low  write_high  critical
    /* L0 */ [ALLOW, DENY,     DENY,       DENY],
    /* L1 */ [ALLOW, ALLOW,    DENY,       DENY],
    /* L2 */ [ALLOW, ALLOW,    CONFIRM,    DENY],
    /* L3 */ [ALLOW, ALLOW,    ALLOW,      DENY],
];

#[rustfmt::skip]
const ASK_FIRST: MatrixCells = [
    //   read_only  write_low  write_high  critical
    /* L0 */ [ALLOW, ASK,      ASK,        ASK],
    /* L1 */ [ALLOW, ALLOW,    ASK,        ASK],
    /* L2 */ [ALLOW, ALLOW,    CONFIRM,    ASK],
    /* L3 */ [ALLOW, ALLOW,    ALLOW,      BUDGET],
];

/// The policy table. Configured as the name of a preset (`"strict"`), or as `{ preset = …, L1 = {
/// write_high_risk = "deny" }, … }`: the table of the preset with some cells changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    cells: MatrixCells,
}

impl Default for Matrix {
    fn default() -> Self {
        MatrixPreset::default().into()
    }
}

impl From<MatrixPreset> for Matrix {
    fn from(preset: MatrixPreset) -> Self {
        Self { cells: preset.cells() }
    }
}

impl Matrix {
    /// Returns the content of a cell.
    pub fn cell(&self, autonomy: Autonomy, risk: Risk) -> MatrixCell {
        self.cells[row(autonomy)][column(risk)]
    }

    /// Returns the verdict for a user with `settings`. `is_affordable` is true if the call has a
    /// cost and a budget covers it.
    pub fn verdict(
        &self,
        autonomy: Autonomy,
        risk: Risk,
        settings: &Settings,
        is_affordable: bool,
    ) -> MatrixVerdict {
        self.cell(autonomy, risk).resolve(settings, is_affordable)
    }

    /// Returns the table with one cell changed.
    #[must_use]
    pub fn with_cell(mut self, autonomy: Autonomy, risk: Risk, cell: MatrixCell) -> Self {
        self.cells[row(autonomy)][column(risk)] = cell;
        self
    }
}

fn row(autonomy: Autonomy) -> usize {
    usize::from(autonomy.level())
}

fn column(risk: Risk) -> usize {
    match risk {
        Risk::ReadOnly => 0,
        Risk::WriteLowRisk => 1,
        Risk::WriteHighRisk => 2,
        Risk::Critical => 3,
    }
}

/// A row in configuration. Columns that are absent keep the value of the preset.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct RowOverrides {
    read_only: Option<MatrixCell>,
    #[serde(alias = "low")]
    write_low_risk: Option<MatrixCell>,
    #[serde(alias = "moderate")]
    write_high_risk: Option<MatrixCell>,
    critical: Option<MatrixCell>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct MatrixOverrides {
    preset: MatrixPreset,
    #[serde(rename = "L0")]
    l0: RowOverrides,
    #[serde(rename = "L1")]
    l1: RowOverrides,
    #[serde(rename = "L2")]
    l2: RowOverrides,
    #[serde(rename = "L3")]
    l3: RowOverrides,
}

impl From<MatrixOverrides> for Matrix {
    fn from(overrides: MatrixOverrides) -> Self {
        let mut cells = overrides.preset.cells();
        let rows = [overrides.l0, overrides.l1, overrides.l2, overrides.l3];
        for (row, overrides) in cells.iter_mut().zip(rows) {
            let RowOverrides { read_only, write_low_risk, write_high_risk, critical } = overrides;
            let overrides = [read_only, write_low_risk, write_high_risk, critical];
            for (cell, value) in row.iter_mut().zip(overrides) {
                *cell = value.unwrap_or(*cell);
            }
        }
        Self { cells }
    }
}

impl<'de> Deserialize<'de> for Matrix {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MatrixVisitor;
        impl<'de> de::Visitor<'de> for MatrixVisitor {
            type Value = Matrix;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a preset (interactive, strict or ask_first) or a table of cells")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Matrix, E> {
                let preset = MatrixPreset::ALL.into_iter().find(|preset| preset.name() == name);
                preset
                    .map(Matrix::from)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Matrix, A::Error> {
                MatrixOverrides::deserialize(de::value::MapAccessDeserializer::new(map))
                    .map(Matrix::from)
            }
        }
        deserializer.deserialize_any(MatrixVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(json: serde_json::Value) -> Result<Matrix, String> {
        serde_json::from_value(json).map_err(|error| error.to_string())
    }

    #[test]
    fn g3_preset_is_selected_by_name() {
        for preset in MatrixPreset::ALL {
            assert_eq!(parse(json!(preset.name())), Ok(preset.into()));
        }
        let error = parse(json!("lax")).unwrap_err();
        assert!(error.contains("lax") && error.contains("ask_first"), "{error}");
    }

    #[test]
    fn g3_presets_differ_from_default_as_specified() {
        for autonomy in Autonomy::ALL {
            for risk in Risk::ALL {
                let default_cell = Matrix::default().cell(autonomy, risk);
                let denied_by_strict = risk == Risk::Critical
                    || (autonomy, risk) == (Autonomy::Recommendations, Risk::WriteHighRisk);
                let strict = if denied_by_strict { DENY } else { default_cell };
                assert_eq!(Matrix::from(MatrixPreset::Strict).cell(autonomy, risk), strict);
                let ask_first = if default_cell == DENY { ASK } else { default_cell };
                assert_eq!(Matrix::from(MatrixPreset::AskFirst).cell(autonomy, risk), ask_first);
            }
        }
    }

    #[test]
    fn g3_configuration_overrides_cells() {
        let changed = parse(json!({"preset": "strict", "L1": {"moderate": "ask"}}));
        let expected = Matrix::from(MatrixPreset::Strict).with_cell(
            Autonomy::Recommendations,
            Risk::WriteHighRisk,
            ASK,
        );
        assert_eq!(changed, Ok(expected));
        assert_eq!(parse(json!({})), Ok(Matrix::default()));
    }

    #[test]
    fn g3_unknown_row_column_or_cell_is_rejected() {
        for invalid in
            [json!({"L4": {}}), json!({"L1": {"high": "ask"}}), json!({"L1": {"low": 1}})]
        {
            assert!(parse(invalid.clone()).is_err(), "{invalid}");
        }
        let duplicate = json!({"L1": {"low": "ask", "write_low_risk": "deny"}});
        assert!(parse(duplicate).unwrap_err().contains("duplicate"));
    }
}
