//! Reports whether operations are written as custom resources: sets the condition
//! `OperationsPersisted` in the status of this server's `APIService`, and logs each change of the
//! status or reason of this condition.

use super::store_failure::StoreFailure;
use crate::clock;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The type of the condition.
pub const CONDITION: &str = "OperationsPersisted";

/// The time for which requests must fail before the condition becomes `False`. A kube-apiserver
/// that has just started refuses all requests for some seconds, until it has read the RBAC objects.
/// The condition does not report failures of less than this time. It reports a missing CRD at once.
const FAILING_PERIOD: Duration = Duration::from_secs(10);

/// The result of the recent requests for custom resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PersistVerdict {
    /// No request has succeeded yet, and no failure was reported yet.
    #[default]
    Unknown,
    /// Operations are written.
    Works,
    /// Requests fail, so some or all operations are not written.
    Fails {
        /// The reason of the condition, in CamelCase.
        reason: &'static str,
        /// The message of the condition.
        message: String,
    },
}

/// Derives the [`PersistVerdict`] from the results of requests, and publishes it.
#[derive(Debug)]
pub(super) struct WriteMonitor {
    published: watch::Sender<PersistVerdict>,
    /// The time of the first failure since the requests for all objects last succeeded. None if no
    /// request has failed since then.
    failing_since: Option<Instant>,
}

impl WriteMonitor {
    pub fn new(published: watch::Sender<PersistVerdict>) -> Self {
        Self {
            published,
            failing_since: None,
        }
    }

    /// Processes a success. `all_succeed` returns true if the caller knows no other object whose
    /// requests still fail. If it returns false, the verdict does not change.
    pub fn record_success(&mut self, all_succeed: impl FnOnce() -> bool) {
        let is_published =
            self.failing_since.is_none() && *self.published.borrow() == PersistVerdict::Works;
        if !is_published && all_succeed() {
            self.failing_since = None;
            self.publish(PersistVerdict::Works);
        }
    }

    /// Processes a failure. Publishes the failure if requests have failed for [`FAILING_PERIOD`].
    /// Publishes a missing CRD at once.
    pub fn record_failure(&mut self, failure: &StoreFailure, now: Instant) {
        let (reason, needed) = match failure {
            // Another client has changed or deleted the object. The next attempt reads the object
            // first and can then succeed, so this is not a failure of persistence.
            StoreFailure::ObjectDeleted | StoreFailure::Conflict(_) => return,
            StoreFailure::CrdMissing => ("CustomResourceDefinitionMissing", Duration::ZERO),
            StoreFailure::Forbidden(_) => ("Forbidden", FAILING_PERIOD),
            StoreFailure::Invalid(_) => ("Refused", FAILING_PERIOD),
            StoreFailure::Throttled(_) | StoreFailure::Unreachable(..) => {
                ("Unavailable", FAILING_PERIOD)
            }
        };
        if now - *self.failing_since.get_or_insert(now) >= needed {
            let message = format!("inflightoperations.ifo.kubevirt.io: {failure}");
            self.publish(PersistVerdict::Fails { reason, message });
        }
    }

    /// Publishes and logs `verdict` if its status or reason differs from the published verdict.
    fn publish(&mut self, verdict: PersistVerdict) {
        self.published.send_if_modified(|published| {
            let same = match (&*published, &verdict) {
                (
                    PersistVerdict::Fails { reason: a, .. },
                    PersistVerdict::Fails { reason: b, .. },
                ) => a == b,
                (a, b) => a == b,
            };
            if same {
                // Each refusal can name other fields, so the message can change often. If only the
                // message changes, the condition is not written at once. The next periodic write of
                // the condition contains the new message.
                *published = verdict;
                return false;
            }
            if let PersistVerdict::Fails { reason, message } = &verdict {
                tracing::error!(
                    reason,
                    "operations are served, but not written as custom resources: \
                     {message}"
                );
            } else {
                tracing::info!("operations are written as custom resources");
            }
            *published = verdict;
            true
        });
    }
}

/// The status in the last written condition, and the time at which the condition got this status.
/// The status is empty if no condition was written yet.
#[derive(Debug, Default)]
struct WrittenCondition {
    status: &'static str,
    since: String,
}

impl WrittenCondition {
    /// Reads the condition that an earlier leader has written. Returns None if the `APIService`
    /// cannot be read, or has no such condition.
    async fn read(api: &Api<DynamicObject>, api_service: &str) -> Option<Self> {
        let found = api.get(api_service).await.ok()?;
        let mut conditions = found.data["status"]["conditions"].as_array()?.iter();
        let own = conditions.find(|it| it["type"] == CONDITION)?;
        let status = ["True", "False"]
            .into_iter()
            .find(|it| own["status"] == *it)?;
        let since = own["lastTransitionTime"].as_str()?.to_owned();
        Some(Self { status, since })
    }

