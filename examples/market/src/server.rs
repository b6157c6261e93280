//! The MCP server: lists the tools and dispatches each call. `rmcp` implements both protocol lifecycles: a
//! client may start with `initialize`, or with `server/discover` and self-contained requests.
//!
//! Results and errors are converted to MCP results only here.

use std::sync::Arc;

use anyhow::anyhow;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListToolsResult, MetaObject, PaginatedRequestParams, ServerCapabilities, ServerConfig,
        Tool,
    },
    service::RequestContext,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::{
    disconnect::ClientDisconnect,
    errors::ToolError,
    faults::{self, Faults},
    hangar,
    ledger::Ledger,
    market::Market,
    queries::{self, PriceFeed},
    scan,
    state::Effect,
    tool_list,
};

/// `_meta` key of a request with its idempotency key.
const META_IDEMPOTENCY_KEY: &str = "greenroom/idempotency_key";
/// `_meta` key of a result that was recorded earlier with the same key.
const META_REPLAYED: &str = "greenroom/replayed";

const INSTRUCTIONS: &str = "Market data, shopping lists and orders of a small trading company. \
    Prices are in ISK. Items and regions are named by ids: find a type id with search_item.";

/// The server; one per process.
pub(crate) struct MarketServer {
    market: Arc<Market>,
    ledger: Ledger,
    feed: PriceFeed,
    faults: Faults,
    disconnect: ClientDisconnect,
    tools: Vec<Tool>,
}

/// A successful result.
struct ToolAnswer {
    value: Value,
    /// True if the result was recorded earlier with the same key.
    replayed: bool,
}

impl MarketServer {
    /// Creates the server. Fails only if a tool's schema is not allowed by MCP.
    pub(crate) fn new(
        market: Arc<Market>,
        ledger: Ledger,
        faults: Faults,
        disconnect: ClientDisconnect,
    ) -> anyhow::Result<Self> {
        let tools = tool_list::tools(faults.test_tools).map_err(|error| anyhow!(error))?;
        Ok(Self { market, ledger, feed: PriceFeed::default(), faults, disconnect, tools })
    }

    async fn run_tool(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        context: &RequestContext<RoleServer>,
    ) -> Result<ToolAnswer, ToolError> {
        if let Some(effect) = Effect::parse(tool, arguments) {
            return self
                .faults
                .record_span(tool, self.run_writing_tool(tool, effect?, context))
                .await;
        }
        let value = match faults::test_tool(tool, arguments, &self.disconnect, context).await {
            Some(result) => result?,
            None if tool == "scan_opportunities" => {
                let args = parse(tool, arguments)?;
                scan::scan(&self.market, &self.ledger, args, &self.disconnect, context).await?
            }
            None => self.run_reading_tool(tool, arguments)?,
        };
        self.faults.trigger(tool, &self.disconnect, context).await;
        Ok(ToolAnswer { value, replayed: false })
    }

    /// Runs a tool with an effect.
    async fn run_writing_tool(
        &self,
        tool: &str,
        effect: Effect,
        context: &RequestContext<RoleServer>,
    ) -> Result<ToolAnswer, ToolError> {
        let key = context.meta.get(META_IDEMPOTENCY_KEY).and_then(Value::as_str);
        let recorded = self.ledger.record(effect, key.map(str::to_owned))?;
        if !recorded.replayed {
            self.faults.trigger(tool, &self.disconnect, context).await;
        }
        Ok(ToolAnswer { value: recorded.result, replayed: recorded.replayed })
    }

    /// Runs a read-only tool.
    fn run_reading_tool(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, ToolError> {
        let market = &*self.market;
        match tool {
            "search_item" => Ok(queries::search_item(market, &parse(tool, arguments)?)),
            "get_item_info" => queries::item_info(market, &parse(tool, arguments)?),
            "get_market_stats" => queries::market_stats(market, &parse(tool, arguments)?),
            "get_market_prices" => queries::market_prices(market, &parse(tool, arguments)?),
            "compare_regions" => queries::compare_regions(market, &parse(tool, arguments)?),
            "get_war_losses" => queries::war_losses(market, &parse(tool, arguments)?),
            "get_production_cost" => {
                queries::production_cost(market, &self.feed, &parse(tool, arguments)?)
            }
            "get_production_economics" => {
                queries::production_economics(market, &parse(tool, arguments)?)
            }
            "get_economic_opportunities" => {
                queries::economic_opportunities(market, &parse(tool, arguments)?)
            }
            "list_bookmarks" => {
                let crate::arguments::NoArgs {} = parse(tool, arguments)?;
                self.ledger.read(|state| state.bookmarks())
            }
            "get_shopping_list" => {
                let args = parse(tool, arguments)?;
                self.ledger.read(|state| state.shopping_list(market, &args))?
            }
            "export_shopping_list" => {
                let args = parse(tool, arguments)?;
                self.ledger.read(|state| state.export(market, &args))?
            }
            // Every listed tool has an arm above; a test calls each of them.
            name => Err(ToolError::Scripted(format!("tool {name} is not implemented"))),
        }
    }
}

fn parse<T: DeserializeOwned>(tool: &str, arguments: &Map<String, Value>) -> Result<T, ToolError> {
    T::deserialize(arguments).map_err(|error| ToolError::InvalidArguments {
        tool: tool.to_owned(),
        problem: error.to_string(),
    })
}

impl ServerHandler for MarketServer {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new(
                env!("CARGO_PKG_NAME"),
                env!("CARGO_PKG_VERSION"),
            ))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.clone()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = request.name.as_ref();
        if !self.tools.iter().any(|listed| listed.name == tool) {
            return Err(ErrorData::invalid_params(format!("unknown tool: {tool}"), None));
        }
        let none = Map::new();
        let arguments = request.arguments.as_ref().unwrap_or(&none);
        self.faults.log(tool, arguments, &context.meta, request.input_responses.as_ref());
        if tool == "choose_hangar" {
            return hangar::choose_hangar(&self.market, &self.faults, request, &context).await;
        }
        let arguments = request.arguments.unwrap_or_default();
        let tool = request.name.as_ref();
        let result = match self.run_tool(tool, &arguments, &context).await {
            Ok(answer) => {
                let mut result = if let Value::String(text) = answer.value {
                    // Only a test tool returns plain text, which has no structured content.
                    CallToolResult::success(vec![ContentBlock::text(text)])
                } else {
                    CallToolResult::structured(answer.value)
                };
                if answer.replayed {
                    let mut meta = MetaObject::default();
                    meta.insert(META_REPLAYED.to_owned(), Value::Bool(true));
                    result.meta = Some(meta);
                }
                result
            }
            Err(error) => error.into_result(),
        };
        Ok(result.into())
    }
}
