//! Reports whether operations are written as custom resources. The report is the condition
//! `OperationsPersisted` in the status of this server's `APIService`. If the reason of the
//! condition changes, the report is also logged.

use super::failure::StoreFailure;
use crate::clock;
use crate::telemetry::FailureLog;
use ifo_client::error_text::chain;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;

/// The type of the condition.
pub const CONDITION: &str = "OperationsPersisted";

/// The reason of the condition while operations are written.
const WRITTEN: &str = "Written";

/// The result of the recent requests for custom resources: operations are written, or requests
/// fail. If requests fail, some or all operations are not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PersistVerdict {
    /// The reason of the condition, in CamelCase.
    pub reason: &'static str,
    /// The message of the condition. Empty while operations are written.
    pub message: String,
}

impl PersistVerdict {
    /// Returns the verdict while operations are written.
    pub(super) fn working() -> Self {
        Self {
            reason: WRITTEN,
            message: String::new(),
        }
    }

    /// Returns the verdict for requests that have failed for some time.
    pub(super) fn failing(failure: &StoreFailure) -> Self {
        let reason = match failure {
            StoreFailure::CrdMissing => "CustomResourceDefinitionMissing",
            StoreFailure::Forbidden(_) => "Forbidden",
            StoreFailure::Invalid(_) => "Refused",
            StoreFailure::Conflict | StoreFailure::Throttled(_) | StoreFailure::Unreachable(_) => {
                "Unavailable"
            }
        };
        let message = format!("inflightoperations.ifo.kubevirt.io: {failure}");
        Self { reason, message }
    }

    /// Returns the status of the condition.
    fn status(&self) -> &'static str {
        if self.reason == WRITTEN {
            "True"
        } else {
            "False"
        }
    }
}

/// Publishes a verdict. If the reason of the verdict is new, logs the verdict and wakes the
/// receivers. A new message alone does not wake the receivers. The messages of two refused requests
/// can name different fields, so each refused request could otherwise cause a write of the
/// condition. The next periodic write of the condition contains the new message.
pub(super) fn publish(
    published: &watch::Sender<Option<PersistVerdict>>,
    verdict: Option<PersistVerdict>,
) {
    published.send_if_modified(|published| {
        let Some(PersistVerdict { reason, message }) = &verdict else {
            return false;
        };
        let is_new = published.as_ref().is_none_or(|it| it.reason != *reason);
        if is_new && *reason == WRITTEN {
            tracing::info!("operations are written as custom resources");
        } else if is_new {
            tracing::error!(
                reason,
                "operations are served, but not written as custom resources: {message}"
            );
        }
        *published = verdict;
        is_new
    });
}

/// Returns the status and the `lastTransitionTime` of the condition that an earlier leader has
/// written. Returns None if the `APIService` cannot be read, or has no such condition.
async fn read_condition(api: &Api<APIService>, api_service: &str) -> Option<(String, Time)> {
    let found = api.get(api_service).await.ok()?;
    let mut conditions = found.status?.conditions?.into_iter();
    let own = conditions.find(|it| it.type_ == CONDITION)?;
    Some((own.status, own.last_transition_time?))
}

