//! How dangerous a tool is, and how much an agent may do by itself (G1, G2).

use serde::{Deserialize, Serialize};
use std::fmt;

/// The risk of a tool, in order.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Changes nothing.
    ReadOnly,
    /// Changes little, and can be undone.
    #[serde(alias = "low")]
    WriteLowRisk,
    /// Changes what matters. The default for tools nobody described.
    #[default]
    #[serde(alias = "moderate")]
    WriteHighRisk,
    /// Can't be undone, or costs dearly.
    Critical,
}

impl Risk {
    /// All of them, in order.
    pub const ALL: [Self; 4] =
        [Self::ReadOnly, Self::WriteLowRisk, Self::WriteHighRisk, Self::Critical];

    /// The name in configuration and on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::WriteLowRisk => "write_low_risk",
            Self::WriteHighRisk => "write_high_risk",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a tool's risk comes from; the first that matches wins (G1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RiskSource {
    /// The catalog names the tool.
    Catalog,
    /// A glob of the catalog matches the name.
    CatalogGlob {
        /// The glob.
        glob: String,
    },
    /// Annotations of a server marked `trusted`.
    Annotation {
        /// The hint that decided.
        hint: String,
    },
    /// A word of the name.
    NameWord {
        /// The word.
        word: String,
    },
    /// Nothing said anything.
    Default,
}

/// How much an agent may do without asking (G2). Serialised as its number.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(into = "u8", try_from = "u8")]
pub enum Autonomy {
    /// L0.
    ReadOnly,
    /// L1, the default.
    #[default]
    Recommendations,
    /// L2.
    Assisted,
    /// L3.
    Supervised,
}

impl Autonomy {
    /// All of them, in order.
    pub const ALL: [Self; 4] =
        [Self::ReadOnly, Self::Recommendations, Self::Assisted, Self::Supervised];

    /// 0 to 3.
    pub fn level(self) -> u8 {
        match self {
            Self::ReadOnly => 0,
            Self::Recommendations => 1,
            Self::Assisted => 2,
            Self::Supervised => 3,
        }
    }

    /// The name people read.
    pub fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "READ_ONLY",
            Self::Recommendations => "RECOMMENDATIONS",
            Self::Assisted => "ASSISTED",
            Self::Supervised => "SUPERVISED",
        }
    }
}

impl From<Autonomy> for u8 {
    fn from(autonomy: Autonomy) -> Self {
        autonomy.level()
    }
}

impl TryFrom<u8> for Autonomy {
    type Error = String;
    fn try_from(level: u8) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|autonomy| autonomy.level() == level)
            .ok_or_else(|| format!("autonomy_level must be 0, 1, 2 or 3, not {level}"))
    }
}
