//! What one user sees of the objects of one request.

use super::place::Place;
use super::reviews::{Reviews, get_request, live_request};
use crate::clock;
use crate::index::{self, IndexEntry, Key, Model, ReadVersion, Rv, Scope, collection};
use aggregated_apiserver::auth::{Period, ResourceAttributes};
use aggregated_apiserver::serve::{ErrorStatus, View, ViewedObjects, yield_regularly};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::activity::Activity;
use ifo_api::{Object, Text};
use ifo_client::short_names::ShortNames;
use ifo_engine::activity::Activities;
use ifo_engine::track;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of places (one kind in one namespace) that one view reviews. In further places,
/// an operation is visible only if a review with the name of its subject allows access.
const MAX_PLACES: usize = 2_000;

/// Maximum number of single subjects that one view reviews. `decide_object` can add one more.
const MAX_NAMES: usize = 50;

/// Time after which a watch of activities counts the operations again.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(5);

/// What one user sees.
pub(super) struct UserView {
    reviews: Arc<Reviews>,
    /// The kinds that discovery contained when this view was made. A view never decides about
    /// further kinds. Otherwise, a later decision could make an object visible for which a watch
    /// has sent no event. A watch sends this event when it renews its view.
    kinds: Arc<ShortNames>,
    is_activities: bool,
    period: Arc<Period>,
    /// The version of the index for which this view was made. Activities are counted at this version.
    version: Rv,
    /// True if nothing is hidden.
    sees_all: bool,
    /// Whether the user may get the subjects of each place. A missing key means no access.
    decided: HashMap<Place<'static>, bool>,
    /// The activities of the operations that the user sees.
    counted: HashMap<Key, Arc<Activity>>,
    recount_at: Instant,
}

impl UserView {
    /// Decides about the objects of a request. `seen_names` are the single subjects that an earlier
    /// view of the same watch has shown. They are reviewed first, because [`MAX_NAMES`] limits the
    /// number of single subjects: new subjects must not replace them.
    pub(super) async fn decide_all(
        reviews: Arc<Reviews>,
        is_activities: bool,
        period: Arc<Period>,
        viewed: ViewedObjects<'_, Model>,
        seen_names: Vec<Place<'static>>,
    ) -> Result<Box<dyn View<Model>>, ErrorStatus> {
        let namespace = match viewed.scope {
            Scope::Collection(_) | Scope::Everything => "",
            Scope::Namespace(it) => it.split_once('/').map_or(&**it, |(_, own)| own),
            Scope::Object(key) => key.object_namespace(),
        };
        let all = reviews.namespace_of_all(namespace, is_activities);
        let mut view = Self {
            sees_all: reviews.sees_all(&period, all).await?,
            decided: HashMap::new(),
            kinds: reviews.kinds.load_full(),
            reviews,
            is_activities,
            period,
            version: viewed.version,
            counted: HashMap::new(),
            recount_at: Instant::now() + RECOUNT_INTERVAL,
        };
        if !view.sees_all {
            view.review(seen_names).await?;
            if is_activities {
                view.count(all, viewed.version).await?;
            }
            match viewed.scope {
                Scope::Object(key) => view.decide_object(key, viewed.objects).await?,
                _ => view.decide(viewed.objects, true).await?,
            }
        }
        Ok(Box::new(view))
    }

    fn may_get(&self, place: &Place<'_>) -> bool {
        self.decided.get(place) == Some(&true)
    }

    /// Returns true if the user sees an operation or a record.
    fn sees(&self, entry: &IndexEntry) -> bool {
        let Some(place) = Place::of(entry) else {
            return false;
        };
        let name = subject_name(entry);
        self.may_get(&place) || name.is_some_and(|name| self.may_get(&place.named(name)))
    }

