//! Responses: bodies in the negotiated syntax, with their headers.

use super::negotiate::Syntax;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};

/// A response with this body, in the negotiated syntax.
pub fn whole(json: Vec<u8>, syntax: Syntax) -> Response {
    let body = match syntax {
        Syntax::Compact => json,
        // As upstream, only compact JSON ends with a line feed.
        Syntax::Indented => indent(json.trim_ascii_end()),
        Syntax::Yaml => yaml(&json),
    };
    data(Body::from(body), syntax)
}

/// Converts JSON to YAML. If this fails, the JSON is sent, which is also YAML.
pub fn yaml(json: &[u8]) -> Vec<u8> {
    serde_json::from_slice::<serde_json::Value>(json)
        .ok()
        .and_then(|value| serde_saphyr::to_string(&value).ok())
        .map_or_else(|| json.to_vec(), String::into_bytes)
}

/// A response with the headers of data.
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

/// A plain text answer, as Kubernetes' filters send before a resource is known.
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

/// 429 if too many requests are in flight.
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

/// Marks an answer with which the server protects itself.
#[derive(Clone, Copy, Debug)]
pub struct SelfDefence;

/// Indents `json` with two spaces for each level, as Go's `json.Indent` does.
pub fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    Indenter::default().write(json, &mut out);
    out
}

/// Indents JSON that arrives in parts of any length.
#[derive(Clone, Copy, Debug, Default)]
pub struct Indenter {
    depth: usize,
    /// True inside a string. `escaped` is true after a backslash in it.
    string: bool,
    escaped: bool,
    /// True after an opening bracket, which may be closed next.
    opened: bool,
}

impl Indenter {
    /// Writes the next part.
    pub fn write(&mut self, json: &[u8], out: &mut Vec<u8>) {
        for &byte in json {
            if self.string {
                out.push(byte);
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.string = false,
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
                self.line(out);
            }
            match byte {
                b'"' => {
                    self.string = true;
                    out.push(byte);
                }
                b'{' | b'[' => {
                    self.opened = true;
                    out.push(byte);
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    self.line(out);
                    out.push(byte);
                }
                b',' => {
                    out.push(byte);
                    self.line(out);
                }
                b':' => out.extend_from_slice(b": "),
                other => out.push(other),
            }
        }
    }

    fn line(self, out: &mut Vec<u8>) {
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
