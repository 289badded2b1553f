//! Tests the rule-set controller, which publishes compiled rule sets and writes the status of each
//! rule set. Discovery, the feeds (the watches of resources) and the cluster that stores statuses
//! are simulated. tokio's clock is paused.

mod compiling;
mod conditional_writes;
mod fakes;
mod gaps;
mod publishing;
mod status_conditions;
mod syncing;
mod writing;

use super::*;
use fakes::{FakeCompiler, FakeDiscovery, Sink, not_served, served, unknown};
use futures::stream;
use futures::{FutureExt, StreamExt};
use ifo_api::ruleset::{OperationRuleSet, OperationRuleSetSpec, OperationRuleSetStatus};
use ifo_api::{Gvr, Resolution, Source};
use ifo_engine::rules::{
    Activity, EvaluationError, EvaluationFailure, RuleBook, RuleSetsWithoutBook, compile,
};
use ifo_engine::track::Publication;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;

/// The interval at which the controller looks up the targets again. A target is the resource of a
/// rule set, and its feeds are the watches of this resource. The controller repeats the look-up if
/// a target is not served, if the last look-up failed, or if a feed fails.
const REQUEUE: Duration = Duration::from_mins(1);

/// The time for which a test waits until the controller has handled its inputs. It is longer than
/// the 0.5 s for which the controller collects changes. It is shorter than the 5 s after which the
/// controller computes the statuses again.
const A_MOMENT: Duration = Duration::from_millis(700);

/// A running controller and its simulated environment.
struct ControllerFixture {
    discovery: Arc<FakeDiscovery>,
    compiler: Arc<FakeCompiler>,
    changes: mpsc::UnboundedSender<()>,
    rule_sets: mpsc::UnboundedSender<RuleSetEvent>,
    feedback: mpsc::Sender<Feedback>,
    publications: mpsc::Receiver<Publication>,
    report: watch::Receiver<Arc<Report>>,
    sink: Arc<Sink>,
}

/// Starts a controller without rule sets.
fn fixture() -> ControllerFixture {
    let discovery = Arc::new(FakeDiscovery::default());
    let compiler = Arc::new(FakeCompiler::default());
    let (changes, changed) = mpsc::unbounded_channel();
    *discovery.changes.lock().unwrap() = Some(changed);
    let (rule_sets, events) = mpsc::unbounded_channel();
    let (feedback, reported) = mpsc::channel(16);
    let (publish, publications) = mpsc::channel(64);
    let (reported_state, report) = watch::channel(Arc::default());
    let sink = Arc::new(Sink::default());
    let events = UnboundedReceiverStream::new(events);
    let events = events.chain(stream::pending()).boxed();
    let outputs = Outputs {
        publications: publish,
        report: reported_state,
        status: sink.clone(),
    };
    let own = compiler.clone();
    let compile: Compiler = Arc::new(move |name, spec| own.compile(name, spec));
    let controller = Controller::new(discovery.clone(), compile, REQUEUE, false);
    tokio::spawn(controller.run(events, reported, outputs));
    ControllerFixture {
        discovery,
        compiler,
        changes,
        rule_sets,
        feedback,
        publications,
        report,
        sink,
    }
}

/// Starts a controller with these rule sets, and waits until the controller has read them.
async fn started(rule_sets: &[OperationRuleSet]) -> ControllerFixture {
    let fixture = fixture();
    fixture.list(rule_sets);
    moment().await;
    fixture
}

async fn moment() {
    tokio::time::sleep(A_MOMENT).await;
}

impl ControllerFixture {
    fn list(&self, rule_sets: &[OperationRuleSet]) {
        self.send(RuleSetEvent::Reset);
        for rule_set in rule_sets {
            self.apply(rule_set);
        }
        self.send(RuleSetEvent::Synced);
    }

    fn send(&self, event: RuleSetEvent) {
        self.rule_sets
            .send(event)
            .expect("the controller is running");
    }

    fn apply(&self, rule_set: &OperationRuleSet) {
        self.send(RuleSetEvent::Applied {
            rule_set: Box::new(rule_set.clone()),
            unknown_fields: Vec::new(),
        });
    }

    fn discovers(&self, resource: &str, answer: Resolution) {
        let mut answers = self.discovery.answers.lock().unwrap();
        answers.insert(resource.into(), answer);
    }

    /// Returns the rule sets that are in no rule book. `None` until each feed has reported.
    fn without_book(&self) -> Option<Arc<RuleSetsWithoutBook>> {
        self.report.borrow().without_book.clone()
    }

    /// Returns the rule sets that may miss operations, as in the warning on lists.
    fn gaps(&self) -> Vec<String> {
        let gaps = self.report.borrow().gaps().rule_sets.into_iter();
        gaps.map(|gap| format!("{}: {}", gap.rule_set, gap.reason))
            .collect()
    }

    /// Returns the names of the rule sets that are unsynced.
    fn unsynced(&self) -> String {
        self.report.borrow().unsynced().into_iter().collect()
    }

    /// Returns the resources that were looked up since the last call.
    fn looked_up(&self) -> Vec<String> {
        let mut looked_up = std::mem::take(&mut *self.discovery.looked_up.lock().unwrap());
        looked_up.sort();
        looked_up
    }

