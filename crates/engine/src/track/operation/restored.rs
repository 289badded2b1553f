//! Operations as they were before a restart. Enters: an object that somebody kept, and
//! that anybody may have edited since. Leaves: the operation it shows, with the rule sets
//! known by their names only until their book is there, or why it is not believed.

use super::object::{Shown, operation_reason};
use super::{Detected, Detection, Observed, Operation, SubjectView, Yielded};
use crate::evaluate::{Says, Subject};
use crate::rules::{self, Labels, RuleBook, RuleSet};
use crate::track::arbitrate::What;
use crate::track::tracker::Now;
use ifo_api::live::{InFlightOperation, Phase, StartTimeSource, State, Status};
use ifo_api::{Gvr, labels};
use ifo_cel::Environment;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use litemap::LiteMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use uuid::Uuid;

/// How far ahead of ours another clock may be: what it wrote is taken as of now.
const SKEW: Duration = Duration::from_mins(1);

/// Longest name that is believed, in bytes: that of any Kubernetes object, and of a
/// rule's `itemKey` and `instance`.
const MAX_NAME: usize = 253;

/// Longest message, in characters, as rules are held to.
const MAX_MESSAGE: usize = 1024;

/// Labels and names of rule sets of one operation; rule sets have at most 64 labels.
const MAX_MEMBERS: usize = 128;

/// Owners of one subject, as are kept of those that are watched.
const MAX_OWNERS: usize = 16;

/// Stands for the target of subjects and detections that no book has claimed yet. No
/// resource has an empty name, so nothing that is watched is mistaken for it.
pub static UNCLAIMED: LazyLock<Arc<Gvr>> = LazyLock::new(|| {
    Arc::new(Gvr {
        group: String::new(),
        version: String::new(),
        resource: String::new(),
    })
});

/// Why an object is not taken for an operation that was there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A field that the server never writes so.
    #[error("{0} is not what the server writes")]
    Field(&'static str),
    /// Name and UID are not those of an operation of this subject with this start.
    #[error("its name and UID are not those of an operation on this subject since this time")]
    Identity,
}

/// An operation that was there before a restart.
#[derive(Debug)]
pub struct Restored {
    /// What tells its subject from all others.
    pub identity: Arc<str>,
    /// The subject, as it was.
    pub view: SubjectView,
    /// The operation.
    pub operation: Operation,
    /// When it ended, and the object at its end, as JSON.
    pub ended: Option<(Timestamp, Vec<u8>)>,
}

impl Restored {
    /// What `object` shows. Name, UID and namespace are computed, and must be its own.
    pub fn read(
        mut object: InFlightOperation,
        cluster_namespace: &Arc<str>,
        now: Now,
    ) -> Result<Self, Refused> {
        let (observed, now) = (Observed::now(now.steady), now.wall);
        let start = object.metadata.creation_timestamp.as_ref();
        let start = start.ok_or(Refused::Field("metadata.creationTimestamp"))?.0;
        if start > now + SKEW {
            return Err(Refused::Field("metadata.creationTimestamp"));
        }
        let what = what(&object)?;
        let view = view(&mut object)?;
        let identity = view.subject.uid.clone();
        let identity = identity.ok_or(Refused::Field("spec.subject.uid"))?;
        let (key, uid) = Operation::names(
            &identity,
            &view,
            cluster_namespace,
            &what,
            start.as_second(),
        );
        let metadata = &object.metadata;
        if metadata.name.as_deref() != Some(&*key.name)
            || metadata.uid.as_deref() != Some(&uid.to_string())
        {
            return Err(Refused::Identity);
        }

        let speaker = Arc::new(speaker(&object)?);
        let status = &object.status;
        let detected_by = detected_by(&object)?;
        let last_detected = status.last_detected.0.clamp(start.min(now), now);
        let over = status.phase == Phase::Completed;
        let settling = status.state == State::Settling;
        let (detected, detected_since) = detected(status, start, now);
        let mut operation = Operation {
            key,
            uid,
            start,
            start_source: match status.start_time_source {
                StartTimeSource::Detected if !over => StartTimeSource::Restored,
                // Whoever told it would tell the same again; and what is over stays as it is.
                told => told,
            },
            detections: LiteMap::new(),
            instance: speaker.says.instance.clone(),
            // The state that was shown, whatever the rule yielded then: the first evaluation
            // tells what it yields now.
            state: speaker.state(),
            yielded: Yielded::first(&speaker, observed),
            speaker: speaker.clone(),
            detected_by,
            last_detected,
            detected,
            detected_since,
            what,
        };
        if !settling && !over {
            for name in &operation.detected_by {
                let detection = if **name == *speaker.rule_set.name {
                    speaker.clone()
                } else {
                    Arc::new(Detection {
                        rule_set: known_by_name(name, &speaker.rule_set.component),
                        ..(*speaker).clone()
                    })
                };
                operation.detections.insert(name.clone(), detection);
            }
        }
        let ended = over
            .then(|| ended(status, &mut operation, &view, now))
            .transpose()?;
        Ok(Self {
            identity,
            view,
            operation,
            ended,
        })
    }
}

