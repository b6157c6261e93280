//! What the writing tools have done: shopping lists, bookmarks, orders and the
//! wallet, as a fold over recorded effects.
//!
//! [`State::result_of`] says what an effect would answer, or why it can't
//! happen, and changes nothing; [`State::apply`] takes a recorded effect and
//! can't fail. Both are pure, so life and replay agree. Owned by `ledger`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    arguments::{
        AddItem, CreateBookmark, CreateList, CreateOrder, ExportFormat, ExportList, ListArgs, Scan,
        Side, Transfer, UpdateBookmark,
    },
    errors::ToolError,
    market::{Market, quantity_as_f64, round_isk},
    queries::REGION_DEFAULT,
};

/// What the wallet holds before anything happened, in cents.
const WALLET_CENTS_START: i64 = 125_000_000_000;
/// The id before the first order's.
const ORDER_ID_START: u64 = 7000;

/// One thing that was done, as it is recorded: the tool and its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tool", content = "arguments", rename_all = "snake_case")]
pub(crate) enum Effect {
    CreateShoppingList(CreateList),
    AddShoppingItem(AddItem),
    DeleteShoppingList(ListArgs),
    CreateBookmark(CreateBookmark),
    UpdateBookmark(UpdateBookmark),
    MarketOrderCreate(CreateOrder),
    WalletTransfer(Transfer),
    /// Not a tool: the note that a scan stopped because it was cancelled.
    ScanCancelled(Scan),
}

impl Effect {
    /// The effect a call of this tool asks for; `None` if the tool doesn't write.
    pub(crate) fn parse(
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Option<Result<Self, ToolError>> {
        let parsed = match tool {
            "create_shopping_list" => parse(arguments).map(Self::CreateShoppingList),
            "add_shopping_item" => parse(arguments).map(Self::AddShoppingItem),
            "delete_shopping_list" => parse(arguments).map(Self::DeleteShoppingList),
            "create_bookmark" => parse(arguments).map(Self::CreateBookmark),
            "update_bookmark" => parse(arguments).map(Self::UpdateBookmark),
            "market_order_create" => parse(arguments).map(Self::MarketOrderCreate),
            "wallet_transfer" => parse(arguments).map(Self::WalletTransfer),
            _ => return None,
        };
        Some(parsed.map_err(|problem| ToolError::InvalidArguments {
            tool: tool.to_owned(),
            problem: problem.to_string(),
        }))
    }

    /// The tool's name, as recorded.
    pub(crate) fn tool(&self) -> &'static str {
        match self {
            Self::CreateShoppingList(_) => "create_shopping_list",
            Self::AddShoppingItem(_) => "add_shopping_item",
            Self::DeleteShoppingList(_) => "delete_shopping_list",
            Self::CreateBookmark(_) => "create_bookmark",
            Self::UpdateBookmark(_) => "update_bookmark",
            Self::MarketOrderCreate(_) => "market_order_create",
            Self::WalletTransfer(_) => "wallet_transfer",
            Self::ScanCancelled(_) => "scan_cancelled",
        }
    }
}

fn parse<T: serde::de::DeserializeOwned>(arguments: &Map<String, Value>) -> serde_json::Result<T> {
    T::deserialize(arguments)
}

#[derive(Debug, Clone)]
struct ShoppingList {
    name: String,
    quantities: BTreeMap<u32, u64>,
}

#[derive(Debug, Clone)]
struct Bookmark {
    name: String,
    system: String,
}

/// Everything recorded effects add up to.
#[derive(Debug)]
pub(crate) struct State {
    lists: BTreeMap<u64, ShoppingList>,
    bookmarks: BTreeMap<u64, Bookmark>,
    last_list_id: u64,
    last_bookmark_id: u64,
    last_order_id: u64,
    last_transfer_id: u64,
    wallet_cents: i64,
}

