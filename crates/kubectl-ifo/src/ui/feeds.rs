//! Fills the [`Store`]: lists and watches operations, records and activities with the rights of the
//! user, or reads them from the files of `--from`.

use super::store::{FeedObject, FeedState, Store};
use crate::api_client::ListRequest;
use crate::filter::Filters;
use crate::operation_source::{ObjectChange, OperationSource, changes, check_namespaces, decode};
use crate::problem::Problem;
use futures::StreamExt as _;
use ifo_api::{LIVE_GROUP, VERSION, activity, live, record};
use kube::api::{ApiResource, DynamicObject, Resource as _, TypeMeta};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Config;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Interval of the lists of a kind that cannot be watched. Usually, the kind is listed earlier,
/// because an operation has ended.
const LIST_INTERVAL: Duration = Duration::from_secs(30);

/// Pause before such a list, so that one list shows all operations that end together.
const END_PAUSE: Duration = Duration::from_secs(2);

/// The source of the objects of one kind in one namespace, or in all namespaces.
#[derive(Clone)]
struct Feed {
    number: usize,
    resource: ApiResource,
    namespace: Option<String>,
    source: Arc<OperationSource>,
    /// The filters for operations and records. Activities are not filtered.
    filters: Option<Arc<Filters>>,
}

/// Starts the tasks that fill the store. The tasks end when the returned set is dropped.
pub(super) fn start(
    source: &Arc<OperationSource>,
    filters: &Filters,
) -> Result<(Arc<Store>, JoinSet<()>), Problem> {
    let namespaces = source.requested_namespaces();
    check_namespaces(namespaces.len())?;
    let filters = Arc::new(filters.clone());
    let kinds = [
        (source.served.group(), live::KIND, live::PLURAL),
        (LIVE_GROUP, record::KIND, record::PLURAL),
        (LIVE_GROUP, activity::KIND, activity::PLURAL),
    ];
    let mut feeds = Vec::new();
    for (group, kind, plural) in kinds {
        let is_filtered = kind != activity::KIND;
        let kind = GroupVersionKind::gvk(group, VERSION, kind);
        for namespace in &namespaces {
            feeds.push(Feed {
                number: feeds.len(),
                resource: ApiResource::from_gvk_with_plural(&kind, plural),
                namespace: namespace.map(str::to_owned),
                source: source.clone(),
                filters: is_filtered.then(|| filters.clone()),
            });
        }
    }
    let store = Arc::new(Store::new(feeds.len()));
    let mut tasks = JoinSet::new();
    tasks.spawn(update_notes(source.clone(), store.clone()));
    for feed in feeds {
        if source.server.from_files.is_some() {
            let store = store.clone();
            tasks.spawn(async move {
                feed.refresh(&store).await;
            });
        } else if feed.resource.kind == record::KIND {
            tasks.spawn(feed.list_often(store.clone()));
        } else {
            tasks.spawn(feed.watch(store.clone()));
        }
    }
    Ok((store, tasks))
}

/// Keeps the warnings of the source current: namespaces that the user may not read, and the reason
/// why operations may be missing.
async fn update_notes(source: Arc<OperationSource>, store: Arc<Store>) {
    let mut incomplete = source.incomplete();
    loop {
        let reason = incomplete.as_ref().map(ToString::to_string);
        store.set_notes(source.note.iter().cloned().collect(), reason);
        if source.server.from_files.is_some() {
            return;
        }
        incomplete = source.next_probe(incomplete).await;
    }
}

impl Feed {
    fn label_selector(&self) -> &str {
        self.filters.as_ref().map_or("", |it| it.own_selector())
    }

    /// The resource as `plural.group`, for messages.
    fn name(&self) -> String {
        format!("{}.{}", self.resource.plural, self.resource.group)
    }

    /// Lists records when an operation has ended, because the server does not support to watch
    /// them.
    async fn list_often(self, store: Arc<Store>) {
        let mut ends = store.ends();
        loop {
            if self.refresh(&store).await {
                let _ = timeout(LIST_INTERVAL, ends.changed()).await;
            }
            sleep(END_PAUSE).await;
        }
    }

    /// Lists the objects once. Returns false if the cluster does not answer.
    async fn refresh(&self, store: &Store) -> bool {
        let error = match self.list().await {
            Ok(listed) => {
                store.relist(self.number, listed);
                return true;
            }
            Err(problem) => self.state_after(problem),
        };
        let is_answer = matches!(error, FeedState::Refused(_));
        store.fail(self.number, error);
        is_answer
    }

    /// Lists the objects of the cluster or of the files. Leaves out objects that cannot be decoded.
    async fn list(&self) -> Result<Vec<FeedObject>, Problem> {
        let list = ListRequest {
            path: &DynamicObject::url_path(&self.resource, self.namespace.as_deref()),
            label_selector: self.label_selector(),
            ..ListRequest::default()
        };
        let read = |item: &str| {
            let object = serde_json::from_str(item).ok();
            Ok(object.and_then(|it| self.selected(it).ok()))
        };
        Ok(self.source.server.list(list, read).await?.0)
    }

    /// Lists and watches the objects.
    async fn watch(self, store: Arc<Store>) {
        let config = Config::default().labels(self.label_selector());
        let (server, namespace) = (&self.source.server, self.namespace.as_deref());
        let mut changes = changes(server, &self.resource, namespace, config);
        while let Some(change) = changes.next().await {
            match change {
                ObjectChange::Listed(objects) => {
                    let listed = objects.into_iter().filter_map(|it| self.selected(it).ok());
                    store.relist(self.number, listed.collect());
                }
                ObjectChange::Applied(object) => match self.selected(object) {
                    Ok(object) => store.put(self.number, object),
                    // Before the change, the filters may have selected the object.
                    Err(key) => store.remove(self.number, key),
                },
                ObjectChange::Deleted(object) => store.remove(self.number, key_of(&object)),
                ObjectChange::Lost(problem) => store.fail(self.number, self.state_after(problem)),
            }
        }
    }

    fn state_after(&self, problem: Problem) -> FeedState {
        let is_files = self.source.server.from_files.is_some();
        match problem {
            Problem::NotFound(_) if !is_files => {
                FeedState::Refused(format!("this cluster does not serve {}", self.name()))
            }
            problem if is_files || matches!(problem, Problem::Forbidden { .. }) => {
                FeedState::Refused(problem.to_string())
            }
            problem => FeedState::Lost(problem.to_string()),
        }
    }

    /// Returns the object as the page gets it. If the filters do not select it, returns only its
    /// key.
    fn selected(&self, mut object: DynamicObject) -> Result<FeedObject, (String, String)> {
        let key = key_of(&object);
        object.types.get_or_insert_with(|| TypeMeta {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
        });
        let json = serde_json::to_string(&object).map_err(|_| key.clone())?;
        if let Some(filters) = &self.filters
            && !decode(&json).is_ok_and(|it| filters.shows(&it))
        {
            return Err(key);
        }
        let json = json.into();
        Ok(FeedObject { key, json })
    }
}

fn key_of(object: &DynamicObject) -> (String, String) {
    let metadata = &object.metadata;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (text(&metadata.namespace), text(&metadata.name))
}
