//! Sends requests to the kube-apiserver of a cluster. With the flag `--from`, objects come from
//! files, and no request is sent.
//!
//! If the answer is 429, the client retries the request up to 20 times, every 0.5 s. The flag
//! `--request-timeout` sets a time limit for each answer. The result is the answer, or a
//! [`Problem`]: an error message for the user.

use crate::cluster::problem::Problem;
use crate::operations::from_files::FileContents;
use http_body_util::BodyExt as _;
use ifo_api::completeness::{COMPLETE_HEADER, INCOMPLETE_HEADER, Incomplete};
use ifo_client::list::{ListItems, query};
use ifo_client::served_resource::ServedResource;
use kube::Client;
use kube::client::Body;
use kube::core::{PartialObjectMeta, Status};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

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
/// connection flags. With `--from`, the client reads files and sends no request.
#[derive(Clone)]
pub(crate) struct ApiClient {
    /// The client of the kube crate. Other modules use this client for watches, because
    /// [`ApiClient::get`] supports single requests only. With `--from`, each request of this client
    /// fails.
    pub(crate) client: Client,
    /// Address of the kube-apiserver. With `--from`, the path of the files.
    pub(crate) address: String,
    /// Default namespace of the chosen kubeconfig context.
    pub(crate) default_namespace: String,
    /// Time limit for each answer (`--request-timeout`). None for no limit.
    pub(crate) timeout: Option<Duration>,
    /// The contents of the files of `--from`. None if the client sends requests to a cluster.
    pub(crate) from_files: Option<Arc<FileContents>>,
    /// Additional headers of GET requests. A header with an empty value is not sent. `wait` uses
    /// these headers to tell `ifo-apiserver` which rule sets do not matter. `ifo-apiserver` then
    /// reports a list as complete even if these rule sets do not work.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// All kinds of the cluster. The cell is empty until the plugin first needs a kind. The inner
    /// value is None if discovery cannot be read, or if the cluster does not support aggregated
    /// discovery.
    pub(super) kinds: Arc<OnceCell<Option<Vec<ServedResource>>>>,
}

/// `Ok` if a list of operations is complete. Otherwise, the reason why operations may be missing.
/// `Result::and` combines the completeness of several lists, and keeps the first reason.
pub(crate) type ListCompleteness = Result<(), Incomplete>;

/// Reads from the headers of an answer whether the list is complete. If the answer has neither of
/// the two headers, the result is [`Incomplete::NotKnown`]. For example, lists of records have
/// neither. Lists of activities have one only if no leader has confirmed them.
fn completeness(headers: &http::HeaderMap) -> ListCompleteness {
    let reason = headers.get(INCOMPLETE_HEADER);
    match reason.and_then(|json| serde_json::from_slice(json.as_bytes()).ok()) {
        Some(reason) => Err(reason),
        None if headers.contains_key(COMPLETE_HEADER) => Ok(()),
        None => Err(Incomplete::NotKnown),
    }
}

/// The answer to a successful request.
pub(crate) struct ServerAnswer {
    /// The body of the answer.
    pub(crate) text: String,
    /// Whether operations may be missing from a list of operations. For a list of activities, only
    /// [`Incomplete::NotConfirmed`] has a meaning, and for other answers nothing has.
    pub(crate) completeness: ListCompleteness,
}

impl ApiClient {
    /// Creates a client for the kube-apiserver at `address`, with default settings.
    pub(crate) fn new(client: Client, address: &str) -> Self {
        Self {
            client,
            address: address.to_owned(),
            default_namespace: "default".to_owned(),
            timeout: None,
            from_files: None,
            headers: Vec::new(),
            kinds: Arc::default(),
        }
    }

    /// Returns an error if this client reads files that do not show which operations were in flight.
    pub(crate) fn check_files(&self) -> Result<(), Problem> {
        let what = "operations; record them with: kubectl get ifos -A -o yaml";
        let unlisted = self.from_files.iter().find(|it| !it.shows_operations);
        unlisted.map_or(Ok(()), |it| Err(it.lacks(what)))
    }

    /// Sends a GET request and decodes the JSON of the answer. The request is retried as in
    /// [`Self::answer`].
    pub(crate) async fn get<T: DeserializeOwned>(&self, uri: &str) -> Result<T, Problem> {
        let answer = self.answer(uri).await?;
        serde_json::from_str(&answer.text).map_err(|error| unreadable(uri, &error))
    }

    /// Sends a GET request and returns the answer. If the answer is 429, retries the request up to
    /// [`MAX_RETRIES`] times. With `--from`, returns the object from the files.
    pub(crate) async fn answer(&self, uri: &str) -> Result<ServerAnswer, Problem> {
        if let Some(files) = &self.from_files {
            return Ok(ServerAnswer {
                text: files.object(uri)?.to_string(),
                completeness: files.completeness.clone(),
            });
        }
        for _ in 0..MAX_RETRIES {
            let answer = self.send_once(uri).await;
            if !matches!(answer, Err(Problem::Busy(_))) {
                return answer;
            }
            tokio::time::sleep(RETRY_INTERVAL).await;
        }
        self.send_once(uri).await
    }

