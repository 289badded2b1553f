//! Builds operations with owners and correlation groups, and clients of a cluster, for the tests of
//! commands. Compares the output of commands with snapshot files.

use crate::cluster::api_client::ApiClient;
use crate::operations::operation::InFlightOperation;
use crate::operations::operation_source::AnyOperation;
use ifo_api::Text;
use ifo_api::live::{Phase, SubjectReference};
use ifo_api::metadata::{Condition, Time, UnknownFields};
use ifo_client::served_resource::ServedResource;
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;

/// Returns the fixed current time of these tests.
pub(super) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z"
        .parse()
        .expect("the text is a valid time")
}

/// Creates an active operation on an object. `namespace` is empty for a cluster-scoped object. The
/// UID of the object is derived from its kind, namespace and name.
pub(super) fn on(namespace: &str, kind: &str, name: &str, operation: &str) -> InFlightOperation {
    let namespace_of_object = match namespace {
        "" => "ifo-system",
        namespace => namespace,
    };
    let object = json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {
            "name": format!("{name}-{}", operation.to_lowercase()),
            "namespace": namespace_of_object, "creationTimestamp": now(),
        },
        "spec": {
            "operation": operation, "ruleSet": "rules", "component": "kubevirt",
            "subject": subject(namespace, kind, name),
        },
        "status": {"state": "Progressing"},
    });
    let operation = AnyOperation::try_from(object);
    operation.expect("the JSON is an operation").0
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
            uid: uid(namespace, kind, name),
            block_owner_deletion: None,
            controller: None,
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

/// Builds the operations of tests.
pub(super) trait OperationFixture: Sized {
    fn edit(self, edit: impl FnOnce(&mut InFlightOperation)) -> Self;

    /// Adds an owner in the namespace of the subject.
    fn owned_by(self, kind: &str, name: &str) -> Self {
        self.edit(|it| {
            let namespace = it.spec.subject.namespace.clone().unwrap_or_default();
            it.spec.subject = it.spec.subject.clone().owned_by(&namespace, kind, name);
        })
    }

    /// Adds an owner in `namespace`, which is empty for a cluster-scoped owner.
    fn owned_in(self, namespace: &str, kind: &str, name: &str) -> Self {
        self.edit(|it| it.spec.subject = it.spec.subject.clone().owned_by(namespace, kind, name))
    }

    /// Marks the owner that was added last as the controller.
    fn controlled(self) -> Self {
        self.edit(|it| {
            let owners = Arc::make_mut(&mut it.spec.subject.owner_references);
            owners.last_mut().expect("there is an owner").controller = Some(true);
        })
    }

    /// Sets the labels for the correlation group and for the role in the group (`root` or `child`).
    fn group(self, group: &str, role: &str) -> Self {
        self.edit(|it| {
            for (suffix, value) in [("group", group), ("role", role)] {
                let key = format!("ifo.kubevirt.io/correlation-{suffix}");
                it.metadata.labels.insert(key.into(), value.into());
            }
        })
    }

    /// Sets the component.
    fn of(self, component: &str) -> Self {
        self.edit(|it| it.spec.component = component.into())
    }

    /// Sets the key of the piece of work.
    fn work(self, key: &str) -> Self {
        self.edit(|it| it.spec.work = Some(key.into()))
    }

    /// Sets the age in seconds.
    fn since(self, seconds: i64) -> Self {
        self.edit(|it| it.metadata.creation_timestamp = ago(seconds))
    }

    /// Sets the end, in seconds before the current time of these tests.
    fn ended(self, seconds: i64) -> Self {
        self.edit(|it| it.status.completed = Some(ago(seconds)))
    }

    /// Sets the state and the progress. The state decides whether the operation is active.
    fn state(self, state: &str, progress: Option<u8>) -> Self {
        self.edit(|it| {
            it.status.state = serde_json::from_value(json!(state)).expect("a text is a state");
            let is_completed = it.status.state.is_completed();
            it.status.phase = if is_completed {
                Phase::Completed
            } else {
                Phase::Active
            };
            it.status.progress = progress;
        })
    }

    /// Sets the message.
    fn message(self, message: &str) -> Self {
        self.edit(|it| it.status.message = message.into())
    }

    /// Sets the item.
    fn item(self, item: &str) -> Self {
        self.edit(|it| it.spec.item = Some(item.into()))
    }
}

impl OperationFixture for InFlightOperation {
    fn edit(mut self, edit: impl FnOnce(&mut InFlightOperation)) -> Self {
        edit(&mut self);
        self
    }
}

/// Returns the time that was so many seconds before the current time of these tests.
fn ago(seconds: i64) -> Time {
    Time(Timestamp::from_second(now().as_second() - seconds).expect("the time is in range"))
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

/// Returns short names of kinds.
pub(super) fn short_names() -> Arc<ShortNames> {
    let all = [
        ("VirtualMachine", "vm"),
        ("VirtualMachineInstance", "vmi"),
        ("VirtualMachineInstanceMigration", "vmim"),
        ("DataVolume", "dv"),
        ("ClusterServiceVersion", "csv"),
    ];
    let served = all.map(|(kind, short_name)| ServedResource {
        api: ApiResource::from_gvk(&GroupVersionKind::gvk("example.io", "v1", kind)),
        namespaced: true,
        singular: None,
        short_names: vec![short_name.to_owned()],
    });
    Arc::new(ShortNames::new(&served))
}

/// Returns operations in different states, on different objects.
pub(super) fn mixed() -> Vec<InFlightOperation> {
    let blocked = on("shop", "VirtualMachine", "frontend", "Migrating");
    vec![
        on("", "ClusterVersion", "version", "Updating")
            .of("openshift")
            .since(7_500)
            .state("Progressing", Some(15))
            .message("Working towards 4.20.7: 147 of 929 done"),
        blocked
            .since(65)
            .state("Blocked", Some(45))
            .message("waits for\na node")
            .edit(|it| it.spec.initiator = Some("ann".into())),
        on("shop", "DataVolume", "データ", "Importing")
            .since(600)
            .state("Failing", None)
            .item("disk-0")
            .message("日本語のメッセージ"),
        on("shop", "VirtualMachine", "backend", "Stopping")
            .since(90)
            .state("Succeeded", None)
            .ended(30),
    ]
}

/// Compares printed text with `tests/fixtures/cli/output/NAME.txt`. If the environment variable
/// `UPDATE_SNAPSHOTS` is set, writes the text to the file instead. A developer must then review the
/// file.
pub(super) fn snapshot(name: &str, printed: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/cli/output")
        .join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, printed).expect("the file must be writable");
        return;
    }
    let wanted = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(printed, wanted, "{}", path.display());
}
