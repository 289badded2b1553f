//! A simulated kube-apiserver that can misbehave. It writes HTTP/1.1 itself, because no HTTP
//! library sends invalid messages. It answers the requests of the server's start correctly, and
//! other requests according to a script for each resource.

use crate::demo::eventually;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

pub const GROUP: &str = "hostile.example";

/// The beginning of an answer whose body lasts until the connection is closed.
pub const STREAM: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n";

/// A step of an answer.
pub enum Step {
    /// Send this.
    Say(Vec<u8>),
    /// Send each of these, created when it is sent.
    Each(Box<dyn Iterator<Item = Vec<u8>> + Send>),
    /// Send this repeatedly until the connection breaks.
    Forever(Vec<u8>),
    /// Wait until a status of the resource's rule set contains this.
    Told(&'static str),
    /// Wait until the test has reached this step.
    Stage(usize),
    /// Hold the connection until the other side closes it.
    Stay,
    /// Break the connection with an RST.
    Reset,
}

impl Step {
    pub fn say(text: impl Into<Vec<u8>>) -> Self {
        Self::Say(text.into())
    }
}

/// A request for objects.
#[derive(Debug)]
pub struct Ask {
    /// The number of earlier requests.
    pub nth: usize,
    pub query: String,
    /// The messages in the statuses of the rule set so far.
    pub told: String,
}

impl Ask {
    pub fn is_watch_list(&self) -> bool {
        self.query.contains("sendInitialEvents=true")
    }

    pub fn is_watch(&self) -> bool {
        self.query.contains("watch=1")
    }
}

pub type Script = Box<dyn Fn(&Ask) -> Vec<Step> + Send + Sync>;

/// It listens until this is dropped.
pub struct Impostor {
    pub address: SocketAddr,
    state: Arc<State>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Impostor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct State {
    scripts: BTreeMap<&'static str, Script>,
    asked: Mutex<BTreeMap<String, usize>>,
    /// By rule set, all written statuses.
    statuses: Mutex<BTreeMap<String, Vec<Value>>>,
    stage: Mutex<usize>,
    /// The path that is never answered, if any, and the number of requests for it.
    silent: Option<(&'static str, AtomicUsize)>,
}

impl Impostor {
    /// Serves no resource, and never answers requests for this path.
    pub async fn silent_about(path: &'static str) -> Self {
        Self::serve(BTreeMap::new(), Some((path, AtomicUsize::new(0)))).await
    }

    /// Waits for a request that is never answered.
    pub async fn is_silent(&self) {
        let (path, asked) = self.state.silent.as_ref().expect("a path without answers");
        eventually(path, async || {
            (asked.load(Ordering::Relaxed) > 0).then_some(())
        })
        .await;
    }

    /// Serves these resources. Each has a rule set of the same name that detects objects with the
    /// state `Busy`.
    pub async fn start(scripts: impl IntoIterator<Item = (&'static str, Script)>) -> Self {
        Self::serve(scripts.into_iter().collect(), None).await
    }

    async fn serve(
        scripts: BTreeMap<&'static str, Script>,
        silent: Option<(&'static str, AtomicUsize)>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            scripts,
            asked: Mutex::default(),
            statuses: Mutex::default(),
            stage: Mutex::new(0),
            silent,
        });
        let serving = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&serving);
                // The other side can close a connection at any time.
                tokio::spawn(async move { state.answer(stream).await.ok() });
            }
        });
        Self {
            address,
            state,
            task,
        }
    }

    pub fn resources(&self) -> Vec<&'static str> {
        self.state.scripts.keys().copied().collect()
    }

    /// The number of requests for its objects.
    pub fn asked(&self, resource: &str) -> usize {
        let asked = self.state.asked.lock().unwrap();
        asked.get(resource).copied().unwrap_or_default()
    }

    pub fn advance_to(&self, stage: usize) {
        *self.state.stage.lock().unwrap() = stage;
    }

    /// All statuses of a rule set so far, as text.
    pub fn told(&self, rule_set: &str) -> String {
        self.state.told(rule_set)
    }
}

fn rule_set(name: &str) -> Value {
    json!({
        "apiVersion": "ifo.kubevirt.io/v1alpha1",
        "kind": "OperationRuleSet",
        "metadata": {"name": name, "uid": name, "resourceVersion": "1", "generation": 1},
        "spec": {
            "component": "tests",
            "target": {"group": GROUP, "version": "v1", "resource": name},
            "rules": [{"operation": "Busy", "expression": "object.status.state == 'Busy'"}],
        },
    })
}

impl State {
    fn told(&self, rule_set: &str) -> String {
        let statuses = self.statuses.lock().unwrap();
        statuses.get(rule_set).map_or_else(String::new, |all| {
            all.iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("\n")
        })
    }