impl Detection {
    /// Whether it is from before a restart, and its rule set not known again yet.
    pub fn is_unclaimed(&self) -> bool {
        self.target.resource.is_empty()
    }
}

impl Operation {
    /// What tells it from all others that ever were.
    pub fn uid(&self) -> Uuid {
        self.uid
    }

    /// Whether a rule said when it started.
    pub fn is_start_told(&self) -> bool {
        self.start_source == StartTimeSource::Expression
    }

    /// When it was last detected.
    pub fn last_detected(&self) -> Timestamp {
        self.last_detected
    }

    /// Whether `later` is another run, as far as is known: rules told them apart, or it had
    /// not been detected for a while when `later` started.
    pub fn is_run_before(&self, later: &Self) -> bool {
        let runs = self.instance.as_ref().zip(later.instance.as_ref());
        let was_over = self.detections.is_empty() && self.last_detected < later.start;
        was_over || runs.is_some_and(|(own, other)| own != other)
    }

    /// Puts the rule sets of `book` that are about it in the place of those known by name.
    pub fn claim(&mut self, book: &RuleBook, target: &Arc<Gvr>, namespace: Option<&str>) {
        let about: Vec<(&Arc<RuleSet>, usize)> = book
            .rule_sets
            .iter()
            .filter(|rule_set| rule_set.covers(namespace))
            .filter_map(|rule_set| {
                let is_own = |rule: &rules::Rule| rule.operation == self.what.operation;
                Some((rule_set, rule_set.rules.iter().position(is_own)?))
            })
            .collect();
        let claimed = |detection: &Detection, (rule_set, order): (&Arc<RuleSet>, usize)| {
            Arc::new(Detection {
                target: target.clone(),
                rule_set: rule_set.clone(),
                says: Says {
                    order,
                    ..detection.says.clone()
                },
            })
        };
        let of_name = |name: &str| about.iter().copied().find(|(own, _)| *own.name == *name);
        for (name, detection) in &mut self.detections {
            if let Some(found) = of_name(name).filter(|_| detection.is_unclaimed()) {
                *detection = claimed(detection, found);
            }
        }
        if self.speaker.is_unclaimed()
            && let Some(found) = of_name(&self.speaker.rule_set.name).or(about.first().copied())
        {
            self.speaker = claimed(&self.speaker, found);
        }
    }

    /// Forgets detections by rule sets that are known by name only, but for those that
    /// `undecided` says may come yet. True if there are such, or if one spoke for it.
    pub fn drop_unclaimed(&mut self, undecided: impl Fn(&str) -> bool) -> bool {
        self.detections
            .retain(|name, detection| !detection.is_unclaimed() || undecided(name));
        let open = |detection: &Arc<Detection>| {
            detection.is_unclaimed() && undecided(&detection.rule_set.name)
        };
        open(&self.speaker) || self.detections.values().any(open)
    }

    /// It has not been detected since then.
    pub fn undetected(&mut self, since: Timestamp) {
        (self.detected, self.detected_since) = (Detected::False, since);
        self.last_detected = since;
    }

    /// The rule set that speaks for it.
    pub fn rule_set(&self) -> &str {
        &self.speaker.rule_set.name
    }
}

/// A rule set of which only the name is known, and so no rule.
fn known_by_name(name: &Arc<str>, component: &Arc<str>) -> Arc<RuleSet> {
    Arc::new(RuleSet {
        name: name.clone(),
        component: component.clone(),
        namespaces: None,
        selector: None,
        labels: Arc::default(),
        label_expressions: Vec::new(),
        environment: Environment::default(),
        rules: Vec::new(),
        activity: rules::Activity::default(),
    })
}

/// `text`, if it is there and no longer than names are.
fn name(text: &str, field: &'static str) -> Result<Arc<str>, Refused> {
    if text.is_empty() || text.len() > MAX_NAME || text.contains('\0') {
        return Err(Refused::Field(field));
    }
    Ok(text.into())
}

fn what(object: &InFlightOperation) -> Result<What, Refused> {
    let spec = &object.spec;
    if spec.operation.is_empty() || !labels::is_value(&spec.operation) {
        return Err(Refused::Field("spec.operation"));
    }
    let item = spec.item.as_deref();
    Ok(What {
        operation: spec.operation.as_str().into(),
        item: item.map(|item| name(item, "spec.item")).transpose()?,
    })
}

