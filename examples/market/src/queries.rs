//! The read-only tools: pure functions from parsed arguments to a JSON value. The exception is
//! [`PriceFeed`], which decides when `get_production_cost` fails. Called by `server`.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use serde_json::{Value, json};

use crate::{
    arguments::{
        MarketPrices, Opportunities, ProductionCost, RegionTypeArgs, SearchItem, TypeArgs,
        WarLosses,
    },
    errors::ToolError,
    market::{Blueprint, Market, percent, quantity_as_f64, round_isk},
};

/// The Forge, the region of prices if a call names no region.
pub(crate) const REGION_DEFAULT: u32 = 10_000_002;
/// Number of failures of `get_production_cost` for each set of arguments before it succeeds.
const FEED_FAILURES: u32 = 2;
/// The type (Vexor) for which `get_production_cost` always fails.
const TYPE_NEVER_PRICED: u32 = 626;
const DAYS_DEFAULT: u32 = 7;
const LIMIT_DEFAULT: u32 = 5;

/// The deliberately unreliable price feed of `get_production_cost`.
///
/// Only known types and regions are counted, so the size of the table is bounded by the market.
#[derive(Default)]
pub(crate) struct PriceFeed {
    failures: Mutex<HashMap<(u32, u32), u32>>,
}

impl PriceFeed {
    fn poll(&self, type_id: u32, region_id: u32) -> Result<(), ToolError> {
        if type_id == TYPE_NEVER_PRICED {
            return Err(ToolError::PriceFeed);
        }
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = failures.entry((type_id, region_id)).or_default();
        if *failed < FEED_FAILURES {
            *failed += 1;
            return Err(ToolError::PriceFeed);
        }
        Ok(())
    }
}

pub(crate) fn search_item(market: &Market, args: &SearchItem) -> Value {
    let query = args.query.to_lowercase();
    let items: Vec<Value> = market
        .items()
        .filter(|item| item.name.to_lowercase().contains(&query))
        .map(|item| json!({ "type_id": item.type_id, "name": item.name }))
        .collect();
    json!({ "query": args.query, "count": items.len(), "items": items })
}

pub(crate) fn item_info(market: &Market, args: &TypeArgs) -> Result<Value, ToolError> {
    let item = market.item(args.type_id.get())?;
    Ok(json!({
        "type_id": item.type_id,
        "name": item.name,
        "category": item.category,
        "volume_m3": item.volume_m3,
        "buildable": market.blueprint(item.type_id).is_ok(),
    }))
}

pub(crate) fn market_stats(market: &Market, args: &RegionTypeArgs) -> Result<Value, ToolError> {
    let quote = market.quote(args.region_id.get(), args.type_id.get())?;
    let region = market.region(quote.region_id)?;
    let item = market.item(quote.type_id)?;
    Ok(json!({
        "region_id": region.region_id,
        "region": region.name,
        "hub": region.hub,
        "type_id": item.type_id,
        "name": item.name,
        "lowest_sell": quote.lowest_sell,
        "highest_buy": quote.highest_buy,
        "spread_percent": percent(quote.lowest_sell - quote.highest_buy, quote.lowest_sell),
        "volume": quote.volume,
    }))
}

pub(crate) fn market_prices(market: &Market, args: &MarketPrices) -> Result<Value, ToolError> {
    let type_ids: Vec<u32> = match &args.type_ids {
        Some(ids) => ids.iter().map(|id| id.get()).collect(),
        None => market.items().map(|item| item.type_id).collect(),
    };
    let mut prices = Vec::with_capacity(type_ids.len());
    for type_id in type_ids {
        let item = market.item(type_id)?;
        let quotes: Vec<_> =
            market.regions().filter_map(|r| market.quote(r.region_id, type_id).ok()).collect();
        let count = quantity_as_f64(quotes.len().max(1) as u64);
        prices.push(json!({
            "type_id": type_id,
            "name": item.name,
            "average_sell": round_isk(quotes.iter().map(|q| q.lowest_sell).sum::<f64>() / count),
            "average_buy": round_isk(quotes.iter().map(|q| q.highest_buy).sum::<f64>() / count),
        }));
    }
    Ok(json!({ "count": prices.len(), "prices": prices }))
}

pub(crate) fn compare_regions(market: &Market, args: &TypeArgs) -> Result<Value, ToolError> {
    let item = market.item(args.type_id.get())?;
    let mut quotes: Vec<_> =
        market.regions().filter_map(|r| market.quote(r.region_id, item.type_id).ok()).collect();
    quotes.sort_by(|a, b| a.lowest_sell.total_cmp(&b.lowest_sell));
    let best_buyer = quotes.iter().max_by(|a, b| a.highest_buy.total_cmp(&b.highest_buy));
    let sell_in = best_buyer.map(|quote| quote.region_id);
    let buy_in = quotes.first().map(|quote| quote.region_id);
    let mut regions = Vec::with_capacity(quotes.len());
    for quote in quotes {
        let region = market.region(quote.region_id)?;
        regions.push(json!({
            "region_id": region.region_id,
            "region": region.name,
            "lowest_sell": quote.lowest_sell,
            "highest_buy": quote.highest_buy,
            "volume": quote.volume,
        }));
    }
    Ok(json!({
        "type_id": item.type_id,
        "name": item.name,
        "buy_in_region_id": buy_in,
        "sell_in_region_id": sell_in,
        "regions": regions,
    }))
}