    /// Reviews the places of the objects. If `with_names` is true, then also reviews single
    /// subjects in places without access. If discovery does not contain a kind, objects of this
    /// kind stay hidden without a review.
    async fn decide(
        &mut self,
        objects: &[Arc<IndexEntry>],
        with_names: bool,
    ) -> Result<(), ErrorStatus> {
        // Objects are sorted by namespace, so many are in the same place as the one before.
        let in_one_place = objects.chunk_by(|one, next| Place::of(one) == Place::of(next));
        let firsts: Vec<_> = in_one_place.map(|some| Arc::clone(&some[0])).collect();
        let names = self.decided.keys().filter(|it| it.name.is_some()).count();
        let most = MAX_PLACES.saturating_sub(self.decided.len() - names);
        self.review_new(&firsts, most, |_, entry| Place::of(entry))
            .await?;
        let sees_all_places =
            self.decided.len() < MAX_PLACES && self.decided.values().all(|granted| *granted);
        if !with_names || sees_all_places {
            return Ok(());
        }
        let most = MAX_NAMES.saturating_sub(names);
        self.review_new(objects, most, |view, entry| {
            let place = Place::of(entry).filter(|place| !view.may_get(place))?;
            Some(place.named(subject_name(entry)?))
        })
        .await
    }

    /// Reviews the places that `of` returns for the objects, except places that were decided
    /// before. Sends at most `most` reviews.
    async fn review_new(
        &mut self,
        objects: &[Arc<IndexEntry>],
        most: usize,
        of: impl for<'a> Fn(&Self, &'a IndexEntry) -> Option<Place<'a>>,
    ) -> Result<(), ErrorStatus> {
        let mut places = Vec::new();
        for (number, entry) in objects.iter().enumerate() {
            if places.len() >= most {
                break;
            }
            yield_regularly(number).await;
            if let Some(place) = of(self, entry)
                && !self.decided.contains_key(&place)
                && get_request(&self.kinds, &place).is_some()
            {
                places.push(place.clone().into_owned());
                self.decided.insert(place.into_owned(), false);
            }
        }
        self.review(places).await
    }

    /// Sends the reviews of these places. Skips a place if discovery does not contain its kind.
    async fn review(&mut self, places: Vec<Place<'static>>) -> Result<(), ErrorStatus> {
        let requests = places.into_iter().filter_map(|place| {
            let request = get_request(&self.kinds, &place)?;
            Some((place, request))
        });
        let (places, requests): (Vec<_>, Vec<_>) = requests.unzip();
        let granted = self.reviews.decide(&self.period, requests).await?;
        self.decided.extend(places.into_iter().zip(granted));
        Ok(())
    }

    /// Decides about one object, which may not exist. A hidden operation causes as many reviews as
    /// a missing one. Otherwise, the response time would reveal that the operation exists.
    async fn decide_object(
        &mut self,
        key: &Key,
        found: &[Arc<IndexEntry>],
    ) -> Result<(), ErrorStatus> {
        if self.is_activities {
            let place = Place::of_activity(key).map(Place::into_owned);
            return self.review(Vec::from_iter(place)).await;
        }
        let scope = Scope::Namespace(key.namespace.clone());
        let namespace = self.reviews.reader.list(&scope, ReadVersion::Latest);
        let namespace = namespace.map(|(_, entries)| entries).unwrap_or_default();
        self.decide(&namespace, false).await?;
        self.decide(found, false).await?;
        if found.first().is_some_and(|entry| self.sees(entry)) {
            return Ok(());
        }
        let hidden = found.first().and_then(|entry| {
            let place = Place::of(entry)?.named(subject_name(entry)?);
            let request = get_request(&self.kinds, &place)?;
            Some((place.into_owned(), request))
        });
        let (hidden, request) = hidden.unzip();
        let request = request.unwrap_or_else(|| ResourceAttributes {
            name: key.name.to_string(),
            ..live_request("get", "", key.object_namespace())
        });
        let decisions = &self.reviews.decisions;
        let granted = decisions.decide_uncached(&self.period, request).await;
        let granted = granted.map_err(ErrorStatus::internal)?;
        self.decided.extend(hidden.map(|hidden| (hidden, granted)));
        Ok(())
    }

    /// Counts the operations in flight that the user sees. `namespace` is empty for all namespaces.
    async fn count(&mut self, namespace: &str, version: Rv) -> Result<(), ErrorStatus> {
        let scope = if namespace.is_empty() {
            index::OPERATIONS
        } else {
            Scope::Namespace(collection::OPERATIONS.key(namespace, "").namespace)
        };
        let listed = self
            .reviews
            .reader
            .list(&scope, ReadVersion::Exact(version));
        let (_, operations) = listed.map_err(|_| ErrorStatus::list_too_old())?;
        self.decide(&operations, true).await?;
        let seen = operations.iter().filter(|entry| self.sees(entry));
        let seen: Vec<_> = seen
            .map(|entry| (index::engine_key(entry.key()), entry.object()))
            .collect();
        let cluster_namespace = self.reviews.cluster_namespace.clone();
        let seen = seen.iter().map(|(key, object)| (key, *object));
        let mut activities = Activities::new(cluster_namespace, seen);
        let counted = activities.writes(clock::now(), true).into_iter();
        self.counted = counted
            .filter_map(|write| match write {
                track::Write::Put {
                    key,
                    object: Object::Activity(activity),
                } if activity.status.operations > 0 => Some((index::index_key(key), activity)),
                _ => None,
            })
            .collect();
        Ok(())
    }

    /// Returns the activity with the number of operations that the user sees. Returns None if the
    /// user sees none of these operations, and may not get the object that the activity is about.
    ///
    /// The resourceVersion of the result is the version of the view. The resourceVersion in the
    /// index also changes when hidden operations change, so the user must not see it.
    fn show_activity(&self, entry: &IndexEntry, activity: &Activity) -> Option<Arc<IndexEntry>> {
        let counted = self.counted.get(entry.key());
        let place = Place::of(entry);
        if counted.is_none() && place.is_some_and(|place| !self.may_get(&place)) {
            return None;
        }
        let filtered = activity.filtered(counted.map(|counted| &counted.status));
        let object = Object::Activity(Arc::new(filtered));
        Some(Arc::new(entry.replaced(self.version, object)))
    }
}

