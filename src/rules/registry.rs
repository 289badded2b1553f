//! What is known of every rule set and every target, and what follows from it: the
//! books to publish and the statuses to write. No I/O and no clock of its own.

use super::status::{self, Health};
use super::{Invalid, RuleBook, RuleSet, StatusWrite, compile};
use crate::api::ruleset::{OperationRuleSet, OperationRuleSetSpec, OperationRuleSetStatus};
use crate::api::{Gvr, Resolution, Source};
use jiff::Timestamp;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// What a feed reports of itself.
#[derive(Clone, Debug)]
pub struct Feedback {
    /// Which feed.
    pub source: Source,
    /// Generation of the rules it works with.
    pub generation: u64,
    /// None once it is up to date; else why it is not.
    pub failure: Option<String>,
}

/// The rules of one target, for whoever runs its feeds.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The target.
    pub target: Arc<Gvr>,
    /// Its rules; None ends its feeds.
    pub book: Option<Arc<RuleBook>>,
    /// Whether they end because the resource is not served any more.
    pub removed: bool,
}

/// Which targets to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// Those that were never looked up.
    New,
    /// Those without a clean answer, and those that were not there.
    Unserved,
    /// All.
    All,
}

/// Everything known.
#[derive(Debug)]
pub(super) struct Registry {
    allow_secrets: bool,
    requeue: Duration,
    rule_sets: BTreeMap<String, Known>,
    targets: HashMap<Arc<Gvr>, Target>,
    generation: u64,
}

#[derive(Debug)]
struct Known {
    uid: Option<String>,
    generation: Option<i64>,
    spec: OperationRuleSetSpec,
    target: Arc<Gvr>,
    compiled: Result<Arc<RuleSet>, Vec<Invalid>>,
    refused: Option<String>,
    /// The status that the API server is known to hold.
    written: OperationRuleSetStatus,
}

#[derive(Debug, Default)]
struct Target {
    resolution: Option<Resolution>,
    /// Why the last look-up had no clean answer, while `resolution` still holds.
    unknown: Option<String>,
    published: Option<Arc<RuleBook>>,
    stale: bool,
    /// What each feed last reported under the published generation.
    feeds: HashMap<Source, Option<String>>,
}

impl Registry {
    pub(super) fn new(allow_secrets: bool, requeue: Duration) -> Self {
        Self {
            allow_secrets,
            requeue,
            rule_sets: BTreeMap::new(),
            targets: HashMap::new(),
            generation: 0,
        }
    }

    /// A rule set appeared or changed. True if that changes its rules.
    pub(super) fn apply(&mut self, object: OperationRuleSet) -> bool {
        let name = object.metadata.name.unwrap_or_default();
        let (uid, generation) = (object.metadata.uid, object.metadata.generation);
        let written = match self.rule_sets.get_mut(&name) {
            Some(known) if known.uid == uid => {
                known.generation = generation;
                if known.spec == object.spec {
                    return false;
                }
                // Our own last word, which may be newer than this event.
                known.written.clone()
            }
            _ => object.status.unwrap_or_default(),
        };
        let target = Arc::new(Gvr {
            group: object.spec.target.group.clone(),
            version: object.spec.target.version.clone(),
            resource: object.spec.target.resource.clone(),
        });
        let known = Known {
            uid,
            generation,
            compiled: compile(&name, &object.spec).map(Arc::new),
            refused: refused(&target, self.allow_secrets),
            spec: object.spec,
            target: target.clone(),
            written,
        };
        if let Some(before) = self.rule_sets.insert(name, known) {
            self.touch(&before.target);
        }
        self.touch(&target);
        true
    }

