//! Risk levels of tools and autonomy levels of agents (G1, G2).

use serde::{Deserialize, Serialize, de};
use std::fmt;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, RefOr, Schema, Type},
};

/// The risk of a tool, in ascending order.
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
    /// Makes a small change that can be undone.
    #[serde(alias = "low")]
    WriteLowRisk,
    /// Makes a significant change. The default for a tool whose risk no source states.
    #[default]
    #[serde(alias = "moderate")]
    WriteHighRisk,
    /// Can't be undone, or is expensive.
    Critical,
}

impl Risk {
    /// All levels, in ascending order.
    pub const ALL: [Self; 4] =
        [Self::ReadOnly, Self::WriteLowRisk, Self::WriteHighRisk, Self::Critical];

    /// Returns the name in configuration and on the wire.
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

/// The source of a tool's risk. The first source that matches applies (G1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RiskSource {
    /// A catalog entry with the exact name of the tool.
    Catalog,
    /// A catalog entry with a glob that matches the name.
    CatalogGlob {
        /// The glob.
        glob: String,
    },
    /// An annotation of a server that is marked `trusted`.
    Annotation {
        /// The hint that determined the risk.
        hint: String,
    },
    /// A word in the tool's name.
    NameWord {
        /// The word.
        word: String,
    },
    /// No source matches; the default applies.
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

/// The autonomy level of an agent (G2). Serialized as its number.
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
    /// All levels, in ascending order.
    pub const ALL: [Self; 4] =
        [Self::ReadOnly, Self::Recommendations, Self::Assisted, Self::Supervised];

    /// Returns the number of the level, 0 to 3.
    pub fn level(self) -> u8 {
        match self {
            Self::ReadOnly => 0,
            Self::Recommendations => 1,
            Self::Assisted => 2,
            Self::Supervised => 3,
        }
    }

    /// Returns the display name.
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
        let description = "Autonomy level of an agent: 0 READ_ONLY, 1 RECOMMENDATIONS, \
                           2 ASSISTED, 3 SUPERVISED";
        ObjectBuilder::new()
            .schema_type(Type::Integer)
            .enum_values(Some(Self::ALL.map(Self::level)))
            .description(Some(description))
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
        Self::from_number(level)
            .ok_or_else(|| format!("an autonomy level is 0, 1, 2 or 3, not {level}"))
    }
}

impl Autonomy {
    fn from_number(number: impl TryInto<u8>) -> Option<Self> {
        let level: u8 = number.try_into().ok()?;
        Self::ALL.into_iter().find(|autonomy| autonomy.level() == level)
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
                Autonomy::from_number(number)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Autonomy, E> {
                Autonomy::from_number(number)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
        }
        deserializer.deserialize_u8(AutonomyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g2_autonomy_level_parses_only_from_valid_number() {
        for autonomy in Autonomy::ALL {
            let encoded = serde_json::to_string(&autonomy).unwrap();
            assert_eq!(encoded, autonomy.level().to_string());
            assert_eq!(serde_json::from_str::<Autonomy>(&encoded).unwrap(), autonomy);
        }
        for invalid in ["7", "-1", "300"] {
            let error = serde_json::from_str::<Autonomy>(invalid).unwrap_err().to_string();
            let expected = format!(
                "invalid value: integer `{invalid}`, expected an autonomy level: 0, 1, 2 or 3"
            );
            assert!(error.starts_with(&expected), "{error}");
        }
        for invalid in ["1.5", "\"2\"", "null"] {
            assert!(serde_json::from_str::<Autonomy>(invalid).is_err(), "{invalid}");
        }
    }
}
