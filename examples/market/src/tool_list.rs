//! The list of tools with name, title, description, JSON Schema and MCP annotations. Used by `server`.
//!
//! The annotations describe a repetition without an idempotency key. `catalog.toml` states for Greenroom
//! which tools are idempotent with a key.

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

/// The effects of a tool in terms of MCP annotations.
#[derive(Clone, Copy)]
enum ToolEffects {
    /// Reads only.
    Reads,
    /// Adds something with each call.
    Adds,
    /// Overwrites; a repetition has no further effect.
    Overwrites,
    /// Removes; a repetition has no further effect.
    Removes,
    /// Spends or commits something irreversibly with each call.
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
        // Some model providers reject an object schema without this key.
        Arc::make_mut(&mut schema).insert("properties".to_owned(), json!({}));
    }
    Ok(Tool::new(name, description, schema)
        .with_title(title)
        .with_annotations(effects.annotations()))
}

/// Returns every tool in list order. An error names a schema that MCP does not allow.
pub(crate) fn tools(with_test_tools: bool) -> Result<Vec<Tool>, String> {
    let mut tools = read_only_tools()?;
    tools.extend(writing_tools()?);
    if with_test_tools {
        tools.extend(test_tools()?);
    }
    Ok(tools)
}

fn read_only_tools() -> Result<Vec<Tool>, String> {
    use ToolEffects::Reads;
    Ok(vec![
        tool::<SearchItem>(
            Reads,
            "search_item",
            "Search items",
            "Find items by a part of their name. Returns type ids for the other tools.",
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
            "Units destroyed in a region in recent days, most first. Returns type ids without names: \
             get the names with get_item_info.",
        )?,
        tool::<ProductionCost>(
            Reads,
            "get_production_cost",
            "Production cost",
            "Materials and total cost of building one unit. Depends on a price feed that is \
             sometimes unavailable.",
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
            "Rank the most profitable items to build and sell in a region. Returns type ids.",
        )?,
        tool::<Scan>(
            Reads,
            "scan_opportunities",
            "Scan for opportunities",
            "Scan the market of a region for items that sell for more elsewhere. Slow; reports \
             progress and can be cancelled.",
        )?,
        tool::<NoArgs>(Reads, "list_bookmarks", "Bookmarks", "All bookmarks with their systems.")?,
        tool::<ListArgs>(
            Reads,
            "get_shopping_list",
            "Shopping list",
            "Items of a shopping list and their cost in The Forge.",
        )?,
        tool::<ExportList>(
            Reads,
            "export_shopping_list",
            "Export a shopping list",
            "A shopping list as text for a multi-buy window, or as CSV.",
        )?,
        tool::<TypeArgs>(
            Reads,
            "choose_hangar",
            "Choose a hangar",
            "Ask the user for the hangar in which to store an item. Returns the hangar.",
        )?,
    ])
}

fn writing_tools() -> Result<Vec<Tool>, String> {
    use ToolEffects::{Adds, Commits, Overwrites, Removes};
    Ok(vec![
        tool::<CreateList>(
            Adds,
            "create_shopping_list",
            "Create a shopping list",
            "Create an empty shopping list. Returns its list_id.",
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
            "Bookmark a solar system under a name. Returns its bookmark_id.",
        )?,
        tool::<UpdateBookmark>(
            Overwrites,
            "update_bookmark",
            "Rename a bookmark",
            "Change the name of a bookmark.",
        )?,
        tool::<ListArgs>(
            Removes,
            "delete_shopping_list",
            "Delete a shopping list",
            "Delete a shopping list and all its items. This can't be undone.",
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
            "Send ISK from the wallet to someone. This can't be undone.",
        )?,
    ])
}

fn test_tools() -> Result<Vec<Tool>, String> {
    use ToolEffects::{Commits, Reads};
    Ok(vec![
        tool::<HugeResultArgs>(
            Reads,
            "test_huge_result",
            "Huge result",
            "Returns a text of the given size.",
        )?,
        tool::<NoArgs>(Reads, "test_hang", "Hang", "Never returns; stops when cancelled.")?,
        tool::<NoArgs>(Commits, "test_crash", "Crash", "Ends the server with exit code 1.")?,
        tool::<NoArgs>(
            Reads,
            "test_odd_values",
            "Odd values",
            "Returns huge and tiny numbers, NaN as text, control characters and markup.",
        )?,
        tool::<NoArgs>(
            Reads,
            "test_noise",
            "Noise",
            "Writes a line that is not JSON and one that is not UTF-8 to stdout, then returns.",
        )?,
        tool::<FailArgs>(Reads, "test_fail", "Fail", "Returns a tool error with the given text.")?,
        tool::<NoArgs>(
            Reads,
            "test_request_meta",
            "Request metadata",
            "Returns the _meta object of the request.",
        )?,
    ])
}
