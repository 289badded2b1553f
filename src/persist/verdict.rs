//! Whether operations are being written. Enters: how writes and lists went. Leaves: a log
//! line when that changes, and a condition on our own APIService.

use super::queue::REFUSALS;
use super::store::Failure;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;

/// Type of the condition.
pub const CONDITION: &str = "OperationsPersisted";

/// Failures in a row after which it is said that operations are not written: a restarting
/// kube-apiserver makes one or two.
const FAILURES: u32 = 3;

/// Whether operations are being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing has been tried yet.
    #[default]
    Unknown,
    /// They are.
    Works,
    /// They are not.
    Fails {
        /// CamelCase reason.
        reason: &'static str,
        /// What to tell a person.
        message: String,
    },
}

/// Judges by what happens.
#[derive(Debug)]
pub(super) struct Judge {
    told: watch::Sender<Verdict>,
    failures: u32,
    /// Whether a write has been refused since the last one that succeeded: that a list
    /// succeeds says nothing then.
    refused: bool,
}

impl Judge {
    pub fn new(told: watch::Sender<Verdict>) -> Self {
        Self {
            told,
            failures: 0,
            refused: false,
        }
    }

    /// A write succeeded, or failed.
    pub fn written(&mut self, failure: Option<&Failure>) {
        match failure {
            None => {
                self.refused = false;
                self.tell(Verdict::Works);
            }
            // Somebody else deleted the object; all is well.
            Some(Failure::Conflict(_)) => {}
            Some(failure) => {
                self.refused = true;
                self.failed(failure);
            }
        }
    }

    /// A list succeeded, or failed. `idle` is whether nothing is left to write: what was
    /// refused is not wanted any more then, and counts no longer.
    pub fn listed(&mut self, failure: Option<&Failure>, idle: bool) {
        match failure {
            None if self.refused && !idle => {}
            None => {
                self.refused = false;
                self.tell(Verdict::Works);
            }
            Some(failure) => self.failed(failure),
        }
    }

    fn failed(&mut self, failure: &Failure) {
        self.failures = self.failures.saturating_add(1);
        let enough = match failure {
            Failure::Missing => 1,
            Failure::Forbidden(_) => REFUSALS,
            _ => FAILURES,
        };
        if self.failures < enough {
            return;
        }
        let reason = match failure {
            Failure::Missing => "CustomResourceDefinitionMissing",
            Failure::Forbidden(_) => "Forbidden",
            Failure::Conflict(_) | Failure::Invalid(_) => "Refused",
            Failure::Throttled(_) | Failure::Unreachable(..) => "Unavailable",
        };
        let message = failure.to_string();
        self.tell(Verdict::Fails { reason, message });
    }

    fn tell(&mut self, verdict: Verdict) {
        if verdict == Verdict::Works {
            self.failures = 0;
        }
        self.told.send_if_modified(|told| {
            let same = match (&*told, &verdict) {
                (Verdict::Fails { reason: a, .. }, Verdict::Fails { reason: b, .. }) => a == b,
                (a, b) => a == b,
            };
            if same {
                return false;
            }
            if let Verdict::Fails { reason, message } = &verdict {
                tracing::error!(
                    reason,
                    "operations are not written as custom resources, and served all the same: \
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

/// Keeps the condition on our own APIService: the one object that every installation has.
/// Not being allowed to is said once. Never ends before the sender does.
pub async fn keep_condition(
    client: Client,
    api_service: &str,
    mut verdict: watch::Receiver<Verdict>,
    retry: Duration,
) {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let resource = ApiResource::from_gvk_with_plural(&kind, "apiservices");
    let api: Api<DynamicObject> = Api::all_with(client, &resource);
    // Applied, so that it is merged by its type with the condition of the aggregator.
    let params = PatchParams::apply(super::FIELD_MANAGER).force();
    let mut said = false;
    loop {
        let (status, reason, message) = match &*verdict.borrow_and_update() {
            Verdict::Unknown => ("Unknown", "NotTried", String::new()),
            Verdict::Works => ("True", "Written", String::new()),
            Verdict::Fails { reason, message } => ("False", *reason, message.clone()),
        };
        // To the second, as Kubernetes writes times.
        let since = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({
            "type": CONDITION, "status": status, "reason": reason, "message": message,
            "lastTransitionTime": since,
        });
        let patch = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": api_service},
            "status": {"conditions": [condition]},
        });
        let written = status == "Unknown"
            || match api
                .patch_status(api_service, &params, &Patch::Apply(patch))
                .await
            {
                Ok(_) => true,
                Err(error) => {
                    if !said {
                        said = true;
                        tracing::warn!(name = api_service, %error, "its condition {CONDITION} cannot be kept");
                    }
                    false
                }
            };
        let changed = async {
            if verdict.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        if written {
            changed.await;
        } else {
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep(retry) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_says_nothing_of_what_was_refused_until_that_is_not_wanted_any_more() {
        let (sender, verdict) = watch::channel(Verdict::Unknown);
        let mut judge = Judge::new(sender);
        for _ in 0..REFUSALS {
            judge.written(Some(&Failure::Forbidden("no".to_owned())));
        }
        judge.listed(None, false);
        assert!(matches!(
            &*verdict.borrow(),
            Verdict::Fails {
                reason: "Forbidden",
                ..
            }
        ));
        judge.listed(None, true);
        assert_eq!(*verdict.borrow(), Verdict::Works);
        judge.written(Some(&Failure::Forbidden("no".to_owned())));
        assert_eq!(*verdict.borrow(), Verdict::Works, "it is the first again");
    }
}
