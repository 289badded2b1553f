//! Builds operations with owners and correlation groups, and clients of a cluster, for the tests of
//! `tree`, `describe`, `top` and the lookup of owners.

use super::api_client::ApiClient;
use super::listed_operation::ListedOperation;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use ifo_api::metadata::{Condition, OwnerReference, Time, UnknownFields};
use jiff::Timestamp;
use kube::client::Body;
use serde_json::Value;
use std::convert::Infallible;

/// Returns the fixed current time of these tests.
pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z"
        .parse()
        .expect("the text is a valid time")
}

/// Creates an active operation on an object. `namespace` is empty for a cluster-scoped object. The
/// UID of the object is derived from its kind, namespace and name.
pub(super) fn on(namespace: &str, kind: &str, name: &str, operation: &str) -> ListedOperation {
    let mut it = ListedOperation {
        namespace: Some(if namespace.is_empty() {
            "ifo-system".to_owned()
        } else {
            namespace.to_owned()
        }),
        name: format!("{name}-{}", operation.to_lowercase()),
        operation: operation.to_owned(),
        component: "kubevirt".to_owned(),
        rule_set: "rules".to_owned(),
        subject: subject(namespace, kind, name),
        active: true,
        state: "Progressing".to_owned(),
        ..ListedOperation::default()
    };
    it.started = Some(now());
    it
}

/// Creates a subject: the identity of an object, but no operation on the object.
pub(super) fn subject(namespace: &str, kind: &str, name: &str) -> SubjectReference {
    SubjectReference {
        api_version: "example.io/v1".into(),
        kind: kind.into(),
        name: name.into(),
        namespace: Some(namespace.into()).filter(|it: &Text| !it.is_empty()),
        uid: Some(uid(namespace, kind, name).into()),
        ..SubjectReference::default()
    }
}

fn uid(namespace: &str, kind: &str, name: &str) -> String {
    format!("{kind}.{namespace}.{name}")
}

/// Builds the subjects of tests.
pub(super) trait SubjectFixture {
    /// Adds an owner. `namespace` is empty for a cluster-scoped owner.
    fn owned_by(self, namespace: &str, kind: &str, name: &str) -> Self;
}

impl SubjectFixture for SubjectReference {
    fn owned_by(mut self, namespace: &str, kind: &str, name: &str) -> Self {
        let owner = OwnerReference {
            api_version: "example.io/v1".into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid(namespace, kind, name).into(),
            block_owner_deletion: None,
            controller: None,
            unknown: UnknownFields::new(),
        };
        let owners = self.owner_references.iter().cloned();
        self.owner_references = owners.chain([owner]).collect();
        self
    }
}

/// Creates a condition that has had its status since the current time of these tests.
pub(super) fn condition(type_: &str, status: &str) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        last_transition_time: Time(now()),
        message: "".into(),
        observed_generation: None,
        reason: "".into(),
        unknown: UnknownFields::new(),
    }
}

impl ListedOperation {
    /// Adds an owner in the namespace of the subject.
    pub(super) fn owned_by(self, kind: &str, name: &str) -> Self {
        let namespace = self.subject.namespace.clone().unwrap_or_default();
        self.owned_in(&namespace, kind, name)
    }

    /// Adds an owner in `namespace`, which is empty for a cluster-scoped owner.
    pub(super) fn owned_in(mut self, namespace: &str, kind: &str, name: &str) -> Self {
        self.subject = self.subject.owned_by(namespace, kind, name);
        self
    }

    /// Marks the owner that was added last as the controller.
    pub(super) fn controlled(mut self) -> Self {
        let owners = std::sync::Arc::make_mut(&mut self.subject.owner_references);
        if let Some(owner) = owners.last_mut() {
            owner.controller = Some(true);
        }
        self
    }

    /// Sets the labels for the correlation group and for the role in the group (`root` or `child`).
    pub(super) fn group(mut self, group: &str, role: &str) -> Self {
        for (suffix, value) in [("group", group), ("role", role)] {
            let key = format!("ifo.kubevirt.io/correlation-{suffix}");
            self.labels.insert(key, value.to_owned());
        }
        self
    }

    /// Sets the component.
    pub(super) fn of(mut self, component: &str) -> Self {
        component.clone_into(&mut self.component);
        self
    }

    /// Sets the age in seconds.
    pub(super) fn since(mut self, seconds: i64) -> Self {
        let start = now().as_second() - seconds;
        self.started = Some(
            Timestamp::from_second(start)
                .expect("the time is near the current time, so it is in range"),
        );
        self
    }

    /// Sets the state and the progress. The state decides whether the operation is active.
    pub(super) fn state(mut self, state: &str, progress: Option<u8>) -> Self {
        state.clone_into(&mut self.state);
        self.active = matches!(
            state,
            "Progressing" | "Blocked" | "Held" | "Failing" | "Settling"
        );
        self.progress = progress;
        self
    }

    /// Sets the item.
    pub(super) fn item(mut self, item: &str) -> Self {
        self.item = Some(item.to_owned());
        self
    }
}

/// Returns a client of a simulated cluster. `answer` receives the path and the query of a request,
/// and returns the JSON of an object or a list. If `answer` returns None, the client receives 404.
pub(super) fn client(answer: impl Fn(&str) -> Option<Value> + Send + 'static) -> ApiClient {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = answer(&request.uri().to_string());
        let code = if answer.is_some() { 200 } else { 404 };
        let body = answer.map(|it| it.to_string()).unwrap_or_default();
        let response = http::Response::builder().status(code);
        let response = response.body(Body::from(body.into_bytes()));
        async move { Ok::<_, Infallible>(response.expect("the status code is valid")) }
    });
    ApiClient::new(kube::Client::new(service, "default"), "https://192.0.2.1")
}
