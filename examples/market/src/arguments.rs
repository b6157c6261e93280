//! The arguments of every tool: one struct per tool, which generates the tool's JSON Schema and
//! parses its calls.
//!
//! The comments of the fields are the descriptions in the schema and are written for a model. A value
//! that the schema forbids does not parse.

use std::{
    fmt,
    num::{NonZeroU32, NonZeroU64},
};

use rmcp::schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

/// Maximum characters of a name, query or recipient.
const TEXT_CHARS_MAX: usize = 100;
/// Maximum duration of a scan in seconds.
const SCAN_SECONDS_MAX: f64 = 600.0;
/// Maximum period of war losses in days.
const DAYS_MAX: u32 = 90;
/// Maximum entries of a ranked list.
const LIMIT_MAX: u32 = 50;
/// Maximum item types in one call.
const TYPE_IDS_MAX: usize = 50;
/// Maximum quantity of an order or list entry.
const QUANTITY_MAX: u64 = 1_000_000_000;
/// Minimum price or amount in ISK.
const ISK_MIN: f64 = 0.01;
/// Maximum price or amount in ISK.
const ISK_MAX: f64 = 1_000_000_000_000.0;

macro_rules! arguments {
    ($($(#[$meta:meta])* struct $name:ident { $($body:tt)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        #[schemars(crate = "rmcp::schemars")]
        pub(crate) struct $name { $($body)* }
    )*};
}

arguments! {
    /// `search_item`
    struct SearchItem {
        /// Part of the item's name, in any case, e.g. "trit"
        #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
        #[serde(deserialize_with = "text")]
        pub(crate) query: String,
    }

    /// `get_item_info`, `compare_regions` and `choose_hangar`
    struct TypeArgs {
        /// Item type id, e.g. 34 for Tritanium
        pub(crate) type_id: NonZeroU32,
    }

    /// `get_market_stats` and `get_production_economics`
    struct RegionTypeArgs {
        /// Region id, e.g. 10000002 for The Forge
        pub(crate) region_id: NonZeroU32,
        /// Item type id, e.g. 34 for Tritanium
        pub(crate) type_id: NonZeroU32,
    }

    /// `get_market_prices`
    struct MarketPrices {
        /// Item type ids; default every traded item
        #[schemars(length(min = 1, max = TYPE_IDS_MAX))]
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "type_ids")]
        pub(crate) type_ids: Option<Vec<NonZeroU32>>,
    }

    /// `get_war_losses`
    struct WarLosses {
        /// Region id, e.g. 10000030 for Heimatar
        pub(crate) region_id: NonZeroU32,
        /// Length of the period in days, 1 to 90; default 7
        #[schemars(range(min = 1, max = DAYS_MAX))]
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "days")]
        pub(crate) days: Option<u32>,
    }

    /// `get_production_cost`
    struct ProductionCost {
        /// Type id of the thing to build, e.g. 587 for Rifter
        pub(crate) type_id: NonZeroU32,
        /// Region where the materials are bought; default 10000002 (The Forge)
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) region_id: Option<NonZeroU32>,
    }

    /// `get_economic_opportunities`
    struct Opportunities {
        /// Region id, e.g. 10000002 for The Forge
        pub(crate) region_id: NonZeroU32,
        /// Maximum number of entries, 1 to 50; default 5
        #[schemars(range(min = 1, max = LIMIT_MAX))]
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "limit")]
        pub(crate) limit: Option<u32>,
    }

    /// Tools without arguments.
    struct NoArgs {}

    /// `get_shopping_list` and `delete_shopping_list`
    struct ListArgs {
        /// Shopping list id, as returned by create_shopping_list
        pub(crate) list_id: NonZeroU64,
    }

    /// `export_shopping_list`
    struct ExportList {
        /// Shopping list id, as returned by create_shopping_list
        pub(crate) list_id: NonZeroU64,
        /// "multibuy" (one line of name and quantity per item, the default) or "csv"
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(crate) format: Option<ExportFormat>,
    }

    /// `scan_opportunities`
    struct Scan {
        /// Region to scan, e.g. 10000002 for The Forge
        pub(crate) region_id: NonZeroU32,
        /// Duration of the scan, 0 to 600 seconds; default 2
        #[schemars(range(min = 0.0, max = SCAN_SECONDS_MAX))]
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "scan_seconds")]
        pub(crate) seconds: Option<f64>,
    }

    /// `create_shopping_list`
    struct CreateList {
        /// Name of the new list
        #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
        #[serde(deserialize_with = "text")]
        pub(crate) name: String,
    }

    /// `add_shopping_item`
    struct AddItem {
        /// Shopping list id, as returned by create_shopping_list
        pub(crate) list_id: NonZeroU64,
        /// Item type id, e.g. 34 for Tritanium
        pub(crate) type_id: NonZeroU32,
        /// Number of units to add
        #[schemars(range(min = 1, max = QUANTITY_MAX))]
        #[serde(deserialize_with = "quantity")]
        pub(crate) quantity: u64,
    }

    /// `create_bookmark`
    struct CreateBookmark {
        /// Name of the bookmark
        #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
        #[serde(deserialize_with = "text")]
        pub(crate) name: String,
        /// Solar system it points to, e.g. "Jita"
        #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
        #[serde(deserialize_with = "text")]
        pub(crate) system: String,
    }

    /// `update_bookmark`
    struct UpdateBookmark {
        /// Bookmark id, as returned by create_bookmark or list_bookmarks
        pub(crate) bookmark_id: NonZeroU64,
        /// The new name
        #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
        #[serde(deserialize_with = "text")]
        pub(crate) name: String,
    }

    /// `market_order_create`
    struct CreateOrder {
        /// Item type id, e.g. 34 for Tritanium
        pub(crate) type_id: NonZeroU32,
        /// Region id, e.g. 10000002 for The Forge
        pub(crate) region_id: NonZeroU32,
        /// "buy" or "sell"
        pub(crate) side: Side,
        /// Number of units
        #[schemars(range(min = 1, max = QUANTITY_MAX))]
        #[serde(deserialize_with = "quantity")]
        pub(crate) quantity: u64,
        /// ISK per unit; default the best price on the market
        #[schemars(range(min = ISK_MIN, max = ISK_MAX))]
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "price")]
        pub(crate) price: Option<f64>,
    }

    /// `wallet_transfer`
    struct Transfer {
        /// Name of the character or corporation to pay
        #[schemars(length(min = 1, max = TEXT_CHARS_MAX))]
        #[serde(deserialize_with = "text")]
        pub(crate) to: String,
        /// Amount in ISK, at least 0.01
        #[schemars(range(min = ISK_MIN, max = ISK_MAX))]
        #[serde(deserialize_with = "isk")]
        pub(crate) amount: f64,
    }
}

