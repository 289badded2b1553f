//! The fuzz targets of the HTTP API. Each function gets bytes that a client could send, and panics
//! if the server violates one of its guarantees.
//!
//! This code is compiled only for the fuzz targets in `fuzz/` and for tests. The tests run each
//! target with its corpus, which is a folder of stored inputs.

mod answers;
mod check_requests;
pub(super) mod notes;
mod test_server;

pub(super) use answers::check_error;
pub(super) use test_server::{FuzzServer, Known};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Method, Uri};

/// Largest length of an input in bytes. The fuzz targets ignore longer inputs, which slow the
/// fuzzer down and find no new cases. The script `.ci/fuzz` passes the same value to the fuzzer
/// with the option `-max_len`.
pub const LONGEST: usize = 2048;

/// Returns the input as text. Returns None if the input is not valid UTF-8 or too long.
fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input)
        .ok()
        .filter(|text| text.len() <= LONGEST)
}

/// Checks the option `labelSelector`.
pub fn label_selector(input: &[u8]) {
    if let Some(text) = text(input) {
        super::selectors::check_labels(text);
        FuzzServer::with(|fuzz_server| super::selectors::check_selector(fuzz_server, text, ""));
    }
}

/// Checks the option `fieldSelector`. The first line of the input is a field selector, and the rest
/// is a label selector.
pub fn field_selector(input: &[u8]) {
    if let Some(text) = text(input) {
        let (fields, labels) = text.split_once('\n').unwrap_or((text, ""));
        super::selectors::check_fields(fields);
        FuzzServer::with(|fuzz_server| {
            super::selectors::check_selector(fuzz_server, labels, fields);
        });
    }
}

/// Checks the option `continue`. The lowest three bits of the first byte are the page size. 0 means
/// no limit. The next bit determines the format of the other bytes: 0 for the JSON that a continue
/// token encodes, 1 for a continue token.
pub fn continue_token(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let Some(rest) = text(rest) else {
        return;
    };
    let encoded;
    let token = if first & 8 == 0 {
        encoded = URL_SAFE_NO_PAD.encode(rest);
        &encoded
    } else {
        rest
    };
    FuzzServer::with(|fuzz_server| {
        super::list::check_token(fuzz_server, token, usize::from(first % 8));
    });
}

/// Checks the query of a URI, for a list of notes and for a health probe.
pub fn query(input: &[u8]) {
    let Some(text) = text(input) else {
        return;
    };
    for path in [check_requests::ALL, "/livez"] {
        let Ok(uri) = format!("{path}?{text}").parse::<Uri>() else {
            return;
        };
        FuzzServer::with(|fuzz_server| {
            super::request::check_options(fuzz_server, &uri);
            check_requests::check(fuzz_server, &Method::GET, &uri, &HeaderMap::new());
        });
    }
}

/// Checks content negotiation. Each line of the input is the value of an `Accept` header.
pub fn accept(input: &[u8]) {
    if input.len() > LONGEST {
        return;
    }
    let lines = input.split(|byte| *byte == b'\n');
    let values: Vec<HeaderValue> = lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect();
    if let Some(first) = values.first() {
        super::content_negotiation::check(first);
    }
    FuzzServer::with(|fuzz_server| check_requests::check_discovery(fuzz_server, &values));
}

/// Checks a complete request. The first line of the input is `METHOD URI`. Each further line is a
/// header, such as `accept: application/json`.
pub fn request(input: &[u8]) {
    if input.len() > LONGEST {
        return;
    }
    if let Some((method, uri, headers)) = check_requests::parse(input) {
        super::request::check(&method, &uri);
        FuzzServer::with(|fuzz_server| check_requests::check(fuzz_server, &method, &uri, &headers));
    }
}
