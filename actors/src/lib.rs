//! The actors of Greenroom and the ports they depend on. Contains no SQL, HTTP or wire formats.
//!
//! ```text
//! client → SessionRegistry → Session: decide → append → evolve → publish → dispatch
//!                              ↑  │                              │         ├→ LlmStream
//!                       facts  │  └────────── ApprovalDesk ◄─────┤         ├→ ToolExecutor
//!                              └── workers                       │         ├→ Delegation → SessionRegistry
//!                                                                │         └→ ExclusiveLocks
//!                                                                └→ EventBus → Subscriber → Outlet
//! ```

pub mod approval_desk;
pub mod built_in;
pub mod circuit_breaker;
pub mod delegation;
pub mod event_bus;
pub mod exclusive_locks;
pub mod feed;
pub mod firehose;
pub mod governance;
pub mod limits;
pub mod llm_stream;
pub mod mailbox;
pub mod order;
pub mod ports;
mod result_cache;
pub mod runtime;
pub mod session;
pub mod session_registry;
pub mod status_board;
pub mod subscriber;
pub mod testing;
pub mod tool_connection;
pub mod tool_executor;
pub mod tool_servers;
