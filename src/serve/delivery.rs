//! Delivery of bodies to clients. Input: an answer. Output: its bytes, which are counted until the
//! connection has sent them. The answer holds a place and entries of the index. The client has a
//! limited time to read it:
//!
//! - A list or a single object must be read within a minute, as in upstream, or within 10 s if the
//!   request had no place.
//! - A watch with unread data must be read at least every two minutes.
//!
//! After that, the answer is cut off. An HTTP/2 stream is reset, and its connection stays open. An
//! HTTP/1.1 connection is closed. Other mechanisms do not notice a client that keeps its connection
//! alive and opens no flow-control window: its body is not polled, and the last bytes would stay in
//! the connection's buffers forever.

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

/// Time for which a client may leave the data of a watch unread. TCP gets the same timeout.
pub const STALL_TIMEOUT: Duration = Duration::from_mins(2);

tokio::task_local! {
    /// The exchange of the current task.
    static EXCHANGE: Arc<AbortableExchange>;
}

/// A unit that can be cut off: an HTTP/2 stream, or an HTTP/1.1 connection with its answers.
#[derive(Debug, Default)]
pub struct AbortableExchange(Mutex<DeliveryState>);

#[derive(Debug, Default)]
struct DeliveryState {
    deadline: Option<DeliveryDeadline>,
    cut: bool,
}

/// The time limits of an answer.
#[derive(Clone, Debug)]
enum DeliveryDeadline {
    Until(Instant),
    /// [`STALL_TIMEOUT`] after the last sent byte.
    WhileMoving(Arc<BytesInFlight>),
}

impl AbortableExchange {
    /// The exchange of the running task. None in a router without a listener.
    fn current() -> Option<Arc<Self>> {
        EXCHANGE.try_with(Arc::clone).ok()
    }

    /// Runs the exchange to its end. None if it was cut off.
    pub async fn run<F: Future>(self: Arc<Self>, exchange: F) -> Option<F::Output> {
        let of = Arc::clone(&self);
        let bounded = async {
            tokio::select! {
                // The exchange is polled first, because it moves the time of the cut.
                biased;
                end = exchange => Some(end),
                () = of.cut() => None,
            }
        };
        EXCHANGE.scope(self, bounded).await
    }

    /// Completes when the exchange must be cut off. It must be polled in the same task, after the
    /// exchange.
    async fn cut(&self) {
        let mut timer: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|context| {
            loop {
                let Some(deadline_time) = self.deadline_time() else {
                    return Poll::Pending;
                };
                if deadline_time <= Instant::now() {
                    self.state().cut = true;
                    return Poll::Ready(());
                }
                let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline_time)));
                // A timer that fires too early is cheaper than a timer that is set for each event.
                if timer.is_elapsed() || timer.deadline() > deadline_time {
                    timer.as_mut().reset(deadline_time);
                }
                ready!(timer.as_mut().poll(context));
            }
        })
        .await;
    }

    fn deadline_time(&self) -> Option<Instant> {
        match self.state().deadline.as_ref()? {
            DeliveryDeadline::Until(deadline_time) => Some(*deadline_time),
            DeliveryDeadline::WhileMoving(ledger) => {
                ledger.moved().map(|moved| moved + STALL_TIMEOUT)
            }
        }
    }

    fn set(&self, deadline: DeliveryDeadline) {
        self.state().deadline = Some(deadline);
    }

    fn was_cut(&self) -> bool {
        self.state().cut
    }

    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of one body that have not been sent.
#[derive(Debug)]
struct BytesInFlight {
    tally: Mutex<SentProgress>,
    /// The waker of the body, which waits until its last bytes have been sent.
    waker: AtomicWaker,
}

#[derive(Debug)]
struct SentProgress {
    chunks: usize,
    /// The time at which the last byte was sent, or the first one arrived.
    moved: Instant,
}

impl BytesInFlight {
    fn tally(&self) -> MutexGuard<'_, SentProgress> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time since which nothing was sent although there is data.
    fn moved(&self) -> Option<Instant> {
        let tally = self.tally();
        (tally.chunks > 0).then_some(tally.moved)
    }
}

/// A part of a body. It is dropped when it was sent, or when it cannot be sent.
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

/// A body that ends when its last byte has been sent, with the values that it keeps until then.
pub struct Delivery<K> {
    body: Body,
    /// True if the body has ended.
    over: bool,
    exchange: Option<Arc<AbortableExchange>>,
    ledger: Arc<BytesInFlight>,
    /// Called if the exchange is cut off.
    on_cut: Option<Box<dyn FnOnce() + Send>>,
    _kept: K,
}

impl<K: Send + Unpin + 'static> Delivery<K> {
    /// The body of an answer that the client must read `within` this time, or of a watch. It holds
    /// `kept` until it has been sent.
    pub fn body(
        body: Body,
        within: Option<Duration>,
        kept: K,
        on_cut: impl FnOnce() + Send + 'static,
    ) -> Body {
        let ledger = Arc::new(BytesInFlight {
            tally: Mutex::new(SentProgress {
                chunks: 0,
                moved: Instant::now(),
            }),
            waker: AtomicWaker::new(),
        });
        let exchange = AbortableExchange::current();
        if let Some(exchange) = &exchange {
            exchange.set(match within {
                Some(time) => DeliveryDeadline::Until(Instant::now() + time),
                None => DeliveryDeadline::WhileMoving(Arc::clone(&ledger)),
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
                // Without a listener, it is not known what has been sent.
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
        // For a body of known length, HTTP/1.1 drops the body when it has all bytes, sent or not.
        exchange.set(DeliveryDeadline::WhileMoving(Arc::clone(&self.ledger)));
    }
}

#[cfg(test)]
mod tests;
