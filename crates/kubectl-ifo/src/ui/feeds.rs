//! Lists and watches operations, records and activities with the rights of the user, or reads them
//! from the files of `--from`.

use super::state::{GapKind, State};
use crate::api_client::ListRequest;
use crate::filter::Filters;
use crate::operation_source::{
    ObjectChange, OperationSource, PROBE_INTERVAL, changes, check_namespaces, decode,
};
use crate::problem::Problem;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream, SelectAll};
use ifo_api::completeness::Incomplete;
use ifo_api::{LIVE_GROUP, VERSION, activity, live, record};
use kube::api::{ApiResource, DynamicObject, Resource as _, TypeMeta};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::Config;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// Pause before a list is tried again if the cluster has not answered.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Pause before a list is tried again if the cluster has refused it.
const REFUSED_INTERVAL: Duration = Duration::from_secs(30);

/// All feeds, and the state that the tabs share.
pub(super) struct Feeds {
    source: Arc<OperationSource>,
    all: Vec<Feed>,
    state: Mutex<State>,
    /// The newest known reason why the server does not detect all operations.
    incomplete: Mutex<Option<Incomplete>>,
}

/// The source of the objects of one kind in one namespace, or in all namespaces.
#[derive(Clone)]
pub(super) struct Feed {
    resource: ApiResource,
    namespace: Option<String>,
    source: Arc<OperationSource>,
    /// The filters for operations and records. Activities are not filtered.
    filters: Option<Arc<Filters>>,
}

/// A change that a tab shows.
pub(super) enum FeedChange {
    /// A change of the objects of the feed with this number.
    Objects(usize, Box<ObjectChange>),
    /// The server has been asked again whether it detects all operations.
    Probed,
}

/// The reason why a feed cannot be read.
pub(super) struct FeedProblem {
    why: String,
    /// True if the objects cannot be read at all, for example because of a missing right. Otherwise
    /// the cluster does not answer.
    is_refused: bool,
}

impl Feeds {
    pub(super) fn new(source: OperationSource, filters: &Filters) -> Result<Self, Problem> {
        let source = Arc::new(source);
        let namespaces = source.requested_namespaces();
        check_namespaces(namespaces.len())?;
        let filters = Arc::new(filters.clone());
        let kinds = [
            (source.served.group(), live::KIND, live::PLURAL),
            (LIVE_GROUP, record::KIND, record::PLURAL),
            (LIVE_GROUP, activity::KIND, activity::PLURAL),
        ];
        let mut all = Vec::new();
        for (group, kind, plural) in kinds {
            let is_filtered = kind != activity::KIND;
            let kind = GroupVersionKind::gvk(group, VERSION, kind);
            all.extend(namespaces.iter().map(|namespace| Feed {
                resource: ApiResource::from_gvk_with_plural(&kind, plural),
                namespace: namespace.map(str::to_owned),
                source: source.clone(),
                filters: is_filtered.then(|| filters.clone()),
            }));
        }
        Ok(Self {
            incomplete: Mutex::new(source.incomplete()),
            source,
            all,
            state: Mutex::default(),
        })
    }

    pub(super) fn all(&self) -> &[Feed] {
        &self.all
    }

    /// Returns true if a feed in `unread` has operations and the cluster does not answer. If the
    /// user may not read operations, none are lacking.
    pub(super) fn lacks_operations(
        &self,
        unread: &BTreeSet<usize>,
        problems: &BTreeMap<usize, FeedProblem>,
    ) -> bool {
        let is_refused = |it| problems.get(it).is_some_and(|it| it.is_refused);
        let mut lacking = unread.iter().filter(|it| !is_refused(it));
        lacking.any(|it| self.all[*it].resource.kind == live::KIND)
    }

    fn incomplete(&self) -> MutexGuard<'_, Option<Incomplete>> {
        let newest = self.incomplete.lock();
        newest.unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the server whether it detects all operations, and keeps the answer for all tabs. If the
    /// server does not answer, the watches report this.
    async fn probe(&self) {
        sleep(PROBE_INTERVAL).await;
        if let Ok(answer) = self.source.probe().await {
            *self.incomplete() = answer.incomplete();
        }
    }

