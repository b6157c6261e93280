//! How dangerous a tool is, and how much an agent may do by itself (G1, G2).

use serde::{Deserialize, Serialize, de};
use std::fmt;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

/// The risk of a tool, in order.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    ToSchema,
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

impl fmt::Display for RiskSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Catalog => f.write_str("catalog"),
            Self::CatalogGlob { glob } => write!(f, "catalog `{glob}`"),
            Self::Annotation { hint } => write!(f, "annotation {hint}"),
            Self::NameWord { word } => write!(f, "the word `{word}` in its name"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// How much an agent may do without asking (G2). Serialised as its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(into = "u8")]
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

impl fmt::Display for Autonomy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (L{})", self.name(), self.level())
    }
}

impl PartialSchema for Autonomy {
    fn schema() -> RefOr<Schema> {
        let words = "How much an agent may do without asking: 0 READ_ONLY, 1 RECOMMENDATIONS, \
                     2 ASSISTED, 3 SUPERVISED";
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .enum_values(Some(Self::ALL.map(Self::level)))
            .description(Some(words))
            .into()
    }
}

impl ToSchema for Autonomy {}

impl From<Autonomy> for u8 {
    fn from(autonomy: Autonomy) -> Self {
        autonomy.level()
    }
}

impl TryFrom<u8> for Autonomy {
    type Error = String;
    fn try_from(level: u8) -> Result<Self, String> {
        Self::from_number(&level)
    }
}

impl Autonomy {
    fn from_number(number: &(impl fmt::Display + Copy + TryInto<u8>)) -> Result<Self, String> {
        let level: Option<u8> = (*number).try_into().ok();
        Self::ALL
            .into_iter()
            .find(|autonomy| Some(autonomy.level()) == level)
            .ok_or_else(|| format!("autonomy_level must be 0, 1, 2 or 3, not {number}"))
    }
}

impl<'de> Deserialize<'de> for Autonomy {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AutonomyVisitor;
        impl de::Visitor<'_> for AutonomyVisitor {
            type Value = Autonomy;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an autonomy level: 0, 1, 2 or 3")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Autonomy, E> {
                Autonomy::from_number(&number).map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Autonomy, E> {
                Autonomy::from_number(&number).map_err(E::custom)
            }
        }
        deserializer.deserialize_u8(AutonomyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g2_levels_are_numbers_and_others_are_refused_by_name() {
        for autonomy in Autonomy::ALL {
            let written = serde_json::to_string(&autonomy).unwrap();
            assert_eq!(written, autonomy.level().to_string());
            assert_eq!(serde_json::from_str::<Autonomy>(&written).unwrap(), autonomy);
        }
        for (wrong, named) in [("7", "not 7"), ("-1", "not -1"), ("300", "not 300")] {
            let error = serde_json::from_str::<Autonomy>(wrong).unwrap_err().to_string();
            let expected = format!("autonomy_level must be 0, 1, 2 or 3, {named}");
            assert!(error.starts_with(&expected), "{error}");
        }
        for wrong in ["1.5", "\"2\"", "null"] {
            assert!(serde_json::from_str::<Autonomy>(wrong).is_err(), "{wrong}");
        }
    }
}
