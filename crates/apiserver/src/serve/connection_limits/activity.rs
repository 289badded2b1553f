//! Counts the requests in flight of a connection. Input: the start and the end of each request.
//! Output: the time since which the connection is idle. A request is in flight until the body of
//! its answer is dropped.

use super::ClientConnection;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use tokio::time::Instant;

/// The state of the requests of one connection.
pub struct RequestActivity(Mutex<OpenRequests>);

struct OpenRequests {
    had_request: bool,
    /// Number of requests whose answers have not been sent completely.
    in_flight: usize,
    /// The time at which the last request ended. If no request has ended yet, the time at which the
    /// connection was opened.
    last_end: Instant,
}

impl RequestActivity {
    /// Creates the state of a connection that has had no request.
    pub fn new() -> Self {
        Self(Mutex::new(OpenRequests {
            had_request: false,
            in_flight: 0,
            last_end: Instant::now(),
        }))
    }

    /// Returns true if the connection has had a request.
    pub fn had_request(&self) -> bool {
        self.requests().had_request
    }

    /// Returns the time since which no request is in flight. None if a request is in flight.
    pub fn idle_since(&self) -> Option<Instant> {
        let requests = self.requests();
        (requests.in_flight == 0).then_some(requests.last_end)
    }

    fn requests(&self) -> MutexGuard<'_, OpenRequests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that counts as in flight until this value is dropped.
pub struct RequestInFlight(Arc<ClientConnection>);

impl RequestInFlight {
    /// Counts a new request of the connection.
    pub fn of(connection: &Arc<ClientConnection>) -> Self {
        let mut requests = connection.activity.requests();
        requests.had_request = true;
        requests.in_flight += 1;
        drop(requests);
        Self(Arc::clone(connection))
    }

    /// Wraps the body of the answer. The request counts as in flight until the new body is dropped.
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
        requests.last_end = Instant::now();
    }
}

/// The body of an answer. The request counts as in flight until this body is dropped.
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
