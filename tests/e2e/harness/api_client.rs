//! A small client for Kubernetes APIs in tests. It sends requests and returns complete answers.

use super::{eventually, ok_if};
use http::{HeaderName, HeaderValue, Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::{Client, Config};
use serde_json::Value;

/// A client of one server: the kube-apiserver, or the server under test.
#[derive(Clone)]
pub struct Caller {
    pub client: Client,
}

/// The complete answer to a request.
#[derive(Debug)]
pub struct ApiAnswer {
    pub code: u16,
    pub text: String,
    /// The body, or null if the body is not JSON.
    pub body: Value,
}

impl ApiAnswer {
    /// Asserts that the status code is 2xx, and returns the body.
    #[track_caller]
    pub fn ok(self) -> Value {
        assert!(
            (200..300).contains(&self.code),
            "{}: {}",
            self.code,
            self.text
        );
        self.body
    }

    /// Asserts that the request was refused with this status code. Returns the field `message` of
    /// the answer, or the whole answer if there is no such field.
    #[track_caller]
    pub fn refused(self, code: u16) -> String {
        assert_eq!(self.code, code, "{}", self.text);
        match self.body["message"].as_str() {
            Some(message) => message.to_owned(),
            None => self.text,
        }
    }
}

impl Caller {
    /// Creates a client with this configuration. The client does not retry requests.
    pub fn new(mut config: Config) -> Self {
        config.default_retry = false;
        let client = Client::try_from(config).expect("the tests create valid configurations");
        Self { client }
    }

    /// Sends a request, and reads the whole answer. If the server answers with an error, returns
    /// this answer. If the connection fails, returns an error.
    pub async fn try_send(&self, request: Request<Body>) -> Result<ApiAnswer, String> {
        let answer = self
            .client
            .send(request)
            .await
            .map_err(|error| error.to_string())?;
        let code = answer.status().as_u16();
        let bytes = answer
            .into_body()
            .collect()
            .await
            .map_err(|error| error.to_string())?
            .to_bytes();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(ApiAnswer { code, text, body })
    }

    /// Sends a request with this body. `kind` is the media type of the body. Fails if the
    /// connection fails.
    pub async fn send(&self, method: Method, path: &str, kind: &str, body: String) -> ApiAnswer {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", kind)
            .body(Body::from(body.into_bytes()))
            .expect("tests send valid requests");
        self.try_send(request)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a GET request with additional headers. Fails if the connection fails.
    pub async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> ApiAnswer {
        let mut request = Request::get(path)
            .body(Body::empty())
            .expect("tests send valid requests");
        for (name, value) in headers {
            request.headers_mut().append(
                HeaderName::try_from(*name).expect("tests use valid header names"),
                HeaderValue::try_from(*value).expect("tests use valid header values"),
            );
        }
        self.try_send(request)
            .await
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Like [`Self::get`], but returns an error if the connection fails. Tests use it for a server
    /// that may be stopped.
    pub async fn try_get(&self, path: &str) -> Result<ApiAnswer, String> {
        let request = Request::get(path).body(Body::empty());
        self.try_send(request.expect("tests send valid requests"))
            .await
    }

    /// Sends a GET request. Fails if the connection fails.
    pub async fn get(&self, path: &str) -> ApiAnswer {
        self.get_with(path, &[]).await
    }

    /// Sends a POST request with a JSON object.
    pub async fn post(&self, path: &str, object: &Value) -> ApiAnswer {
        self.send(Method::POST, path, "application/json", object.to_string())
            .await
    }

    /// Sends a PATCH request with a JSON merge patch.
    pub async fn merge(&self, path: &str, patch: &Value) -> ApiAnswer {
        let kind = "application/merge-patch+json";
        self.send(Method::PATCH, path, kind, patch.to_string())
            .await
    }

    /// Sends a DELETE request.
    pub async fn delete(&self, path: &str) -> ApiAnswer {
        self.send(Method::DELETE, path, "application/json", String::new())
            .await
    }

    /// Sends a DELETE request, and waits until the object does not exist.
    pub async fn delete_and_wait(&self, path: &str) {
        self.delete(path).await.ok();
        self.until_code(path, 404).await;
    }

    /// Sends a GET request until `is` returns true for the answer, and returns the answer. Also repeats
    /// the request if the connection fails. `what` is the expectation for the error message.
    pub async fn until(
        &self,
        what: &str,
        path: &str,
        is: impl Fn(&ApiAnswer) -> bool,
    ) -> ApiAnswer {
        eventually(&format!("{what}: {path}"), async || {
            let answer = self.try_get(path).await?;
            ok_if(is(&answer), &answer)?;
            Ok(answer)
        })
        .await
    }

    /// Sends a GET request until the answer has this status code. Returns the body.
    pub async fn until_code(&self, path: &str, code: u16) -> Value {
        let what = code.to_string();
        self.until(&what, path, |answer| answer.code == code)
            .await
            .body
    }

    /// Sends a GET request until `is` returns true for the object in the answer. Returns the object.
    pub async fn until_object(&self, what: &str, path: &str, is: impl Fn(&Value) -> bool) -> Value {
        let is = |answer: &ApiAnswer| answer.code == 200 && is(&answer.body);
        self.until(what, path, is).await.body
    }

    /// Sends a POST request until the object is created. The kind may not be served yet, or the
    /// namespace may lack the ServiceAccount of a Pod.
    pub async fn create_when_served(&self, path: &str, object: &Value) {
        eventually(&format!("an object is created: {path}"), async || {
            let answer = self.post(path, object).await;
            ok_if(answer.code == 201, answer)
        })
        .await;
    }
}
