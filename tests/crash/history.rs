//! The data that the checker examines after a run: what clients received, the log, and the market's
//! record. It consists of plain JSON and strings and uses none of Greenroom's types, so that the
//! checker does not share Greenroom's mistakes.

use serde_json::Value;
use std::collections::BTreeMap;

/// All data of one server's run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The sessions, by id.
    pub(crate) sessions: BTreeMap<String, Session>,
    /// The `seq`s of the stored events by session, in commit order.
    pub(crate) stored: BTreeMap<String, Vec<u64>>,
    pub(crate) acknowledged: Vec<AcknowledgedCommand>,
    pub(crate) subscriber_logs: Vec<SubscriberLog>,
    /// Calls received by the market, in order.
    pub(crate) market_calls: Vec<MarketCall>,
    /// Effects recorded by the market, in order.
    pub(crate) effects: Vec<MarketEffect>,
    /// Answers to elicitations as the market received them, in order.
    pub(crate) answers: Vec<ElicitationAnswer>,
    /// The stored spending of all users in ISK, including reservations.
    pub(crate) spent: f64,
}

/// A session as the server returns it after the last start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) status: String,
    /// The ids of open approvals.
    pub(crate) pending_approvals: Vec<String>,
    /// The log, from the JSON pages.
    pub(crate) events: Vec<Value>,
}

/// A command that was answered with 2xx and must therefore be in the log.
#[derive(Clone, Debug)]
pub(crate) struct AcknowledgedCommand {
    pub(crate) session: String,
    pub(crate) command: ClientCommand,
}

/// A command of a client.
#[derive(Clone, Debug)]
pub(crate) enum ClientCommand {
    Create,
    /// A message, with the run and `seq` from the response.
    Submit {
        message_id: String,
        text: String,
        run_id: String,
        seq: Option<u64>,
    },
    Cancel {
        run_id: String,
    },
    /// An answer to an approval: a decision on a whole plan, or on another kind.
    Decide {
        approval_id: String,
        decision: String,
    },
    Retitle {
        title: String,
    },
    Fork {
        from: String,
        at_seq: u64,
    },
    Revoke {
        grant_id: String,
    },
    Close,
}

/// The frames that one subscriber received of one session, over all its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubscriberLog {
    /// Describes the subscriber in failure messages.
    pub(crate) name: String,
    pub(crate) session: String,
    pub(crate) frames: Vec<Frame>,
    /// Rejections of cursors that the server had sent.
    pub(crate) rejected_cursors: Vec<String>,
    /// Number of connections.
    pub(crate) connections: u32,
}

/// A frame in the form of the JSON pages.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) cursor: String,
    pub(crate) data: Value,
    /// True for a frame of a WebSocket, whose envelope differs.
    pub(crate) is_websocket: bool,
}

/// A call received by the market.
#[derive(Clone, Debug)]
pub(crate) struct MarketCall {
    pub(crate) tool: String,
    pub(crate) key: String,
    pub(crate) arguments: Value,
}

/// An effect recorded by the market.
#[derive(Clone, Debug)]
pub(crate) struct MarketEffect {
    pub(crate) tool: String,
    pub(crate) key: String,
    pub(crate) arguments: Value,
    pub(crate) result: Value,
}

/// An answer received by the market.
#[derive(Clone, Debug)]
pub(crate) struct ElicitationAnswer {
    /// The idempotency key of the call that requested it.
    pub(crate) key: String,
    pub(crate) answer: Value,
}
