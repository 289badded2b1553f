//! A fake kube-apiserver for tests of `ifo-apiserver`. In this file, "the server" is
//! `ifo-apiserver`. Targets are the resources that rule sets name.
//!
//! - A test gives each target a script, which returns the answers to list and watch requests for
//!   this target. These answers can be invalid.
//! - The fake itself returns correct answers to the other requests that the server sends.

use crate::demo::eventually;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;

/// The API group of all targets.
pub const GROUP: &str = "hostile.example";

/// The resource whose rule set gives each operation a message of 1,024 characters of four bytes.
pub const WITH_LONG_MESSAGES: &str = "texts";

/// One step of a scripted answer.
pub enum Step {
    /// Send these bytes.
    Send(Vec<u8>),
    /// Send each item of an iterator. An item is created only when it is sent, so that the fake
    /// needs little memory.
    SendEach(Box<dyn Iterator<Item = Vec<u8>> + Send>),
    /// Wait until the test calls [`FakeApiServer::delete_rule_sets`].
    WaitForDeletion,
    /// Keep the connection open until the server closes it.
    HoldOpen,
}

impl Step {
    pub fn send(text: impl Into<Vec<u8>>) -> Self {
        Self::Send(text.into())
    }
}

/// A list or watch request for a resource that has a script.
#[derive(Debug)]
pub struct ObjectRequest {
    pub query: String,
}

impl ObjectRequest {
    pub fn is_watch(&self) -> bool {
        self.query.contains("watch=true")
    }
}

/// A function that returns the body of the answer to a request.
pub type Script = Box<dyn Fn(&ObjectRequest) -> Vec<Step> + Send + Sync>;

/// A running fake kube-apiserver. It stops when this value is dropped.
pub struct FakeApiServer {
    pub address: SocketAddr,
    state: Arc<FakeApiServerState>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for FakeApiServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct FakeApiServerState {
    scripts: BTreeMap<&'static str, Script>,
    request_counts: Mutex<BTreeMap<String, usize>>,
    /// All statuses that the server has written. The key is the name of the rule set.
    statuses: Mutex<BTreeMap<String, Vec<Value>>>,
    are_rule_sets_deleted: AtomicBool,
    /// The path whose requests the fake never answers, and the number of these requests so far.
    /// None if the fake answers all requests.
    unanswered: Option<(&'static str, AtomicUsize)>,
}

impl FakeApiServer {
    /// Starts a fake without scripts. The fake never answers requests for `path`.
    pub async fn start_without_answers_to(path: &'static str) -> Self {
        Self::serve(BTreeMap::new(), Some((path, AtomicUsize::new(0)))).await
    }

    /// Waits until the server has sent a request that the fake never answers.
    pub async fn wait_for_unanswered_request(&self) {
        let (path, unanswered_requests) = self
            .state
            .unanswered
            .as_ref()
            .expect("the test started the fake with `start_without_answers_to`");
        eventually(path, async || {
            (unanswered_requests.load(Ordering::Relaxed) > 0).then_some(())
        })
        .await;
    }

    /// Starts a fake that serves the resources in `scripts`. For each resource, the fake also
    /// serves a rule set with the name of the resource. The rule set detects the operation `Busy`
    /// on each object in the state `Busy`.
    pub async fn start(scripts: impl IntoIterator<Item = (&'static str, Script)>) -> Self {
        Self::serve(scripts.into_iter().collect(), None).await
    }

    async fn serve(
        scripts: BTreeMap<&'static str, Script>,
        unanswered: Option<(&'static str, AtomicUsize)>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(FakeApiServerState {
            scripts,
            request_counts: Mutex::default(),
            statuses: Mutex::default(),
            are_rule_sets_deleted: AtomicBool::new(false),
            unanswered,
        });
        let serving = Arc::clone(&state);
        let answer = async move |request| serving.answer(request).await;
        let router = Router::new().fallback(answer);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            address,
            state,
            task,
        }
    }

    /// Returns the number of list and watch requests for a resource.
    pub fn request_count(&self, resource: &str) -> usize {
        let request_counts = self.state.request_counts.lock().unwrap();
        request_counts.get(resource).copied().unwrap_or_default()
    }

    /// Deletes all rule sets.
    pub fn delete_rule_sets(&self) {
        let deleted = &self.state.are_rule_sets_deleted;
        deleted.store(true, Ordering::Relaxed);
    }

    /// Returns all statuses of a rule set that the server has written so far. Each line is the JSON
    /// of one status.
    pub fn statuses_of(&self, rule_set: &str) -> String {
        self.state.statuses_of(rule_set)
    }
}

fn rule_set(name: &str) -> Value {
    let mut rule = json!({"operation": "Busy", "expression": "object.status.state == 'Busy'"});
    if name == WITH_LONG_MESSAGES {
        rule["message"] = json!(format!("'{}'", "\u{1f980}".repeat(1_024)));
    }
    json!({
        "apiVersion": "ifo.kubevirt.io/v1alpha1",
        "kind": "OperationRuleSet",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "generation": 1},
        "spec": {
            "component": name,
            "target": {"group": GROUP, "version": "v1", "resource": name},
            "rules": [rule],
        },
    })
}

