//! Sends requests to the live resource and to the custom resource, and reads the complete answers
//! with all headers. The requests come from the table of the differential test (see
//! [`super::table`]).

use super::masks;
use super::side::Side;
use super::test_objects::Twin;
use crate::harness::{Caller, DEADLINE, websocket};
use flate2::read::GzDecoder;
use http::Method;
use http::header::UPGRADE;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};
use std::io::Read as _;
use tokio_tungstenite::tungstenite::protocol::Message;

/// A request in the form of a line of the table. The path can contain placeholders, such as
/// `{list}`.
#[derive(Clone, Debug)]
pub struct TableRequest {
    /// The line, which is also the name of the request.
    pub line: String,
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
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
    /// Parses a line of the table.
    pub fn parse(line: &str) -> Self {
        let mut parts = line.split(" | ");
        let target = parts.next().expect("split returns at least one part");
        let (method, path) = target
            .split_once(' ')
            .expect("a line begins with a method and a path");
        let headers = parts.map(|header| {
            let (name, value) = header.split_once(": ").expect("a header has a value");
            (name.to_owned(), value.to_owned())
        });
        Self {
            line: line.to_owned(),
            method: method.parse().expect("the method is valid"),
            path: path.to_owned(),
            headers: headers.collect(),
        }
    }

    /// Returns the HTTP request to the resource of `side`: the live resource or the custom
    /// resource.
    pub fn to(&self, side: &Side) -> http::Request<Body> {
        let mut request = http::Request::builder()
            .method(&self.method)
            .uri(side.expand(&self.path));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let body = match self.method {
            Method::POST | Method::PUT => side.value("object").to_owned(),
            Method::PATCH => "{}".to_owned(),
            _ => String::new(),
        };
        if !self.headers.iter().any(|(name, _)| name == "Content-Type") {
            let kind = match self.method {
                Method::PATCH => Some("application/merge-patch+json"),
                Method::POST | Method::PUT => Some("application/json"),
                _ => None,
            };
            if let Some(kind) = kind {
                request = request.header("Content-Type", kind);
            }
        }
        let mut request = request
            .body(Body::from(body.into_bytes()))
            .unwrap_or_else(|error| panic!("{}: {error}", self.line));
        if request.headers().contains_key(UPGRADE) {
            websocket::add_handshake(&mut request);
        }
        request
    }

    /// Returns the path and the headers for one side.
    pub fn parts(&self, side: &Side) -> (String, Vec<(&str, &str)>) {
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        (side.expand(&self.path), headers.collect())
    }

    /// Returns the value of the query option `name` for one side. Returns None if the path does not
    /// contain this option.
    pub fn option(&self, side: &Side, name: &str) -> Option<String> {
        let path = side.expand(&self.path);
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
async fn send(caller: &Caller, request: http::Request<Body>) -> Result<ExchangeAnswer, String> {
    let whole = async {
        let (answer, messages) = websocket::open(caller, request).await?;
        let (head, body) = answer.into_parts();
        let mut headers: Vec<(String, String)> = head
            .headers
            .iter()
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.to_string(), value)
            })
            .collect();
        headers.sort();
        if let Some(messages) = messages {
            let (text, messages) = read_messages(messages).await;
            return Ok(ExchangeAnswer {
                code: head.status.as_u16(),
                headers,
                text,
                messages,
            });
        }
        let body = body.collect().await.map_err(|error| error.to_string())?;
        let bytes = body.to_bytes();
        let gzip = head.headers.get("content-encoding");
        let text = if gzip.is_some_and(|it| it == "gzip") && !bytes.is_empty() {
            let mut text = String::new();
            let read = GzDecoder::new(&*bytes).read_to_string(&mut text);
            read.map_err(|error| error.to_string())?;
            text
        } else {
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(ExchangeAnswer {
            code: head.status.as_u16(),
            headers,
            text,
            messages: Value::Null,
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
