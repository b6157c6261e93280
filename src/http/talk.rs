//! What is said over a WebSocket, and the line it is said on. The transport, [`super::ws`], leads a
//! [`Talk`] without knowing its words; a talk knows no socket.

use super::{
    AppState, Problem,
    follow::Follow,
    pipe::{Pipe, Subscription},
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
pub(super) trait Talk: Unpin + 'static {
    /// What a client asks for.
    type Request: Unpin + 'static;
    /// What carrying that out came to.
    type Done: 'static;
    /// Names one of the streams on the line.
    type Stream: Eq + Hash + Unpin + 'static;

    /// Something to do as soon as the line is open.
    fn begin(&mut self, _line: &mut Line<Self::Stream>) {}

    /// Reads a client's frame.
    fn hear(&self, text: &str) -> ClientFrame<Self::Request>;

    /// Carries out what a frame asks for.
    fn carry_out(
        &self,
        request: Self::Request,
        line: &Line<Self::Stream>,
    ) -> LocalBoxFuture<'static, Result<Self::Done, Problem>>;

    /// What carrying out changes here; and the answers to the frame of that id.
    fn done(
        &mut self,
        id: Option<&Value>,
        done: Self::Done,
        line: &mut Line<Self::Stream>,
    ) -> Vec<String>;

    /// The answer to a frame that was not carried out.
    fn refusal(&self, id: Option<&Value>, problem: &Problem) -> String;
}

/// One client's line, with what is streamed on it. A name stands for one stream.
pub(super) struct Line<K> {
    pub(super) state: AppState,
    pub(super) principal: Principal,
    pipe: Pipe,
    streams: HashMap<K, Subscription>,
}

impl<K: Eq + Hash> Line<K> {
    /// A line whose streams put their frames into `pipe`.
    pub(super) fn new(state: AppState, principal: Principal, pipe: Pipe) -> Self {
        Self { state, principal, pipe, streams: HashMap::new() }
    }

    /// Streams that part of the session from there on; a stream of that name that was going ends.
    pub(super) fn attach(
        &mut self,
        name: K,
        session: &SessionRow,
        cursor: Cursor,
        follow: Follow,
        encode: impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
    ) {
        self.forget_ended();
        drop(self.streams.remove(&name));
        let (session_id, agent) = (session.session_id, session.agent.clone());
        let subscribe = |outlet| self.state.runtime.subscribe(session_id, agent, cursor, outlet);
        let subscription = self.pipe.attach(follow, "websocket", encode, subscribe);
        self.streams.insert(name, subscription);
    }

    /// Streams what all sessions commit from now on; a stream of that name that was going ends.
    pub(super) fn attach_to_all(
        &mut self,
        name: K,
        encode: impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
    ) {
        self.forget_ended();
        drop(self.streams.remove(&name));
        let subscribe = |outlet| self.state.runtime.subscribe_all(outlet);
        let subscription = self.pipe.attach(Follow::Everything, "websocket", encode, subscribe);
        self.streams.insert(name, subscription);
    }

    /// Ends a stream; whether there was one.
    pub(super) fn detach(&mut self, name: &K) -> bool {
        self.streams.remove(name).is_some()
    }

    /// Whether that is being streamed.
    pub(super) fn has(&self, name: &K) -> bool {
        self.streams.get(name).is_some_and(|subscription| !subscription.has_ended())
    }

    /// Errs if the line carries as many streams as it may.
    pub(super) fn check_room(&self) -> Result<(), Problem> {
        let max = self.state.limits.subscriptions_per_socket_max;
        if self.streams.len() < max {
            return Ok(());
        }
        let detail = format!("this connection has {max} subscriptions already");
        Err(Problem::too_many("too_many_subscriptions", detail, max as u64))
    }

    /// Lets go of streams that came to their end.
    pub(super) fn forget_ended(&mut self) {
        self.streams.retain(|_, subscription| !subscription.has_ended());
    }

    /// Tells the streams that there is room again.
    pub(super) fn room_again(&mut self) {
        self.forget_ended();
        for subscription in self.streams.values() {
            subscription.room_again();
        }
    }

    /// Ends all streams.
    pub(super) fn hang_up(&mut self) {
        self.streams.clear();
    }
}
