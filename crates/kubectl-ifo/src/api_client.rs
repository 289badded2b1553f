//! Sends requests to a cluster.
//!
//! Input: a path. Output: the decoded answer, or a [`Problem`].

use super::problem::Problem;
use http_body_util::BodyExt as _;
use ifo_api::completeness::{COMPLETE_HEADER, Incomplete};
use ifo_client::list::{ListItems, query};
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::time::Duration;

/// Pause between two retries, and number of retries. A request is retried while the server answers
/// 429: at its start, until it has read all watched resources, or because of load.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const MAX_RETRIES: usize = 20;

/// A client for the API server of a cluster, with the settings of the kubeconfig and the flags.
#[derive(Clone)]
pub(super) struct ApiClient {
    /// kube's client. Other modules use it for watches, which [`ApiClient::get`] does not support.
    pub(super) client: Client,
    /// Address of the kube-apiserver.
    pub(super) address: String,
    /// Namespace of the context.
    pub(super) default_namespace: String,
    /// Time limit for one answer.
    pub(super) timeout: Option<Duration>,
}

/// A successful answer.
pub(super) struct ServerAnswer {
    /// The body.
    pub(super) text: String,
    /// Completeness of the list, if the answer is a list of operations.
    pub(super) completeness: ListCompleteness,
}

/// The server's statement about the completeness of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListCompleteness {
    /// No operation is missing.
    Complete,
    /// Operations may be missing for this reason.
    Incomplete(Incomplete),
    /// The answer does not say. It comes from an older release of `ifo-apiserver`, or it is not a
    /// list of live operations.
    NotStated,
}

/// Reads the completeness from the headers of an answer. The header `Warning` counts only if
/// `ifo-apiserver` wrote it.
pub(super) fn completeness(headers: &http::HeaderMap) -> ListCompleteness {
    match incomplete_warning(headers) {
        Some(incomplete) => ListCompleteness::Incomplete(incomplete),
        None if headers.contains_key(COMPLETE_HEADER) => ListCompleteness::Complete,
        None => ListCompleteness::NotStated,
    }
}

fn incomplete_warning(headers: &http::HeaderMap) -> Option<Incomplete> {
    let values = headers.get_all(http::header::WARNING).into_iter();
    values
        .filter_map(|value| value.to_str().ok())
        .find_map(|value| {
            let quoted = value.strip_prefix("299 - \"")?.strip_suffix('"')?;
            quoted.parse().ok()
        })
}

/// Converts an unsuccessful answer to an error, as kube's client does.
async fn error_of(answer: http::Response<Body>) -> kube::Error {
    let code = answer.status().as_u16();
    let bytes = match answer.into_body().collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return error,
    };
    let status: Status = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&bytes);
        Status::failure(&text, "Unknown").with_code(code)
    });
    kube::Error::Api(Box::new(status))
}

/// The requested part of a list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ListOptions<'a> {
    /// Objects per page. None for all objects in one page.
    pub(super) limit: Option<usize>,
    /// Label selector; empty for all objects.
    pub(super) label_selector: &'a str,
    /// Field selector; empty for all objects.
    pub(super) field_selector: &'a str,
}

impl ApiClient {
    /// Sends a GET and decodes the answer. It is retried as in [`Self::answer`].
    ///
    /// `resource` (`plural.group`) and `namespace` only appear in the error message if the user
    /// lacks the right.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        uri: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<T, Problem> {
        let answer = self.answer(uri, resource, namespace).await?;
        serde_json::from_str(&answer.text).map_err(|error| unreadable(uri, &error))
    }

    /// Sends a GET and returns the text of the answer with its completeness. While the server
    /// answers 429, the request is retried, for at most ten seconds.
    pub(super) async fn answer(
        &self,
        uri: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<ServerAnswer, Problem> {
        for _ in 0..MAX_RETRIES {
            match self.once(uri, resource, namespace).await {
                Err(Problem::NotSynced | Problem::Busy(_)) => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                answer => return answer,
            }
        }
        self.once(uri, resource, namespace).await
    }

    /// Reads a list page by page, so that only one page is in memory. `take` gets each object.
    /// Returns the statement about completeness in the last page.
    pub(super) async fn list(
        &self,
        path: &str,
        options: ListOptions<'_>,
        resource: &str,
        namespace: Option<&str>,
        mut take: impl FnMut(&str) -> Result<(), serde_json::Error>,
    ) -> Result<ListCompleteness, Problem> {
        let limit = options.limit.map(|it| it.to_string()).unwrap_or_default();
        let mut token = String::new();
        loop {
            let query = query(&[
                ("limit", &limit),
                ("labelSelector", options.label_selector),
                ("fieldSelector", options.field_selector),
                ("continue", &token),
            ]);
            let uri = format!("{path}?{query}");
            let answer = self.answer(&uri, resource, namespace).await?;
            let list = ListItems::<&RawValue>::read(answer.text.as_bytes());
            let list = list.map_err(|error| unreadable(&uri, &error))?;
            for item in list.items {
                take(item.get()).map_err(|error| unreadable(&uri, &error))?;
            }
            match list.next {
                Some(next) => token = next,
                None => return Ok(answer.completeness),
            }
        }
    }

    async fn once(
        &self,
        uri: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<ServerAnswer, Problem> {
        let request = http::Request::get(uri)
            .body(Body::empty())
            .map_err(|error| Problem::Usage(format!("{uri}: {error}")))?;
        let answer = self.within(self.exchange(request)).await?;
        answer.map_err(|error| self.problem(&error, "list", resource, namespace))
    }

    /// Sends a request like `Client::request_text`, but also evaluates the headers of the answer.
    async fn exchange(&self, request: http::Request<Body>) -> Result<ServerAnswer, kube::Error> {
        let answer = self.client.send(request).await?;
        if !answer.status().is_success() {
            return Err(error_of(answer).await);
        }
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await?.to_bytes();
        Ok(ServerAnswer {
            text: String::from_utf8(bytes.into()).map_err(kube::Error::FromUtf8)?,
            completeness: completeness(&parts.headers),
        })
    }

    /// Awaits `answer` within `--request-timeout`.
    pub(super) async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T, Problem> {
        match self.timeout {
            None => Ok(answer.await),
            Some(timeout) => tokio::time::timeout(timeout, answer)
                .await
                .map_err(|_| Problem::TimedOut(timeout)),
        }
    }

    /// Converts an error of kube's client.
    pub(super) fn problem(
        &self,
        error: &kube::Error,
        verb: &'static str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Problem {
        Problem::of(error, &self.address, verb, resource, namespace)
    }
}

fn unreadable(uri: &str, error: &serde_json::Error) -> Problem {
    Problem::Other(format!("{uri}: the answer cannot be read: {error}"))
}
