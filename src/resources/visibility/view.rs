//! What one user sees of the objects of one request.

use super::place::{DecidedPlaces, Place};
use super::reviews::{Reviews, live_request};
use crate::clock;
use crate::index::{self, IndexEntry, Key, Model, ReadVersion, Rv, Scope, collection};
use aggregated_apiserver::auth::{Period, ResourceAttributes};
use aggregated_apiserver::serve::{ErrorStatus, View, ViewedObjects};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::activity::Activity;
use ifo_api::live::SubjectReference;
use ifo_api::{Object, Text};
use ifo_engine::activity::Activities;
use ifo_engine::track;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

/// Maximum number of reviews of resources for one request.
const MAX_PLACES: usize = 2_000;

/// Maximum number of reviews of single subjects for one request.
const MAX_NAMES: usize = 50;

/// Interval at which a watch of activities counts the operations again.
const RECOUNT_INTERVAL: Duration = Duration::from_secs(5);

/// What one user sees.
#[derive(Clone)]
pub(super) struct UserView {
    reviews: Arc<Reviews>,
    is_activities: bool,
    period: Arc<Period>,
    /// The version at which the operations were counted.
    version: Rv,
    /// True if nothing is hidden.
    sees_all: bool,
    /// Decisions about all objects of a kind in a namespace.
    places: DecidedPlaces,
    /// Decisions about single subjects in places to which the user has no access.
    names: DecidedPlaces,
    /// The activities of the operations that the user sees.
    counted: HashMap<Key, Arc<Activity>>,
    recount_at: Instant,
}

impl UserView {
    /// Decides about the objects of a request. `seen_names` are the subjects that an earlier view has
    /// shown because of their names.
    pub(super) async fn decide_all(
        reviews: Arc<Reviews>,
        is_activities: bool,
        period: Arc<Period>,
        viewed: ViewedObjects<'_, Model>,
        seen_names: Vec<(Place, Text)>,
    ) -> Result<Self, ErrorStatus> {
        let namespace = match viewed.scope {
            Scope::Collection(_) | Scope::Everything => "",
            Scope::Namespace(namespace) => {
                let own = namespace.split_once('/').map(|(_, own)| own);
                own.unwrap_or(namespace)
            }
            Scope::Object(key) => key.object_namespace(),
        };
        let all = reviews.namespace_of_all(namespace, is_activities);
        let mut view = Self {
            sees_all: reviews.sees_all(&period, all).await?,
            reviews,
            is_activities,
            period,
            version: viewed.version,
            places: DecidedPlaces::default(),
            names: DecidedPlaces::default(),
            counted: HashMap::new(),
            recount_at: Instant::now() + RECOUNT_INTERVAL,
        };
        if !view.sees_all {
            view.decide_names(seen_names).await?;
            if is_activities {
                view.count(all, viewed.version).await?;
            }
            match viewed.scope {
                Scope::Object(key) => view.decide_object(key, viewed.objects).await?,
                _ => view.decide(viewed.objects, true).await?,
            }
        }
        Ok(view)
    }

    fn may_get(&self, place: Place<&str>) -> bool {
        self.places.is_granted(place.namespace, place)
    }

    fn sees_subject(&self, subject: &SubjectReference) -> bool {
        let place = Place::of(subject);
        self.may_get(place) || !self.names.is_empty() && self.names.is_granted(&subject.name, place)
    }

    /// Decides about the places of the objects, and if `with_names` is true, about single subjects in
    /// places to which the user has no access.
    async fn decide(
        &mut self,
        objects: &[Arc<IndexEntry>],
        with_names: bool,
    ) -> Result<(), ErrorStatus> {
        let mut places = Vec::new();
        let mut last = None;
        for entry in objects {
            consume_budget().await;
            let place = match entry.object() {
                Object::Activity(_) => Place::of_activity(entry.key()),
                object => object.spec().map(|spec| Place::of(&spec.subject)),
            };
            // Objects are sorted by namespace, so many are in the same place as the one before.
            if let Some(place) = place
                && last != Some(place)
                && places.len() < MAX_PLACES
            {
                last = Some(place);
                places.extend(self.places.add(place.namespace, place));
            }
        }
        let are_all_known = places.len() < MAX_PLACES;
        self.decide_places(places).await?;
        if !with_names || are_all_known && self.places.are_granted() {
            return Ok(());
        }
        let subjects = objects.iter().filter_map(|it| it.object().spec());
        let mut names = Vec::new();
        let known = self.names.len();
        for subject in subjects.map(|spec| &spec.subject) {
            if known + names.len() >= MAX_NAMES {
                break;
            }
            consume_budget().await;
            let place = Place::of(subject);
            if !self.may_get(place) {
                let new = self.names.add(&subject.name, place);
                names.extend(new.map(|place| (place, subject.name.clone())));
            }
        }
        self.decide_names(names).await
    }

