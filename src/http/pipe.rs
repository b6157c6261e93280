//! The bounded pipe between subscribers and one connection. Outlets push encoded frames; the
//! transport takes all ready frames at once, so that they are sent in one write.
//!
//! The subscribers and the connection of a client run on one thread, so the pipe is plain shared
//! memory and not a channel.

use super::stream_filter::{FilterMatch, StreamFilter};
use actix_web::rt;
use bytestring::ByteString;
use greenroom_actors::{
    feed::{DeliveryOutcome, FeedItem, Outlet},
    subscriber::{OutletDrained, StopSubscriber},
};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    rc::Rc,
    task::{Context, Poll, Waker},
};

/// Maximum frames in the pipe. Larger than a page of the log, so that a catch-up does not load the
/// same page repeatedly.
const FRAMES_MAX: usize = 512;
/// Byte limit of the pipe; the last frame may exceed it.
const BYTES_MAX: usize = 256 * 1024;

/// A pipe. Clones share the same pipe.
#[derive(Clone, Default)]
pub(super) struct Pipe(Rc<RefCell<PipeState>>);

#[derive(Default)]
struct PipeState {
    frames: VecDeque<ByteString>,
    bytes: usize,
    waker: Option<Waker>,
    /// True after the connection has closed.
    closed: bool,
}

/// Flags that an outlet and the reader share.
#[derive(Default)]
struct PipeFlags {
    /// True if an item was refused because the pipe was full.
    was_full: Cell<bool>,
    /// True if no more frames will be pushed.
    has_ended: Cell<bool>,
}

/// Encodes the items of a subscriber and pushes their frames into the pipe.
pub(super) struct PipeOutlet<E> {
    pipe: Pipe,
    flags: Rc<PipeFlags>,
    filter: StreamFilter,
    encode: E,
    frames: metrics::Counter,
}

/// The reader's handle of a subscriber. Dropping it stops the subscriber.
pub(super) struct Subscription {
    flags: Rc<PipeFlags>,
    drained: actix::Recipient<OutletDrained>,
    stop: actix::Recipient<StopSubscriber>,
    gauge: metrics::Gauge,
}

impl Pipe {
    /// Starts a subscriber by `subscribe`. Its items that pass `filter` are encoded by `encode` and
    /// pushed into this pipe.
    pub(super) fn attach<A, E>(
        &self,
        filter: StreamFilter,
        transport: &'static str,
        encode: E,
        subscribe: impl FnOnce(Box<dyn Outlet>) -> actix::Addr<A>,
    ) -> Subscription
    where
        A: actix::Actor + actix::Handler<OutletDrained> + actix::Handler<StopSubscriber>,
        A::Context:
            actix::dev::ToEnvelope<A, OutletDrained> + actix::dev::ToEnvelope<A, StopSubscriber>,
        E: FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static,
    {
        let flags = Rc::<PipeFlags>::default();
        let frames = metrics::counter!("greenroom_frames_total", "transport" => transport);
        let gauge = metrics::gauge!("greenroom_subscribers", "transport" => transport);
        let (pipe, outlet_flags) = (self.clone(), flags.clone());
        let outlet = PipeOutlet { pipe, flags: outlet_flags, filter, encode, frames };
        let address = subscribe(Box::new(outlet));
        gauge.increment(1.0);
        let (drained, stop) = (address.clone().recipient(), address.recipient());
        Subscription { flags, drained, stop, gauge }
    }

