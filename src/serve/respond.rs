//! Responses: their bodies in the syntax that is wanted, and the headers that go with it.

use super::negotiate::Syntax;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

/// A response whose body is at hand, in the syntax that is wanted.
pub fn whole(json: Vec<u8>, syntax: Syntax) -> Response {
    let body = match syntax {
        Syntax::Compact => json,
        // Upstream, too, ends the last line only of what is compact.
        Syntax::Indented => indent(json.trim_ascii_end()),
        Syntax::Yaml => yaml(&json),
    };
    data(Body::from(body), syntax)
}

/// The same value as YAML. JSON is YAML as well, should that ever not work out.
fn yaml(json: &[u8]) -> Vec<u8> {
    serde_json::from_slice::<serde_json::Value>(json)
        .ok()
        .and_then(|value| serde_saphyr::to_string(&value).ok())
        .map_or_else(|| json.to_vec(), String::into_bytes)
}

/// A response with the headers that data has.
pub fn data(body: Body, syntax: Syntax) -> Response {
    let mut response = Response::new(body);
    let content_type = if syntax == Syntax::Yaml {
        "application/yaml"
    } else {
        "application/json"
    };
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A plain text answer, as Kubernetes' filters give before any resource is looked at.
pub fn plain(code: StatusCode, text: impl Into<String>) -> Response {
    let mut text = text.into();
    text.push('\n');
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    response
}

/// 429 for more requests at once than are served.
pub fn overload() -> Response {
    let mut response = plain(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests, please try again later.",
    );
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// `json` with two spaces for each level, as Go's `json.Indent` writes it.
pub fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut depth = 0;
    let mut string = false;
    let mut bytes = json.iter().copied().peekable();
    let line = |out: &mut Vec<u8>, depth: usize| {
        out.push(b'\n');
        out.resize(out.len() + 2 * depth, b' ');
    };
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if string => {
                out.push(byte);
                out.extend(bytes.next());
            }
            b'"' => {
                string = !string;
                out.push(byte);
            }
            _ if string => out.push(byte),
            b'{' | b'[' => {
                out.push(byte);
                if matches!(bytes.peek(), Some(b'}' | b']')) {
                    out.extend(bytes.next());
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                line(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            other => out.push(other),
        }
    }
    out
}