impl FakeApiServerState {
    fn statuses_of(&self, rule_set: &str) -> String {
        let statuses = self.statuses.lock().unwrap();
        statuses.get(rule_set).map_or_else(String::new, |all| {
            all.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        })
    }

    async fn answer(self: Arc<Self>, request: Request) -> Response {
        let (head, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
        if let Some((unanswered, unanswered_requests)) = &self.unanswered
            && *unanswered == path
        {
            unanswered_requests.fetch_add(1, Ordering::Relaxed);
            return std::future::pending().await;
        }
        let resource = path.strip_prefix(&format!("/apis/{GROUP}/v1/"));
        let resource = resource.unwrap_or_default();
        let answer = if let Some(script) = self.scripts.get(resource) {
            let mut request_counts = self.request_counts.lock().unwrap();
            *request_counts.entry(resource.to_owned()).or_default() += 1;
            Ok(script(&ObjectRequest {
                query: query.to_owned(),
            }))
        } else {
            let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
            self.ordinary_answer(head.method.as_str(), path, query, &body)
        };
        match answer {
            Ok(steps) => ([("content-type", "application/json")], self.body(steps)).into_response(),
            Err(code) => failure(code),
        }
    }

    /// Returns a body that these steps send.
    fn body(self: Arc<Self>, steps: Vec<Step>) -> Body {
        let (sender, parts) = mpsc::channel::<Result<Bytes, Infallible>>(1);
        tokio::spawn(async move {
            for step in steps {
                // The server can close a connection at any time. So the test ignores errors.
                match step {
                    Step::Send(bytes) => _ = sender.send(Ok(bytes.into())).await,
                    Step::SendEach(parts) => {
                        let mut buffer = Vec::new();
                        for part in parts {
                            buffer.extend(part);
                            if buffer.len() > 16 << 10
                                && sender
                                    .send(Ok(std::mem::take(&mut buffer).into()))
                                    .await
                                    .is_err()
                            {
                                return;
                            }
                        }
                        _ = sender.send(Ok(buffer.into())).await;
                    }
                    Step::WaitForDeletion => {
                        while !self.are_rule_sets_deleted.load(Ordering::Relaxed) {
                            sleep(Duration::from_millis(20)).await;
                        }
                    }
                    Step::HoldOpen => sender.closed().await,
                }
            }
        });
        Body::from_stream(ReceiverStream::new(parts))
    }

    /// Returns the correct answer to a request for which there is no script. The fake accepts each
    /// token, and allows each access. It answers 404 for paths that it does not know.
    fn ordinary_answer(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: &Value,
    ) -> Result<Vec<Step>, u16> {
        const RULE_SETS: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";
        const AUTHENTICATION_CONFIG_MAPS: &str = "/api/v1/namespaces/kube-system/configmaps";
        if query.contains("watch=") && path == RULE_SETS {
            let deletion = |name: &&str| event("DELETED", &rule_set(name).to_string());
            return Ok(vec![
                Step::WaitForDeletion,
                Step::send(self.scripts.keys().map(deletion).collect::<String>()),
                Step::HoldOpen,
            ]);
        }
        if query.contains("watch=") && path == AUTHENTICATION_CONFIG_MAPS {
            return Ok(vec![Step::HoldOpen]);
        }
        let trust = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {},
            "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
        });
        let list = |kind: &str, items: Vec<Value>| json!({"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": "1"}, "items": items});
        let review = |status: Value| {
            let mut answer = body.clone();
            answer["status"] = status;
            Some(answer)
        };
        let answer = match (method, path) {
            ("GET", AUTHENTICATION_CONFIG_MAPS) => Some(list("ConfigMapList", vec![trust])),
            ("GET", RULE_SETS) => {
                let items = self.scripts.keys().map(|name| rule_set(name)).collect();
                Some(list("OperationRuleSetList", items))
            }
            ("GET", _) if path.starts_with(AUTHENTICATION_CONFIG_MAPS) => Some(trust),
            ("GET", "/readyz") => Some(json!("ok")),
            ("GET", "/api") => Some(json!({"items": [{"versions": []}]})),
            ("GET", "/apis") => {
                let resource = |name: &&str| json!({"resource": name, "responseKind": {"kind": "Thing"}, "scope": "Namespaced", "verbs": ["list", "watch"]});
                let resources: Vec<_> = self.scripts.keys().map(resource).collect();
                let version = json!({"version": "v1", "resources": resources});
                Some(json!({"items": [{"metadata": {"name": GROUP}, "versions": [version]}]}))
            }
            ("PATCH", _) if path.starts_with(RULE_SETS) => {
                let name = path[RULE_SETS.len() + 1..].trim_end_matches("/status");
                let mut written = rule_set(name);
                written["status"] = body["status"].clone();
                let mut statuses = self.statuses.lock().unwrap();
                let statuses = statuses.entry(name.to_owned()).or_default();
                statuses.push(body["status"].clone());
                Some(written)
            }
            ("POST", _) if path.ends_with("/tokenreviews") => {
                let user = json!({"username": "tester", "groups": ["system:masters"]});
                review(json!({"authenticated": true, "user": user}))
            }
            ("POST", _) if path.ends_with("/subjectaccessreviews") => {
                review(json!({"allowed": true}))
            }
            _ => None,
        };
        let answer = answer.ok_or(404_u16)?;
        Ok(vec![Step::send(answer.to_string())])
    }
}

