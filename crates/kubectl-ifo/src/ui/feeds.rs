//! Lists and watches operations, records and activities with the rights of the user, or reads them
//! from the files of `--from`.

use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::operations::operation_source::{
    AnyOperation, ObjectChange, OperationSource, changes, check_namespaces, list_path,
};
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use ifo_api::{LIVE_GROUP, VERSION, activity, live, record};
use kube::api::{ApiResource, DynamicObject, Resource as _, TypeMeta};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Config;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Pause before records are listed again, if the cluster has refused or has not answered.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The objects of one kind in one namespace, or in all namespaces.
#[derive(Clone)]
pub(super) struct Feed {
    resource: ApiResource,
    namespace: Option<String>,
    source: Arc<OperationSource>,
    /// The filters for operations and records. Activities are not filtered.
    filters: Option<Arc<Filters>>,
    /// The selected objects as JSON.
    pub(super) objects: BTreeMap<ObjectId, Arc<str>>,
    pub(super) problem: Option<FeedProblem>,
    /// True if the objects have been listed, or cannot be listed.
    is_read: bool,
}

/// Namespace, name and UID of an object.
type ObjectId = [Option<String>; 3];

/// The reason why a feed cannot be read.
#[derive(Clone)]
pub(super) struct FeedProblem {
    pub(super) why: String,
    /// True if the cluster does not answer. Otherwise, the objects cannot be read at all, for
    /// example because of a missing right.
    pub(super) is_outage: bool,
}

/// The changes of all feeds, with the number of the feed.
pub(super) type FeedChanges = SelectAll<BoxStream<'static, (usize, ObjectChange)>>;

/// Returns the feeds of all kinds and of all namespaces that the source reads.
pub(super) fn feeds(
    source: &Arc<OperationSource>,
    filters: &Filters,
) -> Result<Vec<Feed>, Problem> {
    let namespaces = source.requested_namespaces();
    check_namespaces(namespaces.len())?;
    let filters = Arc::new(filters.clone());
    let kinds = [
        (source.served.group(), live::KIND, live::PLURAL),
        (LIVE_GROUP, record::KIND, record::PLURAL),
        (LIVE_GROUP, activity::KIND, activity::PLURAL),
    ];
    // A support bundle contains no activities. The page then decides by the operations alone.
    let activities = list_path(LIVE_GROUP, activity::PLURAL, None);
    let files = source.server.from_files.as_ref();
    let has_activities = files.is_none_or(|it| it.objects(&activities).is_ok());
    let kinds = kinds.iter().take(if has_activities { 3 } else { 2 });
    let mut feeds = Vec::new();
    for (group, kind, plural) in kinds {
        let filters = Some(&filters).filter(|_| *kind != activity::KIND);
        let kind = GroupVersionKind::gvk(group, VERSION, kind);
        feeds.extend(namespaces.iter().map(|namespace| Feed {
            resource: ApiResource::from_gvk_with_plural(&kind, plural),
            namespace: namespace.map(str::to_owned),
            source: source.clone(),
            filters: filters.cloned(),
            objects: BTreeMap::new(),
            problem: None,
            is_read: false,
        }));
    }
    Ok(feeds)
}

/// Returns the changes of all feeds. The stream has no end. `reload` makes the feeds list records
/// again.
pub(super) fn all_changes(feeds: &[Feed], reload: &watch::Sender<()>) -> FeedChanges {
    let feeds = feeds.iter().cloned().enumerate();
    let changes = feeds.map(|(number, feed)| {
        let changes = feed.changes(reload.subscribe());
        changes.map(move |change| (number, change)).boxed()
    });
    changes.collect()
}

impl Feed {
    /// Returns true if the page need not wait for this feed. If the cluster does not answer, the
    /// page waits only for operations.
    pub(super) fn is_ready(&self) -> bool {
        self.is_read || self.problem.is_some() && self.resource.kind != live::KIND
    }

    /// Returns true if the objects are watched. Records are only listed, because the server does
    /// not support a watch of records. Objects in files are only listed, because files do not
    /// change.
    fn is_watched(&self) -> bool {
        self.source.server.from_files.is_none() && self.resource.kind != record::KIND
    }

    fn label_selector(&self) -> &str {
        self.filters.as_ref().map_or("", |it| &it.selector.text)
    }

