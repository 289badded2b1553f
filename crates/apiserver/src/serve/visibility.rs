//! Hides objects from users who may read a resource, but not all of its objects. A [`Resource`]
//! whose objects can be hidden has an implementation of [`Visibility`].
//!
//! A [`View`] contains the decisions about the objects of one request. Get, list and watch apply
//! the view to each object before they apply selectors, count objects and make pages. So a hidden
//! object has the same effect on an answer as an object that does not exist.
//!
//! [`Resource`]: super::Resource

use super::answer::error_status::ErrorStatus;
use crate::Model;
use crate::auth::User;
use crate::store::{Entry, Rv, Scope};
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

/// Decides which objects of a resource each user sees. Members of `system:masters` and other
/// replicas see everything. For them, the server does not call these methods.
pub trait Visibility<M: Model>: Send + Sync + 'static {
    /// Returns true if objects in the namespace can be hidden from the user. The namespace is empty
    /// for a request in all namespaces.
    ///
    /// # Errors
    ///
    /// Returns the error for the client if no decision is possible.
    fn is_filtered<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<bool, ErrorStatus>>;

    /// Returns the view of the user on these objects.
    ///
    /// # Errors
    ///
    /// Returns the error for the client if no decision is possible.
    fn view<'a>(
        &'a self,
        user: &'a User,
        objects: ViewedObjects<'a, M>,
    ) -> BoxFuture<'a, Result<Box<dyn View<M>>, ErrorStatus>>;
}

/// The objects of a request before some of them are hidden.
#[derive(Clone, Copy, Debug)]
pub struct ViewedObjects<'a, M: Model> {
    /// The part of the store that the request covers.
    pub scope: &'a Scope,
    /// The version of the objects.
    pub version: Rv,
    /// All objects in the scope at this version.
    pub objects: &'a [Arc<Entry<M>>],
    /// True if the client continues a watch after this version. The client already has the objects
    /// that it was allowed to see at this version.
    ///
    /// In this case, [`Visibility::view`] must return the view that the client had at this version,
    /// even if this view has expired. The watch then replaces the expired view at once, and sends
    /// the difference between the old view and the new view.
    pub continues: bool,
}

/// What one user sees of the objects of one request.
pub trait View<M: Model>: Send + Sync {
    /// Returns the object as the user sees it. Returns None if the object is hidden. The view must
    /// hide an object for which it has no decision.
    fn show(&self, entry: Arc<Entry<M>>) -> Option<Arc<Entry<M>>>;

    /// Adds decisions about these objects to the view. A watch calls this method for the objects of
    /// its next changes, before it shows them.
    ///
    /// # Errors
    ///
    /// Returns the error for the client if no decision is possible.
    fn extend<'a>(
        &'a mut self,
        objects: &'a [Arc<Entry<M>>],
    ) -> BoxFuture<'a, Result<(), ErrorStatus>>;

    /// Returns the time at which a watch must replace this view by a new one.
    fn expires(&self) -> Instant;

    /// Returns a new view, which decides about the objects again.
    ///
    /// # Errors
    ///
    /// Returns the error for the client if no decision is possible.
    fn renew<'a>(
        &'a self,
        objects: ViewedObjects<'a, M>,
    ) -> BoxFuture<'a, Result<Box<dyn View<M>>, ErrorStatus>>;
}

/// A user from whom objects can be hidden, and the [`Visibility`] that decides which objects this
/// user sees.
pub(super) struct RestrictedUser<M: Model> {
    pub user: User,
    pub visibility: Arc<dyn Visibility<M>>,
}

/// Lets other tasks run during a loop over many objects. `number` is the position of the current
/// object. Only every 32nd call asks tokio whether another task should run, because the call to
/// tokio takes longer than the decision about one object.
pub async fn yield_regularly(number: usize) {
    if number.is_multiple_of(32) {
        consume_budget().await;
    }
}

/// Returns the objects of a get or a list as the user sees them. If `user` is None, nothing is
/// hidden.
pub async fn visible_objects<M: Model>(
    user: Option<&RestrictedUser<M>>,
    scope: &Scope,
    version: Rv,
    objects: Vec<Arc<Entry<M>>>,
) -> Result<Vec<Arc<Entry<M>>>, ErrorStatus> {
    let viewed = ViewedObjects {
        scope,
        version,
        objects: &objects,
        continues: false,
    };
    let view = match user {
        Some(RestrictedUser { user, visibility }) => visibility.view(user, viewed).await?,
        None => return Ok(objects),
    };
    let mut visible = Vec::with_capacity(objects.len());
    for (number, entry) in objects.into_iter().enumerate() {
        yield_regularly(number).await;
        visible.extend(view.show(entry));
    }
    Ok(visible)
}
