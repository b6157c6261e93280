//! The bounded pipe between subscribers and one connection. Outlets put encoded frames in, the
//! transport takes all that is ready at once, so that what came together leaves together.
//!
//! Subscribers and connections of one client live on one thread, so this is plain shared memory
//! and no channel.

use super::follow::{Follow, Scope};
use actix_web::rt;
use bytestring::ByteString;
use greenroom_actors::{
    feed::{FeedItem, Offer, Outlet},
    subscriber::{Drained, Stop},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Frames that wait for the connection. More than a page of the log, so that a catch-up does not
/// read the same page over and over.
const FRAMES_MAX: usize = 512;
/// Bytes that wait for the connection; one frame may go beyond.
const BYTES_MAX: usize = 256 * 1024;

/// The pipe; clones are one.
#[derive(Clone, Default)]
pub(super) struct Pipe(Rc<RefCell<Inner>>);

#[derive(Default)]
struct Inner {
    frames: VecDeque<ByteString>,
    bytes: usize,
    waker: Option<Waker>,
    /// Nobody reads any more.
    closed: bool,
}

/// What one outlet and the reader tell each other.
#[derive(Default)]
struct Flags {
    /// Something was refused for want of room.
    refused: Cell<bool>,
    /// Nothing more comes.
    ended: Cell<bool>,
}

/// Encodes what a subscriber tells and puts it into the pipe.
pub(super) struct PipeOutlet<E> {
    pipe: Pipe,
    flags: Rc<Flags>,
    follow: Follow,
    encode: E,
    frames: metrics::Counter,
}

/// The reader's hold on one subscriber; letting go stops it.
pub(super) struct Subscription {
    flags: Rc<Flags>,
    drained: actix::Recipient<Drained>,
    stop: actix::Recipient<Stop>,
    gauge: metrics::Gauge,
}

impl Pipe {
    /// Starts a subscriber with `subscribe` that puts what it tells into this pipe: `encode` makes
    /// frames of each item.
    pub(super) fn attach<A, E>(
        &self,
        follow: Follow,
        transport: &'static str,
        encode: E,
        subscribe: impl FnOnce(Box<dyn Outlet>) -> actix::Addr<A>,
    ) -> Subscription
    where
        A: actix::Actor + actix::Handler<Drained> + actix::Handler<Stop>,
        A::Context: actix::dev::ToEnvelope<A, Drained> + actix::dev::ToEnvelope<A, Stop>,
        E: FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
    {
        let flags = Rc::<Flags>::default();
        let frames = metrics::counter!("greenroom_frames_total", "transport" => transport);
        let gauge = metrics::gauge!("greenroom_subscribers", "transport" => transport);
        let (pipe, flags_too) = (self.clone(), flags.clone());
        let outlet = PipeOutlet { pipe, flags: flags_too, follow, encode, frames };
        let address = subscribe(Box::new(outlet));
        gauge.increment(1.0);
        let (drained, stop) = (address.clone().recipient(), address.recipient());
        Subscription { flags, drained, stop, gauge }
    }

    /// All frames that are ready. Pending while there are none; the reader knows by its
    /// subscriptions whether more can come.
    pub(super) fn poll_frames(&self, cx: &Context<'_>) -> Poll<VecDeque<ByteString>> {
        let mut inner = self.0.borrow_mut();
        if inner.frames.is_empty() {
            inner.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        inner.bytes = 0;
        Poll::Ready(std::mem::take(&mut inner.frames))
    }

    /// Refuses everything from now on.
    pub(super) fn close(&self) {
        let mut inner = self.0.borrow_mut();
        inner.closed = true;
        inner.frames.clear();
    }

    /// Makes the reader look again.
    pub(super) fn wake(&self) {
        let waker = self.0.borrow_mut().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn room(&self) -> Offer {
        let inner = self.0.borrow();
        if inner.closed {
            Offer::Gone
        } else if inner.frames.len() >= FRAMES_MAX || inner.bytes >= BYTES_MAX {
            Offer::Full
        } else {
            Offer::Taken
        }
    }

    fn put(&self, frame: ByteString) {
        let mut inner = self.0.borrow_mut();
        inner.bytes += frame.len();
        inner.frames.push_back(frame);
    }
}

impl<E: FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static> Outlet for PipeOutlet<E> {
    fn offer(&mut self, item: &FeedItem) -> Offer {
        if self.flags.ended.get() {
            return Offer::Gone;
        }
        let scope = self.follow.scope(item);
        if scope == Scope::Outside {
            return if self.pipe.room() == Offer::Gone { Offer::Gone } else { Offer::Taken };
        }
        match self.pipe.room() {
            Offer::Taken => {}
            Offer::Full => {
                self.flags.refused.set(true);
                return Offer::Full;
            }
            Offer::Gone => return Offer::Gone,
        }
        if scope == Scope::Last {
            self.flags.ended.set(true);
        }
        let (pipe, frames) = (&self.pipe, &self.frames);
        (self.encode)(item, &mut |frame| {
            frames.increment(1);
            pipe.put(frame);
        });
        // Also where there is nothing to say: it may have been the last.
        self.pipe.wake();
        Offer::Taken
    }
}

impl<E> Drop for PipeOutlet<E> {
    /// The subscriber has stopped, for whatever reason: the reader must not wait for it.
    fn drop(&mut self) {
        self.flags.ended.set(true);
        self.pipe.wake();
    }
}

impl Subscription {
    /// Whether nothing more comes after what is in the pipe.
    pub(super) fn has_ended(&self) -> bool {
        self.flags.ended.get()
    }

    /// Tells the subscriber that there is room again, if it was refused any.
    pub(super) fn room_again(&self) {
        if self.flags.refused.take() {
            let drained = self.drained.send(Drained);
            // If it is gone, its outlet is too, and the reader knows.
            rt::spawn(async move { drained.await.unwrap_or_default() });
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.gauge.decrement(1.0);
        self.flags.ended.set(true);
        // A full mailbox does not take this; but then its next offer finds nobody.
        drop(self.stop.try_send(Stop));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::noop_waker;
    use greenroom_actors::feed::FeedKind;
    use greenroom_core::{
        cursor::Cursor,
        ids::{AgentName, SessionId},
    };

    fn outlet(
        pipe: &Pipe,
    ) -> PipeOutlet<impl FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static> {
        PipeOutlet {
            pipe: pipe.clone(),
            flags: Rc::default(),
            follow: Follow::Everything,
            encode: |_: &FeedItem, put: &mut dyn FnMut(ByteString)| put("x".repeat(1000).into()),
            frames: metrics::Counter::noop(),
        }
    }

    fn item() -> FeedItem {
        let run_id = greenroom_core::ids::RunId(uuid::Uuid::nil());
        let message_id = greenroom_core::ids::MessageId::parse("m").unwrap();
        FeedItem {
            session_id: SessionId(uuid::Uuid::nil()),
            agent: AgentName::parse("a").unwrap(),
            cursor: Cursor::default(),
            kind: FeedKind::Delta { run_id, step: 1, message_id, text: "x".into() },
        }
    }

    #[test]
    fn e4_a_full_pipe_refuses_and_takes_again_once_read() {
        let pipe = Pipe::default();
        let mut outlet = outlet(&pipe);
        let taken = (0..10_000).take_while(|_| outlet.offer(&item()) == Offer::Taken).count();
        assert_eq!(taken, BYTES_MAX.div_ceil(1000));
        assert!(outlet.flags.refused.get());
        let waker = noop_waker();
        let cx = Context::from_waker(&waker);
        let Poll::Ready(frames) = pipe.poll_frames(&cx) else { panic!("frames are ready") };
        assert_eq!(frames.len(), taken);
        assert!(pipe.poll_frames(&cx).is_pending());
        assert_eq!(outlet.offer(&item()), Offer::Taken);
    }

    #[test]
    fn nobody_reads_any_more() {
        let pipe = Pipe::default();
        let mut outlet = outlet(&pipe);
        pipe.close();
        assert_eq!(outlet.offer(&item()), Offer::Gone);
    }

    #[test]
    fn a_stream_that_broke_says_so_and_ends() {
        let pipe = Pipe::default();
        let mut outlet = outlet(&pipe);
        let broken = FeedItem { kind: FeedKind::Broken("gone".into()), ..item() };
        assert_eq!(outlet.offer(&broken), Offer::Taken);
        assert!(outlet.flags.ended.get());
        assert_eq!(outlet.offer(&item()), Offer::Gone);
    }
}