    /// Reads the objects of a list page by page. Also returns whether the list is complete. The
    /// list is complete only if each page states that it is complete. An empty selector selects all
    /// objects.
    ///
    /// With `--from`, the objects come from the files. Selectors then have no effect, so callers
    /// also compare labels and fields themselves.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        label_selector: &str,
        field_selector: &str,
    ) -> Result<(Vec<T>, ListCompleteness), Problem> {
        if let Some(files) = &self.from_files {
            let objects = files.objects(path)?.into_iter().map(T::deserialize);
            let objects: Result<Vec<T>, _> = objects.collect();
            let objects = objects.map_err(|error| unreadable(path, &error))?;
            return Ok((objects, files.completeness.clone()));
        }
        let selectors = [
            ("labelSelector", label_selector),
            ("fieldSelector", field_selector),
        ];
        match self.pages(path, selectors, &PAGE_OBJECTS.to_string()).await {
            // A continue token expires when the server no longer has the state of the first page. A
            // list in one page needs no continue token.
            Err(Problem::Expired) => self.pages(path, selectors, "").await,
            listed => listed,
        }
    }

    async fn pages<T: DeserializeOwned>(
        &self,
        path: &str,
        [labels, fields]: [(&str, &str); 2],
        limit: &str,
    ) -> Result<(Vec<T>, ListCompleteness), Problem> {
        let mut token = String::new();
        let (mut found, mut completeness) = (Vec::new(), Ok(()));
        loop {
            let query = query(&[("limit", limit), labels, fields, ("continue", &token)]);
            let uri = format!("{path}?{query}");
            let answer = self.answer(&uri).await?;
            completeness = completeness.and(answer.completeness);
            let page = ListItems::read(answer.text.as_bytes());
            let page = page.map_err(|error| unreadable(&uri, &error))?;
            let next = page.next();
            found.extend(page.items);
            match next {
                Some(next) => token = next,
                None => return Ok((found, completeness)),
            }
        }
    }

    /// Reads all objects of a list like [`Self::list`], without the completeness.
    pub(crate) async fn all<T: DeserializeOwned>(
        &self,
        path: &str,
        field_selector: &str,
    ) -> Result<Vec<T>, Problem> {
        Ok(self.list(path, "", field_selector).await?.0)
    }

    async fn send_once(&self, uri: &str) -> Result<ServerAnswer, Problem> {
        let mut request = http::Request::get(uri);
        for (name, value) in self.headers.iter().filter(|it| !it.1.is_empty()) {
            request = request.header(*name, value);
        }
        let request = request.body(Body::empty());
        let request = request.map_err(|error| Problem::Usage(format!("{uri}: {error}")))?;
        let answer = self.within(self.exchange(request)).await?;
        answer.map_err(|error| self.problem(&error))
    }

    /// Sends a request, and returns the body of the answer and the completeness that its headers
    /// state. `Client::request_text` is not used, because it returns only the body.
    async fn exchange(&self, request: http::Request<Body>) -> Result<ServerAnswer, kube::Error> {
        let (parts, body) = self.client.send(request).await?.into_parts();
        let bytes = body.collect().await?.to_bytes();
        if !parts.status.is_success() {
            let text = String::from_utf8_lossy(&bytes);
            // Not every error has a `Status` as its body. For example, the answer to an unknown
            // path is a plain text.
            let unknown = |_| Status::failure(&text, "Unknown").with_code(parts.status.as_u16());
            let status = serde_json::from_str(&text).unwrap_or_else(unknown);
            return Err(kube::Error::Api(Box::new(status)));
        }
        Ok(ServerAnswer {
            text: String::from_utf8(bytes.into()).map_err(kube::Error::FromUtf8)?,
            completeness: completeness(&parts.headers),
        })
    }

    /// Waits for `answer`, but not longer than `--request-timeout`. If the time limit passes,
    /// returns [`Problem::TimedOut`].
    pub(crate) async fn within<T>(&self, answer: impl Future<Output = T>) -> Result<T, Problem> {
        match self.timeout {
            None => Ok(answer.await),
            Some(timeout) => tokio::time::timeout(timeout, answer)
                .await
                .map_err(|_| Problem::TimedOut(timeout)),
        }
    }

    /// Converts an error of kube's client.
    pub(crate) fn problem(&self, error: &kube::Error) -> Problem {
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
pub(crate) async fn namespaces(client: &ApiClient) -> Vec<String> {
    for path in [
        "/api/v1/namespaces",
        "/apis/project.openshift.io/v1/projects",
    ] {
        if let Ok(found) = client.all::<PartialObjectMeta>(path, "").await {
            let names = found.into_iter().filter_map(|it| it.metadata.name);
            return names.collect();
        }
    }
    vec![client.default_namespace.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[tokio::test]
    async fn an_error_keeps_its_status_code_if_its_body_is_not_utf_8() {
        let service = tower::service_fn(|_: http::Request<Body>| async {
            let answer = http::Response::builder().status(404);
            let answer = answer.body(Body::from(b"\xff".to_vec()));
            Ok::<_, Infallible>(answer.expect("the status code is valid"))
        });
        let client = ApiClient::new(Client::new(service, "default"), "https://192.0.2.1");
        let answer = client.answer("/a").await.map(|it| it.text);
        assert_eq!(answer, Err(Problem::NotFound("\u{fffd}".to_owned())));
    }
}
