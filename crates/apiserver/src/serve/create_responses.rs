//! Creates responses: bodies in JSON, indented JSON, YAML or plain text, and their headers.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

/// The syntax of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// Compact JSON.
    Compact,
    /// Indented JSON.
    Indented,
    /// YAML.
    Yaml,
}

/// Creates a response. Its body is `json`, converted to `syntax`.
pub fn whole(json: Vec<u8>, syntax: Syntax) -> Response {
    let body = match syntax {
        Syntax::Compact => json,
        // As in the kube-apiserver, indented JSON does not end with a line feed.
        Syntax::Indented => indent(json.trim_ascii_end()),
        Syntax::Yaml => yaml(&json),
    };
    encoded_response(Body::from(body), syntax)
}

/// Converts JSON to YAML. If the conversion fails, returns the JSON, which is also valid YAML.
pub fn yaml(json: &[u8]) -> Vec<u8> {
    serde_json::from_slice::<serde_json::Value>(json)
        .ok()
        .and_then(|value| serde_saphyr::to_string(&value).ok())
        .map_or_else(|| json.to_vec(), String::into_bytes)
}

/// Creates a response from a body that already has the syntax `syntax`.
pub fn encoded_response(body: Body, syntax: Syntax) -> Response {
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

/// Creates a response in plain text. The kube-apiserver sends plain text if it refuses a request
/// before it determines the resource.
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

/// Creates the 429 for too many requests or too many connections.
pub fn overload() -> Response {
    let mut response = plain(
        StatusCode::TOO_MANY_REQUESTS,
        "Too many requests, please try again later.",
    );
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response.extensions_mut().insert(SelfDefence);
    response
}

/// Marks a response with which the server protects itself: a refusal because of load, or a timeout.
/// The metric `apiserver_request_terminations_total` counts these responses.
#[derive(Clone, Copy, Debug)]
pub struct SelfDefence;

/// Indents compact JSON with two spaces for each level, as Go's `json.Indent` does.
pub fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    Indenter::default().write(json, &mut out);
    out
}

/// Indents compact JSON that arrives in several parts. A part can end at any byte.
#[derive(Clone, Copy, Debug, Default)]
pub struct Indenter {
    depth: usize,
    /// True if the position is inside a string.
    in_string: bool,
    /// True if the last character was a backslash that starts an escape sequence.
    escaped: bool,
    /// True if the last character was `{` or `[`. The next character decides if a new line follows
    /// the bracket: `{}` and `[]` stay on one line.
    opened: bool,
}

impl Indenter {
    /// Writes the next part of the JSON.
    pub fn write(&mut self, json: &[u8], out: &mut Vec<u8>) {
        for &byte in json {
            if self.in_string {
                out.push(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            let closes = matches!(byte, b'}' | b']');
            if std::mem::take(&mut self.opened) {
                if closes {
                    out.push(byte);
                    continue;
                }
                self.depth += 1;
                self.new_line(out);
            }
            match byte {
                b'"' => {
                    self.in_string = true;
                    out.push(byte);
                }
                b'{' | b'[' => {
                    self.opened = true;
                    out.push(byte);
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.new_line(out);
                    out.push(byte);
                }
                b',' => {
                    out.push(byte);
                    self.new_line(out);
                }
                b':' => out.extend_from_slice(b": "),
                other => out.push(other),
            }
        }
    }

    fn new_line(self, out: &mut Vec<u8>) {
        out.push(b'\n');
        out.resize(out.len() + 2 * self.depth, b' ');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indented_json_is_the_same_for_any_chunking() {
        let json = r#"{"a":[],"b":{},"c":[1,{"d":"x\"{[,:]}\\"},[[]]],"e":null}"#;
        let whole = "{\n  \"a\": [],\n  \"b\": {},\n  \"c\": [\n    1,\n    {\n      \"d\": \
                     \"x\\\"{[,:]}\\\\\"\n    },\n    [\n      []\n    ]\n  ],\n  \"e\": null\n}";
        assert_eq!(String::from_utf8(indent(json.as_bytes())).unwrap(), whole);
        for size in 1..json.len() {
            let (mut indenter, mut out) = (Indenter::default(), Vec::new());
            for part in json.as_bytes().chunks(size) {
                indenter.write(part, &mut out);
            }
            assert_eq!(String::from_utf8(out).unwrap(), whole, "{size}");
        }
    }
}
