//! The namespaces that exist, so that nothing is restored into a new namespace of the same
//! name.

use super::retry::{ListFailure, Retry};
use super::within_time;
use http::StatusCode;
use ifo_cel::JsonFault;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use std::collections::HashMap;
use std::time::Duration;

/// The namespaces that existed at a takeover, and when each was created, if that is known.
pub type Namespaces = HashMap<String, Option<Timestamp>>;

/// When each namespace was created; `None` if that cannot be read within `limit`.
pub(super) async fn read(client: Client, limit: Duration) -> Option<HashMap<String, Timestamp>> {
    let api: Api<Namespace> = Api::all(client);
    let mut retry = Retry::default();
    let reading = async {
        loop {
            match api.list_metadata(&ListParams::default()).await {
                Ok(all) => return Ok(all.items),
                Err(error) => retry.wait(failure(&error)).await?,
            }
        }
    };
    match within_time(limit, reading).await {
        Ok(all) => Some(all.iter().filter_map(created).collect()),
        Err(error) => {
            tracing::warn!(%error, "the namespaces cannot be read; completed custom resources \
                are not restored");
            None
        }
    }
}

fn created(namespace: &PartialObjectMeta<Namespace>) -> Option<(String, Timestamp)> {
    Some((namespace.name_any(), namespace.creation_timestamp()?.0))
}

fn failure(error: &kube::Error) -> ListFailure {
    match error {
        kube::Error::Api(status) => {
            let code = StatusCode::from_u16(status.code);
            ListFailure::of_status(code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        }
        kube::Error::SerdeError(error) => {
            ListFailure::Temporary(JsonFault::from(error).to_string())
        }
        other => ListFailure::Temporary(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restore::tests::serving;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A kube-apiserver that answers so many requests with this code, and then lists a
    /// namespace.
    fn client(code: u16, times: usize) -> Client {
        let left = AtomicUsize::new(times);
        serving(move |_| {
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
            let next = |left: usize| left.checked_sub(1);
            let fails = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            if fails.is_ok() {
                (code, status)
            } else {
                (200, list)
            }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_kube_apiserver_that_has_just_started_is_waited_for() {
        let minute = Duration::from_mins(1);
        for (code, times, want) in [(403, 8, true), (403, 30, false), (503, 30, true)] {
            let read = read(client(code, times), minute).await;
            assert_eq!(read.is_some(), want, "{code} {times} times");
            assert!(read.is_none_or(|read| read.contains_key("a")));
        }
        let read = read(client(503, 30), Duration::from_secs(2)).await;
        assert_eq!(read, None, "the wait is limited");
    }
}
