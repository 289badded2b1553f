//! Sends the requests of a support bundle. Each answer is limited in size and time.

use super::index::PartResult;
use super::limits::{REQUEST_TIME, TOTAL_TIME};
use crate::api_client::ApiClient;
use http::Request;
use http_body_util::{BodyExt as _, Limited};
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

/// The reason why a request has failed.
#[derive(Debug)]
pub(super) struct FetchFailure {
    pub(super) result: PartResult,
    /// HTTP status code of the answer. None if there is no answer with an error code.
    pub(super) code: Option<u16>,
    pub(super) message: String,
}

impl FetchFailure {
    pub(super) fn new(result: PartResult, message: &impl ToString) -> Self {
        Self {
            result,
            code: None,
            message: message.to_string(),
        }
    }
}

/// Sends requests. Each request ends at the latest when the time limit of the bundle
/// ([`TOTAL_TIME`]) is over.
pub(super) struct BundleClient {
    pub(super) client: ApiClient,
    deadline: Instant,
}

impl BundleClient {
    /// Creates a client. The time limit of the bundle begins now.
    pub(super) fn new(client: ApiClient) -> Self {
        Self {
            client,
            deadline: Instant::now() + TOTAL_TIME,
        }
    }

    /// Waits for an answer. Returns an error if the time limit of one request or the time limit of
    /// the bundle is reached first.
    pub(super) async fn within<T>(
        &self,
        answer: impl Future<Output = T>,
    ) -> Result<T, FetchFailure> {
        let limit = self.client.timeout.unwrap_or(REQUEST_TIME);
        let at = self.deadline.min(Instant::now() + limit);
        let late = |_| FetchFailure::new(PartResult::TimedOut, &"the time limit was reached");
        timeout_at(at, answer).await.map_err(late)
    }

    /// Sends a GET request, and returns the body. A body of more than `limit` bytes is an error.
    pub(super) async fn get(&self, uri: &str, limit: usize) -> Result<Vec<u8>, FetchFailure> {
        let request = Request::get(uri).body(Body::empty());
        self.send(request, limit).await
    }

    /// Sends a POST request with an access review, and returns the review with its result.
    pub(super) async fn review(&self, uri: &str, review: &Value) -> Result<Value, FetchFailure> {
        let request = Request::post(uri)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(review.to_string().into_bytes()));
        let answer = self.send(request, super::limits::REVIEW_BYTES).await?;
        parse(&answer)
    }

    async fn send(
        &self,
        request: Result<Request<Body>, http::Error>,
        limit: usize,
    ) -> Result<Vec<u8>, FetchFailure> {
        let request = request.map_err(|error| FetchFailure::new(PartResult::Failed, &error))?;
        self.within(self.exchange(request, limit)).await?
    }

    async fn exchange(
        &self,
        request: Request<Body>,
        limit: usize,
    ) -> Result<Vec<u8>, FetchFailure> {
        let answer = self.client.client.send(request).await.map_err(|error| {
            FetchFailure::new(
                PartResult::Unavailable,
                &ifo_client::error_text::chain(&error),
            )
        })?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), limit).collect().await;
        let body = body.map_err(|error| {
            let is_limit = error.is::<http_body_util::LengthLimitError>();
            let result = if is_limit {
                PartResult::TooLarge
            } else {
                PartResult::Unavailable
            };
            FetchFailure::new(result, &error)
        });
        if status.is_success() {
            return Ok(body?.to_bytes().into());
        }
        let bytes = body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let message = match serde_json::from_slice::<Status>(&bytes) {
            Ok(status) => status.message,
            Err(_) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        };
        Err(FetchFailure {
            result: PartResult::of_code(status.as_u16()),
            code: Some(status.as_u16()),
            message,
        })
    }
}

/// Parses an answer as JSON.
pub(super) fn parse(answer: &[u8]) -> Result<Value, FetchFailure> {
    serde_json::from_slice(answer).map_err(|error| FetchFailure::new(PartResult::Failed, &error))
}
