//! Sends requests to the live resource and to the custom resource, and reads the complete answers
//! with all headers. The requests come from a table: text files with one request per line.
//!
//! A line has the form `METHOD PATH`, or `METHOD PATH | Header: value` with one or more headers. A line
//! can contain placeholders in braces, such as `{list}`. [`Side`] has their values.

use super::masks;
use super::side::Side;
use super::test_objects::Twin;
use crate::harness::{Caller, DEADLINE, websocket};
use flate2::read::GzDecoder;
use http::header::{CONTENT_ENCODING, UPGRADE};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Read as _;
use tokio_tungstenite::tungstenite::protocol::Message;

/// A request: a line of the table, which is also the name of the request.
#[derive(Debug)]
pub struct TableRequest(pub &'static str);

/// The contents of all files of the table.
const FILES: [&str; 6] = [
    include_str!("requests/forms.txt"),
    include_str!("requests/lists.txt"),
    include_str!("requests/selectors.txt"),
    include_str!("requests/watches.txt"),
    include_str!("requests/websockets.txt"),
    include_str!("requests/refusals.txt"),
];

/// Returns the requests of a file. Skips empty lines and comments.
pub fn requests_in(text: &'static str) -> impl Iterator<Item = TableRequest> {
    let lines = text.lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(TableRequest)
}

/// Returns all requests. Fails if a request occurs twice.
pub fn all_requests() -> Vec<TableRequest> {
    let requests: Vec<TableRequest> = FILES.into_iter().flat_map(requests_in).collect();
    let names: BTreeSet<&str> = requests.iter().map(|it| it.0).collect();
    assert_eq!(names.len(), requests.len(), "a request occurs twice");
    requests
}

/// A complete answer.
#[derive(Debug)]
pub struct ExchangeAnswer {
    pub code: u16,
    /// The headers, sorted by name.
    pub headers: Vec<(String, String)>,
    /// The body. If it was compressed, it has been decompressed. After the code 101, the content of
    /// all messages.
    pub text: String,
    /// The properties of the messages. Null if the code is not 101.
    pub messages: Value,
}

/// The answers of the live resource and of the custom resource. Values that always differ are
/// replaced by masks.
#[derive(Debug)]
pub struct Pair {
    pub live: Value,
    pub custom: Value,
}

impl TableRequest {
    /// Returns the method, the path and the headers for one side: the live resource or the custom
    /// resource.
    pub fn parts(&self, side: &Side) -> (Method, String, Vec<(&str, &str)>) {
        let mut parts = self.0.split(" | ");
        let target = parts.next().and_then(|target| target.split_once(' '));
        let (method, path) = target.expect("a line begins with a method and a path");
        let headers = parts.map(|it| it.split_once(": ").expect("a header has a value"));
        let method = method.parse().expect("the method is valid");
        (method, side.expand(path), headers.collect())
    }

    /// Returns the HTTP request for one side.
    fn to(&self, side: &Side) -> Request<Body> {
        let (method, path, mut headers) = self.parts(side);
        let (kind, body) = match method {
            Method::POST | Method::PUT => ("application/json", side.value("object")),
            Method::PATCH => ("application/merge-patch+json", "{}"),
            _ => ("", ""),
        };
        if !kind.is_empty() && !headers.iter().any(|(name, _)| *name == "Content-Type") {
            headers.push(("Content-Type", kind));
        }
        let request = Request::builder().method(method).uri(path);
        let request = headers.into_iter().fold(request, |request, (name, value)| {
            request.header(name, value)
        });
        let mut request = request
            .body(Body::from(body.to_owned().into_bytes()))
            .unwrap_or_else(|error| panic!("{}: {error}", self.0));
        if request.headers().contains_key(UPGRADE) {
            websocket::add_handshake(&mut request);
        }
        request
    }

    /// Returns the value of the query option `name` for one side. Returns None if the path does not
    /// contain this option.
    pub fn option(&self, side: &Side, name: &str) -> Option<String> {
        let (_, path, _) = self.parts(side);
        let (_, query) = path.split_once('?')?;
        let mut options = form_urlencoded::parse(query.as_bytes());
        let (_, value) = options.find(|(option, _)| option == name)?;
        Some(value.into_owned())
    }
}

/// Sends a request to both sides at the same time, and returns the answers with masked values. If
/// [`send`] returns an error for a side, the error takes the place of the answer.
pub async fn exchange_on_both(twin: &Twin, request: &TableRequest) -> Pair {
    let of = async |side: &Side| {
        let answer = send(twin.caller(), request.to(side)).await;
        match answer {
            Ok(answer) => masks::answer(request, side, twin.namespace(), answer),
            Err(error) => Value::String(error),
        }
    };
    let (live, custom) = tokio::join!(of(&twin.live), of(&twin.custom));
    Pair { live, custom }
}

/// Sends a request, and reads the whole answer. Returns an error if the connection fails, if the
/// answer cannot be decompressed, or if the answer does not end within [`DEADLINE`].
async fn send(caller: &Caller, request: Request<Body>) -> Result<ExchangeAnswer, String> {
    let whole = async {
        let (answer, messages) = websocket::open(caller, request).await?;
        let (head, body) = answer.into_parts();
        let header = |(name, value): (&HeaderName, &HeaderValue)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.to_string(), value)
        };
        let mut headers: Vec<(String, String)> = head.headers.iter().map(header).collect();
        headers.sort();
        let (text, messages) = if let Some(messages) = messages {
            read_messages(messages).await
        } else {
            let body = body.collect().await.map_err(|error| error.to_string())?;
            let mut text = body.to_bytes().to_vec();
            let encoding = head.headers.get(CONTENT_ENCODING);
            if encoding.is_some_and(|it| it == "gzip") && !text.is_empty() {
                let packed = std::mem::take(&mut text);
                let read = GzDecoder::new(&*packed).read_to_end(&mut text);
                read.map_err(|error| error.to_string())?;
            }
            (String::from_utf8_lossy(&text).into_owned(), Value::Null)
        };
        Ok(ExchangeAnswer {
            code: head.status.as_u16(),
            headers,
            text,
            messages,
        })
    };
    let answer = tokio::time::timeout(DEADLINE, whole).await;
    answer.unwrap_or_else(|_| Err("the answer did not end".to_owned()))
}

/// Reads messages until the server closes the connection. Returns their content and their properties:
/// whether each message is a text with one event, and the close frame.
async fn read_messages(mut messages: websocket::Messages) -> (String, Value) {
    let mut text = String::new();
    let mut each_is_one_event = true;
    let mut end = "no close frame".to_owned();
    while let Some(message) = messages.next().await {
        match message {
            Message::Text(event) => {
                each_is_one_event &= event.ends_with('\n') && event.lines().count() == 1;
                text.push_str(&event);
            }
            Message::Close(frame) => {
                end = format!("{frame:?}");
                break;
            }
            other => {
                each_is_one_event = false;
                text.push_str(&format!("{other:?}"));
            }
        }
    }
    let properties = json!({"each is a text with one event": each_is_one_event, "end": end});
    (text, properties)
}
