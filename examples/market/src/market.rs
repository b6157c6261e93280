//! The market data: regions, items, prices, blueprints and war losses, parsed once from data bundled
//! into the binary. The data is constant. Independent of tools and the protocol. Used by `queries`,
//! `scan` and `state`.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::errors::ToolError;

const DATA: &str = include_str!("../data/market.json");

/// A region and its trade hub.
#[derive(Debug, Deserialize)]
pub(crate) struct Region {
    pub(crate) region_id: u32,
    pub(crate) name: String,
    pub(crate) hub: String,
}

/// A type of item that can be traded.
#[derive(Debug, Deserialize)]
pub(crate) struct Item {
    pub(crate) type_id: u32,
    pub(crate) name: String,
    pub(crate) category: String,
    pub(crate) volume_m3: f64,
}

/// The market of an item in a region. Prices are in ISK per unit; `volume` is in units per day.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Quote {
    pub(crate) region_id: u32,
    pub(crate) type_id: u32,
    pub(crate) lowest_sell: f64,
    pub(crate) highest_buy: f64,
    pub(crate) volume: u64,
}

/// The requirements for building one unit.
#[derive(Debug, Deserialize)]
pub(crate) struct Blueprint {
    pub(crate) type_id: u32,
    pub(crate) job_seconds: u32,
    pub(crate) job_fee: f64,
    pub(crate) materials: Vec<Material>,
}

/// A material of a blueprint.
#[derive(Debug, Deserialize)]
pub(crate) struct Material {
    pub(crate) type_id: u32,
    pub(crate) quantity: u64,
}

/// The average number of units of a type destroyed per day in a region.
#[derive(Debug, Deserialize)]
pub(crate) struct Loss {
    pub(crate) region_id: u32,
    pub(crate) type_id: u32,
    pub(crate) destroyed_per_day: f64,
}

#[derive(Deserialize)]
struct Bundle {
    regions: Vec<Region>,
    items: Vec<Item>,
    blueprints: Vec<Blueprint>,
    quotes: Vec<Quote>,
    losses: Vec<Loss>,
}

/// The market data, indexed by id.
#[derive(Debug)]
pub(crate) struct Market {
    regions: BTreeMap<u32, Region>,
    items: BTreeMap<u32, Item>,
    blueprints: BTreeMap<u32, Blueprint>,
    quotes: BTreeMap<(u32, u32), Quote>,
    losses: Vec<Loss>,
}

impl Market {
    /// Parses the bundled data.
    pub(crate) fn bundled() -> Result<Self, serde_json::Error> {
        let bundle: Bundle = serde_json::from_str(DATA)?;
        Ok(Self {
            regions: bundle.regions.into_iter().map(|r| (r.region_id, r)).collect(),
            items: bundle.items.into_iter().map(|i| (i.type_id, i)).collect(),
            blueprints: bundle.blueprints.into_iter().map(|b| (b.type_id, b)).collect(),
            quotes: bundle.quotes.into_iter().map(|q| ((q.region_id, q.type_id), q)).collect(),
            losses: bundle.losses,
        })
    }

    pub(crate) fn region(&self, region_id: u32) -> Result<&Region, ToolError> {
        self.regions.get(&region_id).ok_or(ToolError::UnknownRegion(region_id))
    }

    pub(crate) fn regions(&self) -> impl Iterator<Item = &Region> {
        self.regions.values()
    }

    pub(crate) fn item(&self, type_id: u32) -> Result<&Item, ToolError> {
        self.items.get(&type_id).ok_or(ToolError::UnknownType(type_id))
    }

    pub(crate) fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.values()
    }

    pub(crate) fn quote(&self, region_id: u32, type_id: u32) -> Result<Quote, ToolError> {
        self.region(region_id)?;
        self.item(type_id)?;
        let quote = self.quotes.get(&(region_id, type_id)).copied();
        quote.ok_or(ToolError::NotTraded { type_id, region_id })
    }

    pub(crate) fn blueprint(&self, type_id: u32) -> Result<&Blueprint, ToolError> {
        let item = self.item(type_id)?;
        let missing = || ToolError::NoBlueprint(type_id, item.name.clone());
        self.blueprints.get(&type_id).ok_or_else(missing)
    }

    pub(crate) fn blueprints(&self) -> impl Iterator<Item = &Blueprint> {
        self.blueprints.values()
    }

    /// Returns the losses in a region, in no particular order.
    pub(crate) fn losses(&self, region_id: u32) -> impl Iterator<Item = &Loss> {
        self.losses.iter().filter(move |loss| loss.region_id == region_id)
    }

    /// Returns the cost of building one unit with materials bought in `region_id`, with the job fee.
    pub(crate) fn cost(&self, region_id: u32, blueprint: &Blueprint) -> Result<f64, ToolError> {
        let mut total = blueprint.job_fee;
        for material in &blueprint.materials {
            let price = self.quote(region_id, material.type_id)?.lowest_sell;
            total += price * quantity_as_f64(material.quantity);
        }
        Ok(round_isk(total))
    }
}

/// Rounds to cents, the precision of ISK amounts.
pub(crate) fn round_isk(amount: f64) -> f64 {
    (amount * 100.0).round() / 100.0
}

/// Returns a percentage rounded to one decimal.
pub(crate) fn percent(part: f64, total: f64) -> f64 {
    (part / total * 1000.0).round() / 10.0
}

/// Converts a quantity. Quantities are far below 2^53, so the conversion is exact.
pub(crate) fn quantity_as_f64(quantity: u64) -> f64 {
    quantity as f64
}