    /// Returns the list of the objects, and their changes. Objects that are not watched are listed
    /// again after `reload`, or [`RETRY_INTERVAL`] after a failure. A `reload` while the objects are
    /// being read makes the feed list them once more.
    fn changes(self, reload: watch::Receiver<()>) -> BoxStream<'static, ObjectChange> {
        if self.is_watched() {
            let (server, namespace) = (&self.source.server, self.namespace.as_deref());
            let config = Config::default().labels(self.label_selector());
            return changes(server, &self.resource, namespace, config);
        }
        let begin = (self, reload, Duration::ZERO);
        let lists = stream::unfold(begin, async |(feed, mut reload, pause)| {
            let _ = timeout(pause, reload.changed()).await;
            let (change, pause) = match feed.list().await {
                Ok(objects) => (ObjectChange::Listed(objects), Duration::MAX),
                Err(problem) => (ObjectChange::Lost(problem), RETRY_INTERVAL),
            };
            Some((change, (feed, reload, pause)))
        });
        lists.boxed()
    }

    /// Lists the objects of the cluster or of the files.
    async fn list(&self) -> Result<Vec<DynamicObject>, Problem> {
        let path = DynamicObject::url_path(&self.resource, self.namespace.as_deref());
        let listed = self.source.server.list(&path, self.label_selector(), "");
        Ok(listed.await?.0)
    }

    /// Applies a change. Returns the changed objects, each with the type of its change.
    pub(super) fn apply(&mut self, change: ObjectChange) -> Vec<(&'static str, Arc<str>)> {
        // The new JSON of each object. None if the object is gone or not selected any more.
        let mut updates: BTreeMap<ObjectId, Option<Arc<str>>> = BTreeMap::new();
        match change {
            ObjectChange::Lost(problem) => {
                let problem = self.problem(&problem);
                self.is_read |= !problem.is_outage;
                self.problem = Some(problem);
            }
            ObjectChange::Listed(objects) => {
                (self.is_read, self.problem) = (true, None);
                updates.extend(self.objects.keys().map(|it| (it.clone(), None)));
                let listed = objects.into_iter();
                updates.extend(listed.map(|it| (id(&it), self.selected(it))));
            }
            ObjectChange::Applied(object) => {
                updates.insert(id(&object), self.selected(object));
            }
            ObjectChange::Deleted(object) => {
                updates.insert(id(&object), None);
            }
        }
        let changes = updates.into_iter().filter_map(|(id, new)| {
            let before = match &new {
                Some(json) => self.objects.insert(id, json.clone()),
                None => self.objects.remove(&id),
            };
            if new == before {
                return None;
            }
            let modified = new.map(|it| ("MODIFIED", it));
            modified.or(before.map(|it| ("DELETED", it)))
        });
        changes.collect()
    }

    /// Returns the JSON of the object with all fields that the server sent. None if the filters do
    /// not select it.
    fn selected(&self, mut object: DynamicObject) -> Option<Arc<str>> {
        // Objects in lists can lack their kind.
        object.types.get_or_insert_with(|| TypeMeta {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
        });
        let json = serde_json::to_string(&object).ok()?;
        let is_selected = |it: &Arc<Filters>| {
            let found = serde_json::from_str::<AnyOperation>(&json);
            found.is_ok_and(|found| it.shows(&found.0))
        };
        let is_selected = self.filters.as_ref().is_none_or(is_selected);
        is_selected.then(|| json.into())
    }

    fn problem(&self, problem: &Problem) -> FeedProblem {
        let ApiResource { plural, group, .. } = &self.resource;
        let is_cluster = self.source.server.from_files.is_none();
        let not_served = format!("this cluster does not serve {plural}.{group}");
        let (why, is_refused) = match problem {
            Problem::NotFound(_) if is_cluster => (not_served, true),
            Problem::Forbidden { .. } => (problem.to_string(), true),
            other => (other.to_string(), false),
        };
        // Only a failure of a watch counts as an outage.
        let is_outage = self.is_watched() && !is_refused;
        FeedProblem { why, is_outage }
    }
}

fn id(object: &DynamicObject) -> ObjectId {
    let metadata = &object.metadata;
    [&metadata.namespace, &metadata.name, &metadata.uid].map(Clone::clone)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::test_fixtures::client;
    use serde_json::{Value, json};
    use std::sync::Once;
    use tokio::time::Instant;

    /// Returns a simulated cluster, and its feeds: operations, records and activities.
    pub(in crate::ui) fn cluster(
        answer: impl Fn(&str) -> Option<Value> + Send + 'static,
    ) -> (Arc<OperationSource>, Vec<Feed>) {
        let filters = Filters::default();
        let source = Arc::new(OperationSource::new(client(answer), filters.clone()));
        let feeds = feeds(&source, &filters).expect("there is one namespace");
        (source, feeds)
    }

    #[tokio::test(start_paused = true)]
    async fn refused_records_are_requested_rarely() {
        let (_, mut feeds) = cluster(|_| None);
        let records = feeds.remove(1);
        assert_eq!(records.resource.kind, record::KIND);
        let start = Instant::now();
        let reload = watch::Sender::default();
        let changes = records.changes(reload.subscribe()).take(3);
        let changes: Vec<ObjectChange> = changes.collect().await;
        assert!(
            changes.iter().all(|it| matches!(it, ObjectChange::Lost(_))),
            "{changes:?}"
        );
        assert_eq!(start.elapsed(), 2 * RETRY_INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn records_are_listed_again_for_a_tab_that_opens_while_they_are_being_read() {
        let reload = watch::Sender::default();
        let (tab, opened) = (reload.clone(), Once::new());
        let (_, mut feeds) = cluster(move |_| {
            opened.call_once(|| tab.send_replace(()));
            Some(json!({"metadata": {}, "items": []}))
        });
        let lists = feeds.remove(1).changes(reload.subscribe());
        let lists = timeout(RETRY_INTERVAL, lists.take(2).count());
        assert_eq!(lists.await, Ok(2));
    }
}
