//! What one user sees of the objects of one request.

use super::places::DecidedPlaces;
use super::reviews::{Reviews, live_request};
use crate::clock;
use crate::index::{self, IndexEntry, Key, Model, Place, ReadVersion, Rv, Scope, collection};
use aggregated_apiserver::auth::{Period, ResourceAttributes};
use aggregated_apiserver::serve::{ErrorStatus, View, ViewedObjects, pause};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::activity::Activity;
use ifo_api::{Object, Text};
use ifo_engine::activity::Activities;
use ifo_engine::track;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum number of new places that one request reviews. Operations in further places are hidden,
/// unless a review of their name allows them.
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
    places: DecidedPlaces,
    /// The activities of the operations that the user sees.
    counted: HashMap<Key, Arc<Activity>>,
    recount_at: Instant,
}

impl UserView {
    /// Decides about the objects of a request. `seen_names` are the subjects to which a review by
    /// name granted access in an earlier view.
    pub(super) async fn decide_all(
        reviews: Arc<Reviews>,
        is_activities: bool,
        period: Arc<Period>,
        viewed: ViewedObjects<'_, Model>,
        seen_names: Vec<(Arc<Place>, Text)>,
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
        let known = reviews.places.get(&period.id());
        let mut view = Self {
            sees_all: reviews.sees_all(&period, all).await?,
            places: known.map_or_else(DecidedPlaces::default, |known| (*known).clone()),
            reviews,
            is_activities,
            period,
            version: viewed.version,
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

    fn may_get(&self, place: &Arc<Place>) -> bool {
        let decided = self.places.get(place);
        decided.and_then(|decided| decided.is_granted) == Some(true)
    }

    /// Returns true if the user sees an operation or a record.
    fn sees(&self, entry: &IndexEntry) -> bool {
        let decided = entry.group().and_then(|place| self.places.get(place));
        decided.is_some_and(|decided| {
            decided.is_granted == Some(true)
                || !decided.names.is_empty()
                    && subject_name(entry).and_then(|name| decided.names.get(name)) == Some(&true)
        })
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
        for (number, entry) in objects.iter().enumerate() {
            pause(number).await;
            // Objects are sorted by namespace, so many are in the same place as the one before.
            if let Some(place) = entry.group()
                && last.replace(Arc::as_ptr(place).addr()) != Some(Arc::as_ptr(place).addr())
                && places.len() < MAX_PLACES
                && let unknown @ None = &mut self.places.get_or_add(place).is_granted
            {
                *unknown = Some(false);
                places.push(place.clone());
            }
        }
        let are_all_known = places.len() < MAX_PLACES;
        self.decide_places(places).await?;
        if !with_names || are_all_known && self.places.are_granted() {
            return Ok(());
        }
        let mut names = Vec::new();
        let known = self.places.count_names();
        for (number, entry) in objects.iter().enumerate() {
            if known + names.len() >= MAX_NAMES {
                break;
            }
            pause(number).await;
            if let Some(place) = entry.group()
                && !self.may_get(place)
                && let Some(name) = subject_name(entry)
                // Operations of kinds that discovery does not serve stay hidden without a review.
                && self.reviews.serves(place)
                && let Entry::Vacant(new) = self.places.get_or_add(place).names.entry(name.clone())
            {
                new.insert(false);
                names.push((place.clone(), name.clone()));
            }
        }
        self.decide_names(names).await
    }

    async fn decide_places(&mut self, places: Vec<Arc<Place>>) -> Result<(), ErrorStatus> {
        if places.is_empty() {
            return Ok(());
        }
        let mut asked = Vec::new();
        let mut requests = Vec::new();
        for place in &places {
            let request = self.reviews.get(place, "");
            self.places.get_or_add(place).is_granted = request.is_some().then_some(false);
            asked.extend(request.is_some().then_some(place));
            requests.extend(request);
        }
        let decided = self.reviews.decide(&self.period, requests).await?;
        for (place, is_granted) in asked.into_iter().zip(decided) {
            self.places.get_or_add(place).is_granted = Some(is_granted);
        }
        let places = Arc::new(self.places.without_names());
        self.reviews.places.insert(self.period.id(), places);
        Ok(())
    }

    async fn decide_names(&mut self, names: Vec<(Arc<Place>, Text)>) -> Result<(), ErrorStatus> {
        let requests = names.into_iter().filter_map(|(place, name)| {
            let request = self.reviews.get(&place, &name)?;
            Some(((place, name), request))
        });
        let (names, requests): (Vec<_>, Vec<_>) = requests.take(MAX_NAMES).unzip();
        let decided = self.reviews.decide(&self.period, requests).await?;
        for ((place, name), is_granted) in names.into_iter().zip(decided) {
            self.places
                .get_or_add(&place)
                .names
                .insert(name, is_granted);
        }
        Ok(())
    }

    /// Decides about one object, which may not exist. The reviews do not depend on whether it exists,
    /// so that their duration does not reveal a hidden object.
    async fn decide_object(
        &mut self,
        key: &Key,
        found: &[Arc<IndexEntry>],
    ) -> Result<(), ErrorStatus> {
        if self.is_activities {
            if !found.is_empty() {
                return self.decide(found, false).await;
            }
            let place = Place::of_activity(key);
            let request = place.and_then(|place| self.reviews.get(&place, ""));
            let requests = request.into_iter().collect();
            return self
                .reviews
                .decide(&self.period, requests)
                .await
                .map(|_| ());
        }
        let found_place = found.first().and_then(|entry| entry.group());
        let scope = Scope::Namespace(key.namespace.clone());
        let namespace = self.reviews.reader.list(&scope, ReadVersion::Latest);
        let namespace = namespace.map(|(_, entries)| entries).unwrap_or_default();
        self.decide(&namespace, false).await?;
        self.decide(found, false).await?;
        if found.first().is_some_and(|entry| self.sees(entry)) {
            return Ok(());
        }
        let name = found.first().and_then(|entry| subject_name(entry));
        let hidden = found_place.zip(name).and_then(|(place, name)| {
            let request = self.reviews.get(place, name)?;
            Some((place, name, request))
        });
        let request = hidden.as_ref().map(|(_, _, request)| request.clone());
        let request = request.unwrap_or_else(|| ResourceAttributes {
            name: key.name.to_string(),
            ..live_request("get", "", key.object_namespace())
        });
        let decided = self
            .reviews
            .decisions
            .decide_uncached(&self.period, request)
            .await;
        let decided = decided.map_err(ErrorStatus::internal)?;
        if let Some((place, name, _)) = hidden {
            let names = &mut self.places.get_or_add(place).names;
            names.insert(name.clone(), decided);
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

    /// Returns an activity with the operations that the user sees. It has the resourceVersion of
    /// the answer, because that of the activity also changes when hidden operations change.
    fn show_activity(&self, entry: &IndexEntry, activity: &Activity) -> Option<Arc<IndexEntry>> {
        let counted = self.counted.get(entry.key());
        let place = entry.group();
        if counted.is_none() && place.is_some_and(|place| !self.may_get(place)) {
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
            let seen_names = self.places.granted_names().collect();
            let (decisions, head) = (&self.reviews.decisions, self.reviews.reader.head());
            let period = decisions.period(self.period.user(), head);
            let (reviews, is_activities) = (self.reviews.clone(), self.is_activities);
            let view = Self::decide_all(reviews, is_activities, period, viewed, seen_names);
            Ok(Box::new(view.await?) as Box<dyn View<Model>>)
        }
        .boxed()
    }
}
