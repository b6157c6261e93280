//! The list of tools as clients see it: name, title, description, JSON Schema
//! and MCP annotations. What the tools do stands elsewhere. Read by `server`.
//!
//! The annotations are honest about a bare repetition; that a repetition under
//! one idempotency key does nothing twice is what `catalog.toml` tells Greenroom.

use std::{any::Any, sync::Arc};

use rmcp::{
    handler::server::tool::schema_for_input,
    model::{Tool, ToolAnnotations},
    schemars::JsonSchema,
};
use serde_json::json;

use crate::{
    arguments::{
        AddItem, CreateBookmark, CreateList, CreateOrder, ExportList, ListArgs, MarketPrices,
        NoArgs, Opportunities, ProductionCost, RegionTypeArgs, Scan, SearchItem, Transfer,
        TypeArgs, UpdateBookmark, WarLosses,
    },
    faults::{FailArgs, HugeResultArgs},
};

/// What a call may do, as MCP annotations can say it.
#[derive(Clone, Copy)]
enum ToolEffects {
    /// Only looks.
    Reads,
    /// Adds something each time.
    Adds,
    /// Overwrites; a repetition changes nothing more.
    Overwrites,
    /// Removes; a repetition changes nothing more.
    Removes,
    /// Spends or commits something that can't be taken back, each time.
    Commits,
}

impl ToolEffects {
    fn annotations(self) -> ToolAnnotations {
        let (read_only, destructive, idempotent) = match self {
            Self::Reads => (true, false, true),
            Self::Adds => (false, false, false),
            Self::Overwrites | Self::Removes => (false, true, true),
            Self::Commits => (false, true, false),
        };
        ToolAnnotations::new()
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(false)
    }
}

fn tool<T: JsonSchema + Any>(
    effects: ToolEffects,
    name: &'static str,
    title: &str,
    description: &'static str,
) -> Result<Tool, String> {
    let mut schema = schema_for_input::<T>()?;
    if !schema.contains_key("properties") {
        // Some model providers refuse an object schema without this key.
        Arc::make_mut(&mut schema).insert("properties".to_owned(), json!({}));
    }
    Ok(Tool::new(name, description, schema)
        .with_title(title)
        .with_annotations(effects.annotations()))
}

/// Every tool, in the order clients see; an error names a schema that MCP does not allow.
pub(crate) fn tools(with_test_tools: bool) -> Result<Vec<Tool>, String> {
    let mut tools = reading()?;
    tools.extend(writing()?);
    if with_test_tools {
        tools.extend(testing()?);
    }
    Ok(tools)
}

