//! A scripted server for the tests of feeds. A feed lists and watches one resource. The server takes the
//! place of the kube-apiserver, and answers each request with the next answer of its script. tokio's
//! clock is paused, so the tests do not wait.

mod budget;
mod feeds;

use super::{ClusterFeed, Connection, Feed as _, Raw};
use bytes::Bytes;
use futures::{StreamExt as _, future, stream, stream::BoxStream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use ifo_api::{Gvr, Source};
use kube::client::Body;
use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
    time::Duration,
};
use tower::service_fn;

/// The answer of the server to one request.
#[derive(Clone)]
struct Answer {
    code: u16,
    body: Vec<String>,
    end: End,
}

#[derive(Clone, PartialEq)]
enum End {
    /// The body is complete.
    Complete,
    /// The connection stays open without further data.
    Open,
    /// The connection breaks.
    Breaks,
    /// There is no answer.
    Hangs,
}

/// An answer with status 200 and these [`line`]s.
fn answer(end: End, lines: &[&str]) -> Answer {
    let body = lines.iter().map(|it| line(it)).collect();
    Answer {
        code: 200,
        body,
        end,
    }
}

fn open(lines: &[&str]) -> Answer {
    answer(End::Open, lines)
}

fn breaks(lines: &[&str]) -> Answer {
    answer(End::Breaks, lines)
}

fn complete(lines: &[&str]) -> Answer {
    answer(End::Complete, lines)
}

fn text(code: u16, text: &str) -> Answer {
    let body = vec![text.to_owned()];
    Answer {
        code,
        body,
        end: End::Complete,
    }
}

fn status(code: u16, reason: &str, message: &str) -> Answer {
    let kind = "Status";
    text(
        code,
        &serde_json::json!({"kind": kind, "code": code, "reason": reason, "message": message})
            .to_string(),
    )
}

/// A page of a list with the resourceVersion 5.
fn page(objects: &[&str], next: &str) -> Answer {
    let items: Vec<_> = objects.iter().map(|it| object(it)).collect();
    let items = items.join(",");
    let metadata = format!(r#"{{"resourceVersion":"5","continue":"{next}"}}"#);
    text(
        200,
        &format!(r#"{{"metadata":{metadata},"items":[{items}]}}"#),
    )
}

/// Returns the object `a` with resourceVersion 3 for the word `a3`.
fn object(word: &str) -> String {
    let (name, version) = word.split_at(1);
    format!(
        r#"{{"kind":"Thing","metadata":{{"name":"{name}","uid":"u","resourceVersion":"{version}"}}}}"#
    )
}

/// Returns a line of a watch. The words `+a3`, `~a3` and `-a3` stand for an ADDED, MODIFIED or DELETED
/// event of the object `a` with resourceVersion 3. `*5` is a bookmark. Other words are lines themselves.
fn line(word: &str) -> String {
    let event = |kind: &str, word| format!(r#"{{"type":"{kind}","object":{}}}"#, object(word));
    let bookmark = |version: &str| {
        format!(
            r#"{{"type":"BOOKMARK","object":{{"kind":"Thing","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"}}}}}}"#
        )
    };
    let line = match word.as_bytes() {
        [b'+', ..] => event("ADDED", &word[1..]),
        [b'~', ..] => event("MODIFIED", &word[1..]),
        [b'-', ..] => event("DELETED", &word[1..]),
        [b'*', ..] => bookmark(&word[1..]),
        _ => word.to_owned(),
    };
    line + "\n"
}

const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","message":"too old resource version: 1 (220)","reason":"Expired","code":410}}"#;

struct ScriptedServer {
    script: Mutex<VecDeque<Answer>>,
    queries: Mutex<Vec<String>>,
}

impl ScriptedServer {
    fn new(script: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.into_iter().collect()),
            queries: Mutex::default(),
        })
    }

    /// Returns the queries of the requests so far. For a watch, returns only the version from which it
    /// continues.
    fn queries(&self) -> Vec<String> {
        let queries = self.queries.lock().unwrap();
        let short = queries.iter().map(|query| {
            let watch = query.strip_prefix("watch=true&timeoutSeconds=");
            let from =
                watch.and_then(|it| it.split_once("&allowWatchBookmarks=true&resourceVersion="));
            from.map_or(&**query, |(_, version)| version).to_owned()
        });
        short.collect()
    }

    async fn answer(
        self: Arc<Self>,
        request: Request<Body>,
    ) -> io::Result<Response<StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>> {
        let path = "/apis/example.org/v1/namespaces/shop/things";
        assert_eq!(request.uri().path(), path);
        let query = request.uri().query().unwrap_or_default();
        let query = query.trim_start_matches('&').to_owned();
        self.queries.lock().unwrap().push(query);
        let answer = self.script.lock().unwrap().pop_front();
        let answer = answer.ok_or_else(|| io::Error::other("connection refused"))?;
        let end = match answer.end {
            End::Complete => stream::empty().boxed(),
            End::Open => stream::pending().boxed(),
            End::Breaks => stream::iter([Err(io::Error::other("reset by peer"))]).boxed(),
            End::Hangs => future::pending().await,
        };
        let frames = stream::iter(answer.body).map(|it| Ok(Frame::data(it.into())));
        let body = StreamBody::new(frames.chain(end).boxed());
        Ok(Response::builder().status(answer.code).body(body).unwrap())
    }
}

/// Returns `number` feeds of one cluster. The feeds share a budget of large objects.
fn feeds(server: &Arc<ScriptedServer>, number: usize) -> Vec<BoxStream<'static, Raw>> {
    let server = Arc::clone(server);
    let service = service_fn(move |request| Arc::clone(&server).answer(request));
    let connection = Connection::through(kube::Client::new(service, "default"));
    let retry_interval = Duration::from_mins(1);
    let cluster = ClusterFeed::new(connection, retry_interval);
    let source = Source {
        target: Arc::new(Gvr {
            group: "example.org".into(),
            version: "v1".into(),
            resource: "things".into(),
        }),
        namespace: Some("shop".into()),
    };
    (0..number)
        .map(|_| cluster.follow(source.clone(), None))
        .collect()
}

fn follow(server: &Arc<ScriptedServer>) -> BoxStream<'static, Raw> {
    feeds(server, 1).remove(0)
}

/// Returns the next `n` events as texts. For the object `a` with resourceVersion 3, the text is `+a3` if
/// the object was applied, and `-a3` if it was deleted. If no event arrives for an hour, the last text is
/// `silence`.
async fn next_events(feed: &mut BoxStream<'static, Raw>, n: usize) -> Vec<String> {
    let hour = Duration::from_hours(1);
    let mut words = Vec::new();
    for _ in 0..n {
        let Ok(raw) = tokio::time::timeout(hour, feed.next()).await else {
            words.push("silence".into());
            return words;
        };
        let name = |json: &Bytes| {
            let value: serde_json::Value = serde_json::from_slice(json).unwrap();
            let text = |field: &str| value["metadata"][field].as_str().unwrap().to_owned();
            text("name") + &text("resourceVersion")
        };
        words.push(match raw.expect("a feed never ends") {
            Raw::Reset => "reset".into(),
            Raw::Synced => "synced".into(),
            Raw::Applied(json) => format!("+{}", name(&json)),
            Raw::Deleted(json) => format!("-{}", name(&json)),
            Raw::Lost(lost) => format!("lost: {lost}"),
        });
    }
    words
}
