//! What is known of a play once the curtain is down: what clients were told, what the log says, and
//! what the market wrote down. Plain JSON and strings, none of Greenroom's own types: whoever judges
//! must not share the mistakes of the judged.

use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The sessions, by id.
    pub(crate) sessions: BTreeMap<String, Session>,
    /// The numbers of the events in the database file, by session, in the order of commit.
    pub(crate) stored: BTreeMap<String, Vec<u64>>,
    pub(crate) acknowledged: Vec<AcknowledgedCommand>,
    pub(crate) subscriber_logs: Vec<SubscriberLog>,
    /// The calls that reached the market, in order.
    pub(crate) market_calls: Vec<MarketCall>,
    /// The effects that the market wrote down, in order.
    pub(crate) effects: Vec<MarketEffect>,
    /// What people said whom a tool of the market asked, as it reached the tool, in order.
    pub(crate) answers: Vec<ElicitationAnswer>,
    /// What the database has as spent by all, in ISK; reservations are in it.
    pub(crate) spent: f64,
}

/// A session as the server tells it after the last start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) status: String,
    /// The ids of the questions that wait.
    pub(crate) pending_approvals: Vec<String>,
    /// The log, from the JSON pages.
    pub(crate) events: Vec<Value>,
}

/// A command that was answered with 2xx, and so must be in the log.
#[derive(Clone, Debug)]
pub(crate) struct AcknowledgedCommand {
    pub(crate) session: String,
    pub(crate) command: ClientCommand,
}

/// What a client asked.
#[derive(Clone, Debug)]
pub(crate) enum ClientCommand {
    Create,
    /// Where the answer says it stands.
    Submit {
        message_id: String,
        text: String,
        run_id: String,
        seq: Option<u64>,
    },
    Cancel {
        run_id: String,
    },
    /// `approve` or `reject` of whole plans, and the words on other questions.
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

/// All that one listener was told of one session, over all its connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct SubscriberLog {
    /// For people who read a failure.
    pub(crate) who: String,
    pub(crate) session: String,
    pub(crate) frames: Vec<Frame>,
    /// Refusals of a cursor that the server itself had given.
    pub(crate) rejected_cursors: Vec<String>,
    /// How often it had to connect.
    pub(crate) connections: u32,
}

/// One frame, in the shape of the JSON pages.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) cursor: String,
    pub(crate) data: Value,
    /// Whether it came over a WebSocket, whose frames say some things elsewhere.
    pub(crate) is_websocket: bool,
}

/// A call as it reached the market.
#[derive(Clone, Debug)]
pub(crate) struct MarketCall {
    pub(crate) tool: String,
    pub(crate) key: String,
    pub(crate) arguments: Value,
}

/// An effect that the market had.
#[derive(Clone, Debug)]
pub(crate) struct MarketEffect {
    pub(crate) tool: String,
    pub(crate) key: String,
    pub(crate) arguments: Value,
    pub(crate) result: Value,
}

/// An answer as it reached the market.
#[derive(Clone, Debug)]
pub(crate) struct ElicitationAnswer {
    /// The key of the call that asked.
    pub(crate) key: String,
    pub(crate) answer: Value,
}