fn view(object: &mut InFlightOperation) -> Result<SubjectView, Refused> {
    let subject = &mut object.spec.subject;
    let namespace = subject.namespace.as_deref();
    if namespace.is_some_and(|it| !labels::is_subdomain(it) || it.contains('.')) {
        return Err(Refused::Field("spec.subject.namespace"));
    }
    let uid = subject.uid.as_deref();
    let mut owners = std::mem::take(&mut subject.owner_references);
    owners.truncate(MAX_OWNERS);
    let long = |text: &str| text.len() > MAX_NAME;
    if owners
        .iter()
        .any(|it| long(&it.api_version) || long(&it.kind) || long(&it.name) || long(&it.uid))
    {
        return Err(Refused::Field("spec.subject.ownerReferences"));
    }
    Ok(SubjectView {
        subject: Subject {
            uid: uid.map(|uid| name(uid, "spec.subject.uid")).transpose()?,
            name: name(&subject.name, "spec.subject.name")?,
            namespace: namespace.map(Into::into),
            generation: object.status.subject_generation,
            owners,
            managed: None,
        },
        api_version: name(&subject.api_version, "spec.subject.apiVersion")?,
        kind: name(&subject.kind, "spec.subject.kind")?,
    })
}

fn detected_by(object: &InFlightOperation) -> Result<Vec<Arc<str>>, Refused> {
    let field = "status.detectedBy";
    let all = &object.status.detected_by;
    if all.len() > MAX_MEMBERS {
        return Err(Refused::Field(field));
    }
    all.iter().map(|own| name(own, field)).collect()
}

/// The rule set that spoke for it, and what it said.
fn speaker(object: &InFlightOperation) -> Result<Detection, Refused> {
    let (spec, status) = (&object.spec, &object.status);
    let component = name(&spec.component, "spec.component")?;
    let rule_set = known_by_name(&name(&spec.rule_set, "spec.ruleSet")?, &component);
    if status.message.chars().count() > MAX_MESSAGE {
        return Err(Refused::Field("status.message"));
    }
    if status.progress.is_some_and(|progress| progress > 100) {
        return Err(Refused::Field("status.progress"));
    }
    let told =
        |reason: &&str| rules::is_reason(reason) && *reason != operation_reason(&spec.operation);
    let instance = status.instance.as_deref();
    Ok(Detection {
        target: UNCLAIMED.clone(),
        rule_set,
        says: Says {
            order: 0,
            continues: false,
            labels: Arc::new(authors_labels(object)?),
            state: match status.state {
                State::Blocked | State::Failing => Some(status.state),
                _ => None,
            },
            reason: Some(status.reason.as_str()).filter(told).map(Into::into),
            message: status.message.as_str().into(),
            progress: status.progress,
            started: None,
            instance: instance.map(|it| name(it, "status.instance")).transpose()?,
        },
    })
}

/// The labels that the rule set gave it: all but those that the server sets itself.
fn authors_labels(object: &InFlightOperation) -> Result<Labels, Refused> {
    let field = Refused::Field("metadata.labels");
    let all = object.metadata.labels.iter().flatten();
    if all.clone().count() > MAX_MEMBERS {
        return Err(field);
    }
    let servers = |key: &str| {
        let own = key.strip_prefix(labels::PREFIX);
        own.is_some_and(|suffix| !labels::AUTHOR_SUFFIXES.contains(&suffix))
    };
    let mut authors = Labels::new();
    for (key, value) in all.filter(|(key, _)| !servers(key)) {
        if !labels::is_key(key) || !labels::is_value(value) {
            return Err(field);
        }
        authors.insert(key.as_str().into(), value.as_str().into());
    }
    Ok(authors)
}

/// Whether it was detected, and since when.
fn detected(status: &Status, start: Timestamp, now: Timestamp) -> (Detected, Timestamp) {
    let condition = condition(status, "Detected");
    let detected = match condition.map(|condition| condition.status.as_str()) {
        Some("Unknown") => Detected::Unknown,
        _ if status.state == State::Settling => Detected::False,
        _ => Detected::True,
    };
    let since = condition.map_or(start, |condition| condition.last_transition_time.0);
    (detected, since.min(now))
}

fn condition<'a>(status: &'a Status, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|own| own.type_ == type_)
}

/// When an operation that is over ended, and its object, with nothing in it but what the
/// server writes.
fn ended(
    status: &Status,
    operation: &mut Operation,
    view: &SubjectView,
    now: Timestamp,
) -> Result<(Timestamp, Vec<u8>), Refused> {
    let completed = status.completed.as_ref();
    let completed = completed.ok_or(Refused::Field("status.completed"))?.0;
    if completed > now + SKEW {
        return Err(Refused::Field("status.completed"));
    }
    // It stopped being detected before it ended, by its debounce.
    let end = condition(status, "Completed").map_or(completed, |own| own.last_transition_time.0);
    let end = end.clamp(completed.min(now), now);
    (operation.detected, operation.detected_since) = (Detected::False, completed.min(now));
    let ends = matches!(
        status.state,
        State::Succeeded | State::Failed | State::Superseded | State::Ended
    );
    if !ends || !rules::is_reason(&status.reason) {
        return Err(Refused::Field("status.state"));
    }
    let shown = Shown {
        phase: Phase::Completed,
        state: status.state,
        reason: &status.reason,
        message: &status.message,
        progress: status.progress,
    };
    Ok((end, operation.encode(view, &shown, Some(end))))
}