/// Writes the condition to this server's `APIService`. The future never completes.
///
/// This function writes the condition when the reason of the verdict changes. Without a change,
/// this function writes the condition again after each period `every`. If an administrator deletes
/// the `APIService` and applies it again, the condition is lost. The next write restores the
/// condition.
///
/// Before the first write, this function reads the condition of the previous leader. If the status
/// is the same, the new condition keeps the `lastTransitionTime`.
pub async fn keep_condition(
    client: Client,
    api_service: &str,
    mut verdict: watch::Receiver<Option<PersistVerdict>>,
    every: Duration,
) {
    let api: Api<APIService> = Api::all(client);
    // Server-side apply identifies the elements of the list `conditions` by their `type`. So the
    // patch changes only our condition, and keeps the conditions that the kube-apiserver writes.
    let params = PatchParams::apply(super::FIELD_MANAGER).force();
    let mut failures = FailureLog::new("the condition of the APIService can be written again");
    let mut written = None;
    loop {
        let newest = verdict.borrow_and_update().clone();
        if let Some(newest) = newest {
            let status = newest.status();
            if written.is_none() {
                written = read_condition(&api, api_service).await;
            }
            if written.as_ref().is_none_or(|(before, _)| before != status) {
                written = Some((status.to_owned(), Time(clock::now())));
            }
            let since = written.as_ref().map(|(_, since)| since);
            let patch = Patch::Apply(json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": api_service},
                "status": {"conditions": [{
                    "type": CONDITION, "status": status, "reason": newest.reason, "message": newest.message,
                    "lastTransitionTime": since,
                }]},
            }));
            let patched = match api.patch_status(api_service, &params, &patch).await {
                // A missing `APIService` is no failure. After it is created, a later attempt writes
                // the condition.
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                patched => patched.map(drop),
            };
            if let Some(error) = failures.record(&patched) {
                tracing::warn!(
                    name = api_service,
                    error = chain(error),
                    "the condition {CONDITION} of the APIService cannot be written"
                );
            }
        }
        tokio::select! {
            changed = verdict.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            },
            () = tokio::time::sleep(every) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::sync::{Arc, Mutex};

    #[test]
    fn a_new_message_alone_is_not_published_at_once() {
        let (sender, mut verdict) = watch::channel(None);
        let forbidden = |why: &str| {
            Some(PersistVerdict::failing(&StoreFailure::Forbidden(
                why.into(),
            )))
        };
        for (publish_now, is_new) in [
            (None, false),
            (forbidden("one"), true),
            (forbidden("other"), false),
            (None, false),
            (Some(PersistVerdict::working()), true),
            (Some(PersistVerdict::working()), false),
        ] {
            publish(&sender, publish_now);
            assert_eq!(verdict.has_changed().unwrap(), is_new);
            verdict.mark_unchanged();
        }
    }

    /// Returns a client of a simulated kube-apiserver that accepts patches of the `APIService`.
    /// Until the first patch, the conditions of the `APIService` are `stored`. Also returns the
    /// list to which the simulated kube-apiserver adds the condition of each patch.
    fn recording_client(stored: Value) -> (Client, Arc<Mutex<Vec<Value>>>) {
        let conditions_sent: Arc<Mutex<Vec<Value>>> = Arc::default();
        let log = conditions_sent.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (log, stored) = (log.clone(), stored.clone());
            async move {
                let body = if request.method() == http::Method::GET {
                    let found = json!({
                        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                        "metadata": {"name": "ours"}, "status": {"conditions": stored},
                    });
                    found.to_string().into_bytes()
                } else {
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let object: Value = serde_json::from_slice(&body).unwrap();
                    let condition = object["status"]["conditions"][0].clone();
                    log.lock().unwrap().push(condition);
                    body.to_vec()
                };
                let answer = kube::client::Body::from(body);
                Ok::<_, std::convert::Infallible>(http::Response::new(answer))
            }
        });
        (Client::new(service, "default"), conditions_sent)
    }

    #[tokio::test(start_paused = true)]
    async fn the_condition_is_written_again_with_the_same_transition_time() {
        let (client, conditions_sent) = recording_client(json!([]));
        let (sender, verdict) = watch::channel(None);
        let minute = Duration::from_mins(1);
        let keeping = tokio::spawn(keep_condition(client, "ours", verdict, minute));
        tokio::time::sleep(minute * 5).await;
        assert_eq!(
            conditions_sent.lock().unwrap().len(),
            0,
            "no condition must be written before the first request"
        );
        sender.send_replace(Some(PersistVerdict::working()));
        tokio::time::sleep(minute * 3 + minute / 2).await;
        let conditions = std::mem::take(&mut *conditions_sent.lock().unwrap());
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[0]["status"], "True");
        assert!(conditions.iter().all(|it| *it == conditions[0]));
        let fails = |message: &str| {
            Some(PersistVerdict {
                reason: "Forbidden",
                message: message.to_owned(),
            })
        };
        sender.send_replace(fails("one"));
        tokio::time::sleep(minute / 4).await;
        sender.send_if_modified(|verdict| {
            *verdict = fails("other");
            false
        });
        tokio::time::sleep(minute).await;
        let conditions = conditions_sent.lock().unwrap().clone();
        let messages: Vec<&Value> = conditions.iter().map(|it| &it["message"]).collect();
        assert_eq!(messages, ["one", "other"]);
        keeping.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_keeps_the_transition_time_of_an_unchanged_status() {
        let before = "2020-01-01T00:00:00Z";
        let stored = json!([
            {"type": "Available", "status": "False", "lastTransitionTime": "2019-01-01T00:00:00Z"},
            {"type": CONDITION, "status": "True", "lastTransitionTime": before},
        ]);
        let fails = PersistVerdict {
            reason: "Forbidden",
            message: String::new(),
        };
        for (current, is_kept) in [(PersistVerdict::working(), true), (fails, false)] {
            let (client, conditions_sent) = recording_client(stored.clone());
            let (_sender, verdict) = watch::channel(Some(current));
            let minute = Duration::from_mins(1);
            let keeping = tokio::spawn(keep_condition(client, "ours", verdict, minute));
            tokio::time::sleep(minute / 2).await;
            let conditions = conditions_sent.lock().unwrap().clone();
            assert_eq!(conditions.len(), 1);
            assert_eq!(conditions[0]["lastTransitionTime"] == before, is_kept);
            keeping.abort();
        }
    }
}