    async fn answer(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufStream::new(stream);
        let mut first = String::new();
        stream.read_line(&mut first).await?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await?;
        let mut words = first.split(' ');
        let (method, uri) = (words.next().unwrap(), words.next().unwrap_or_default());
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        if let Some((silent, asked)) = &self.silent
            && *silent == path
        {
            asked.fetch_add(1, Ordering::Relaxed);
            return self.perform(stream, "", vec![Step::Stay]).await;
        }
        let things = format!("/apis/{GROUP}/v1/");
        match path.strip_prefix(&things) {
            Some(resource) if self.scripts.contains_key(resource) => {
                self.play(stream, resource, query).await
            }
            _ => {
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let steps = self.sane(method, path, query, &body);
                self.perform(stream, "", steps).await
            }
        }
    }

    async fn play(
        &self,
        stream: BufStream<TcpStream>,
        resource: &str,
        query: &str,
    ) -> std::io::Result<()> {
        let nth = {
            let mut asked = self.asked.lock().unwrap();
            let asked = asked.entry(resource.to_owned()).or_default();
            *asked += 1;
            *asked - 1
        };
        let steps = self.scripts[resource](&Ask {
            nth,
            query: query.to_owned(),
            told: self.told(resource),
        });
        self.perform(stream, resource, steps).await
    }

    async fn perform(
        &self,
        mut stream: BufStream<TcpStream>,
        resource: &str,
        steps: Vec<Step>,
    ) -> std::io::Result<()> {
        for step in steps {
            match step {
                Step::Say(bytes) => stream.write_all(&bytes).await?,
                Step::Each(parts) => {
                    for part in parts {
                        stream.write_all(&part).await?;
                    }
                }
                Step::Forever(bytes) => loop {
                    stream.write_all(&bytes).await?;
                },
                Step::Told(text) => {
                    stream.flush().await?;
                    while !self.told(resource).contains(text) {
                        sleep(Duration::from_millis(20)).await;
                    }
                }
                Step::Stage(stage) => {
                    stream.flush().await?;
                    while *self.stage.lock().unwrap() < stage {
                        sleep(Duration::from_millis(20)).await;
                    }
                }
                Step::Stay => {
                    stream.flush().await?;
                    let _ = stream.read_u8().await;
                }
                Step::Reset => {
                    stream.flush().await?;
                    let socket = socket2::SockRef::from(stream.get_ref());
                    socket.set_linger(Some(Duration::ZERO))?;
                    return Ok(());
                }
            }
        }
        stream.shutdown().await
    }

    /// The answers of a correct kube-apiserver.
    fn sane(&self, method: &str, path: &str, query: &str, body: &Value) -> Vec<Step> {
        const RULE_SETS: &str = "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets";
        const TRUST: &str = "/api/v1/namespaces/kube-system/configmaps";
        if query.contains("watch=") && [RULE_SETS, TRUST].contains(&path) {
            return vec![Step::say(STREAM), Step::Stay];
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
            ("GET", TRUST) => Some(list("ConfigMapList", vec![trust])),
            ("GET", RULE_SETS) => {
                let items = self.scripts.keys().map(|name| rule_set(name)).collect();
                Some(list("OperationRuleSetList", items))
            }
            ("GET", _) if path.starts_with(TRUST) => Some(trust),
            ("GET", "/readyz") => Some(json!("ok")),
            ("GET", _) if path == format!("/apis/{GROUP}/v1") => {
                let resource = |name: &&str| json!({"name": name, "kind": "Thing", "namespaced": true, "verbs": ["list", "watch"]});
                Some(json!({"resources": self.scripts.keys().map(resource).collect::<Vec<_>>()}))
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
        match answer {
            Some(answer) => vec![Step::say(response("200 OK", &answer.to_string()))],
            None => vec![Step::say(failure(404, "NotFound"))],
        }
    }
}

/// A complete answer in JSON.
pub fn response(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A complete answer with a Status.
pub fn failure(code: u16, reason: &str) -> String {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": code,
        "reason": reason, "message": format!("{reason} on purpose"), "metadata": {},
    });
    response(&format!("{code} {reason}"), &status.to_string())
}

/// A line of a watch.
pub fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// The bookmark that ends the initial state.
pub fn initial_end() -> String {
    let marked = r#"{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    event("BOOKMARK", marked)
}

/// An object in a state, with `padding` bytes that no rule reads.
pub fn thing(name: &str, state: &str, padding: usize) -> String {
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"shop","resourceVersion":"6","uid":"uid-{name}"}},"padding":"{}","status":{{"state":"{state}"}}}}"#,
        "x".repeat(padding)
    )
}

/// A complete initial state with a busy object of this name, without later events.
pub fn good(name: &str) -> Vec<Step> {
    vec![
        Step::say(STREAM),
        Step::say(event("ADDED", &thing(name, "Busy", 0))),
        Step::say(initial_end()),
        Step::Stay,
    ]
}