    /// Returns all ready frames, or pending if there are none. The subscriptions show whether more
    /// frames can follow.
    pub(super) fn poll_frames(&self, cx: &Context<'_>) -> Poll<VecDeque<ByteString>> {
        let mut inner = self.0.borrow_mut();
        if inner.frames.is_empty() {
            inner.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        inner.bytes = 0;
        Poll::Ready(std::mem::take(&mut inner.frames))
    }

    /// Discards all frames and refuses new ones.
    pub(super) fn close(&self) {
        let mut inner = self.0.borrow_mut();
        inner.closed = true;
        inner.frames.clear();
    }

    /// Wakes the reader.
    pub(super) fn wake(&self) {
        let waker = self.0.borrow_mut().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn check_capacity(&self) -> DeliveryOutcome {
        let inner = self.0.borrow();
        if inner.closed {
            DeliveryOutcome::Closed
        } else if inner.frames.len() >= FRAMES_MAX || inner.bytes >= BYTES_MAX {
            DeliveryOutcome::Full
        } else {
            DeliveryOutcome::Accepted
        }
    }

    fn push(&self, frame: ByteString) {
        let mut inner = self.0.borrow_mut();
        inner.bytes += frame.len();
        inner.frames.push_back(frame);
    }
}

impl<E: FnMut(&FeedItem, &mut dyn FnMut(ByteString)) + 'static> Outlet for PipeOutlet<E> {
    fn try_send(&mut self, item: &FeedItem) -> DeliveryOutcome {
        if self.flags.has_ended.get() {
            return DeliveryOutcome::Closed;
        }
        let filter_match = self.filter.classify(item);
        if filter_match == FilterMatch::Excluded {
            return if self.pipe.check_capacity() == DeliveryOutcome::Closed {
                DeliveryOutcome::Closed
            } else {
                DeliveryOutcome::Accepted
            };
        }
        match self.pipe.check_capacity() {
            DeliveryOutcome::Accepted => {}
            DeliveryOutcome::Full => {
                self.flags.was_full.set(true);
                return DeliveryOutcome::Full;
            }
            DeliveryOutcome::Closed => return DeliveryOutcome::Closed,
        }
        if filter_match == FilterMatch::Last {
            self.flags.has_ended.set(true);
        }
        let (pipe, frames) = (&self.pipe, &self.frames);
        (self.encode)(item, &mut |frame| {
            frames.increment(1);
            pipe.push(frame);
        });
        // Also if the item has no frames: it may have been the last one.
        self.pipe.wake();
        DeliveryOutcome::Accepted
    }
}

impl<E> Drop for PipeOutlet<E> {
    /// The subscriber has stopped: wakes the reader, which must not wait for it.
    fn drop(&mut self) {
        self.flags.has_ended.set(true);
        self.pipe.wake();
    }
}

impl Subscription {
    /// True if no frames follow those in the pipe.
    pub(super) fn has_ended(&self) -> bool {
        self.flags.has_ended.get()
    }

    /// Notifies the subscriber that the pipe was drained, if an item was refused before.
    pub(super) fn notify_pipe_drained(&self) {
        if self.flags.was_full.take() {
            let drained = self.drained.send(OutletDrained);
            // If the subscriber has stopped, its outlet was dropped and the reader was notified.
            rt::spawn(async move { drained.await.unwrap_or_default() });
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.gauge.decrement(1.0);
        self.flags.has_ended.set(true);
        // If the mailbox is full, the subscriber stops at its next delivery instead.
        drop(self.stop.try_send(StopSubscriber));
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
            filter: StreamFilter::All,
            encode: |_: &FeedItem, emit: &mut dyn FnMut(ByteString)| emit("x".repeat(1000).into()),
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
    fn e4_full_pipe_refuses_items_until_it_is_read() {
        let pipe = Pipe::default();
        let mut outlet = outlet(&pipe);
        let accepted = (0..10_000)
            .take_while(|_| outlet.try_send(&item()) == DeliveryOutcome::Accepted)
            .count();
        assert_eq!(accepted, BYTES_MAX.div_ceil(1000));
        assert!(outlet.flags.was_full.get());
        let waker = noop_waker();
        let cx = Context::from_waker(&waker);
        let Poll::Ready(frames) = pipe.poll_frames(&cx) else { panic!("frames are ready") };
        assert_eq!(frames.len(), accepted);
        assert!(pipe.poll_frames(&cx).is_pending());
        assert_eq!(outlet.try_send(&item()), DeliveryOutcome::Accepted);
    }

    #[test]
    fn closed_pipe_reports_closed() {
        let pipe = Pipe::default();
        let mut outlet = outlet(&pipe);
        pipe.close();
        assert_eq!(outlet.try_send(&item()), DeliveryOutcome::Closed);
    }

    #[test]
    fn broken_stream_sends_its_error_and_ends() {
        let pipe = Pipe::default();
        let mut outlet = outlet(&pipe);
        let broken = FeedItem { kind: FeedKind::Broken("gone".into()), ..item() };
        assert_eq!(outlet.try_send(&broken), DeliveryOutcome::Accepted);
        assert!(outlet.flags.has_ended.get());
        assert_eq!(outlet.try_send(&item()), DeliveryOutcome::Closed);
    }
}
