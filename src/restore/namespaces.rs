//! Which namespaces there are, to restore nothing into one that is another by now.

use super::Failure;
use super::patience::Patience;
use ifo_cel::JsonFault;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use std::collections::HashMap;
use std::time::Duration;

/// The namespaces that are there, and since when.
pub type Namespaces = HashMap<String, Timestamp>;

/// The namespaces that are there; None if that cannot be had `within` that time.
pub async fn namespaces(client: Client, within: Duration) -> Option<Namespaces> {
    let api: Api<Namespace> = Api::all(client);
    let mut patience = Patience::new(within);
    let reading = async {
        loop {
            match api.list_metadata(&ListParams::default()).await {
                Ok(all) => return Ok(all.items),
                Err(error) => patience.bear("namespaces", failure(&error)).await?,
            }
        }
    };
    let late = || Failure::Passing(format!("no answer within {within:?}"));
    let read = tokio::time::timeout(within, reading).await;
    match read.unwrap_or_else(|_| Err(late())) {
        Ok(all) => Some(all.iter().filter_map(since).collect()),
        Err(error) => {
            tracing::warn!(%error, "without the namespaces, nothing that is over is restored");
            None
        }
    }
}

fn since(namespace: &PartialObjectMeta<Namespace>) -> Option<(String, Timestamp)> {
    Some((namespace.name_any(), namespace.creation_timestamp()?.0))
}

fn failure(error: &kube::Error) -> Failure {
    match error {
        kube::Error::Api(status) => {
            let code = http::StatusCode::from_u16(status.code);
            let code = code.unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
            super::list::refused(code)
        }
        kube::Error::SerdeError(error) => Failure::Passing(JsonFault::from(error).to_string()),
        other => Failure::Passing(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tower::service_fn;

    /// A kube-apiserver that gives this answer so many times, and then the namespaces.
    fn client(code: u16, times: usize) -> Client {
        let left = Arc::new(AtomicUsize::new(times));
        let service = service_fn(move |_: Request<Body>| {
            let fails = left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
            let list = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                "metadata": {},
                "items": [{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                    "metadata": {"name": "a", "creationTimestamp": "2026-11-21T10:00:00Z"}}],
            });
            let status = json!({
                "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
                "message": "no", "reason": "Because", "metadata": {},
            });
            let (code, body) = if fails { (code, status) } else { (200, list) };
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, Infallible>(answer.unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_kube_apiserver_that_has_just_started_is_waited_for() {
        let minute = Duration::from_mins(1);
        for (code, times, want) in [(403, 8, true), (403, 30, false), (503, 30, true)] {
            let read = namespaces(client(code, times), minute).await;
            assert_eq!(read.is_some(), want, "{code} {times} times");
            assert!(read.is_none_or(|read| read.contains_key("a")));
        }
        let read = namespaces(client(503, 30), Duration::from_secs(2)).await;
        assert_eq!(read, None, "nobody waits for longer than that");
    }
}
