//! Sends requests to the kube-apiserver of a cluster. With the flag `--from`, lists come from
//! files, and no request is sent.
//!
//! If the answer is 429, the client retries the request up to 20 times, every 0.5 s. The flag
//! `--request-timeout` sets a time limit for each answer. The result is the answer, or a
//! [`Problem`]: an error message for the user.

pub(super) use super::completeness::ListCompleteness;

use super::completeness::combined;
use super::from_files::FileContents;
use super::problem::Problem;
use http_body_util::BodyExt as _;
use ifo_api::completeness::{COMPLETE_HEADER, IGNORED_HEADER, INCOMPLETE_HEADER, SELECTOR_HEADER};
use ifo_client::list::{ListItems, query};
use kube::Client;
use kube::client::Body;
use kube::core::{PartialObjectMeta, Status};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// Largest number of objects in a page of a list. kubectl uses pages of the same size. The limit
/// keeps the memory for a page small.
const PAGE_OBJECTS: usize = 500;

/// Time between two attempts of a request that was answered with 429. The kube-apiserver and
/// `ifo-apiserver` answer 429 under load. `ifo-apiserver` also answers 429 after its start until it
/// has listed all watched resources.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);
/// Largest number of retries of one request. The pauses between the retries take ten seconds in
/// total. If the last retry also gets a 429, the client returns an error.
const MAX_RETRIES: usize = 20;

/// A client for the kube-apiserver of a cluster, with the settings of the kubeconfig and of the
/// connection flags. With `--from`, the contents of files.
#[derive(Clone)]
pub(super) struct ApiClient {
    /// The client of the kube crate. Other modules use this client for watches, because
    /// [`ApiClient::get`] supports single requests only. With `--from`, each of its requests fails.
    pub(super) client: Client,
    /// Address of the kube-apiserver. With `--from`, the path of the files.
    pub(super) address: String,
    /// Default namespace of the chosen kubeconfig context.
    pub(super) default_namespace: String,
    /// Time limit for each answer (`--request-timeout`). None for no limit.
    pub(super) timeout: Option<Duration>,
    /// The files that lists come from instead of a cluster (`--from`). None for a cluster.
    pub(super) from_files: Option<Arc<FileContents>>,
    /// The rule sets that `ifo-apiserver` leaves out when it states whether a list is complete
    /// (`wait --ignore-rule-set`).
    pub(super) ignored_rule_sets: Vec<String>,
    /// Label selector for the operations that matter to the command. `ifo-apiserver` states only
    /// whether these operations are complete. Empty if all operations matter.
    pub(super) relevant_operations: String,
}

/// The answer to a successful request.
pub(super) struct ServerAnswer {
    /// The body of the answer.
    pub(super) text: String,
    /// The completeness of the list, if the answer is a list of operations.
    /// [`ListCompleteness::NotStated`] for all other answers.
    pub(super) completeness: ListCompleteness,
}

/// Reads from the headers of an answer whether the list is complete.
pub(super) fn completeness(headers: &http::HeaderMap) -> ListCompleteness {
    let incomplete = headers.get(INCOMPLETE_HEADER);
    match incomplete.and_then(|json| serde_json::from_slice(json.as_bytes()).ok()) {
        Some(incomplete) => ListCompleteness::Incomplete(incomplete),
        None if headers.contains_key(COMPLETE_HEADER) => ListCompleteness::Complete,
        None => ListCompleteness::NotStated,
    }
}

/// Converts an unsuccessful answer to the error that kube's client would return.
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

/// A list of objects.
#[derive(Clone, Copy, Default)]
pub(super) struct ListRequest<'a> {
    /// Path of the list.
    pub(super) path: &'a str,
    /// Label selector; empty for all objects. With `--from`, selectors have no effect, so callers
    /// also compare labels and fields themselves.
    pub(super) label_selector: &'a str,
    /// Field selector; empty for all objects.
    pub(super) field_selector: &'a str,
}

impl ApiClient {
    /// Creates a client for the kube-apiserver at `address`, with default settings.
    pub(super) fn new(client: Client, address: &str) -> Self {
        Self {
            client,
            address: address.to_owned(),
            default_namespace: "default".to_owned(),
            timeout: None,
            from_files: None,
            ignored_rule_sets: Vec::new(),
            relevant_operations: String::new(),
        }
    }

    /// Sends a GET request and decodes the JSON of the answer. The request is retried as in
    /// [`Self::answer`].
    pub(super) async fn get<T: DeserializeOwned>(&self, uri: &str) -> Result<T, Problem> {
        let answer = self.answer(uri).await?;
        serde_json::from_str(&answer.text).map_err(|error| unreadable(uri, &error))
    }

    /// Sends a GET request and returns the answer. If the answer is 429, retries the request up to
    /// [`MAX_RETRIES`] times. With `--from`, returns the object from the files.
    pub(super) async fn answer(&self, uri: &str) -> Result<ServerAnswer, Problem> {
        if let Some(files) = &self.from_files {
            return Ok(ServerAnswer {
                text: files.object(uri)?.to_string(),
                completeness: ListCompleteness::NotStated,
            });
        }
        for _ in 0..MAX_RETRIES {
            match self.send_once(uri).await {
                Err(Problem::Busy(_)) => {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                }
                answer => return answer,
            }
        }
        self.send_once(uri).await
    }