    /// A rule set is gone. True if it was there.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        let Some(known) = self.rule_sets.remove(name) else {
            return false;
        };
        self.touch(&known.target);
        true
    }

    /// The names of all rule sets that are known.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.rule_sets.keys()
    }

    fn touch(&mut self, target: &Arc<Gvr>) {
        self.targets.entry(target.clone()).or_default().stale = true;
    }

    /// Targets to look up.
    pub(super) fn to_resolve(&self, which: Ask) -> Vec<Arc<Gvr>> {
        let wanted = |target: &Target| match which {
            Ask::New => target.resolution.is_none(),
            Ask::Unserved => {
                target.unknown.is_some()
                    || !matches!(target.resolution, Some(Resolution::Served { .. }))
            }
            Ask::All => true,
        };
        self.targets
            .iter()
            .filter(|(_, target)| wanted(target))
            .map(|(gvr, _)| gvr.clone())
            .collect()
    }

    /// Discovery answered. True if that changes what is known.
    pub(super) fn resolved(&mut self, gvr: &Arc<Gvr>, resolution: Resolution) -> bool {
        let Some(target) = self.targets.get_mut(gvr) else {
            return false;
        };
        if let Resolution::Unknown { message } = resolution {
            if target.resolution.is_none() {
                target.resolution = Some(Resolution::Unknown {
                    message: message.clone(),
                });
            }
            return target.unknown.replace(message.clone()) != Some(message);
        }
        let cleared = target.unknown.take().is_some();
        if target.resolution.as_ref() == Some(&resolution) {
            return cleared;
        }
        target.resolution = Some(resolution);
        target.stale = true;
        true
    }

    /// A feed reported. True if that changes what is known.
    pub(super) fn feedback(&mut self, feedback: Feedback) -> bool {
        let Some(target) = self.targets.get_mut(&feedback.source.target) else {
            return false;
        };
        if target.published.as_ref().map(|book| book.generation) != Some(feedback.generation) {
            return false;
        }
        let before = target
            .feeds
            .insert(feedback.source, feedback.failure.clone());
        before != Some(feedback.failure)
    }

    /// The books of all targets that changed since the last call.
    pub(super) fn publish(&mut self) -> Vec<Publication> {
        let mut publications = Vec::new();
        let rule_sets = &self.rule_sets;
        for (gvr, target) in self.targets.iter_mut().filter(|(_, target)| target.stale) {
            target.stale = false;
            let usable: Vec<Arc<RuleSet>> = rule_sets
                .values()
                .filter(|known| known.target == *gvr && known.refused.is_none())
                .filter_map(|known| known.compiled.as_ref().ok().cloned())
                .collect();
            let (book, removed) = match &target.resolution {
                Some(Resolution::Served { kind, namespaced }) => {
                    let usable: Vec<_> = usable
                        .into_iter()
                        .filter(|rule_set| *namespaced || rule_set.namespaces.is_none())
                        .collect();
                    self.generation += 1;
                    let book = (!usable.is_empty()).then(|| {
                        let gvr = (**gvr).clone();
                        Arc::new(RuleBook::new(
                            self.generation,
                            gvr,
                            kind.clone(),
                            *namespaced,
                            usable,
                        ))
                    });
                    (book, false)
                }
                Some(Resolution::NotServed { .. }) => (None, true),
                Some(Resolution::Unknown { .. }) | None => continue,
            };
            if book.is_none() && target.published.is_none() {
                continue;
            }
            target.published.clone_from(&book);
            target.feeds.clear();
            publications.push(Publication {
                target: gvr.clone(),
                book,
                removed,
            });
        }
        let used = |gvr: &Arc<Gvr>| rule_sets.values().any(|known| known.target == *gvr);
        self.targets
            .retain(|gvr, target| target.published.is_some() || used(gvr));
        publications
    }

    /// Whether every feed that should run has reported.
    pub(super) fn caught_up(&self) -> bool {
        self.targets.values().all(|target| {
            let wanted = match target.published.as_ref().map(|book| book.namespaces()) {
                None => 0,
                Some(None) => 1,
                Some(Some(namespaces)) => namespaces.len(),
            };
            target.feeds.len() >= wanted
        })
    }

    /// The statuses that differ from what the API server holds.
    pub(super) fn statuses(&self, now: Timestamp) -> Vec<StatusWrite> {
        let mut writes = Vec::new();
        for (name, known) in &self.rule_sets {
            let target = self.targets.get(&known.target);
            let health = Health {
                generation: known.generation,
                compiled: known.compiled.as_ref().map_err(Vec::as_slice),
                target: &known.target,
                refused: known.refused.as_deref(),
                resolution: target.and_then(|target| target.resolution.as_ref()),
                unknown: target.and_then(|target| target.unknown.as_deref()),
                scoped_wrongly: target.is_some_and(|target| {
                    matches!(
                        target.resolution,
                        Some(Resolution::Served {
                            namespaced: false,
                            ..
                        })
                    ) && !known.spec.namespaces.is_empty()
                }),
                watch: target.map_or(status::Watch::Pending, |target| watch(name, target)),
            };
            let desired = status::of(&health, &known.written, now, self.requeue);
            if desired != known.written {
                writes.push(StatusWrite {
                    name: name.clone(),
                    status: desired,
                });
            }
        }
        writes
    }

    /// A status was written.
    pub(super) fn written(&mut self, name: &str, status: OperationRuleSetStatus) {
        if let Some(known) = self.rule_sets.get_mut(name) {
            known.written = status;
        }
    }
}

/// The state of the feeds that serve the rule set `name`.
fn watch(name: &str, target: &Target) -> status::Watch {
    let Some(book) = &target.published else {
        return status::Watch::Pending;
    };
    let Some(rule_set) = book
        .rule_sets
        .iter()
        .find(|rule_set| &*rule_set.name == name)
    else {
        return status::Watch::Pending;
    };
    let wanted: Vec<Option<&str>> = match (book.namespaces(), &rule_set.namespaces) {
        (Some(_), Some(own)) => own
            .iter()
            .map(|namespace| Some(namespace.as_str()))
            .collect(),
        _ => vec![None],
    };
    let mut active = true;
    for namespace in wanted {
        let feed = target
            .feeds
            .iter()
            .find(|(source, _)| source.namespace.as_deref() == namespace);
        match feed {
            Some((_, Some(failure))) => return status::Watch::Failed(failure.clone()),
            Some((_, None)) => {}
            None => active = false,
        }
    }
    if active {
        status::Watch::Active
    } else {
        status::Watch::Pending
    }
}

fn refused(target: &Gvr, allow_secrets: bool) -> Option<String> {
    (target.group.is_empty() && target.resource == "secrets" && !allow_secrets).then(|| {
        "secrets are not watched: a rule set can copy what it watches into messages and labels \
         that others may read (the administrator may allow it with --allow-secrets-target)"
            .to_owned()
    })
}