/// The format of an exported shopping list.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars", inline)]
pub(crate) enum ExportFormat {
    Multibuy,
    Csv,
}

/// The side of a market order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "rmcp::schemars", inline)]
pub(crate) enum Side {
    Buy,
    Sell,
}

/// Returns `value` if it is within `min..=max`, else an error that names the range.
fn validate_range<T, E>(value: T, min: T, max: T, subject: &str) -> Result<T, E>
where
    T: PartialOrd + fmt::Display,
    E: de::Error,
{
    if value >= min && value <= max {
        Ok(value)
    } else {
        Err(E::custom(format!("{subject} must be between {min} and {max}, not {value}")))
    }
}

fn text<'de, D: Deserializer<'de>>(input: D) -> Result<String, D::Error> {
    let value = String::deserialize(input)?;
    validate_range(value.chars().count(), 1, TEXT_CHARS_MAX, "the length of a text")?;
    Ok(value)
}

fn quantity<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
    validate_range(u64::deserialize(input)?, 1, QUANTITY_MAX, "quantity")
}

fn days<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u32>, D::Error> {
    Option::<u32>::deserialize(input)?.map(|n| validate_range(n, 1, DAYS_MAX, "days")).transpose()
}

fn limit<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u32>, D::Error> {
    Option::<u32>::deserialize(input)?.map(|n| validate_range(n, 1, LIMIT_MAX, "limit")).transpose()
}

fn scan_seconds<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    Option::<f64>::deserialize(input)?
        .map(|n| validate_range(n, 0.0, SCAN_SECONDS_MAX, "seconds"))
        .transpose()
}

fn type_ids<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<NonZeroU32>>, D::Error> {
    let ids = Option::<Vec<NonZeroU32>>::deserialize(input)?;
    if let Some(ids) = &ids {
        validate_range(ids.len(), 1, TYPE_IDS_MAX, "the number of type_ids")?;
    }
    Ok(ids)
}

fn isk<'de, D: Deserializer<'de>>(input: D) -> Result<f64, D::Error> {
    validate_range(f64::deserialize(input)?, ISK_MIN, ISK_MAX, "an amount in ISK")
}

fn price<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    Option::<f64>::deserialize(input)?
        .map(|n| validate_range(n, ISK_MIN, ISK_MAX, "a price in ISK"))
        .transpose()
}
