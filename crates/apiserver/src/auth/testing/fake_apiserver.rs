//! A simulated kube-apiserver for tests. It keeps its objects in memory.

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::Frame;
use kube::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast;

/// A request that the [`Cluster`] received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: Method,
    pub path: String,
    pub body: Value,
}

/// A special status code in `ClusterState::refusals`, for a request that the simulation never
/// answers.
const NEVER: u16 = 0;

type Body = BoxBody<Bytes, Infallible>;
type Review = dyn Fn(&Value) -> (u16, Value) + Send + Sync;

#[derive(Default)]
struct ClusterState {
    objects: BTreeMap<String, Value>,
    version: u64,
    seen: Vec<ReceivedRequest>,
    /// Refusals of future requests: the method, the end of the path, and the status code of the
    /// answer. Each refusal is used for one request.
    refusals: Vec<(Method, String, u16)>,
}

/// A simulated kube-apiserver. It supports get, list, watch, create, replace and patch for any
/// path. A patch can be a merge patch, or a JSON patch with the operation `add`.
///
/// A GET request with a field selector is a list. The simulation ignores the content of the
/// selector, and returns all objects below the path. A GET request without a field selector reads
/// one object.
///
/// The answer is 409 in these cases:
///
/// - A create names an object that exists.
/// - A replace contains an old resourceVersion.
/// - A patch contains another UID or resourceVersion than the object.
///
/// The function `review` answers reviews, such as `TokenReview`.
#[derive(Clone)]
pub struct Cluster {
    state: Arc<Mutex<ClusterState>>,
    events: broadcast::Sender<(String, Value)>,
    review: Arc<Review>,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    /// Creates a cluster without objects, in which all reviews fail.
    pub fn new() -> Self {
        Self::reviewing(|_| (500, json!({})))
    }

    /// Creates a cluster in which the function `review` answers all reviews. `review` returns the
    /// status code of the answer, and the `status` of the review. The `status` is used only if the
    /// code is 201.
    pub fn reviewing(review: impl Fn(&Value) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self {
            state: Arc::default(),
            events: broadcast::Sender::new(64),
            review: Arc::new(review),
        }
    }