/// Returns type ids and counts only. `get_item_info` returns the name of a type.
pub(crate) fn war_losses(market: &Market, args: &WarLosses) -> Result<Value, ToolError> {
    let region = market.region(args.region_id.get())?;
    let days = args.days.unwrap_or(DAYS_DEFAULT);
    let mut losses: Vec<(u32, u64)> = market
        .losses(region.region_id)
        // Bundled averages are small and positive, so the cast is exact.
        .map(|loss| (loss.type_id, (loss.destroyed_per_day * f64::from(days)).round() as u64))
        .collect();
    losses.sort_by_key(|&(type_id, destroyed)| (std::cmp::Reverse(destroyed), type_id));
    let losses: Vec<Value> = losses
        .into_iter()
        .map(|(type_id, destroyed)| json!({ "type_id": type_id, "destroyed": destroyed }))
        .collect();
    Ok(json!({
        "region_id": region.region_id,
        "region": region.name,
        "days": days,
        "losses": losses,
    }))
}

pub(crate) fn production_cost(
    market: &Market,
    feed: &PriceFeed,
    args: &ProductionCost,
) -> Result<Value, ToolError> {
    let region_id = args.region_id.map_or(REGION_DEFAULT, |id| id.get());
    let region = market.region(region_id)?;
    let blueprint = market.blueprint(args.type_id.get())?;
    let item = market.item(blueprint.type_id)?;
    feed.poll(item.type_id, region_id)?;

    let mut materials = Vec::with_capacity(blueprint.materials.len());
    for material in &blueprint.materials {
        let unit_price = market.quote(region_id, material.type_id)?.lowest_sell;
        materials.push(json!({
            "type_id": material.type_id,
            "name": market.item(material.type_id)?.name,
            "quantity": material.quantity,
            "unit_price": unit_price,
            "cost": round_isk(unit_price * quantity_as_f64(material.quantity)),
        }));
    }
    Ok(json!({
        "type_id": item.type_id,
        "name": item.name,
        "region_id": region.region_id,
        "region": region.name,
        "materials": materials,
        "job_fee": blueprint.job_fee,
        "job_seconds": blueprint.job_seconds,
        "total_cost": market.cost(region_id, blueprint)?,
    }))
}

/// Cost, price and volume of building one unit and selling it in the same region.
struct Economics {
    cost: f64,
    sell: f64,
    volume: u64,
}

impl Economics {
    fn compute(market: &Market, region_id: u32, blueprint: &Blueprint) -> Result<Self, ToolError> {
        let quote = market.quote(region_id, blueprint.type_id)?;
        let cost = market.cost(region_id, blueprint)?;
        Ok(Self { cost, sell: quote.lowest_sell, volume: quote.volume })
    }

    fn profit(&self) -> f64 {
        round_isk(self.sell - self.cost)
    }

    /// Returns the daily profit if this builder had the whole volume of the market.
    fn daily_profit_max(&self) -> f64 {
        round_isk(self.profit() * quantity_as_f64(self.volume))
    }
}

pub(crate) fn production_economics(
    market: &Market,
    args: &RegionTypeArgs,
) -> Result<Value, ToolError> {
    let region = market.region(args.region_id.get())?;
    let blueprint = market.blueprint(args.type_id.get())?;
    let economics = Economics::compute(market, region.region_id, blueprint)?;
    Ok(json!({
        "type_id": blueprint.type_id,
        "name": market.item(blueprint.type_id)?.name,
        "region_id": region.region_id,
        "region": region.name,
        "total_cost": economics.cost,
        "lowest_sell": economics.sell,
        "profit": economics.profit(),
        "margin_percent": percent(economics.profit(), economics.cost),
        "volume": economics.volume,
        "profitable": economics.profit() > 0.0,
    }))
}

/// Returns type ids ranked by [`Economics::daily_profit_max`].
pub(crate) fn economic_opportunities(
    market: &Market,
    args: &Opportunities,
) -> Result<Value, ToolError> {
    let region = market.region(args.region_id.get())?;
    let mut found = Vec::new();
    for blueprint in market.blueprints() {
        let economics = Economics::compute(market, region.region_id, blueprint)?;
        if economics.profit() > 0.0 {
            found.push((blueprint.type_id, economics));
        }
    }
    found.sort_by(|(_, a), (_, b)| b.daily_profit_max().total_cmp(&a.daily_profit_max()));
    let limit = args.limit.unwrap_or(LIMIT_DEFAULT) as usize;
    let opportunities: Vec<Value> = found
        .iter()
        .take(limit)
        .zip(1..)
        .map(|((type_id, economics), rank)| {
            json!({
                "rank": rank,
                "type_id": type_id,
                "profit": economics.profit(),
                "margin_percent": percent(economics.profit(), economics.cost),
                "daily_profit_max": economics.daily_profit_max(),
            })
        })
        .collect();
    Ok(json!({
        "region_id": region.region_id,
        "region": region.name,
        "count": opportunities.len(),
        "opportunities": opportunities,
    }))
}
