//! The interface between the WebSocket transport and its protocols. The transport, [`super::ws`],
//! drives a [`WebSocketProtocol`] without knowing its frames; a protocol does not know the socket.

use super::{
    AppState, Problem,
    pipe::{Pipe, Subscription},
    stream_filter::StreamFilter,
    ws_frames::ClientFrame,
};
use crate::auth::Principal;
use bytestring::ByteString;
use futures::future::LocalBoxFuture;
use greenroom_actors::feed::FeedItem;
use greenroom_core::{cursor::Cursor, session::SessionRow};
use serde_json::Value;
use std::{collections::HashMap, hash::Hash};

/// The protocol of one connection.
pub(super) trait WebSocketProtocol: Unpin + 'static {
    /// A client's request.
    type Request: Unpin + 'static;
    /// The output of a handled request.
    type Output: 'static;
    /// The key of a stream on the connection.
    type Key: Eq + Hash + Unpin + 'static;

    /// Called when the connection opens. Returns the first frames to send.
    fn on_open(&mut self, _connection: &mut WebSocketConnection<Self::Key>) -> Vec<String> {
        Vec::new()
    }

    /// Parses a client frame.
    fn parse_frame(&self, text: &str) -> ClientFrame<Self::Request>;

    /// Handles a request.
    fn handle_request(
        &self,
        request: Self::Request,
        connection: &WebSocketConnection<Self::Key>,
    ) -> LocalBoxFuture<'static, Result<Self::Output, Problem>>;

    /// Applies the output of the request with this id. Returns the frames to respond with.
    fn apply_output(
        &mut self,
        id: Option<&Value>,
        output: Self::Output,
        connection: &mut WebSocketConnection<Self::Key>,
    ) -> Vec<String>;

    /// Returns the error frame for a request that failed.
    fn error_frame(&self, id: Option<&Value>, problem: &Problem) -> String;
}

/// A client's connection with its streams, by key.
pub(super) struct WebSocketConnection<K> {
    pub(super) state: AppState,
    pub(super) principal: Principal,
    pipe: Pipe,
    subscriptions: HashMap<K, Subscription>,
}

impl<K: Eq + Hash> WebSocketConnection<K> {
    /// Creates a connection whose streams push their frames into `pipe`.
    pub(super) fn new(state: AppState, principal: Principal, pipe: Pipe) -> Self {
        Self { state, principal, pipe, subscriptions: HashMap::new() }
    }

    /// Streams the part of the session that `filter` selects, from `cursor`. Replaces an existing
    /// stream with the same key.
    pub(super) fn subscribe(
        &mut self,
        key: K,
        session: &SessionRow,
        cursor: Cursor,
        filter: StreamFilter,
        encode: impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
    ) {
        self.remove_ended();
        drop(self.subscriptions.remove(&key));
        let (session_id, agent) = (session.session_id, session.agent.clone());
        let subscribe = |outlet| self.state.runtime.subscribe(session_id, agent, cursor, outlet);
        let subscription = self.pipe.attach(filter, "websocket", encode, subscribe);
        self.subscriptions.insert(key, subscription);
    }

    /// Streams the events that all sessions commit from now on. Replaces an existing stream with the
    /// same key.
    pub(super) fn subscribe_all(
        &mut self,
        key: K,
        encode: impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
    ) {
        self.remove_ended();
        drop(self.subscriptions.remove(&key));
        let subscribe = |outlet| self.state.runtime.subscribe_all(outlet);
        let subscription = self.pipe.attach(StreamFilter::All, "websocket", encode, subscribe);
        self.subscriptions.insert(key, subscription);
    }

    /// Ends a stream. Returns true if it existed.
    pub(super) fn unsubscribe(&mut self, key: &K) -> bool {
        self.subscriptions.remove(key).is_some()
    }

    /// True if the stream exists and has not ended.
    pub(super) fn is_subscribed(&self, key: &K) -> bool {
        self.subscriptions.get(key).is_some_and(|subscription| !subscription.has_ended())
    }

    /// Returns an error if the connection has the maximum number of streams.
    pub(super) fn check_subscription_limit(&self) -> Result<(), Problem> {
        let max = self.state.limits.subscriptions_per_socket_max;
        if self.subscriptions.len() < max {
            return Ok(());
        }
        let detail = format!("the connection has {max} subscriptions, the maximum");
        Err(Problem::too_many("too_many_subscriptions", detail, max as u64))
    }

    /// Removes streams that have ended.
    pub(super) fn remove_ended(&mut self) {
        self.subscriptions.retain(|_, subscription| !subscription.has_ended());
    }

    /// Notifies the subscribers that the pipe was drained.
    pub(super) fn notify_pipe_drained(&mut self) {
        self.remove_ended();
        for subscription in self.subscriptions.values() {
            subscription.notify_pipe_drained();
        }
    }

    /// Ends all streams.
    pub(super) fn unsubscribe_all(&mut self) {
        self.subscriptions.clear();
    }
}