impl Default for State {
    fn default() -> Self {
        Self {
            lists: BTreeMap::new(),
            bookmarks: BTreeMap::new(),
            last_list_id: 0,
            last_bookmark_id: 0,
            last_order_id: ORDER_ID_START,
            last_transfer_id: 0,
            wallet_cents: WALLET_CENTS_START,
        }
    }
}

impl State {
    /// What `effect` would answer now, or why it can't happen.
    pub(crate) fn compute_result(
        &self,
        market: &Market,
        effect: &Effect,
    ) -> Result<Value, ToolError> {
        match effect {
            Effect::CreateShoppingList(ask) => {
                Ok(json!({ "list_id": self.last_list_id + 1, "name": ask.name }))
            }
            Effect::AddShoppingItem(ask) => {
                let item = market.item(ask.type_id.get())?;
                let list = self.list(ask.list_id.get())?;
                let before = list.quantities.get(&item.type_id).copied().unwrap_or(0);
                Ok(json!({
                    "list_id": ask.list_id,
                    "type_id": item.type_id,
                    "name": item.name,
                    "added": ask.quantity,
                    "quantity": before.saturating_add(ask.quantity),
                }))
            }
            Effect::DeleteShoppingList(ask) => {
                let list = self.list(ask.list_id.get())?;
                Ok(json!({ "list_id": ask.list_id, "name": list.name, "deleted": true }))
            }
            Effect::CreateBookmark(ask) => Ok(json!({
                "bookmark_id": self.last_bookmark_id + 1,
                "name": ask.name,
                "system": ask.system,
            })),
            Effect::UpdateBookmark(ask) => {
                let id = ask.bookmark_id.get();
                let bookmark = self.bookmarks.get(&id).ok_or(ToolError::UnknownBookmark(id))?;
                Ok(json!({ "bookmark_id": id, "name": ask.name, "system": bookmark.system }))
            }
            Effect::MarketOrderCreate(ask) => self.order(market, ask),
            Effect::WalletTransfer(ask) => {
                let left = self.wallet_cents - cents(ask.amount);
                if left < 0 {
                    return Err(self.insufficient("the transfer", ask.amount));
                }
                Ok(json!({
                    "transfer_id": self.last_transfer_id + 1,
                    "to": ask.to,
                    "amount": round_isk(ask.amount),
                    "wallet_balance": isk(left),
                }))
            }
            Effect::ScanCancelled(_) => Ok(json!({ "cancelled": true })),
        }
    }

    /// A buy order pays into escrow at once; a sell order costs nothing yet.
    fn order(&self, market: &Market, ask: &CreateOrder) -> Result<Value, ToolError> {
        let quote = market.quote(ask.region_id.get(), ask.type_id.get())?;
        let best = match ask.side {
            Side::Buy => quote.lowest_sell,
            Side::Sell => quote.highest_buy,
        };
        let price = round_isk(ask.price.unwrap_or(best));
        let total = round_isk(price * quantity_as_f64(ask.quantity));
        let escrow = match ask.side {
            Side::Buy => total,
            Side::Sell => 0.0,
        };
        let left = self.wallet_cents.saturating_sub(cents(escrow));
        if left < 0 {
            return Err(self.insufficient("the buy order", escrow));
        }
        Ok(json!({
            "order_id": self.last_order_id + 1,
            "status": "open",
            "side": ask.side,
            "region_id": quote.region_id,
            "region": market.region(quote.region_id)?.name,
            "type_id": quote.type_id,
            "name": market.item(quote.type_id)?.name,
            "quantity": ask.quantity,
            "price": price,
            "total": total,
            "wallet_balance": isk(left),
        }))
    }

