//! The bounded pipe between subscribers and one connection. Outlets put encoded frames in, the
//! transport takes all that is ready at once, so that what came together leaves together.
//!
//! Subscribers and connections of one client live on one thread, so this is plain shared memory
//! and no channel.

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

/// Frames that wait for the connection. More than a page of the log, so that a catch-up does not
/// read the same page over and over.
const FRAMES_MAX: usize = 512;
/// Bytes that wait for the connection; one frame may go beyond.
const BYTES_MAX: usize = 256 * 1024;

/// The pipe; clones are one.
#[derive(Clone, Default)]
pub(super) struct Pipe(Rc<RefCell<PipeState>>);

#[derive(Default)]
struct PipeState {
    frames: VecDeque<ByteString>,
    bytes: usize,
    waker: Option<Waker>,
    /// Nobody reads any more.
    closed: bool,
}

/// What one outlet and the reader tell each other.
#[derive(Default)]
struct PipeFlags {
    /// Something was refused for want of room.
    was_full: Cell<bool>,
    /// Nothing more comes.
    has_ended: Cell<bool>,
}

/// Encodes what a subscriber tells and puts it into the pipe.
pub(super) struct PipeOutlet<E> {
    pipe: Pipe,
    flags: Rc<PipeFlags>,
    filter: StreamFilter,
    encode: E,
    frames: metrics::Counter,
}

/// The reader's hold on one subscriber; letting go stops it.
pub(super) struct Subscription {
    flags: Rc<PipeFlags>,
    drained: actix::Recipient<OutletDrained>,
    stop: actix::Recipient<StopSubscriber>,
    gauge: metrics::Gauge,
}

impl Pipe {
    /// Starts a subscriber with `subscribe` that puts what it tells into this pipe: `encode` makes
    /// frames of each item.
    pub(super) fn attach<A, E>(
        &self,
        follow: StreamFilter,
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
        let (pipe, flags_too) = (self.clone(), flags.clone());
        let outlet = PipeOutlet { pipe, flags: flags_too, filter: follow, encode, frames };
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
        let scope = self.filter.classify(item);
        if scope == FilterMatch::Excluded {
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
        if scope == FilterMatch::Last {
            self.flags.has_ended.set(true);
        }
        let (pipe, frames) = (&self.pipe, &self.frames);
        (self.encode)(item, &mut |frame| {
            frames.increment(1);
            pipe.push(frame);
        });
        // Also where there is nothing to say: it may have been the last.
        self.pipe.wake();
        DeliveryOutcome::Accepted
    }
}

impl<E> Drop for PipeOutlet<E> {
    /// The subscriber has stopped, for whatever reason: the reader must not wait for it.
    fn drop(&mut self) {
        self.flags.has_ended.set(true);
        self.pipe.wake();
    }
}

impl Subscription {
    /// Whether nothing more comes after what is in the pipe.
    pub(super) fn has_ended(&self) -> bool {
        self.flags.has_ended.get()
    }

    /// Tells the subscriber that there is room again, if it was refused any.
    pub(super) fn notify_drained(&self) {
        if self.flags.was_full.take() {
            let drained = self.drained.send(OutletDrained);
            // If it is gone, its outlet is too, and the reader knows.
            rt::spawn(async move { drained.await.unwrap_or_default() });
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.gauge.decrement(1.0);
        self.flags.has_ended.set(true);
        // A full mailbox does not take this; but then its next offer finds nobody.
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
        let taken = (0..10_000)
            .take_while(|_| outlet.try_send(&item()) == DeliveryOutcome::Accepted)
            .count();
        assert_eq!(taken, BYTES_MAX.div_ceil(1000));
        assert!(outlet.flags.was_full.get());
        let waker = noop_waker();
        let cx = Context::from_waker(&waker);
        let Poll::Ready(frames) = pipe.poll_frames(&cx) else { panic!("frames are ready") };
        assert_eq!(frames.len(), taken);
        assert!(pipe.poll_frames(&cx).is_pending());
        assert_eq!(outlet.try_send(&item()), DeliveryOutcome::Accepted);
    }

    #[test]
    fn closed_pipe_reports_gone() {
        let pipe = Pipe::default();
        let mut outlet = outlet(&pipe);
        pipe.close();
        assert_eq!(outlet.try_send(&item()), DeliveryOutcome::Closed);
    }

    #[test]
    fn a_stream_that_broke_says_so_and_ends() {
        let pipe = Pipe::default();
        let mut outlet = outlet(&pipe);
        let broken = FeedItem { kind: FeedKind::Broken("gone".into()), ..item() };
        assert_eq!(outlet.try_send(&broken), DeliveryOutcome::Accepted);
        assert!(outlet.flags.has_ended.get());
        assert_eq!(outlet.try_send(&item()), DeliveryOutcome::Closed);
    }
}
