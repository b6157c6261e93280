//! The state of shopping lists, bookmarks, orders and the wallet, as a fold over recorded effects.
//!
//! [`State::compute_result`] returns the result of an effect, or the reason why it fails, and changes
//! nothing; [`State::apply`] applies a recorded effect and cannot fail. Both are pure, so a replay gives
//! the same state. Owned by `ledger`.

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

/// Initial balance of the wallet in cents.
const WALLET_CENTS_START: i64 = 125_000_000_000;
/// The id before the first order's id.
const ORDER_ID_START: u64 = 7000;

/// An effect as it is recorded: the tool and its arguments.
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
    /// Not a tool: records that a scan was cancelled.
    ScanCancelled(Scan),
}

impl Effect {
    /// Parses the effect of a call; `None` if the tool has no effect.
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

    /// Returns the name of the tool in the record.
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

/// The state after all recorded effects.
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
    /// Returns the result of `effect` on the current state, or the reason why it fails.
    pub(crate) fn compute_result(
        &self,
        market: &Market,
        effect: &Effect,
    ) -> Result<Value, ToolError> {
        match effect {
            Effect::CreateShoppingList(args) => {
                Ok(json!({ "list_id": self.last_list_id + 1, "name": args.name }))
            }
            Effect::AddShoppingItem(args) => {
                let item = market.item(args.type_id.get())?;
                let list = self.list(args.list_id.get())?;
                let before = list.quantities.get(&item.type_id).copied().unwrap_or(0);
                Ok(json!({
                    "list_id": args.list_id,
                    "type_id": item.type_id,
                    "name": item.name,
                    "added": args.quantity,
                    "quantity": before.saturating_add(args.quantity),
                }))
            }
            Effect::DeleteShoppingList(args) => {
                let list = self.list(args.list_id.get())?;
                Ok(json!({ "list_id": args.list_id, "name": list.name, "deleted": true }))
            }
            Effect::CreateBookmark(args) => Ok(json!({
                "bookmark_id": self.last_bookmark_id + 1,
                "name": args.name,
                "system": args.system,
            })),
            Effect::UpdateBookmark(args) => {
                let id = args.bookmark_id.get();
                let bookmark = self.bookmarks.get(&id).ok_or(ToolError::UnknownBookmark(id))?;
                Ok(json!({ "bookmark_id": id, "name": args.name, "system": bookmark.system }))
            }
            Effect::MarketOrderCreate(args) => self.order(market, args),
            Effect::WalletTransfer(args) => {
                let remaining = self.wallet_cents - cents(args.amount);
                if remaining < 0 {
                    return Err(self.insufficient("the transfer", args.amount));
                }
                Ok(json!({
                    "transfer_id": self.last_transfer_id + 1,
                    "to": args.to,
                    "amount": round_isk(args.amount),
                    "wallet_balance": isk(remaining),
                }))
            }
            Effect::ScanCancelled(_) => Ok(json!({ "cancelled": true })),
        }
    }

    /// Returns the result of an order. A buy order pays its total into escrow; a sell order is free.
    fn order(&self, market: &Market, args: &CreateOrder) -> Result<Value, ToolError> {
        let quote = market.quote(args.region_id.get(), args.type_id.get())?;
        let best = match args.side {
            Side::Buy => quote.lowest_sell,
            Side::Sell => quote.highest_buy,
        };
        let price = round_isk(args.price.unwrap_or(best));
        let total = round_isk(price * quantity_as_f64(args.quantity));
        let escrow = match args.side {
            Side::Buy => total,
            Side::Sell => 0.0,
        };
        let remaining = self.wallet_cents.saturating_sub(cents(escrow));
        if remaining < 0 {
            return Err(self.insufficient("the buy order", escrow));
        }
        Ok(json!({
            "order_id": self.last_order_id + 1,
            "status": "open",
            "side": args.side,
            "region_id": quote.region_id,
            "region": market.region(quote.region_id)?.name,
            "type_id": quote.type_id,
            "name": market.item(quote.type_id)?.name,
            "quantity": args.quantity,
            "price": price,
            "total": total,
            "wallet_balance": isk(remaining),
        }))
    }