    /// Returns the publications since the last call. A publication is a new rule book for the feeds
    /// of one target.
    fn published(&mut self) -> Vec<Publication> {
        let mut all: Vec<_> = std::iter::from_fn(|| self.publications.try_recv().ok()).collect();
        all.sort_by(|a, b| a.target.cmp(&b.target));
        all
    }

    /// Reports the state of every feed of `publication` to the controller. If `failure` is None,
    /// the feeds are up to date.
    async fn report(&self, publication: &Publication, failure: Option<&str>) {
        let book = book_of(publication);
        for source in book.sources(&publication.target) {
            self.report_of(source, book.generation, failure).await;
        }
    }

    async fn report_of(&self, source: Source, generation: u64, failure: Option<&str>) {
        let feedback = Feedback {
            source,
            generation,
            failure: failure.map(str::to_owned),
        };
        self.feedback
            .send(feedback)
            .await
            .expect("the controller is running");
    }

    /// Reports every feed of the new publications as up to date. Returns the new publications, as
    /// [`ControllerFixture::published`] does.
    async fn catch_up(&mut self) -> Vec<Publication> {
        let published = self.published();
        for publication in published.iter().filter(|it| it.book.is_some()) {
            self.report(publication, None).await;
        }
        moment().await;
        published
    }

    /// Asserts the new publications, as [`summary`] describes them, and reports their feeds as up to
    /// date.
    async fn catches_up_with(&mut self, expected: &[(&str, Option<Vec<&str>>)]) {
        let published = self.catch_up().await;
        let books: Vec<_> = published.iter().map(summary).collect();
        assert_eq!(books, expected);
    }

    /// Lets all writes of the status of `a` fail.
    fn fail_writes(&self) {
        self.sink.failing_writes.lock().unwrap().insert("a".into());
    }

    /// Asserts the publications since the last call, as [`summary`] describes them.
    #[track_caller]
    fn publishes(&mut self, expected: &[(&str, Option<Vec<&str>>)]) {
        let published = self.published();
        let books: Vec<_> = published.iter().map(summary).collect();
        assert_eq!(books, expected);
    }

    /// Returns the statuses that were written since the last call.
    fn writes(&self) -> Vec<StatusWrite> {
        std::mem::take(&mut *self.sink.written.lock().unwrap())
    }

    /// Returns the newest status of the rule set `name`. Ignores the writes that
    /// [`ControllerFixture::writes`] has already returned.
    fn status(&self, name: &str) -> OperationRuleSetStatus {
        let written = self.sink.written.lock().unwrap();
        let mut own = written.iter().rev().filter(|write| write.name == name);
        own.next()
            .expect("a status of the rule set was written")
            .status
            .clone()
    }
}

/// Returns a rule set for `resource` with the rule `Working`, whose expression is `expression`.
fn rule_set(name: &str, resource: &str, expression: &str) -> OperationRuleSet {
    let mut object = OperationRuleSet::new(name, spec(resource, expression));
    object.metadata.uid = Some(format!("uid-{name}"));
    object.metadata.generation = Some(1);
    object
}

fn spec(resource: &str, expression: &str) -> OperationRuleSetSpec {
    from(json!({
        "component": "tests",
        "target": {"group": "things.example", "version": "v1", "resource": resource},
        "rules": [{"operation": "Working", "expression": expression}],
    }))
}

/// Decodes a manifest.
fn from<T: serde::de::DeserializeOwned>(manifest: serde_json::Value) -> T {
    serde_json::from_value(manifest).expect("the manifest of the test is valid")
}

fn edited(mut object: OperationRuleSet, expression: &str) -> OperationRuleSet {
    object.spec.rules[0].expression = expression.into();
    *object.metadata.generation.as_mut().unwrap() += 1;
    object
}

fn in_namespaces(mut object: OperationRuleSet, namespaces: &[&str]) -> OperationRuleSet {
    object.spec.namespaces = namespaces.iter().map(ToString::to_string).collect();
    object
}

/// Formats a condition as `status/reason`, such as `True/Watching`.
fn condition(status: &OperationRuleSetStatus, type_: &str) -> Option<String> {
    let found = find(status, type_)?;
    Some(format!("{}/{}", found.status, found.reason))
}

/// Asserts that a condition has this status and reason.
#[track_caller]
fn has(status: &OperationRuleSetStatus, type_: &str, expected: &str) {
    assert_eq!(condition(status, type_).as_deref(), Some(expected));
}

/// Returns the rule book of a publication, which must have one.
fn book_of(publication: &Publication) -> &Arc<RuleBook> {
    let book = publication.book.as_ref();
    book.expect("the publication has a rule book")
}

fn find<'a>(status: &'a OperationRuleSetStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|it| it.type_ == type_)
}

fn message(status: &OperationRuleSetStatus, type_: &str) -> String {
    find(status, type_)
        .expect("the status has this condition")
        .message
        .clone()
}

fn types(status: &OperationRuleSetStatus) -> Vec<&str> {
    status
        .conditions
        .iter()
        .map(|it| it.type_.as_str())
        .collect()
}

/// Returns the target of a publication, and the names of the rule sets in its rule book. `None`
/// means that the publication has no rule book, which ends the feeds of the target.
fn summary(publication: &Publication) -> (&str, Option<Vec<&str>>) {
    let names = publication
        .book
        .as_ref()
        .map(|book| book.rule_sets.iter().map(|it| &*it.name).collect());
    (&publication.target.resource, names)
}