fn reading() -> Result<Vec<Tool>, String> {
    use ToolEffects::Reads;
    Ok(vec![
        tool::<SearchItem>(
            Reads,
            "search_item",
            "Search items",
            "Find items by a part of their name. Answers type ids, which the other tools take.",
        )?,
        tool::<TypeArgs>(
            Reads,
            "get_item_info",
            "Item information",
            "Name, category and volume of one item by its type id.",
        )?,
        tool::<RegionTypeArgs>(
            Reads,
            "get_market_stats",
            "Market of one item in one region",
            "Lowest sell price, highest buy price and daily volume of an item in a region.",
        )?,
        tool::<MarketPrices>(
            Reads,
            "get_market_prices",
            "Average prices",
            "Average sell and buy prices over all regions, for some items or for all.",
        )?,
        tool::<TypeArgs>(
            Reads,
            "compare_regions",
            "Compare regions",
            "Prices of one item in every region, cheapest first.",
        )?,
        tool::<WarLosses>(
            Reads,
            "get_war_losses",
            "War losses",
            "What was destroyed in a region lately, most first. Answers type ids without names: \
             look the names up with get_item_info.",
        )?,
        tool::<ProductionCost>(
            Reads,
            "get_production_cost",
            "Production cost",
            "Materials and total cost of building one unit. Depends on a price feed that is \
             sometimes unavailable for a moment.",
        )?,
        tool::<RegionTypeArgs>(
            Reads,
            "get_production_economics",
            "Production economics",
            "Cost, sell price, profit and margin of building one unit and selling it in a region.",
        )?,
        tool::<Opportunities>(
            Reads,
            "get_economic_opportunities",
            "Economic opportunities",
            "What is most profitable to build and sell in a region, ranked. Answers type ids.",
        )?,
        tool::<Scan>(
            Reads,
            "scan_opportunities",
            "Scan for opportunities",
            "Go through a region's whole market for items that sell for more elsewhere. Slow; \
             reports progress and can be cancelled.",
        )?,
        tool::<NoArgs>(Reads, "list_bookmarks", "Bookmarks", "Every bookmark with its system.")?,
        tool::<ListArgs>(
            Reads,
            "get_shopping_list",
            "Shopping list",
            "Items of a shopping list and what they would cost in The Forge.",
        )?,
        tool::<ExportList>(
            Reads,
            "export_shopping_list",
            "Export a shopping list",
            "A shopping list as text, for pasting into a multi-buy window or as CSV.",
        )?,
        tool::<TypeArgs>(
            Reads,
            "choose_hangar",
            "Choose a hangar",
            "Ask the person which hangar an item is to be stored in. Answers the hangar.",
        )?,
    ])
}

fn writing() -> Result<Vec<Tool>, String> {
    use ToolEffects::{Adds, Commits, Overwrites, Removes};
    Ok(vec![
        tool::<CreateList>(
            Adds,
            "create_shopping_list",
            "Create a shopping list",
            "Create an empty shopping list. Answers its list_id.",
        )?,
        tool::<AddItem>(
            Adds,
            "add_shopping_item",
            "Add to a shopping list",
            "Add units of an item to a shopping list.",
        )?,
        tool::<CreateBookmark>(
            Adds,
            "create_bookmark",
            "Create a bookmark",
            "Bookmark a solar system under a name. Answers its bookmark_id.",
        )?,
        tool::<UpdateBookmark>(
            Overwrites,
            "update_bookmark",
            "Rename a bookmark",
            "Give a bookmark another name.",
        )?,
        tool::<ListArgs>(
            Removes,
            "delete_shopping_list",
            "Delete a shopping list",
            "Delete a shopping list and everything on it. It can't be brought back.",
        )?,
        tool::<CreateOrder>(
            Commits,
            "market_order_create",
            "Place a market order",
            "Place a buy or sell order. A buy order pays its total into escrow at once.",
        )?,
        tool::<Transfer>(
            Commits,
            "wallet_transfer",
            "Transfer ISK",
            "Send ISK from the wallet to someone. It can't be taken back.",
        )?,
    ])
}

fn testing() -> Result<Vec<Tool>, String> {
    use ToolEffects::{Commits, Reads};
    Ok(vec![
        tool::<HugeResultArgs>(
            Reads,
            "test_huge_result",
            "Huge result",
            "Answers a text of so many bytes.",
        )?,
        tool::<NoArgs>(Reads, "test_hang", "Hang", "Never answers; stops when cancelled.")?,
        tool::<NoArgs>(Commits, "test_crash", "Crash", "Ends the server with exit code 1.")?,
        tool::<NoArgs>(
            Reads,
            "test_odd_values",
            "Odd values",
            "Answers huge and tiny numbers, NaN as text, control characters and markup.",
        )?,
        tool::<NoArgs>(
            Reads,
            "test_noise",
            "Noise",
            "Writes a line that is not JSON and one that is not UTF-8 to stdout, then answers.",
        )?,
        tool::<FailArgs>(Reads, "test_fail", "Fail", "Answers a tool error with the given text.")?,
        tool::<NoArgs>(
            Reads,
            "test_request_meta",
            "Request metadata",
            "Answers the _meta object of the request.",
        )?,
    ])
}