    /// Applies a recorded effect with its recorded result.
    pub(crate) fn apply(&mut self, effect: &Effect, result: &Value) {
        match effect {
            Effect::CreateShoppingList(args) => {
                self.last_list_id += 1;
                let list = ShoppingList { name: args.name.clone(), quantities: BTreeMap::new() };
                self.lists.insert(self.last_list_id, list);
            }
            Effect::AddShoppingItem(args) => {
                if let Some(list) = self.lists.get_mut(&args.list_id.get()) {
                    let quantity = list.quantities.entry(args.type_id.get()).or_default();
                    *quantity = quantity.saturating_add(args.quantity);
                }
            }
            Effect::DeleteShoppingList(args) => {
                self.lists.remove(&args.list_id.get());
            }
            Effect::CreateBookmark(args) => {
                self.last_bookmark_id += 1;
                let bookmark = Bookmark { name: args.name.clone(), system: args.system.clone() };
                self.bookmarks.insert(self.last_bookmark_id, bookmark);
            }
            Effect::UpdateBookmark(args) => {
                if let Some(bookmark) = self.bookmarks.get_mut(&args.bookmark_id.get()) {
                    bookmark.name.clone_from(&args.name);
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

    /// Sets the balance from the recorded result, so that a change of the bundled prices does not
    /// change past payments.
    fn set_balance(&mut self, result: &Value) {
        if let Some(balance) = result.get("wallet_balance").and_then(Value::as_f64) {
            self.wallet_cents = cents(balance);
        }
    }

    fn list(&self, list_id: u64) -> Result<&ShoppingList, ToolError> {
        self.lists.get(&list_id).ok_or(ToolError::UnknownList(list_id))
    }

    fn insufficient(&self, operation: &'static str, needed: f64) -> ToolError {
        ToolError::InsufficientFunds { operation, needed, balance: isk(self.wallet_cents) }
    }

    /// Returns the result of `list_bookmarks`.
    pub(crate) fn bookmarks(&self) -> Value {
        let bookmarks: Vec<Value> = self
            .bookmarks
            .iter()
            .map(|(id, b)| json!({ "bookmark_id": id, "name": b.name, "system": b.system }))
            .collect();
        json!({ "count": bookmarks.len(), "bookmarks": bookmarks })
    }

    /// Returns the result of `get_shopping_list`.
    pub(crate) fn shopping_list(
        &self,
        market: &Market,
        args: &ListArgs,
    ) -> Result<Value, ToolError> {
        let list = self.list(args.list_id.get())?;
        let mut items = Vec::with_capacity(list.quantities.len());
        let mut cost = 0.0;
        for (&type_id, &quantity) in &list.quantities {
            let price = market.quote(REGION_DEFAULT, type_id)?.lowest_sell;
            cost += price * quantity_as_f64(quantity);
            let name = &market.item(type_id)?.name;
            items.push(json!({ "type_id": type_id, "name": name, "quantity": quantity }));
        }
        Ok(json!({
            "list_id": args.list_id,
            "name": list.name,
            "items": items,
            "estimated_cost": round_isk(cost),
        }))
    }

    /// Returns the result of `export_shopping_list`.
    pub(crate) fn export(&self, market: &Market, args: &ExportList) -> Result<Value, ToolError> {
        let list = self.list(args.list_id.get())?;
        let format = args.format.unwrap_or(ExportFormat::Multibuy);
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
        Ok(json!({ "list_id": args.list_id, "format": format, "text": lines.join("\n") }))
    }
}

/// Converts ISK to cents. Amounts are far below the range of `i64`; the cast saturates.
fn cents(amount: f64) -> i64 {
    (amount * 100.0).round() as i64
}

fn isk(cents: i64) -> f64 {
    cents as f64 / 100.0
}