    /// Takes a recorded effect and its recorded result in.
    pub(crate) fn apply(&mut self, effect: &Effect, result: &Value) {
        match effect {
            Effect::CreateShoppingList(ask) => {
                self.last_list_id += 1;
                let list = ShoppingList { name: ask.name.clone(), quantities: BTreeMap::new() };
                self.lists.insert(self.last_list_id, list);
            }
            Effect::AddShoppingItem(ask) => {
                if let Some(list) = self.lists.get_mut(&ask.list_id.get()) {
                    let quantity = list.quantities.entry(ask.type_id.get()).or_default();
                    *quantity = quantity.saturating_add(ask.quantity);
                }
            }
            Effect::DeleteShoppingList(ask) => {
                self.lists.remove(&ask.list_id.get());
            }
            Effect::CreateBookmark(ask) => {
                self.last_bookmark_id += 1;
                let bookmark = Bookmark { name: ask.name.clone(), system: ask.system.clone() };
                self.bookmarks.insert(self.last_bookmark_id, bookmark);
            }
            Effect::UpdateBookmark(ask) => {
                if let Some(bookmark) = self.bookmarks.get_mut(&ask.bookmark_id.get()) {
                    bookmark.name.clone_from(&ask.name);
                }
            }
            Effect::MarketOrderCreate(_) => {
                self.last_order_id += 1;
                self.set_balance(result);
            }
            Effect::WalletTransfer(_) => {
                self.last_transfer_id += 1;
                self.set_balance(result);
            }
            Effect::ScanCancelled(_) => {}
        }
    }

    /// The balance is taken from the record, so that a change of the bundled
    /// prices never rewrites what was paid.
    fn set_balance(&mut self, result: &Value) {
        if let Some(balance) = result.get("wallet_balance").and_then(Value::as_f64) {
            self.wallet_cents = cents(balance);
        }
    }

    fn list(&self, list_id: u64) -> Result<&ShoppingList, ToolError> {
        self.lists.get(&list_id).ok_or(ToolError::UnknownList(list_id))
    }

    fn insufficient(&self, what: &'static str, needed: f64) -> ToolError {
        ToolError::InsufficientFunds { what, needed, balance: isk(self.wallet_cents) }
    }

    /// `list_bookmarks`
    pub(crate) fn bookmarks(&self) -> Value {
        let bookmarks: Vec<Value> = self
            .bookmarks
            .iter()
            .map(|(id, b)| json!({ "bookmark_id": id, "name": b.name, "system": b.system }))
            .collect();
        json!({ "count": bookmarks.len(), "bookmarks": bookmarks })
    }

    /// `get_shopping_list`
    pub(crate) fn shopping_list(
        &self,
        market: &Market,
        ask: &ListArgs,
    ) -> Result<Value, ToolError> {
        let list = self.list(ask.list_id.get())?;
        let mut items = Vec::with_capacity(list.quantities.len());
        let mut cost = 0.0;
        for (&type_id, &quantity) in &list.quantities {
            let price = market.quote(REGION_DEFAULT, type_id)?.lowest_sell;
            cost += price * quantity_as_f64(quantity);
            let name = &market.item(type_id)?.name;
            items.push(json!({ "type_id": type_id, "name": name, "quantity": quantity }));
        }
        Ok(json!({
            "list_id": ask.list_id,
            "name": list.name,
            "items": items,
            "estimated_cost": round_isk(cost),
        }))
    }

    /// `export_shopping_list`
    pub(crate) fn export(&self, market: &Market, ask: &ExportList) -> Result<Value, ToolError> {
        let list = self.list(ask.list_id.get())?;
        let format = ask.format.unwrap_or(ExportFormat::Multibuy);
        let mut lines = Vec::with_capacity(list.quantities.len() + 1);
        if format == ExportFormat::Csv {
            lines.push("type_id,name,quantity".to_owned());
        }
        for (&type_id, &quantity) in &list.quantities {
            let name = &market.item(type_id)?.name;
            lines.push(match format {
                ExportFormat::Multibuy => format!("{name} {quantity}"),
                ExportFormat::Csv => format!("{type_id},{name},{quantity}"),
            });
        }
        Ok(json!({ "list_id": ask.list_id, "format": format, "text": lines.join("\n") }))
    }
}

/// Amounts are bounded well below what an `i64` of cents holds, and the cast saturates.
fn cents(amount: f64) -> i64 {
    (amount * 100.0).round() as i64
}

fn isk(cents: i64) -> f64 {
    cents as f64 / 100.0
}
