//! Reads Kubernetes lists page by page, with `limit` and continue tokens. Each call of
//! [`ListPager::page`] returns one page, so that the caller needs only one page in memory. After a
//! [`ListError`], the caller can request the same page again, or begin again with the first page.

use bytes::Bytes;
use http::{HeaderMap, Request, Response, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use serde::{Deserialize, Deserializer};
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(test)]
mod tests;

/// A page in the form in which the API server sent it.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// Path and query of the request, for error messages.
    pub uri: String,
    /// Headers of the response.
    pub headers: HeaderMap,
    /// Body of the response: JSON that [`ListItems::read`] decodes.
    pub body: Bytes,
}

/// The decoded body of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListItems<T> {
    /// resourceVersion of the list. None if the response contains none.
    pub version: Option<String>,
    /// Continue token for the next page. None if this page is the last page.
    pub next: Option<String>,
    /// Objects of the page.
    pub items: Vec<T>,
}

impl<'a, T: Deserialize<'a>> ListItems<T> {
    /// Decodes the body of a page. Returns an error if one of the objects cannot be decoded as `T`.
    /// To avoid this error, use `&RawValue` as `T`: each object stays JSON text, and the caller
    /// decodes each object separately.
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

/// The reason why a page could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Path and query are not a valid URI.
    #[error("{uri}: {source}")]
    Request {
        /// Path and query of the request.
        uri: String,
        /// Error of the URI parser.
        source: http::Error,
    },
    /// The API server sent no response, or the response was cut off.
    #[error(transparent)]
    Transport(#[from] kube::Error),
    /// The API server answered with a status code other than 2xx. The caller can read the body.
    #[error("the API server answered {}", .0.status())]
    Refused(Box<Response<Body>>),
    /// The page has more bytes than [`PageLimits`] allows.
    #[error("a page of the list has more than {max} bytes")]
    TooLarge {
        /// Maximum number of bytes.
        max: usize,
        /// Error of the body reader.
        source: Box<LengthLimitError>,
    },
}

/// The limits of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageLimits {
    /// Maximum number of objects.
    pub objects: usize,
    /// Maximum number of bytes.
    pub bytes: usize,
    /// Maximum number of objects after a page with more than `bytes`.
    pub reduced_objects: usize,
}

/// Reads a list page by page.
pub struct ListPager {
    client: Client,
    path: String,
    media_type: &'static str,
    limits: PageLimits,
    /// True if the pager requests pages with `reduced_objects` instead of `objects`.
    is_reduced: AtomicBool,
}

impl ListPager {
    /// Creates a pager for the list at `path`. `media_type` is the `Accept` header of the requests.
    pub fn new(client: Client, path: &str, media_type: &'static str, limits: PageLimits) -> Self {
        Self {
            client,
            path: path.to_owned(),
            media_type,
            limits,
            is_reduced: AtomicBool::new(false),
        }
    }

    /// Requests the page after the page that returned the continue token `token`, or the first page.
    /// Each list starts with pages of the usual size, even if an earlier list had pages that were too
    /// large.
    ///
    /// If a page is too large, the pager immediately requests the page again with fewer objects. It
    /// also requests the later pages of this list with fewer objects. If such a page is still too
    /// large, returns [`ListError::TooLarge`].
    pub async fn page(&self, token: Option<&str>) -> Result<ListPage, ListError> {
        let is_reduced = token.is_some() && self.is_reduced.load(Ordering::Relaxed);
        if !is_reduced {
            let page = self.request_page(self.limits.objects, token).await;
            let is_too_large = matches!(page, Err(ListError::TooLarge { .. }));
            self.is_reduced.store(is_too_large, Ordering::Relaxed);
            if !is_too_large {
                return page;
            }
        }
        self.request_page(self.limits.reduced_objects, token).await
    }

    async fn request_page(&self, limit: usize, token: Option<&str>) -> Result<ListPage, ListError> {
        let query = query(&[
            ("limit", &limit.to_string()),
            ("continue", token.unwrap_or_default()),
        ]);
        let uri = format!("{}?{query}", self.path);
        let get = Request::get(&uri).header(header::ACCEPT, self.media_type);
        let get = match get.body(Body::empty()) {
            Ok(get) => get,
            Err(source) => return Err(ListError::Request { uri, source }),
        };
        let answer = self.client.send(get).await?;
        if !answer.status().is_success() {
            return Err(ListError::Refused(Box::new(answer)));
        }
        let (parts, body) = answer.into_parts();
        match Limited::new(body, self.limits.bytes).collect().await {
            Ok(body) => Ok(ListPage {
                uri,
                headers: parts.headers,
                body: body.to_bytes(),
            }),
            Err(error) => match error.downcast::<LengthLimitError>() {
                Ok(source) => Err(ListError::TooLarge {
                    max: self.limits.bytes,
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
}

/// Encodes a query string. Options with an empty value are left out.
pub fn query(options: &[(&str, &str)]) -> String {
    let given = options.iter().filter(|(_, value)| !value.is_empty());
    form_urlencoded::Serializer::new(String::new())
        .extend_pairs(given)
        .finish()
}