    /// Returns the condition for `verdict`, or None for [`PersistVerdict::Unknown`].
    ///
    /// `lastTransitionTime` changes only together with the status. So if the same condition is
    /// written again, the `APIService` stays unchanged.
    fn condition(&mut self, verdict: &PersistVerdict, now: Timestamp) -> Option<Value> {
        let (status, reason, message) = match verdict {
            PersistVerdict::Unknown => return None,
            PersistVerdict::Works => ("True", "Written", ""),
            PersistVerdict::Fails { reason, message } => ("False", *reason, &**message),
        };
        if self.status != status {
            // Times in conditions are whole seconds, as in Kubernetes.
            let since = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            *self = Self { status, since };
        }
        Some(json!({
            "type": CONDITION, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": self.since,
        }))
    }
}

/// Writes the condition to this server's `APIService`. The future never completes.
///
/// The condition is written when the verdict changes, and again each time that the period `every`
/// has passed without a change. If an administrator deletes the `APIService` and applies it again,
/// the condition is lost. The next write restores the condition. If writes of the condition fail,
/// only the first error is logged.
///
/// Before the first write, this function reads the condition of the previous leader. If the status
/// is the same, the new condition keeps the `lastTransitionTime`.
pub async fn keep_condition(
    client: Client,
    api_service: &str,
    mut verdict: watch::Receiver<PersistVerdict>,
    every: Duration,
) {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let resource = ApiResource::from_gvk_with_plural(&kind, "apiservices");
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    // The elements of the list `conditions` have the key `type`. So server-side apply changes only
    // our condition, and keeps the conditions that the kube-apiserver writes.
    let params = PatchParams::apply(super::FIELD_MANAGER).force();
    let (mut has_logged, mut written) = (false, None);
    loop {
        let current = verdict.borrow_and_update().clone();
        if written.is_none() && current != PersistVerdict::Unknown {
            let found = WrittenCondition::read(&api, api_service).await;
            written = Some(found.unwrap_or_default());
        }
        let condition = written
            .as_mut()
            .and_then(|written| written.condition(&current, clock::now()));
        if let Some(condition) = condition {
            let patch = Patch::Apply(json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": api_service},
                "status": {"conditions": [condition]},
            }));
            let request = api.patch_status(api_service, &params, &patch);
            if let Err(error) = request.await
                // If the APIService does not exist yet, a later attempt writes the condition.
                && !matches!(&error, kube::Error::Api(status) if status.code == 404)
                && !std::mem::replace(&mut has_logged, true)
            {
                tracing::warn!(name = api_service, %error, "the condition {CONDITION} of the APIService cannot be written");
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
    use std::sync::{Arc, Mutex};

    fn monitor() -> (WriteMonitor, watch::Receiver<PersistVerdict>) {
        let (sender, verdict) = watch::channel(PersistVerdict::Unknown);
        (WriteMonitor::new(sender), verdict)
    }

    fn forbidden() -> StoreFailure {
        StoreFailure::Forbidden("no".into())
    }

    fn reason(verdict: &watch::Receiver<PersistVerdict>) -> &'static str {
        match &*verdict.borrow() {
            PersistVerdict::Fails { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn short_failures_are_not_reported_but_a_missing_crd_is_reported_at_once() {
        let ((mut monitor, verdict), now) = (monitor(), Instant::now());
        monitor.record_failure(&forbidden(), now);
        monitor.record_failure(&forbidden(), now + FAILING_PERIOD / 2);
        assert_eq!(*verdict.borrow(), PersistVerdict::Unknown);
        monitor.record_success(|| true);
        monitor.record_failure(&forbidden(), now + FAILING_PERIOD);
        assert_eq!(*verdict.borrow(), PersistVerdict::Works);
        monitor.record_failure(&forbidden(), now + FAILING_PERIOD * 2);
        assert_eq!(reason(&verdict), "Forbidden");
        monitor.record_success(|| true);
        monitor.record_failure(&StoreFailure::CrdMissing, now + FAILING_PERIOD * 2);
        assert_eq!(reason(&verdict), "CustomResourceDefinitionMissing");
    }

    #[tokio::test(start_paused = true)]
    async fn the_condition_stays_false_while_one_object_is_refused() {
        let ((mut monitor, mut verdict), mut now) = (monitor(), Instant::now());
        monitor.record_success(|| true);
        for _ in 0..100 {
            monitor.record_failure(&forbidden(), now);
            monitor.record_success(|| false);
            now += FAILING_PERIOD;
        }
        assert_eq!(reason(&verdict), "Forbidden");
        verdict.mark_unchanged();
        monitor.record_failure(&forbidden(), now);
        monitor.record_success(|| false);
        assert!(!verdict.has_changed().unwrap());
        monitor.record_success(|| true);
        assert_eq!(*verdict.borrow(), PersistVerdict::Works);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_an_outage_replaces_the_outage_in_the_condition() {
        let ((mut monitor, verdict), now) = (monitor(), Instant::now());
        for time in [now, now + FAILING_PERIOD] {
            monitor.record_failure(&StoreFailure::Unreachable("away".into(), None), time);
        }
        assert_eq!(reason(&verdict), "Unavailable");
        monitor.record_failure(&StoreFailure::Invalid("no".into()), now + FAILING_PERIOD);
        monitor.record_success(|| false);
        assert_eq!(reason(&verdict), "Refused");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_message_alone_does_not_count_as_a_change() {
        let ((mut monitor, mut verdict), now) = (monitor(), Instant::now());
        for time in [now, now + FAILING_PERIOD] {
            monitor.record_failure(&StoreFailure::Forbidden("one".into()), time);
        }
        assert!(verdict.has_changed().unwrap());
        verdict.mark_unchanged();
        monitor.record_failure(
            &StoreFailure::Forbidden("other".into()),
            now + FAILING_PERIOD,
        );
        assert!(!verdict.has_changed().unwrap());
        let PersistVerdict::Fails { message, .. } = &*verdict.borrow() else {
            panic!("the verdict must be Fails");
        };
        let want = "inflightoperations.ifo.kubevirt.io: forbidden: other";
        assert_eq!(message, want);
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
        let (sender, verdict) = watch::channel(PersistVerdict::Unknown);
        let minute = Duration::from_mins(1);
        let keeping = tokio::spawn(keep_condition(client, "ours", verdict, minute));
        tokio::time::sleep(minute * 5).await;
        assert_eq!(
            conditions_sent.lock().unwrap().len(),
            0,
            "no condition must be written before the first request"
        );
        sender.send_replace(PersistVerdict::Works);
        tokio::time::sleep(minute * 3 + minute / 2).await;
        let conditions = std::mem::take(&mut *conditions_sent.lock().unwrap());
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[0]["status"], "True");
        assert!(conditions.iter().all(|it| *it == conditions[0]));
        let fails = |message: &str| PersistVerdict::Fails {
            reason: "Forbidden",
            message: message.to_owned(),
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
        let fails = PersistVerdict::Fails {
            reason: "Forbidden",
            message: String::new(),
        };
        for (current, is_kept) in [(PersistVerdict::Works, true), (fails, false)] {
            let (client, conditions_sent) = recording_client(stored.clone());
            let (_sender, verdict) = watch::channel(current);
            let minute = Duration::from_mins(1);
            let keeping = tokio::spawn(keep_condition(client, "ours", verdict, minute));
            tokio::time::sleep(minute / 2).await;
            let conditions = conditions_sent.lock().unwrap().clone();
            assert_eq!(conditions.len(), 1);
            assert_eq!(conditions[0]["lastTransitionTime"] == before, is_kept);
            keeping.abort();
        }
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let time = |second: i64| Timestamp::from_second(second).unwrap();
        let fails = |reason: &'static str| PersistVerdict::Fails {
            reason,
            message: String::new(),
        };
        let mut written = WrittenCondition::default();
        let since = |written: &mut WrittenCondition, verdict: &PersistVerdict, second: i64| {
            written.condition(verdict, time(second)).unwrap()["lastTransitionTime"].clone()
        };
        assert_eq!(written.condition(&PersistVerdict::Unknown, time(0)), None);
        assert_eq!(
            since(&mut written, &PersistVerdict::Works, 1),
            "1970-01-01T00:00:01Z"
        );
        assert_eq!(
            since(&mut written, &PersistVerdict::Works, 2),
            "1970-01-01T00:00:01Z"
        );
        assert_eq!(
            since(&mut written, &fails("Forbidden"), 3),
            "1970-01-01T00:00:03Z"
        );
        assert_eq!(
            since(&mut written, &fails("Refused"), 4),
            "1970-01-01T00:00:03Z"
        );
        assert_eq!(
            since(&mut written, &PersistVerdict::Works, 5),
            "1970-01-01T00:00:05Z"
        );
    }
}
