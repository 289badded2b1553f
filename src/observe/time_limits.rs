//! Limits the time for opening a connection ([`ConnectWithin`]) and for each request
//! ([`TimeLimited`]).
//!
//! If the answer to a request is not complete within the limit, the request fails. This happens,
//! for example, if the kube-apiserver hangs. A watch has no limit here, because a watch lasts for
//! minutes. The module `list_and_watch` has its own timeouts, such as for a silent watch.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep_until, timeout, timeout_at};
use tower::{BoxError, Service};

/// Limits the time for setting up a connection (TCP, proxy and TLS).
#[derive(Clone, Debug)]
pub(super) struct ConnectWithin<C> {
    pub(super) connector: C,
    pub(super) limit: Duration,
}

impl<C> Service<Uri> for ConnectWithin<C>
where
    C: Service<Uri>,
    C::Error: Into<BoxError>,
    C::Future: Send + 'static,
{
    type Response = C::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<C::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let limit = self.limit;
        let connecting = self.connector.call(uri);
        Box::pin(async move {
            match timeout(limit, connecting).await {
                Ok(connected) => connected.map_err(Into::into),
                Err(_) => Err(format!("no connection within {limit:?}").into()),
            }
        })
    }
}

/// Limits the time of each request that is not a watch, including its answer. Also sets the header
/// `User-Agent` of all requests.
#[derive(Clone, Debug)]
pub(super) struct TimeLimited<S> {
    pub(super) service: S,
    pub(super) limit: Duration,
}

impl<S, B> Service<Request<Body>> for TimeLimited<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<BodyWithDeadline<B>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        request
            .headers_mut()
            .entry(header::USER_AGENT)
            .or_insert(HeaderValue::from_static(concat!(
                "ifo-apiserver/",
                env!("CARGO_PKG_VERSION")
            )));
        let limit = (!is_watch(request.uri())).then_some(self.limit);
        let calling = self.service.call(request);
        Box::pin(async move {
            let Some(limit) = limit else {
                let response = calling.await.map_err(Into::into)?;
                return Ok(response.map(|body| BodyWithDeadline { body, limit: None }));
            };
            let until = Instant::now() + limit;
            match timeout_at(until, calling).await {
                Ok(response) => Ok(response.map_err(Into::into)?.map(|body| BodyWithDeadline {
                    body,
                    limit: Some((limit, Box::pin(sleep_until(until)))),
                })),
                Err(_) => Err(late(limit)),
            }
        })
    }
}

fn late(limit: Duration) -> BoxError {
    format!("no complete answer within {limit:?}").into()
}

/// Returns true if the request is a watch. Other spellings, such as `watch=t`, are not necessary,
/// because the clients in this server always send `watch=1` or `watch=true`.
fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| {
        query
            .split('&')
            .any(|pair| matches!(pair, "watch=1" | "watch=true"))
    })
}

/// A body that fails if it is not complete before a deadline. The body of a watch has no deadline.
#[derive(Debug)]
pub(super) struct BodyWithDeadline<B> {
    body: B,
    limit: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl<B> http_body::Body for BodyWithDeadline<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some((limit, sleep)) = &mut self.limit else {
            return Poll::Pending;
        };
        sleep.as_mut().poll(cx).map(|()| Some(Err(late(*limit))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, stream};
    use http_body_util::{BodyExt as _, StreamBody};
    use std::{convert::Infallible, future::pending};
    use tower::{ServiceExt as _, service_fn};

    const LIMIT: Duration = Duration::from_secs(30);

    fn request(uri: &str) -> Request<Body> {
        Request::get(uri).body(Body::empty()).unwrap()
    }

    fn silent_body()
    -> Response<StreamBody<impl futures::Stream<Item = Result<Frame<Bytes>, Infallible>> + Unpin>>
    {
        let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"x")))]);
        Response::new(StreamBody::new(first.chain(stream::pending())))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_times_out() {
        let never = service_fn(|_| pending::<Result<Response<Body>, Infallible>>());
        let error = TimeLimited {
            service: never,
            limit: LIMIT,
        }
        .oneshot(request("/api"))
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "no complete answer within 30s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stalled_body_times_out_unless_it_is_a_watch() {
        let service = TimeLimited {
            service: service_fn(async |_| Ok::<_, Infallible>(silent_body())),
            limit: LIMIT,
        };
        let body = service
            .clone()
            .oneshot(request("/api/v1/pods"))
            .await
            .unwrap()
            .into_body();
        assert!(body.collect().await.is_err());
        for uri in ["/api/v1/pods?watch=1", "/api/v1/pods?limit=5&watch=true"] {
            let body = service
                .clone()
                .oneshot(request(uri))
                .await
                .unwrap()
                .into_body();
            assert!(
                timeout(LIMIT * 10, body.collect()).await.is_err(),
                "a watch must not time out: {uri}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_attempt_times_out() {
        let never = service_fn(|_: Uri| pending::<Result<(), BoxError>>());
        let connector = ConnectWithin {
            connector: never,
            limit: LIMIT,
        };
        assert!(
            connector
                .oneshot(Uri::from_static("https://127.0.0.1"))
                .await
                .is_err()
        );
    }
}
