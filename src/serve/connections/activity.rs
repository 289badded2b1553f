//! The requests in flight of a connection. Input: requests and their answers. Output: the time
//! since which a connection is idle. A request is in flight until the body of its answer is
//! dropped.

use super::ClientConnection;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::time::Instant;

/// The requests of a connection.
pub struct RequestActivity(Mutex<OpenRequests>);

struct OpenRequests {
    asked: bool,
    /// Number of requests whose answers have not been sent.
    in_flight: usize,
    /// The time of the last answer.
    since: Instant,
}

impl RequestActivity {
    /// The state before the first request.
    pub fn new() -> Self {
        Self(Mutex::new(OpenRequests {
            asked: false,
            in_flight: 0,
            since: Instant::now(),
        }))
    }

    /// Returns true if there was a request.
    pub fn asked(&self) -> bool {
        self.requests().asked
    }

    /// The time since which no request is in flight.
    pub fn idle_since(&self) -> Option<Instant> {
        let requests = self.requests();
        (requests.in_flight == 0).then_some(requests.since)
    }

    fn requests(&self) -> MutexGuard<'_, OpenRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a request until it is dropped.
pub struct RequestInFlight(Arc<ClientConnection>);

impl RequestInFlight {
    /// Counts another request of this connection.
    pub fn of(connection: &Arc<ClientConnection>) -> Self {
        let mut requests = connection.activity.requests();
        requests.asked = true;
        requests.in_flight += 1;
        drop(requests);
        Self(Arc::clone(connection))
    }

    /// Counts the request until the body of its answer is dropped.
    pub fn until_sent(self, answer: Response) -> http::Response<CountedBody> {
        answer.map(|body| CountedBody {
            body,
            _in_flight: self,
        })
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        let mut requests = self.0.activity.requests();
        requests.in_flight -= 1;
        requests.since = Instant::now();
    }
}

/// The body of an answer that keeps its request in flight.
pub struct CountedBody {
    body: Body,
    _in_flight: RequestInFlight,
}

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
