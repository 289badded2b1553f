//! Admission of requests. Input: a request. Output: its user and its slot in the limits, or the
//! refusal.

use super::{WatchSlot, method_name, refusal};
use crate::auth::{AccessDecision, Attributes, Unauthenticated, User};
use crate::serve::ServerState;
use crate::serve::concurrency_limit::RequestSlot;
use crate::serve::connections::{self, ConnectionClass, ConnectionRefused};
use crate::serve::peer_requests;
use crate::serve::quoted::{Quoted, clip};
use crate::serve::request::{Query, Request as ResourceRequest, RequestTarget};
use crate::serve::request_log::RequestLogLine;
use crate::serve::respond::{overload, plain};
use crate::serve::select::Reviewed;
use crate::serve::status::ErrorStatus;
use axum::response::Response;
use http::request::Parts;
use http::{Method, StatusCode, header};
use std::sync::Arc;

/// Longest path that a message repeats, in bytes.
const MAX_PATH: usize = 512;

/// The result of the admission.
#[derive(Default)]
pub(super) struct Admission {
    /// The slot of a watch.
    pub(super) watch_slot: Option<WatchSlot>,
    /// The slot of another request. Requests of administrators have none.
    pub(super) request_slot: Option<RequestSlot>,
    /// True if the request is for a public path and has no slot.
    pub(super) is_public: bool,
    /// The user. None for public paths.
    pub(super) user: Option<User>,
}

impl Admission {
    fn public() -> Self {
        Self {
            is_public: true,
            ..Self::default()
        }
    }
}

/// Authenticates the request, takes a slot of the limits and authorizes it.
pub(super) async fn enter(
    shared: &Arc<ServerState>,
    (asked, query): (&RequestTarget, &Query),
    parts: &Parts,
    line: &mut RequestLogLine,
) -> Result<Admission, Response> {
    let open = matches!(asked, RequestTarget::Path(path) if is_open(path));
    let probe = matches!(asked, RequestTarget::Path(path) if is_probe(path));
    let token = parts.headers.contains_key(header::AUTHORIZATION);
    let certificates = parts.extensions.get().cloned().unwrap_or_default();
    // A kube-apiserver has connections that are used for discovery only.
    let holder =
        ConnectionClass::of_holder(&shared.server.authenticate.certificate_holder(&certificates));
    if holder == ConnectionClass::FrontProxy || (open && !token) {
        connections::admit(parts, holder).map_err(|ConnectionRefused| overload())?;
    }
    // A bad token is a 401 on every path. Public paths need no token.
    if open && !token {
        return Ok(Admission::public());
    }
    // The verification of a token takes time and memory, so its number is limited.
    let arriving = if token {
        Some(shared.arriving.try_acquire().map_err(|_| overload())?)
    } else {
        None
    };
    let authenticate = &shared.server.authenticate;
    let user = authenticate.authenticate(&certificates, &parts.headers);
    let user = user.await.map_err(|Unauthenticated| {
        // From here on, the connection may not use a place that is reserved for newcomers.
        let _ = connections::admit(parts, ConnectionClass::anonymous());
        refusal(ErrorStatus::unauthorized(), &parts.headers, query)
    })?;
    line.sent_by(&user);
    drop(arriving);
    let replica = peer_requests::is_from_replica(&parts.headers);
    if replica {
        // This check precedes the use of a place that is reserved for replicas.
        authorize(shared, &user, &peer_requests::attributes(), (parts, query)).await?;
    }
    if !probe {
        let class = if replica {
            ConnectionClass::FrontProxy
        } else {
            ConnectionClass::of_user(&user)
        };
        connections::admit(parts, class).map_err(|ConnectionRefused| overload())?;
    }
    if open || probe {
        return Ok(Admission::public());
    }
    let watch = matches!(asked, RequestTarget::Resource(resource) if resource.verb == "watch");
    let limit = match (replica, watch) {
        (true, _) => &shared.replicas,
        (false, true) => &shared.watches,
        (false, false) => &shared.requests,
    };
    // Administrators are not refused because of load, and have no share of watches, so that other
    // users cannot lock them out. The total number of watches is limited for them, too, because
    // memory is limited.
    let master = user.is_administrator();
    let slot = limit.take((!master).then_some(&user.name));
    let (watch_slot, request_slot) = match slot {
        Some(slot) if watch => {
            let watch_slot: WatchSlot = Arc::new((shared.server.metrics.watcher(), slot));
            (Some(watch_slot), None)
        }
        None if watch || !master => return Err(overload()),
        slot => (None, slot),
    };
    let attributes = attributes(asked, query, &parts.method);
    authorize(shared, &user, &attributes, (parts, query)).await?;
    Ok(Admission {
        watch_slot,
        request_slot,
        is_public: false,
        user: Some(user),
    })
}

/// Authorizes the request. Returns the refusal if it is not allowed.
async fn authorize(
    shared: &ServerState,
    user: &User,
    attributes: &Attributes,
    (parts, query): (&Parts, &Query),
) -> Result<(), Response> {
    match shared.server.authorize.authorize(user, attributes).await {
        Ok(AccessDecision::Allow) => Ok(()),
        Ok(AccessDecision::Deny { reason }) => {
            let failure = ErrorStatus::forbidden(user, attributes, &reason);
            Err(refusal(failure, &parts.headers, query))
        }
        Err(undecided) => {
            let mut path = Quoted(parts.uri.path()).to_string();
            clip(&mut path, MAX_PATH);
            let message = format!("Internal Server Error: {path}: {undecided}");
            Err(plain(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
    }
}

/// Returns true if a path is public. Discovery, `OpenAPI` and the version must be readable before
/// authentication works. Otherwise they would block the deletion of every namespace in the cluster.
/// Their content does not depend on the user.
fn is_open(path: &str) -> bool {
    path == "/version"
        || ["/api", "/apis", "/openapi"].iter().any(|root| {
            path.strip_prefix(root)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
}

fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/livez" | "/readyz")
}

fn attributes(asked: &RequestTarget, query: &Query, method: &Method) -> Attributes {
    match asked {
        RequestTarget::Path(path) => Attributes::NonResource {
            path: path.clone(),
            verb: method_name(method).to_owned(),
        },
        RequestTarget::Resource(resource) => resource_attributes(resource, query),
    }
}

fn resource_attributes(asked: &ResourceRequest, query: &Query) -> Attributes {
    // The old watch paths are authorized by their path.
    let selectors = matches!(asked.verb, "list" | "watch" | "deletecollection");
    let reviewed = if selectors && !asked.legacy_watch {
        Reviewed::of(query)
    } else {
        Reviewed::default()
    };
    let name = if asked.name.is_empty() {
        reviewed.name
    } else {
        asked.name.clone()
    };
    Attributes::Resource {
        verb: asked.verb.to_owned(),
        group: asked.group.clone(),
        version: asked.version.clone(),
        resource: asked.resource.clone(),
        subresource: asked.subresource.clone(),
        namespace: asked.namespace.clone(),
        name,
        fields: reviewed.fields,
        labels: reviewed.labels,
    }
}
