//! The way of a body to its client. Enters: an answer. Leaves: its bytes, counted until
//! the connection has sent them. What the answer holds (its place, the entries it is
//! written from) it holds for no longer than the client may take:
//!
//! * an answer must have been taken within a minute, as upstream, or within 10 s if its
//!   request never had a place;
//! * of a watch, something must be taken every two minutes, if there is anything.
//!
//! Past that the exchange is cut off: an HTTP/2 stream is reset and its connection goes
//! on, an HTTP/1.1 connection is closed. Nothing but this notices a client that keeps its
//! connection alive and opens no flow-control window: the body is not even asked for
//! more, and the last bytes would wait in the connection's buffers for ever.

use axum::body::Body;
use bytes::Bytes;
use futures::task::AtomicWaker;
use hyper::body::{Frame, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client may take nothing of a watch that has something for it; also what
/// TCP is told to wait for.
pub const STALLED: Duration = Duration::from_mins(2);

tokio::task_local! {
    /// The exchange that the task at work belongs to.
    static EXCHANGE: Arc<Exchange>;
}

/// What can be cut off: an HTTP/2 stream, or an HTTP/1.1 connection with one answer after
/// the other.
#[derive(Debug, Default)]
pub struct Exchange(Mutex<DeliveryState>);

#[derive(Debug, Default)]
struct DeliveryState {
    patience: Option<Patience>,
    cut: bool,
}

/// How long there is patience.
#[derive(Clone, Debug)]
enum Patience {
    Until(Instant),
    /// For [`STALLED`] after the last of these bytes that was sent.
    WhileMoving(Arc<BytesInFlight>),
}

impl Exchange {
    /// The one that the running task belongs to; none in a router without a listener.
    fn current() -> Option<Arc<Self>> {
        EXCHANGE.try_with(Arc::clone).ok()
    }

    /// Runs what the exchange consists of, until it ends; none if it was cut off.
    pub async fn run<F: Future>(self: Arc<Self>, exchange: F) -> Option<F::Output> {
        let of = Arc::clone(&self);
        let bounded = async {
            tokio::select! {
                // The order matters: what the exchange does moves the time of the cut.
                biased;
                end = exchange => Some(end),
                () = of.cut() => None,
            }
        };
        EXCHANGE.scope(self, bounded).await
    }

    /// Ends when the exchange is to be cut off. To be polled in the same task after it.
    async fn cut(&self) {
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|context| {
            loop {
                let Some(due) = self.due() else {
                    return Poll::Pending;
                };
                if due <= Instant::now() {
                    self.state().cut = true;
                    return Poll::Ready(());
                }
                let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
                // One that is early is cheaper than one that is set anew for each event.
                if timer.is_elapsed() || timer.deadline() > due {
                    timer.as_mut().reset(due);
                }
                ready!(timer.as_mut().poll(context));
            }
        })
        .await;
    }

    fn due(&self) -> Option<Instant> {
        match self.state().patience.as_ref()? {
            Patience::Until(due) => Some(*due),
            Patience::WhileMoving(ledger) => ledger.moved().map(|moved| moved + STALLED),
        }
    }

    fn set(&self, patience: Patience) {
        self.state().patience = Some(patience);
    }

    fn was_cut(&self) -> bool {
        self.state().cut
    }

    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of one body that are on their way.
#[derive(Debug)]
struct BytesInFlight {
    tally: Mutex<Tally>,
    /// Of the body, which waits for its last bytes to be sent.
    waker: AtomicWaker,
}

#[derive(Debug)]
struct Tally {
    chunks: usize,
    /// When the last one was sent, or the first one came.
    moved: Instant,
}

impl BytesInFlight {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when nothing was sent although there is something to send.
    fn moved(&self) -> Option<Instant> {
        let tally = self.tally();
        (tally.chunks > 0).then_some(tally.moved)
    }
}

/// A part of a body; dropped once it is sent, or never will be.
struct Chunk {
    bytes: Bytes,
    ledger: Arc<BytesInFlight>,
}

impl Chunk {
    fn of(bytes: Bytes, ledger: &Arc<BytesInFlight>) -> Bytes {
        let mut tally = ledger.tally();
        if tally.chunks == 0 {
            tally.moved = Instant::now();
        }
        tally.chunks += 1;
        drop(tally);
        let ledger = Arc::clone(ledger);
        Bytes::from_owner(Self { bytes, ledger })
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut tally = self.ledger.tally();
        tally.chunks -= 1;
        tally.moved = Instant::now();
        let last = tally.chunks == 0;
        drop(tally);
        if last {
            self.ledger.waker.wake();
        }
    }
}

/// A body that ends when its last byte is sent, and what is kept until then.
pub struct Delivery<K> {
    body: Body,
    /// Whether the body has come to its end.
    over: bool,
    exchange: Option<Arc<Exchange>>,
    ledger: Arc<BytesInFlight>,
    /// Called if the exchange is cut off.
    on_cut: Option<Box<dyn FnOnce() + Send>>,
    _kept: K,
}

impl<K: Send + Unpin + 'static> Delivery<K> {
    /// The body of an answer that its client has to take `within` this time, or of a watch,
    /// which holds `kept` until it is sent.
    pub fn body(
        body: Body,
        within: Option<Duration>,
        kept: K,
        on_cut: impl FnOnce() + Send + 'static,
    ) -> Body {
        let ledger = Arc::new(BytesInFlight {
            tally: Mutex::new(Tally {
                chunks: 0,
                moved: Instant::now(),
            }),
            waker: AtomicWaker::new(),
        });
        let exchange = Exchange::current();
        if let Some(exchange) = &exchange {
            exchange.set(match within {
                Some(time) => Patience::Until(Instant::now() + time),
                None => Patience::WhileMoving(Arc::clone(&ledger)),
            });
        }
        Body::new(Self {
            body,
            over: false,
            exchange,
            ledger,
            on_cut: Some(Box::new(on_cut)),
            _kept: kept,
        })
    }
}

impl<K: Unpin> hyper::body::Body for Delivery<K> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if !this.over {
            let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
            if let Some(frame) = frame {
                // Without a listener nobody tells what has been sent.
                let counted = this.exchange.is_some();
                return Poll::Ready(Some(frame.map(|frame| {
                    frame.map_data(|bytes| {
                        if counted && !bytes.is_empty() {
                            Chunk::of(bytes, &this.ledger)
                        } else {
                            bytes
                        }
                    })
                })));
            }
            this.over = true;
        }
        this.ledger.waker.register(context.waker());
        if this.ledger.moved().is_some() {
            return Poll::Pending;
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream() && self.ledger.moved().is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<K> Drop for Delivery<K> {
    fn drop(&mut self) {
        let Some(exchange) = &self.exchange else {
            return;
        };
        if exchange.was_cut()
            && let Some(on_cut) = self.on_cut.take()
        {
            on_cut();
        }
        // HTTP/1.1 lets go of a body of known length when it has all of it, sent or not.
        exchange.set(Patience::WhileMoving(Arc::clone(&self.ledger)));
    }
}

#[cfg(test)]
mod tests;
