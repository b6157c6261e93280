//! Policy as a table: autonomy × risk → ruling (G3).
//!
//! The presets stand here as tables one can read; configuration may start from one and change
//! cells. Who is asked, and what happens when nobody is there, is the [`judge`](super::judge())'s.

use super::{Autonomy, Risk, Settings};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;
use utoipa::ToSchema;

/// What the table says of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixVerdict {
    /// Run it.
    Allow,
    /// Ask a person.
    Ask,
    /// Don't.
    Deny,
}

/// What stands in one cell of the table: a ruling, or a condition that leads to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MatrixCell {
    /// Run it.
    Allow,
    /// Ask a person.
    Ask,
    /// Ask a person; run it if the user's `require_confirmation` is false.
    Confirm,
    /// Ask a person; run it if it has a cost and a budget has room for it.
    Budget,
    /// Don't.
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

/// A table that has a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatrixPreset {
    /// The default.
    #[default]
    Interactive,
    /// [`Preset::Interactive`], but nothing critical ever, and L1 changes nothing that matters.
    Strict,
    /// [`Preset::Interactive`], but every deny becomes a question.
    AskFirst,
}

impl MatrixPreset {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Strict, Self::AskFirst];

    /// The name in configuration.
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

/// One row a level of autonomy, one column a level of risk, both in order.
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

/// The table. In configuration it is a preset's name (`"strict"`), or `{ preset = …, L1 = {
/// write_high_risk = "deny" }, … }`: the preset's table with some cells changed.
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
    /// What stands in the cell.
    pub fn cell(&self, autonomy: Autonomy, risk: Risk) -> MatrixCell {
        self.cells[row(autonomy)][column(risk)]
    }

    /// What the table says for a user with `settings`. `is_affordable` says that the call has a
    /// cost, and that a budget has room for it.
    pub fn verdict(
        &self,
        autonomy: Autonomy,
        risk: Risk,
        settings: &Settings,
        is_affordable: bool,
    ) -> MatrixVerdict {
        self.cell(autonomy, risk).resolve(settings, is_affordable)
    }

    /// The same table with another cell.
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

/// A row as it is written in configuration: what is not named stays the preset's.
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
    fn from(changes: MatrixOverrides) -> Self {
        let mut cells = changes.preset.cells();
        let rows = [changes.l0, changes.l1, changes.l2, changes.l3];
        for (row, changed) in cells.iter_mut().zip(rows) {
            let RowOverrides { read_only, write_low_risk, write_high_risk, critical } = changed;
            let changed = [read_only, write_low_risk, write_high_risk, critical];
            for (cell, changed) in row.iter_mut().zip(changed) {
                *cell = changed.unwrap_or(*cell);
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

    fn read(written: serde_json::Value) -> Result<Matrix, String> {
        serde_json::from_value(written).map_err(|error| error.to_string())
    }

    #[test]
    fn g3_presets_are_known_by_name() {
        for preset in MatrixPreset::ALL {
            assert_eq!(read(json!(preset.name())), Ok(preset.into()));
        }
        let error = read(json!("lax")).unwrap_err();
        assert!(error.contains("lax") && error.contains("ask_first"), "{error}");
    }

    #[test]
    fn g3_strict_and_ask_first_differ_from_the_default_only_where_the_spec_says() {
        for autonomy in Autonomy::ALL {
            for risk in Risk::ALL {
                let usual = Matrix::default().cell(autonomy, risk);
                let denied_by_strict = risk == Risk::Critical
                    || (autonomy, risk) == (Autonomy::Recommendations, Risk::WriteHighRisk);
                let strict = if denied_by_strict { DENY } else { usual };
                assert_eq!(Matrix::from(MatrixPreset::Strict).cell(autonomy, risk), strict);
                let ask_first = if usual == DENY { ASK } else { usual };
                assert_eq!(Matrix::from(MatrixPreset::AskFirst).cell(autonomy, risk), ask_first);
            }
        }
    }

    #[test]
    fn g3_cells_can_be_changed_in_configuration() {
        let changed = read(json!({"preset": "strict", "L1": {"moderate": "ask"}}));
        let expected = Matrix::from(MatrixPreset::Strict).with_cell(
            Autonomy::Recommendations,
            Risk::WriteHighRisk,
            ASK,
        );
        assert_eq!(changed, Ok(expected));
        assert_eq!(read(json!({})), Ok(Matrix::default()));
    }

    #[test]
    fn unknown_rows_columns_and_cells_are_refused() {
        for wrong in [json!({"L4": {}}), json!({"L1": {"high": "ask"}}), json!({"L1": {"low": 1}})]
        {
            assert!(read(wrong.clone()).is_err(), "{wrong}");
        }
        let twice = json!({"L1": {"low": "ask", "write_low_risk": "deny"}});
        assert!(read(twice).unwrap_err().contains("duplicate"));
    }
}