    async fn decide_places(&mut self, places: Vec<Place>) -> Result<(), ErrorStatus> {
        let requests = places.into_iter().filter_map(|place| {
            let request = self.reviews.get(place.borrow(), "")?;
            Some((place, request))
        });
        let (places, requests): (Vec<_>, Vec<_>) = requests.unzip();
        let decided = self.reviews.decide(&self.period, requests).await?;
        for (place, _) in places.iter().zip(decided).filter(|(_, granted)| *granted) {
            self.places.grant(&place.namespace, place.borrow());
        }
        Ok(())
    }

    async fn decide_names(&mut self, names: Vec<(Place, Text)>) -> Result<(), ErrorStatus> {
        let requests = names.into_iter().filter_map(|(place, name)| {
            let request = self.reviews.get(place.borrow(), &name)?;
            Some(((place, name), request))
        });
        let (names, requests): (Vec<_>, Vec<_>) = requests.take(MAX_NAMES).unzip();
        let decided = self.reviews.decide(&self.period, requests).await?;
        for ((place, name), granted) in names.iter().zip(decided) {
            self.decided_name(name, place.borrow(), granted);
        }
        Ok(())
    }

    fn decided_name(&mut self, name: &str, place: Place<&str>, granted: bool) {
        self.names.add(name, place);
        if granted {
            self.names.grant(name, place);
        }
    }

    /// Decides about one object, which may not exist. The reviews do not depend on whether it exists,
    /// so that their duration does not reveal a hidden object.
    async fn decide_object(
        &mut self,
        key: &Key,
        found: &[Arc<IndexEntry>],
    ) -> Result<(), ErrorStatus> {
        if self.is_activities {
            let place = Place::of_activity(key);
            let place = place.and_then(|place| self.places.add(place.namespace, place));
            return self.decide_places(place.into_iter().collect()).await;
        }
        let scope = Scope::Namespace(key.namespace.clone());
        let namespace = self.reviews.reader.list(&scope, ReadVersion::Latest);
        let namespace = namespace.map(|(_, entries)| entries).unwrap_or_default();
        self.decide(&namespace, false).await?;
        self.decide(found, false).await?;
        let subject = found
            .first()
            .and_then(|it| Some(&it.object().spec()?.subject));
        if subject.is_some_and(|subject| self.sees_subject(subject)) {
            return Ok(());
        }
        let hidden = subject.and_then(|subject| {
            let request = self.reviews.get(Place::of(subject), &subject.name)?;
            Some((subject, request))
        });
        let request = hidden.as_ref().map(|(_, request)| request.clone());
        let request = request.unwrap_or_else(|| ResourceAttributes {
            name: key.name.to_string(),
            ..live_request("get", "", key.object_namespace())
        });
        let decided = self
            .reviews
            .decisions
            .decide_once(&self.period, request)
            .await;
        let decided = decided.map_err(ErrorStatus::internal)?;
        if let Some((subject, _)) = hidden {
            self.decided_name(&subject.name, Place::of(subject), decided);
        }
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
        let seen = operations.iter().filter(|entry| {
            let spec = entry.object().spec();
            spec.is_some_and(|spec| self.sees_subject(&spec.subject))
        });
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

    /// Returns an activity with the operations that the user sees. Its resourceVersion is that of the
    /// answer, because its own changes with hidden operations.
    fn show_activity(&self, entry: &IndexEntry, activity: &Activity) -> Option<Arc<IndexEntry>> {
        let counted = self.counted.get(entry.key());
        let place = Place::of_activity(entry.key());
        if counted.is_none() && place.is_some_and(|place| !self.may_get(place)) {
            return None;
        }
        let filtered = activity.filtered(counted.map(|counted| &counted.status));
        let object = Object::Activity(Arc::new(filtered));
        Some(Arc::new(entry.replaced(self.version, object)))
    }
}

impl View<Model> for UserView {
    fn show(&self, entry: &Arc<IndexEntry>) -> Option<Arc<IndexEntry>> {
        if self.sees_all {
            return Some(entry.clone());
        }
        match entry.object() {
            Object::Activity(activity) => self.show_activity(entry, activity),
            object => {
                let subject = &object.spec()?.subject;
                self.sees_subject(subject).then(|| entry.clone())
            }
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
            self.recount_at.min(self.period.end())
        } else {
            self.period.end()
        }
    }

    fn renew<'a>(
        &'a self,
        viewed: ViewedObjects<'a, Model>,
    ) -> BoxFuture<'a, Result<Box<dyn View<Model>>, ErrorStatus>> {
        async move {
            if viewed.version == self.version && !self.period.is_over() {
                let recount_at = Instant::now() + RECOUNT_INTERVAL;
                let same: Box<dyn View<Model>> = Box::new(Self {
                    recount_at,
                    ..self.clone()
                });
                return Ok(same);
            }
            let seen_names = self.names.granted();
            let seen_names = seen_names
                .map(|(name, place)| (place.clone(), name.clone()))
                .collect();
            let (decisions, head) = (&self.reviews.decisions, self.reviews.reader.head());
            let period = decisions.period(self.period.user(), head);
            let (reviews, is_activities) = (self.reviews.clone(), self.is_activities);
            let view = Self::decide_all(reviews, is_activities, period, viewed, seen_names);
            Ok(Box::new(view.await?) as Box<dyn View<Model>>)
        }
        .boxed()
    }
}