    /// Returns the changes of all feeds. The first change of each feed is its list. The stream has
    /// no end.
    pub(super) fn changes(self: &Arc<Self>) -> SelectAll<BoxStream<'static, FeedChange>> {
        let all = self.all.iter().enumerate();
        let mut merged: SelectAll<_> = all
            .map(|(number, feed)| {
                let changes = feed.changes();
                let changes =
                    changes.map(move |change| FeedChange::Objects(number, Box::new(change)));
                changes.boxed()
            })
            .collect();
        merged.push(if self.source.server.from_files.is_some() {
            stream::pending().boxed()
        } else {
            let probes = stream::unfold(self.clone(), async |feeds| {
                feeds.probe().await;
                Some((FeedChange::Probed, feeds))
            });
            probes.boxed()
        });
        merged
    }

    /// Updates the state that the tabs share, and returns it. `problems` has the feeds that cannot
    /// be read.
    pub(super) fn state(&self, problems: &BTreeMap<usize, FeedProblem>) -> State {
        let incomplete = self.incomplete().as_ref().map(ToString::to_string);
        let incomplete = incomplete.as_deref();
        let refused = problems.values().filter(|it| it.is_refused);
        let refused = refused.map(|it| it.why.as_str());
        let lost = problems.values().find(|it| !it.is_refused);
        let notes = self.source.note.as_deref().into_iter().chain(incomplete);
        let mut warnings: Vec<String> = notes.chain(refused).map(str::to_owned).collect();
        warnings.dedup();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.warnings = warnings;
        state.set_gap(GapKind::Connection, lost.map(|it| it.why.as_str()));
        state.set_gap(GapKind::Detection, incomplete);
        state.clone()
    }

    /// Reads all objects once.
    pub(super) async fn read(&self) -> Result<(Vec<String>, State), Problem> {
        let (mut objects, mut problems) = (Vec::new(), BTreeMap::new());
        for (number, feed) in self.all.iter().enumerate() {
            match feed.list().await {
                Ok(listed) => objects.extend(listed.into_iter().filter_map(|it| feed.selected(it))),
                Err(problem) => {
                    let problem = feed.problem(&problem);
                    if !problem.is_refused {
                        return Err(Problem::Other(problem.why));
                    }
                    problems.insert(number, problem);
                }
            }
        }
        let state = self.state(&problems);
        Ok((objects, state))
    }
}

impl Feed {
    fn label_selector(&self) -> &str {
        self.filters.as_ref().map_or("", |it| &it.selector.text)
    }

    /// Returns the list of the objects, and their changes. The server does not support to watch
    /// records, and files do not change. These are listed once.
    fn changes(&self) -> BoxStream<'static, ObjectChange> {
        let server = &self.source.server;
        if server.from_files.is_none() && self.resource.kind != record::KIND {
            let config = Config::default().labels(self.label_selector());
            return changes(server, &self.resource, self.namespace.as_deref(), config);
        }
        let lists = stream::unfold(
            (Some(self.clone()), Duration::ZERO),
            async |(feed, pause)| {
                let feed = feed?;
                sleep(pause).await;
                Some(match feed.list().await {
                    Ok(objects) => (ObjectChange::Listed(objects), (None, pause)),
                    Err(problem) => {
                        let is_refused = feed.problem(&problem).is_refused;
                        let pause = if is_refused {
                            REFUSED_INTERVAL
                        } else {
                            RETRY_INTERVAL
                        };
                        let again = Some(feed).filter(|it| it.source.server.from_files.is_none());
                        (ObjectChange::Lost(problem), (again, pause))
                    }
                })
            },
        );
        lists.boxed()
    }

    /// Lists the objects of the cluster or of the files. Leaves out objects that cannot be decoded.
    async fn list(&self) -> Result<Vec<DynamicObject>, Problem> {
        let list = ListRequest {
            path: &DynamicObject::url_path(&self.resource, self.namespace.as_deref()),
            label_selector: self.label_selector(),
            ..ListRequest::default()
        };
        let read = |item: &str| Ok(serde_json::from_str(item).ok());
        Ok(self.source.server.list(list, read).await?.0)
    }

    /// Returns the JSON of the object with all fields that the server sent. None if the filters do
    /// not select it.
    pub(super) fn selected(&self, object: DynamicObject) -> Option<String> {
        let json = self.json(object)?;
        let is_selected = |it: &Arc<Filters>| decode(&json).is_ok_and(|found| it.shows(&found));
        let is_selected = self.filters.as_ref().is_none_or(is_selected);
        is_selected.then_some(json)
    }

    /// Returns the JSON of the object. Objects in lists can lack their kind.
    pub(super) fn json(&self, mut object: DynamicObject) -> Option<String> {
        object.types.get_or_insert_with(|| TypeMeta {
            api_version: self.resource.api_version.clone(),
            kind: self.resource.kind.clone(),
        });
        serde_json::to_string(&object).ok()
    }

    pub(super) fn problem(&self, problem: &Problem) -> FeedProblem {
        let is_files = self.source.server.from_files.is_some();
        let is_unserved = !is_files && matches!(problem, Problem::NotFound(_));
        let ApiResource { plural, group, .. } = &self.resource;
        FeedProblem {
            why: if is_unserved {
                format!("this cluster does not serve {plural}.{group}")
            } else {
                problem.to_string()
            },
            is_refused: is_files || is_unserved || matches!(problem, Problem::Forbidden { .. }),
        }
    }
}

#[cfg(test)]
pub(in crate::ui) mod tests;
