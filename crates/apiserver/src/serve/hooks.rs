//! Optional callbacks with which a program that uses this crate changes how requests are processed.

use super::answer::error_status::ErrorStatus;
use super::request::Query;
use super::resource::ResourceInfo;
use crate::auth::{Attributes, ResourceAttributes, User};
use crate::store::{Rv, Scope};
use axum::response::Response;
use futures::future::{BoxFuture, ready};
use http::HeaderMap;
use tokio_util::sync::CancellationToken;

/// Optional callbacks with which a program that uses this crate changes how requests are processed.
/// Every method has a default for a server with one replica. The defaults change nothing.
///
/// In a server with several replicas, the followers copy the leader's objects. With these methods,
/// a follower can wait for the newest objects, refuse requests, or mark answers as outdated.
pub trait Hooks: Send + Sync + 'static {
    /// Waits until this replica has the newest state. Returns false if this replica may lack changes
    /// after the wait. The server calls this method before each get, list or watch without a
    /// resourceVersion and without a continue token.
    fn wait_until_current(&self) -> BoxFuture<'_, bool> {
        Box::pin(ready(true))
    }

    /// Returns true if the objects of this replica may be out of date. The server calls this method
    /// before it reads the objects for a get, list or watch.
    ///
    /// # Errors
    ///
    /// Returns the error for the client if the resource must not be read now.
    fn before_read(&self, _resource: &ResourceInfo) -> Result<bool, ErrorStatus> {
        Ok(false)
    }

    /// Adds headers to the answer to a list or a watch.
    fn add_headers<'a>(&'a self, _: Read<'a>, _response: &'a mut Response) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    /// Returns a future whose completion ends a watch. The server calls this method when a watch of
    /// the resource starts. None if the program never ends watches of this resource.
    fn watch_end(&self, _resource: &ResourceInfo) -> Option<BoxFuture<'static, ()>> {
        None
    }

    /// Returns the access that a user needs to send requests as another replica. Returns None if
    /// the headers do not mark the request as that of another replica.
    ///
    /// If the result is not None, the server authorizes the user for this access. If the user does
    /// not have the access, the server refuses the request. The requests of all other replicas
    /// share a limit of their own, and do not count in the limits of clients.
    fn required_access_of_peer(&self, _headers: &HeaderMap) -> Option<Attributes> {
        None
    }

    /// Returns a cancellation token if the request comes from another replica. When the token is
    /// cancelled, a watch of this request ends.
    ///
    /// # Errors
    ///
    /// Returns the error for the other replica if this replica must refuse its request.
    fn peer_stream_end(
        &self,
        _headers: &HeaderMap,
    ) -> Result<Option<CancellationToken>, ErrorStatus> {
        Ok(None)
    }

    /// Returns the scope of the answer to a list or watch of another replica. `scope` is the scope
    /// that the other replica has requested. For example, the answer can cover all collections, so
    /// that one watch copies the whole store.
    fn scope_of_peer(&self, _resource: &ResourceInfo, scope: Scope) -> Scope {
        scope
    }

    /// Returns the reason why the replica is not ready, for the health checks. None if the reason
    /// is not known.
    fn unready_reason(&self) -> Option<String> {
        None
    }
}

/// The hooks of a server with one replica.
#[derive(Clone, Copy, Debug)]
pub struct NoHooks;

impl Hooks for NoHooks {}

/// The list or watch to whose answer [`Hooks::add_headers`] adds headers.
#[derive(Clone, Copy, Debug)]
pub struct Read<'a> {
    /// The resource.
    pub resource: &'a ResourceInfo,
    /// The request.
    pub request: &'a ResourceAttributes,
    /// The options in the query of the request.
    pub query: &'a Query,
    /// The headers of the request.
    pub headers: &'a HeaderMap,
    /// The user who sent the request.
    pub user: Option<&'a User>,
    /// The result of [`Hooks::before_read`].
    pub may_be_outdated: bool,
    /// The result of [`Hooks::wait_until_current`]. True if the server did not call it.
    pub is_current: bool,
    /// True if objects can be hidden from the user ([`super::Visibility`]).
    pub is_filtered: bool,
    /// The version of a list. None for a watch.
    pub version: Option<Rv>,
}
