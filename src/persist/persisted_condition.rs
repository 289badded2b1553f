//! Reports if operations are being written.
//!
//! Input: the results of writes and lists. Output: a log line for each change of the verdict, and a
//! condition on our own `APIService`.

use super::failure::StoreFailure;
use crate::clock;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Type of the condition.
pub const CONDITION: &str = "OperationsPersisted";

/// Time for which requests must fail before the condition reports it. A restarting kube-apiserver
/// fails some requests, and refuses all requests until it has read the RBAC objects.
const FAILING_PERIOD: Duration = Duration::from_secs(10);

/// Tells if operations are being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PersistVerdict {
    /// No request has been sent yet.
    #[default]
    Unknown,
    /// Operations are written.
    Works,
    /// Operations are not written.
    Fails {
        /// CamelCase reason.
        reason: &'static str,
        /// Message for people.
        message: String,
    },
}

/// Derives the verdict from the results of requests.
#[derive(Debug)]
pub(super) struct WriteMonitor {
    told: watch::Sender<PersistVerdict>,
    /// The first failure since all requests succeeded.
    failing_since: Option<Instant>,
}

impl WriteMonitor {
    pub fn new(told: watch::Sender<PersistVerdict>) -> Self {
        Self {
            told,
            failing_since: None,
        }
    }

    /// Processes a success. `is_well` is true if no other request is failing.
    pub fn succeeded(&mut self, is_well: impl FnOnce() -> bool) {
        let is_told = self.failing_since.is_none() && *self.told.borrow() == PersistVerdict::Works;
        if !is_told && is_well() {
            self.failing_since = None;
            self.tell(PersistVerdict::Works);
        }
    }

    /// Processes a failure.
    pub fn failed(&mut self, failure: &StoreFailure, now: Instant) {
        let (reason, enough) = match failure {
            // Another client has changed or deleted the object. This is no failure of persistence.
            StoreFailure::Gone | StoreFailure::Conflict(_) => return,
            StoreFailure::Missing => ("CustomResourceDefinitionMissing", Duration::ZERO),
            StoreFailure::Forbidden(_) => ("Forbidden", FAILING_PERIOD),
            StoreFailure::Invalid(_) => ("Refused", FAILING_PERIOD),
            StoreFailure::Throttled(_) | StoreFailure::Unreachable(..) => {
                ("Unavailable", FAILING_PERIOD)
            }
        };
        if now - *self.failing_since.get_or_insert(now) >= enough {
            let message = format!("inflightoperations.ifo.kubevirt.io: {failure}");
            self.tell(PersistVerdict::Fails { reason, message });
        }
    }

