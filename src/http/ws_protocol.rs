//! What is said over a WebSocket, and the line it is said on. The transport, [`super::ws`], leads a
//! [`WebSocketProtocol`] without knowing its words; a talk knows no socket.

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

/// One protocol, on one connection.
pub(super) trait WebSocketProtocol: Unpin + 'static {
    /// What a client asks for.
    type Request: Unpin + 'static;
    /// What carrying that out came to.
    type Output: 'static;
    /// Names one of the streams on the line.
    type Key: Eq + Hash + Unpin + 'static;

    /// Something to do as soon as the line is open.
    fn on_open(&mut self, _line: &mut WebSocketConnection<Self::Key>) {}

    /// Reads a client's frame.
    fn parse_frame(&self, text: &str) -> ClientFrame<Self::Request>;

    /// Carries out what a frame asks for.
    fn handle_request(
        &self,
        request: Self::Request,
        line: &WebSocketConnection<Self::Key>,
    ) -> LocalBoxFuture<'static, Result<Self::Output, Problem>>;

    /// What carrying out changes here; and the answers to the frame of that id.
    fn apply_output(
        &mut self,
        id: Option<&Value>,
        done: Self::Output,
        line: &mut WebSocketConnection<Self::Key>,
    ) -> Vec<String>;

    /// The answer to a frame that was not carried out.
    fn error_frame(&self, id: Option<&Value>, problem: &Problem) -> String;
}

/// One client's line, with what is streamed on it. A name stands for one stream.
pub(super) struct WebSocketConnection<K> {
    pub(super) state: AppState,
    pub(super) principal: Principal,
    pipe: Pipe,
    subscriptions: HashMap<K, Subscription>,
}

impl<K: Eq + Hash> WebSocketConnection<K> {
    /// A line whose streams put their frames into `pipe`.
    pub(super) fn new(state: AppState, principal: Principal, pipe: Pipe) -> Self {
        Self { state, principal, pipe, subscriptions: HashMap::new() }
    }

    /// Streams that part of the session from there on; a stream of that name that was going ends.
    pub(super) fn subscribe(
        &mut self,
        name: K,
        session: &SessionRow,
        cursor: Cursor,
        follow: StreamFilter,
        encode: impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
    ) {
        self.remove_ended();
        drop(self.subscriptions.remove(&name));
        let (session_id, agent) = (session.session_id, session.agent.clone());
        let subscribe = |outlet| self.state.runtime.subscribe(session_id, agent, cursor, outlet);
        let subscription = self.pipe.attach(follow, "websocket", encode, subscribe);
        self.subscriptions.insert(name, subscription);
    }

    /// Streams what all sessions commit from now on; a stream of that name that was going ends.
    pub(super) fn subscribe_all(
        &mut self,
        name: K,
        encode: impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
    ) {
        self.remove_ended();
        drop(self.subscriptions.remove(&name));
        let subscribe = |outlet| self.state.runtime.subscribe_all(outlet);
        let subscription = self.pipe.attach(StreamFilter::All, "websocket", encode, subscribe);
        self.subscriptions.insert(name, subscription);
    }

    /// Ends a stream; whether there was one.
    pub(super) fn unsubscribe(&mut self, name: &K) -> bool {
        self.subscriptions.remove(name).is_some()
    }

    /// Whether that is being streamed.
    pub(super) fn is_subscribed(&self, name: &K) -> bool {
        self.subscriptions.get(name).is_some_and(|subscription| !subscription.has_ended())
    }

    /// Errs if the line carries as many streams as it may.
    pub(super) fn check_subscription_limit(&self) -> Result<(), Problem> {
        let max = self.state.limits.subscriptions_per_socket_max;
        if self.subscriptions.len() < max {
            return Ok(());
        }
        let detail = format!("this connection has {max} subscriptions already");
        Err(Problem::too_many("too_many_subscriptions", detail, max as u64))
    }

    /// Lets go of streams that came to their end.
    pub(super) fn remove_ended(&mut self) {
        self.subscriptions.retain(|_, subscription| !subscription.has_ended());
    }

    /// Tells the streams that there is room again.
    pub(super) fn notify_drained(&mut self) {
        self.remove_ended();
        for subscription in self.subscriptions.values() {
            subscription.notify_drained();
        }
    }

    /// Ends all streams.
    pub(super) fn unsubscribe_all(&mut self) {
        self.subscriptions.clear();
    }
}
