//! Decides which requests are answered. The page has the data of the user, so no other web site, no
//! other program and no other user of the machine may read it:
//!
//! - Only GET and HEAD are answered.
//! - The header `Host` must name this server. So a web site whose name resolves to 127.0.0.1 (DNS
//!   rebinding) gets no answer.
//! - A request that the browser sends for another web site is refused (`Origin`, `Sec-Fetch-Site`).
//! - Everything below `/api/` needs a cookie. A token in the printed address can be exchanged for
//!   the cookie once.

use http::header::{COOKIE, HOST, ORIGIN};
use http::{HeaderMap, Method, StatusCode, request};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::sync::{Mutex, PoisonError};

/// The header with the token of the printed address.
const TOKEN_HEADER: &str = "x-ifo-token";

/// Size of a secret: 256 random bits.
const SECRET_BYTES: usize = 32;

/// The reason why a request is refused.
pub(super) type Refusal = (StatusCode, &'static str);

/// Checks requests.
pub(super) struct Guard {
    port: u16,
    /// The token in the printed address. None after its use.
    token: Mutex<Option<String>>,
    session: String,
}

impl Guard {
    /// Creates the secrets for the server at this port of 127.0.0.1. None if the system has no
    /// random numbers.
    pub(super) fn new(port: u16) -> Option<Self> {
        Some(Self {
            port,
            session: secret()?,
            token: Mutex::new(None),
        })
    }

    /// Returns an address with a new token. The token of an earlier address becomes invalid.
    pub(super) fn new_address(&self) -> Option<String> {
        let token = secret()?;
        let address = format!("http://127.0.0.1:{}/#token={token}", self.port);
        *self.lock() = Some(token);
        Some(address)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses requests that the page does not send.
    pub(super) fn check(&self, request: &request::Parts) -> Result<(), Refusal> {
        if ![Method::GET, Method::HEAD].contains(&request.method) {
            return Err((
                StatusCode::METHOD_NOT_ALLOWED,
                "only GET and HEAD are allowed",
            ));
        }
        let hosts = [
            format!("127.0.0.1:{}", self.port),
            format!("localhost:{}", self.port),
        ];
        let host = values(&request.headers, HOST.as_str());
        let [Some(host)] = host.as_slice() else {
            return Err((StatusCode::BAD_REQUEST, "the request needs one Host header"));
        };
        let is_absolute = request.uri.authority().is_some();
        if is_absolute || !hosts.iter().any(|it| it == host) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "the Host header names another server",
            ));
        }
        let own = format!("http://{host}");
        let is_own = |header: &str, allowed: &[&str]| {
            let mut values = values(&request.headers, header).into_iter();
            values.all(|it| it.is_some_and(|it| allowed.contains(&it)))
        };
        if !is_own(ORIGIN.as_str(), &[&own]) || !is_own("sec-fetch-site", &["same-origin", "none"])
        {
            return Err((
                StatusCode::FORBIDDEN,
                "the request comes from another web site",
            ));
        }
        Ok(())
    }

    /// Exchanges the token of a request for the cookie. Returns the value of `Set-Cookie`.
    pub(super) fn sign_in(&self, headers: &HeaderMap) -> Option<String> {
        let [Some(token)] = values(headers, TOKEN_HEADER)[..] else {
            return None;
        };
        let mut expected = self.lock();
        if !is_same(token, expected.as_ref()?) {
            return None;
        }
        *expected = None;
        let (name, session) = (self.cookie(), &self.session);
        Some(format!(
            "{name}={session}; HttpOnly; SameSite=Strict; Path=/api/"
        ))
    }

    /// Returns true if the request has the cookie.
    pub(super) fn has_session(&self, headers: &HeaderMap) -> bool {
        let name = self.cookie();
        let is_session = |cookie: &str| {
            let value = cookie
                .trim()
                .strip_prefix(&name)
                .and_then(|it| it.strip_prefix('='));
            value.is_some_and(|it| is_same(it, &self.session))
        };
        let cookies = values(headers, COOKIE.as_str()).into_iter().flatten();
        cookies.flat_map(|it| it.split(';')).any(is_session)
    }

    /// The name of the cookie. All ports of 127.0.0.1 share their cookies, so the name has the port.
    fn cookie(&self) -> String {
        format!("ifo-session-{}", self.port)
    }
}

/// Compares two secrets by their hashes. So the time of the comparison says nothing about the secrets.
fn is_same(given: &str, expected: &str) -> bool {
    let hash = |text: &str| digest(&SHA256, text.as_bytes());
    hash(given).as_ref() == hash(expected).as_ref()
}

/// Returns the values of a header. None stands for a value that is not text.
fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<Option<&'a str>> {
    let values = headers.get_all(name).into_iter();
    values.map(|it| it.to_str().ok()).collect()
}

/// Returns a new secret in hexadecimal digits.
fn secret() -> Option<String> {
    let mut bytes = [0; SECRET_BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let digits = bytes.iter().flat_map(|it| [it >> 4, it & 15]);
    digits.map(|it| char::from_digit(it.into(), 16)).collect()
}
