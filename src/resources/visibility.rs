//! Visibility by subject (`--visibility=subject`): an operation and its record are shown only to users
//! who may `get` the subject. An activity counts only the operations that the user sees.
//!
//! A user who may list `inflightoperations/all` sees everything. The server does not serve this
//! subresource. It exists only in RBAC rules.
//!
//! One `SubjectAccessReview` decides about all objects of one resource in one namespace. If it
//! denies access, the user may still have the right to get single objects. So the server also sends
//! reviews with the names of single objects. Each request may cause only a limited number of them.
//! If a subject was not reviewed, its operations are hidden.

mod place;
mod reviews;
mod view;

use self::reviews::Reviews;
use self::view::UserView;
use super::cells::SharedShortNames;
use crate::index::{IndexReader, Model, Resource, VersionUnavailable, collection};
use aggregated_apiserver::auth::{Authorize, Decisions, User};
use aggregated_apiserver::serve::{ErrorStatus, View, ViewedObjects, Visibility};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::Text;
use std::sync::Arc;

/// Hides operations from users who may not get their subjects.
pub struct SubjectVisibility(Arc<Reviews>);

impl SubjectVisibility {
    /// Creates the visibility for the objects in the index. `authorize` should have no cache,
    /// because [`Decisions`] caches its answers.
    pub fn new(
        reader: IndexReader,
        kinds: SharedShortNames,
        cluster_namespace: Text,
        authorize: Arc<dyn Authorize>,
    ) -> Self {
        Self(Arc::new(Reviews {
            reader,
            kinds,
            cluster_namespace,
            decisions: Decisions::new(authorize),
        }))
    }

    /// Hides objects of these resources. The resources share the decisions about users.
    pub fn restrict(&self, resources: &mut [Resource]) {
        for resource in resources {
            resource.visibility = Some(Arc::new(ResourceVisibility {
                reviews: self.0.clone(),
                is_activities: resource.collection == collection::ACTIVITIES,
            }));
        }
    }
}

/// The visibility of the objects of one resource.
struct ResourceVisibility {
    reviews: Arc<Reviews>,
    is_activities: bool,
}

impl Visibility<Model> for ResourceVisibility {
    fn is_filtered<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> BoxFuture<'a, Result<bool, ErrorStatus>> {
        let reviews = &self.reviews;
        async move {
            let period = reviews.decisions.period(user, reviews.reader.head());
            let all = reviews.namespace_of_all(namespace, self.is_activities);
            Ok(!reviews.sees_all(&period, all).await?)
        }
        .boxed()
    }

    fn view<'a>(
        &'a self,
        user: &'a User,
        viewed: ViewedObjects<'a, Model>,
    ) -> BoxFuture<'a, Result<Box<dyn View<Model>>, ErrorStatus>> {
        async move {
            let (decisions, head) = (&self.reviews.decisions, self.reviews.reader.head());
            let period = if viewed.continues {
                let known = decisions.period_at(user, viewed.version, head);
                known.ok_or_else(|| {
                    ErrorStatus::watch_too_old(VersionUnavailable {
                        asked: viewed.version,
                        oldest: head,
                    })
                })?
            } else {
                decisions.period(user, head)
            };
            let (reviews, is_activities) = (self.reviews.clone(), self.is_activities);
            UserView::decide_all(reviews, is_activities, period, viewed, Vec::new()).await
        }
        .boxed()
    }
}
