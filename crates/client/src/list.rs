//! The pager of Kubernetes lists.
//!
//! Input: a client, the path of a list, and the requested page. Output: that page, or a
//! [`ListError`].
//!
//! Each call reads one page, and the pager keeps none, so a caller needs the memory of one page.
//! The caller decides if it retries an error or starts the list again.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use serde::{Deserialize, Deserializer};
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(test)]
mod tests;

/// The requested page of a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct ListRequest<'a> {
    /// Label selector; empty for all objects.
    pub label_selector: &'a str,
    /// Field selector; empty for all objects.
    pub field_selector: &'a str,
    /// Where the page begins.
    pub start: ListStart<'a>,
}

/// The beginning of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ListStart<'a> {
    /// At the first object of the newest state.
    #[default]
    First,
    /// At the first object of the state at exactly this resourceVersion.
    Exact(&'a str),
    /// At the continue token of the previous page.
    Continue(&'a str),
}

impl<'a> ListStart<'a> {
    /// At the continue token, or at the first object if there is none.
    pub fn after(token: Option<&'a str>) -> Self {
        token.map_or(Self::First, Self::Continue)
    }
}

/// A page as the server sent it.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// Path and query of the request, for messages.
    pub uri: String,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The body: JSON that [`ListItems::read`] decodes.
    pub body: Bytes,
}

/// The decoded body of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListItems<T> {
    /// The resourceVersion of the list.
    pub version: Option<String>,
    /// The continue token of the next page; `None` if this page is the last one.
    pub next: Option<String>,
    /// The objects.
    pub items: Vec<T>,
}

impl<'a, T: Deserialize<'a>> ListItems<T> {
    /// Decodes the body of a page. An object that cannot be decoded as `T` makes the whole page
    /// fail. With `&RawValue` for `T`, the caller decodes each object separately.
    pub fn read(body: &'a [u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        #[serde(bound(deserialize = "T: Deserialize<'de>"))]
        struct Wire<T> {
            #[serde(default)]
            metadata: PageMetadata,
            #[serde(deserialize_with = "null_is_empty")]
            items: Vec<T>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct PageMetadata {
            resource_version: Option<String>,
            #[serde(rename = "continue")]
            next: Option<String>,
        }
        let Wire { metadata, items } = serde_json::from_slice(body)?;
        Ok(Self {
            version: metadata.resource_version,
            next: metadata.next.filter(|token| !token.is_empty()),
            items,
        })
    }
}

// Some Go programs encode an empty list as null.
fn null_is_empty<'de, D, T>(items: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(items).map(Option::unwrap_or_default)
}

/// The page could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Path and query are no URI.
    #[error("{uri}: {source}")]
    Request {
        /// Path and query.
        uri: String,
        /// The reason.
        source: http::Error,
    },
    /// There was no answer, or only a part of it.
    #[error(transparent)]
    Transport(#[from] kube::Error),
    /// The server answered with a status other than 2xx. The body was not read.
    #[error("answered {}", .0.status())]
    Refused(Box<Response<Body>>),
    /// The page is larger than the limit.
    #[error("a page of more than {max} bytes")]
    TooLarge {
        /// The limit in bytes.
        max: usize,
        /// The error of the reader.
        source: Box<LengthLimitError>,
    },
}

/// Reads a list page by page.
pub struct ListPager {
    client: Client,
    path: String,
    accept: Option<&'static str>,
    limit: Option<usize>,
    max_bytes: usize,
    reduced_limit: Option<usize>,
    /// True if `reduced_limit` is used instead of `limit`.
    is_reduced: AtomicBool,
}

impl ListPager {
    /// Reads the list at `path` with at most `limit` objects per page. `None` reads all objects as
    /// one page, without a limit of size.
    pub fn new(client: Client, path: impl Into<String>, limit: Option<usize>) -> Self {
        Self {
            client,
            path: path.into(),
            accept: None,
            limit,
            max_bytes: usize::MAX,
            reduced_limit: None,
            is_reduced: AtomicBool::new(false),
        }
    }

    /// Requests this media type.
    #[must_use]
    pub fn accepting(mut self, media_type: &'static str) -> Self {
        self.accept = Some(media_type);
        self
    }

    /// Limits a page to `max_bytes`. A larger page is requested again at once with at most
    /// `reduced_limit` objects, and so are all later pages.
    #[must_use]
    pub fn bounded(mut self, max_bytes: usize, reduced_limit: usize) -> Self {
        self.max_bytes = max_bytes;
        self.reduced_limit = Some(reduced_limit);
        self
    }

    /// Requests the usual number of objects per page again.
    pub fn reset_limit(&self) {
        self.is_reduced.store(false, Ordering::Relaxed);
    }

    /// Requests one page, and reads all of it.
    pub async fn page(&self, request: ListRequest<'_>) -> Result<ListPage, ListError> {
        if !self.is_reduced.load(Ordering::Relaxed) {
            let page = self.page_of(self.limit, request).await;
            let is_too_large = matches!(page, Err(ListError::TooLarge { .. }));
            if !is_too_large || self.reduced_limit.is_none() {
                return page;
            }
            self.is_reduced.store(true, Ordering::Relaxed);
        }
        self.page_of(self.reduced_limit, request).await
    }

    async fn page_of(
        &self,
        limit: Option<usize>,
        request: ListRequest<'_>,
    ) -> Result<ListPage, ListError> {
        let uri = self.uri(limit, request);
        let mut get = Request::get(&uri);
        if let Some(accept) = self.accept {
            get = get.header(header::ACCEPT, accept);
        }
        let get = match get.body(Body::empty()) {
            Ok(get) => get,
            Err(source) => return Err(ListError::Request { uri, source }),
        };
        let answer = self.client.send(get).await?;
        if !answer.status().is_success() {
            return Err(ListError::Refused(Box::new(answer)));
        }
        let (parts, body) = answer.into_parts();
        match Limited::new(body, self.max_bytes).collect().await {
            Ok(body) => Ok(ListPage {
                uri,
                headers: parts.headers,
                body: body.to_bytes(),
            }),
            Err(error) => match error.downcast::<LengthLimitError>() {
                Ok(source) => Err(ListError::TooLarge {
                    max: self.max_bytes,
                    source,
                }),
                Err(error) => Err(match error.downcast::<kube::Error>() {
                    Ok(error) => *error,
                    Err(other) => kube::Error::Service(other),
                }
                .into()),
            },
        }
    }

    fn uri(&self, limit: Option<usize>, request: ListRequest<'_>) -> String {
        let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
        let (exact, version, token) = match request.start {
            ListStart::First => ("", "", ""),
            ListStart::Exact(version) => ("Exact", version, ""),
            ListStart::Continue(token) => ("", "", token),
        };
        let query = query(&[
            ("limit", &limit),
            ("labelSelector", request.label_selector),
            ("fieldSelector", request.field_selector),
            ("resourceVersionMatch", exact),
            ("resourceVersion", version),
            ("continue", token),
        ]);
        format!("{}?{query}", self.path)
    }
}

/// Returns a query string of the options with a value, in this order.
pub fn query(options: &[(&str, &str)]) -> String {
    let given = options.iter().filter(|(_, value)| !value.is_empty());
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(given)
        .finish()
}