    /// Returns a client of the cluster.
    pub fn client(&self) -> Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        Client::new(service, "default")
    }

    /// Stores an object, as if another client had written it.
    pub fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state.lock().unwrap();
        state.version += 1;
        let (collection, name) = path.rsplit_once('/').unwrap();
        object["metadata"]["name"] = json!(name);
        object["metadata"]["resourceVersion"] = json!(state.version.to_string());
        let kind = if state
            .objects
            .insert(path.to_owned(), object.clone())
            .is_some()
        {
            "MODIFIED"
        } else {
            "ADDED"
        };
        let event = json!({"type": kind, "object": object});
        // `send` returns an error if no watch is open.
        let _ = self.events.send((collection.to_owned(), event));
    }

    /// Deletes the object at the path.
    pub fn delete(&self, path: &str) {
        let object = self.state.lock().unwrap().objects.remove(path).unwrap();
        let collection = path.rsplit_once('/').unwrap().0.to_owned();
        let event = json!({"type": "DELETED", "object": object});
        let _ = self.events.send((collection, event));
    }

    /// Returns the object at the path.
    pub fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().unwrap().objects.get(path).cloned()
    }

    /// Returns the received requests with this method.
    pub fn seen(&self, method: &Method) -> Vec<ReceivedRequest> {
        let state = self.state.lock().unwrap();
        let of = |seen: &&ReceivedRequest| seen.method == method;
        state.seen.iter().filter(of).cloned().collect()
    }

    /// Refuses the next request that has this method and whose path ends with `path_end`. The
    /// answer has the status code `code`.
    pub fn refuse(&self, method: Method, path_end: &str, code: u16) {
        let refusal = (method, path_end.to_owned(), code);
        self.state.lock().unwrap().refusals.push(refusal);
    }

    /// Never answers the next request that has this method and whose path ends with `path_end`.
    pub fn hang(&self, method: Method, path_end: &str) {
        self.refuse(method, path_end, NEVER);
    }

    async fn answer(&self, request: Request<kube::client::Body>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let path = parts.uri.path().to_owned();
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let refused = {
            let mut state = self.state.lock().unwrap();
            state.seen.push(ReceivedRequest {
                method: parts.method.clone(),
                path: path.clone(),
                body: body.clone(),
            });
            let refused = state
                .refusals
                .iter()
                .position(|(method, end, _)| *method == parts.method && path.ends_with(end));
            refused.map(|at| state.refusals.remove(at).2)
        };
        match refused {
            Some(NEVER) => std::future::pending().await,
            Some(code) => return failure(code),
            None => {}
        }
        match parts.method {
            Method::POST if path.ends_with("reviews") => {
                let (code, status) = (self.review)(&body);
                if code == 201 {
                    let mut answer = body;
                    answer["status"] = status;
                    success(&answer)
                } else {
                    failure(code)
                }
            }
            Method::POST => {
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                let path = format!("{path}/{name}");
                if self.get(&path).is_some() {
                    return failure(409);
                }
                self.put(&path, body);
                success(&self.get(&path).unwrap())
            }
            Method::PUT => {
                let current = self.get(&path);
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                match current {
                    None => failure(404),
                    Some(current) if version(&current) != version(&body) => failure(409),
                    Some(_) => {
                        self.put(&path, body);
                        success(&self.get(&path).unwrap())
                    }
                }
            }
            Method::PATCH => {
                let Some(mut object) = self.get(&path) else {
                    return failure(404);
                };
                let before = object["metadata"].clone();
                match parts.headers["content-type"].to_str() {
                    Ok("application/merge-patch+json") => merge(&mut object, &body),
                    Ok("application/json-patch+json") => set(&mut object, &body),
                    other => panic!("the patch has the type {other:?}"),
                }
                for precondition in ["uid", "resourceVersion"] {
                    if object["metadata"][precondition] != before[precondition] {
                        return failure(409);
                    }
                }
                self.put(&path, object);
                success(&self.get(&path).unwrap())
            }
            _ if query.contains("watch=true") => self.watch(path),
            _ if query.contains("fieldSelector") => self.list(&path),
            _ => self
                .get(&path)
                .map_or_else(|| failure(404), |found| success(&found)),
        }
    }

    fn list(&self, path: &str) -> Response<Body> {
        let state = self.state.lock().unwrap();
        let prefix = format!("{path}/");
        let of = |(at, _): &(&String, &Value)| at.starts_with(&prefix);
        let items: Vec<_> = state.objects.iter().filter(of).map(|(_, it)| it).collect();
        success(&json!({
            "metadata": {"resourceVersion": (state.version + 1).to_string()},
            "items": items,
        }))
    }

    fn watch(&self, path: String) -> Response<Body> {
        let events = tokio_stream::wrappers::BroadcastStream::new(self.events.subscribe());
        let lines = events.filter_map(move |event| {
            let line = event.ok().and_then(|(collection, event)| {
                (collection == path).then(|| Ok(Frame::data(Bytes::from(format!("{event}\n")))))
            });
            std::future::ready(line)
        });
        Response::new(BodyExt::boxed(StreamBody::new(SyncStream(Mutex::new(
            Box::pin(lines),
        )))))
    }
}

/// A stream behind a lock. A `BoxBody` must be `Sync`, and the lock makes the stream `Sync`.
struct SyncStream<S>(Mutex<std::pin::Pin<Box<S>>>);

impl<S: futures::Stream> futures::Stream for SyncStream<S> {
    type Item = S::Item;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        self.0.lock().unwrap().as_mut().poll_next(context)
    }
}

fn success(object: &Value) -> Response<Body> {
    Response::new(Full::from(object.to_string()).boxed())
}

fn failure(code: u16) -> Response<Body> {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "message": format!("refused with {code}"), "reason": reason,
    });
    let mut response = Response::new(Full::from(status.to_string()).boxed());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

/// Applies a JSON patch. The patch may have only the operation `add`, and only for fields of
/// objects.
fn set(object: &mut Value, patch: &Value) {
    for operation in patch.as_array().unwrap() {
        assert_eq!(operation["op"], "add");
        let path = operation["path"].as_str().unwrap();
        let (parent, field) = path.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = operation["value"].clone();
    }
}

/// Applies a JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    if let Value::Object(fields) = patch {
        for (key, value) in fields {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(key);
            } else {
                merge(&mut target[key], value);
            }
        }
    } else {
        *target = patch.clone();
    }
}