/// Returns an answer whose body is a Kubernetes Status.
fn failure(code: u16) -> Response {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "message": "it fails on purpose", "metadata": {},
    });
    let code = StatusCode::from_u16(code).unwrap();
    let content_type = [("content-type", "application/json")];
    (code, content_type, status.to_string()).into_response()
}

/// Returns an event of a watch as a line of JSON.
pub fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// Returns the body of a list: a page with these objects, which contains the continue token `next`.
/// `metadata` is the last field, as in a kube-apiserver's lists of custom resources.
pub fn list(objects: impl Iterator<Item = Vec<u8>> + Send + 'static, next: &str) -> Vec<Step> {
    let mut separator = "";
    let items = objects.map(move |object| {
        let separator = std::mem::replace(&mut separator, ",").as_bytes();
        [separator, &object].concat()
    });
    vec![
        Step::send(r#"{"apiVersion":"v1","items":["#),
        Step::SendEach(Box::new(items)),
        Step::send(format!(
            r#"],"kind":"ThingList","metadata":{{"continue":"{next}","resourceVersion":"5"}}}}"#
        )),
    ]
}

/// Returns an object in the state `state`, as JSON.
pub fn thing(name: &str, state: &str) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop","resourceVersion":"6","uid":"uid-{name}"}},"status":{{"state":"{state}"}}}}"#
    )
}