    fn tell(&mut self, verdict: PersistVerdict) {
        self.told.send_if_modified(|told| {
            let same = match (&*told, &verdict) {
                (
                    PersistVerdict::Fails { reason: a, .. },
                    PersistVerdict::Fails { reason: b, .. },
                ) => a == b,
                (a, b) => a == b,
            };
            if same {
                // The newest message is written with the next write of the condition, because each
                // refusal can name other fields.
                *told = verdict;
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
            *told = verdict;
            true
        });
    }
}

/// The status in the last written condition, and the time of its last change.
#[derive(Debug, Default)]
struct WrittenCondition {
    status: &'static str,
    since: String,
}

impl WrittenCondition {
    /// Returns the condition for `verdict`. Its time changes only with its status, so writing it
    /// again changes nothing. None before any request was sent.
    fn condition(&mut self, verdict: &PersistVerdict, now: Timestamp) -> Option<Value> {
        let (status, reason, message) = match verdict {
            PersistVerdict::Unknown => return None,
            PersistVerdict::Works => ("True", "Written", ""),
            PersistVerdict::Fails { reason, message } => ("False", *reason, &**message),
        };
        if self.status != status {
            // Kubernetes writes times in whole seconds.
            let since = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            *self = Self { status, since };
        }
        Some(json!({
            "type": CONDITION, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": self.since,
        }))
    }
}

/// Writes the condition to our own `APIService`, which every installation has. Ends with the
/// sender.
///
/// The condition is written when the verdict changes, and again at the interval `every`. So it is
/// restored after an administrator has deleted and applied the registration. If the server lacks
/// the right, this is logged once.
pub async fn keep_condition(
    client: Client,
    api_service: &str,
    mut verdict: watch::Receiver<PersistVerdict>,
    every: Duration,
) {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let resource = ApiResource::from_gvk_with_plural(&kind, "apiservices");
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    // Server-side apply merges the condition by its type with the condition of the aggregator.
    let params = PatchParams::apply(super::FIELD_MANAGER).force();
    let (mut said, mut told) = (false, WrittenCondition::default());
    loop {
        let condition = told.condition(&verdict.borrow_and_update(), clock::now());
        if let Some(condition) = condition {
            let patch = Patch::Apply(json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": api_service},
                "status": {"conditions": [condition]},
            }));
            let written = api.patch_status(api_service, &params, &patch);
            if let Err(error) = written.await
                // The APIService is not registered yet. The condition is written when it is.
                && !matches!(&error, kube::Error::Api(status) if status.code == 404)
                && !std::mem::replace(&mut said, true)
            {
                tracing::warn!(name = api_service, %error, "its condition {CONDITION} cannot be written");
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

    fn judge() -> (WriteMonitor, watch::Receiver<PersistVerdict>) {
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
    async fn a_short_failure_is_not_reported_and_a_missing_crd_is_at_once() {
        let ((mut judge, verdict), now) = (judge(), Instant::now());
        judge.failed(&forbidden(), now);
        judge.failed(&forbidden(), now + FAILING_PERIOD / 2);
        assert_eq!(*verdict.borrow(), PersistVerdict::Unknown);
        judge.succeeded(|| true);
        judge.failed(&forbidden(), now + FAILING_PERIOD);
        assert_eq!(*verdict.borrow(), PersistVerdict::Works);
        judge.failed(&forbidden(), now + FAILING_PERIOD * 2);
        assert_eq!(reason(&verdict), "Forbidden");
        judge.succeeded(|| true);
        judge.failed(&StoreFailure::Missing, now + FAILING_PERIOD * 2);
        assert_eq!(reason(&verdict), "CustomResourceDefinitionMissing");
    }

    #[tokio::test(start_paused = true)]
    async fn one_refused_object_keeps_the_condition_despite_other_successes() {
        let ((mut judge, mut verdict), mut now) = (judge(), Instant::now());
        judge.succeeded(|| true);
        for _ in 0..100 {
            judge.failed(&forbidden(), now);
            judge.succeeded(|| false);
            now += FAILING_PERIOD;
        }
        assert_eq!(reason(&verdict), "Forbidden");
        verdict.mark_unchanged();
        judge.failed(&forbidden(), now);
        judge.succeeded(|| false);
        assert!(!verdict.has_changed().unwrap());
        judge.succeeded(|| true);
        assert_eq!(*verdict.borrow(), PersistVerdict::Works);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_an_outage_replaces_the_outage_in_the_condition() {
        let ((mut judge, verdict), now) = (judge(), Instant::now());
        for time in [now, now + FAILING_PERIOD] {
            judge.failed(&StoreFailure::Unreachable("away".into(), None), time);
        }
        assert_eq!(reason(&verdict), "Unavailable");
        judge.failed(&StoreFailure::Invalid("no".into()), now + FAILING_PERIOD);
        judge.succeeded(|| false);
        assert_eq!(reason(&verdict), "Refused");
    }

    #[tokio::test(start_paused = true)]
    async fn a_newer_message_alone_triggers_no_status_write() {
        let ((mut judge, mut verdict), now) = (judge(), Instant::now());
        for time in [now, now + FAILING_PERIOD] {
            judge.failed(&StoreFailure::Forbidden("one".into()), time);
        }
        assert!(verdict.has_changed().unwrap());
        verdict.mark_unchanged();
        judge.failed(
            &StoreFailure::Forbidden("other".into()),
            now + FAILING_PERIOD,
        );
        assert!(!verdict.has_changed().unwrap());
        let PersistVerdict::Fails { message, .. } = &*verdict.borrow() else {
            panic!("it fails");
        };
        let want = "inflightoperations.ifo.kubevirt.io: forbidden: other";
        assert_eq!(message, want);
    }

    /// A registration that receives patches, and the verdict in each request.
    fn registration() -> (Client, Arc<Mutex<Vec<Value>>>) {
        let told: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = told.clone();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let kept = kept.clone();
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                let object: Value = serde_json::from_slice(&body).unwrap();
                let condition = object["status"]["conditions"][0].clone();
                kept.lock().unwrap().push(condition);
                let answer = kube::client::Body::from(body.to_vec());
                Ok::<_, std::convert::Infallible>(http::Response::new(answer))
            }
        });
        (Client::new(service, "default"), told)
    }

    #[tokio::test(start_paused = true)]
    async fn the_condition_keeps_the_transition_time_of_its_status() {
        let (client, told) = registration();
        let (sender, verdict) = watch::channel(PersistVerdict::Unknown);
        let minute = Duration::from_mins(1);
        let keeping = tokio::spawn(keep_condition(client, "ours", verdict, minute));
        tokio::time::sleep(minute * 5).await;
        assert_eq!(told.lock().unwrap().len(), 0, "nothing has been tried");
        sender.send_replace(PersistVerdict::Works);
        tokio::time::sleep(minute * 3 + minute / 2).await;
        let conditions = std::mem::take(&mut *told.lock().unwrap());
        assert_eq!(conditions.len(), 4);
        assert_eq!(conditions[0]["status"], "True");
        assert!(conditions.iter().all(|it| *it == conditions[0]));
        let fails = |message: &str| PersistVerdict::Fails {
            reason: "Forbidden",
            message: message.to_owned(),
        };
        sender.send_replace(fails("one"));
        tokio::time::sleep(minute / 4).await;
        sender.send_if_modified(|told| {
            *told = fails("other");
            false
        });
        tokio::time::sleep(minute).await;
        let conditions = told.lock().unwrap().clone();
        let messages: Vec<&Value> = conditions.iter().map(|it| &it["message"]).collect();
        assert_eq!(messages, ["one", "other"]);
        keeping.abort();
    }

    #[test]
    fn the_time_of_the_condition_is_that_of_its_status() {
        let time = |second: i64| Timestamp::from_second(second).unwrap();
        let fails = |reason: &'static str| PersistVerdict::Fails {
            reason,
            message: String::new(),
        };
        let mut told = WrittenCondition::default();
        let since = |told: &mut WrittenCondition, verdict: &PersistVerdict, second: i64| {
            told.condition(verdict, time(second)).unwrap()["lastTransitionTime"].clone()
        };
        assert_eq!(told.condition(&PersistVerdict::Unknown, time(0)), None);
        assert_eq!(
            since(&mut told, &PersistVerdict::Works, 1),
            "1970-01-01T00:00:01Z"
        );
        assert_eq!(
            since(&mut told, &PersistVerdict::Works, 2),
            "1970-01-01T00:00:01Z"
        );
        assert_eq!(
            since(&mut told, &fails("Forbidden"), 3),
            "1970-01-01T00:00:03Z"
        );
        assert_eq!(
            since(&mut told, &fails("Refused"), 4),
            "1970-01-01T00:00:03Z"
        );
        assert_eq!(
            since(&mut told, &PersistVerdict::Works, 5),
            "1970-01-01T00:00:05Z"
        );
    }
}