fn subject_name(entry: &IndexEntry) -> Option<&Text> {
    Some(&entry.object().spec()?.subject.name)
}

impl View<Model> for UserView {
    fn show(&self, entry: Arc<IndexEntry>) -> Option<Arc<IndexEntry>> {
        if self.sees_all {
            return Some(entry);
        }
        match entry.object() {
            Object::Activity(activity) => self.show_activity(&entry, activity),
            _ => self.sees(&entry).then_some(entry),
        }
    }

    fn extend<'a>(
        &'a mut self,
        objects: &'a [Arc<IndexEntry>],
    ) -> BoxFuture<'a, Result<(), ErrorStatus>> {
        async move {
            if self.sees_all {
                return Ok(());
            }
            self.decide(objects, true).await
        }
        .boxed()
    }

    fn expires(&self) -> Instant {
        if self.is_activities && !self.sees_all {
            self.recount_at.min(self.period.end)
        } else {
            self.period.end
        }
    }

    fn renew<'a>(
        &'a self,
        viewed: ViewedObjects<'a, Model>,
    ) -> BoxFuture<'a, Result<Box<dyn View<Model>>, ErrorStatus>> {
        async move {
            let seen = self.decided.iter().filter(|(_, granted)| **granted);
            let seen_names = seen.filter(|(place, _)| place.name.is_some());
            let seen_names = seen_names.map(|(place, _)| place.clone()).collect();
            let (decisions, head) = (&self.reviews.decisions, self.reviews.reader.head());
            let period = decisions.period(&self.period.user, head);
            let (reviews, is_activities) = (self.reviews.clone(), self.is_activities);
            Self::decide_all(reviews, is_activities, period, viewed, seen_names).await
        }
        .boxed()
    }
}
