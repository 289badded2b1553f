//! The callbacks with which this server extends the HTTP API of the library:
//!
//! - A follower waits for the newest version of the leader before it answers.
//! - A replica that is not up to date refuses requests for activities.
//! - A follower receives the whole index of the leader with one list and one watch.
//! - Answers to lists and watches state whether operations may be missing.

use super::{OperationHooks, completeness};
use crate::index;
use crate::replicate::peer_requests;
use aggregated_apiserver::auth::Attributes;
use aggregated_apiserver::serve::{ErrorStatus, Hooks, Read, ResourceInfo};
use aggregated_apiserver::store::Scope;
use axum::response::Response;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::HeaderMap;
use ifo_api::{activity, live};
use tokio_util::sync::CancellationToken;

/// The reason why the server does not answer from an outdated copy of the operations.
const OUTDATED: &str = "this replica has not been up to date for more than 15 s: no replica leads, or this replica \
     cannot reach the leader";

impl Hooks for OperationHooks {
    fn wait_until_current(&self) -> BoxFuture<'_, bool> {
        self.replica_status.wait_until_current().boxed()
    }

    fn before_read(&self, resource: &ResourceInfo) -> Result<bool, ErrorStatus> {
        let is_stale = self.replica_status.is_stale();
        // Programs such as admission policies act on activities, and ignore the `Warning` header.
        // So the server refuses to answer instead of sending outdated activities.
        if is_stale && resource.plural == activity::PLURAL {
            return Err(ErrorStatus::service_unavailable(OUTDATED));
        }
        Ok(is_stale)
    }

    fn add_headers<'a>(&'a self, read: Read<'a>, response: &'a mut Response) -> BoxFuture<'a, ()> {
        completeness::warn(self, read, response).boxed()
    }

    fn watch_end(&self, resource: &ResourceInfo) -> Option<BoxFuture<'static, ()>> {
        (resource.plural == activity::PLURAL)
            .then(|| self.replica_status.clone().until_stale().boxed())
    }

    fn required_access_of_peer(&self, headers: &HeaderMap) -> Option<Attributes> {
        peer_requests::required_access(headers)
    }

    fn peer_stream_end(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<CancellationToken>, ErrorStatus> {
        peer_requests::leadership_end(&self.replica_status, headers)
    }

    fn scope_of_peer(&self, resource: &ResourceInfo, scope: Scope) -> Scope {
        // A follower copies the whole index of this replica with one list and one watch of
        // operations.
        if resource.plural == live::PLURAL && scope == index::OPERATIONS {
            Scope::Everything
        } else {
            scope
        }
    }

    fn unready_reason(&self) -> Option<String> {
        self.replica_status.unready_reason()
    }
}