    /// Reads the objects of a list page by page, so that only one page is in memory. `read` decodes
    /// an object, and returns None to leave it out. Also returns whether the list is complete. The
    /// list is complete only if each page states this.
    ///
    /// With `--from`, the objects come from the files.
    pub(super) async fn list<T>(
        &self,
        list: ListRequest<'_>,
        read: impl Fn(&str) -> Result<Option<T>, serde_json::Error>,
    ) -> Result<(Vec<T>, ListCompleteness), Problem> {
        if let Some(files) = &self.from_files {
            let objects = files.objects(list.path)?;
            let found = objects.iter().map(|it| read(&it.to_string()));
            let found = found
                .filter_map(Result::transpose)
                .collect::<Result<_, _>>();
            let found = found.map_err(|error| unreadable(list.path, &error))?;
            return Ok((found, ListCompleteness::of_files(files.incomplete.as_ref())));
        }
        match self.pages(list, &PAGE_OBJECTS.to_string(), &read).await {
            // A continue token expires when the server no longer has the state of the first page. A
            // list in one page needs no continue token.
            Err(Problem::Expired) => self.pages(list, "", &read).await,
            listed => listed,
        }
    }

    async fn pages<T>(
        &self,
        list: ListRequest<'_>,
        limit: &str,
        read: &impl Fn(&str) -> Result<Option<T>, serde_json::Error>,
    ) -> Result<(Vec<T>, ListCompleteness), Problem> {
        let mut token = String::new();
        let (mut found, mut completeness) = (Vec::new(), ListCompleteness::Complete);
        loop {
            let query = query(&[
                ("limit", limit),
                ("labelSelector", list.label_selector),
                ("fieldSelector", list.field_selector),
                ("continue", &token),
            ]);
            let uri = format!("{}?{query}", list.path);
            let answer = self.answer(&uri).await?;
            completeness = combined(completeness, answer.completeness);
            let page = ListItems::<&RawValue>::read(answer.text.as_bytes());
            let page = page.map_err(|error| unreadable(&uri, &error))?;
            for item in page.items {
                found.extend(read(item.get()).map_err(|error| unreadable(&uri, &error))?);
            }
            match page.next {
                Some(next) => token = next,
                None => return Ok((found, completeness)),
            }
        }
    }

    /// Reads all objects of a list like [`Self::list`], without the completeness.
    pub(super) async fn all<T>(
        &self,
        path: &str,
        field_selector: &str,
        read: impl Fn(&str) -> Result<Option<T>, serde_json::Error>,
    ) -> Result<Vec<T>, Problem> {
        let list = ListRequest {
            path,
            field_selector,
            ..ListRequest::default()
        };
        Ok(self.list(list, read).await?.0)
    }

    async fn send_once(&self, uri: &str) -> Result<ServerAnswer, Problem> {
        let mut request = http::Request::get(uri);
        if !self.ignored_rule_sets.is_empty() {
            request = request.header(IGNORED_HEADER, self.ignored_rule_sets.join(","));
        }
        if !self.relevant_operations.is_empty() {
            request = request.header(SELECTOR_HEADER, &self.relevant_operations);
        }
        let request = request
            .body(Body::empty())
            .map_err(|error| Problem::Usage(format!("{uri}: {error}")))?;
        let answer = self.within(self.exchange(request)).await?;
        answer.map_err(|error| self.problem(&error))
    }

    /// Sends a POST request once. The outer error is the time limit, and the inner error is the
    /// answer of the server.
    pub(super) async fn create(
        &self,
        uri: &str,
        object: &serde_json::Value,
    ) -> Result<Result<(), kube::Error>, Problem> {
        let request = http::Request::post(uri)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Body::from(object.to_string().into_bytes()))
            .map_err(|error| Problem::Usage(format!("{uri}: {error}")))?;
        self.within(async { self.exchange(request).await.map(|_| ()) })
            .await
    }

    /// Sends a request, and returns the body of the answer and the completeness that its headers
    /// state. `Client::request_text` is not used, because it returns only the body.
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

    /// Waits for `answer`, but not longer than `--request-timeout`. If the time is over, returns
    /// [`Problem::TimedOut`].
    pub(super) async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T, Problem> {
        match self.timeout {
            None => Ok(answer.await),
            Some(timeout) => tokio::time::timeout(timeout, answer)
                .await
                .map_err(|_| Problem::TimedOut(timeout)),
        }
    }

    /// Converts an error of kube's client.
    pub(super) fn problem(&self, error: &kube::Error) -> Problem {
        Problem::of(error, &self.address)
    }
}

fn unreadable(uri: &str, error: &serde_json::Error) -> Problem {
    Problem::Other(format!("{uri}: the answer cannot be read: {error}"))
}

/// Returns the namespaces that the user is allowed to see. The result is the first of these lists
/// that can be read:
///
/// - all namespaces of the cluster
/// - the projects of the user, in `OpenShift`
/// - only the namespace of the kubeconfig context, which needs no request
///
/// With `--from`, these are the namespaces in the files.
pub(crate) async fn namespaces(client: &ApiClient) -> Vec<String> {
    if let Some(files) = &client.from_files {
        return files.known_namespaces().into_iter().collect();
    }
    for path in [
        "/api/v1/namespaces",
        "/apis/project.openshift.io/v1/projects",
    ] {
        if let Ok(names) = names(client, path).await {
            return names;
        }
    }
    vec![client.default_namespace.clone()]
}

/// Returns the names of all objects of a resource.
async fn names(client: &ApiClient, path: &str) -> Result<Vec<String>, Problem> {
    let name = |item: &str| {
        let item: PartialObjectMeta = serde_json::from_str(item)?;
        Ok(item.metadata.name)
    };
    client.all(path, "", name).await
}

/// The characters that must be escaped: all except the unreserved characters of RFC 3986.
const ESCAPED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Escapes a segment of a URL path.
pub(crate) fn escape(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, ESCAPED).to_string()
}
