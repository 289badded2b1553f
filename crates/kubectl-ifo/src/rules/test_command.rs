//! `kubectl ifo rules test`: shows the operations that the rules detect on objects. With
//! `--expect`, the operations are compared with an annotation of each object.
//!
//! The rules are evaluated as in `ifo-apiserver`, with these differences:
//!
//! - `now` is the time at which the command runs.
//! - No rule set is throttled. (The server evaluates a rule set less often if the rule set uses too
//!   many evaluation steps on several successive objects.)
//! - Operations are not tracked over time. So `supersedes`, `appearAfter` and `stateAfter` have no
//!   effect: all detected operations are shown. An operation is not shown if only `continueWhile`
//!   is true. The start of an operation is known only if its rule computes the start (`startedAt`).

use super::explain::explain;
use super::input::{FoundObject, Input};
use super::rule_sets;
use crate::clock;
use crate::operation::subject_path;
use crate::output::{Format, complain, formats, print, print_value, table};
use crate::plain_text::one_line;
use crate::problem::Problem;
use ifo_api::live::{State, SubjectReference};
use ifo_api::metadata::Time;
use ifo_api::{Gvr, Text};
use ifo_cel::Doc;
use ifo_client::manifest::Object;
use ifo_client::offline_kinds::KnownKinds;
use ifo_engine::detect::{Evaluation, Finding, evaluate};
use ifo_engine::rules::RuleBook;
use jiff::Timestamp;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The arguments of `rules test`.
#[derive(Debug, clap::Args)]
// `--objects` takes all arguments up to the next flag. So the usage shows the rule sets before
// `--objects`.
#[command(override_usage = "kubectl ifo rules test [OPTIONS] <RULES>... --objects <FILES>...")]
#[command(after_help = "\
Each object is evaluated separately at one time (--now), with the whole evaluation
budget. Operations are not tracked: superseded operations are listed, too, and
appearAfter, stateAfter and continueWhile have no effect. An operation for which only
continueWhile is true is not listed.

The exit code is 1 if a file cannot be read, or if an expression fails on an object. With
--expect it is also 1 if an expectation is not met, or if no object has an expectation.

Examples:
  kubectl ifo rules test my-rules.yaml --objects machines.yaml
  kubectl ifo rules test my-rules.yaml --objects vm.yaml --explain
  kubectl get vm -A -o yaml | kubectl ifo rules test my-rules.yaml --objects -")]
pub(crate) struct RulesTestArgs {
    /// OperationRuleSets: files, folders (read as `kubectl apply -k` if they have a
    /// kustomization.yaml), `-` for standard input
    #[arg(required = true, value_name = "RULES")]
    rules: Vec<PathBuf>,
    /// Objects: manifests, lists, folders such as a must-gather, `-` for standard input
    #[arg(long, required = true, num_args = 1.., value_name = "FILES")]
    objects: Vec<PathBuf>,
    /// Compare with the annotation ifo.kubevirt.io/expect of the objects (names with commas, or
    /// empty); exit code 1 if they differ
    #[arg(long)]
    expect: bool,
    /// Show for each rule and object which part of the expression decided, with its values
    #[arg(long)]
    explain: bool,
    /// The value of `now`, in RFC 3339; default: the current time
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// Output format
    #[arg(short = 'O', long, short_alias = 'o', value_parser = formats(["table", "json", "yaml"]), default_value = "table")]
    output: Format,
}

#[derive(Debug, Serialize)]
struct Results {
    results: Vec<ObjectResult>,
}

/// The result for one object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectResult {
    source: String,
    subject: SubjectReference,
    operations: Vec<DetectedOperation>,
    /// The expressions that failed, with their errors.
    failures: Vec<String>,
    /// The operations in the annotation `ifo.kubevirt.io/expect`. None without `--expect`, or if
    /// the object does not have the annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<BTreeSet<String>>,
    /// The reason why each rule detects its operation, or why not. None without `--explain`.
    #[serde(skip_serializing_if = "Option::is_none")]
    explanations: Option<Vec<String>>,
    /// True if a rule set watches the resource of the object.
    #[serde(skip)]
    targeted: bool,
}

/// Returns the reference to `object`, without its owners.
fn subject_of(object: &Object) -> SubjectReference {
    SubjectReference {
        api_version: object.api_version.as_str().into(),
        kind: object.kind.as_str().into(),
        name: object.name.as_str().into(),
        namespace: object.namespace.as_deref().map(Text::from),
        uid: object.uid().map(Text::from),
        ..SubjectReference::default()
    }
}

/// An operation that a rule detects on an object.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DetectedOperation {
    operation: String,
    item: Option<String>,
    rule_set: String,
    component: String,
    state: State,
    reason: String,
    message: String,
    progress: Option<u8>,
    started: Option<Time>,
    labels: BTreeMap<String, String>,
}

impl DetectedOperation {
    fn name(&self) -> String {
        name_with_item(&self.operation, self.item.as_deref())
    }
}

/// The annotation with the operations that the rules are expected to detect on an object. The value
/// contains names of operations, separated by commas. If an operation is about an item of the
/// object, such as a disk, the item follows after a slash: `Importing/disk-0`. An empty value means
/// that no operation is expected.
const EXPECT_ANNOTATION: &str = "ifo.kubevirt.io/expect";

/// Evaluates the rules on all objects, and prints the results. Returns true if all files could be
/// read, all rule sets are valid, and no expression failed. With `--expect`, [`compare`] must also
/// return true.
pub(super) fn run(args: &RulesTestArgs) -> Result<bool, Problem> {
    let mut rules = Input::read(&args.rules);
    let loaded = rule_sets::load(&mut rules);
    let objects = Input::read(&args.objects);
    let is_readable = rules.report() & objects.report();
    if loaded.is_empty() {
        return Ok(false);
    }
    let books: BTreeMap<Gvr, Arc<RuleBook>> = rule_sets::by_target(&loaded)
        .into_iter()
        .map(|(target, sets)| {
            let book = rule_sets::book(&target, "", true, &sets);
            (target, book)
        })
        .collect();
    let all = rules.objects.iter().chain(&objects.objects);
    let kinds = KnownKinds::of(all.map(|found| &found.object)).with_targets(books.keys());
    let now = args.now.unwrap_or_else(clock::now);
    let found = objects.objects.iter();
    let results: Vec<ObjectResult> = found
        .map(|found| {
            let target = kinds.resource(&found.object.api_version, &found.object.kind);
            result(found, books.get(&target), args, now)
        })
        .collect();
    let as_expected = !args.expect || compare(&results);
    let failed = results.iter().filter(|it| !it.failures.is_empty());
    for result in failed.clone() {
        let (source, subject) = (&result.source, subject_path(&result.subject));
        for failure in &result.failures {
            complain("error", format!("{source}: {subject}: {failure}"));
        }
    }
    let has_failures = failed.count() > 0;
    match args.output {
        Format::Table => print_table(&results)?,
        format => print_value(&Results { results }, format)?,
    }
    Ok(is_readable && !has_failures && as_expected)
}

fn result(
    found: &FoundObject,
    book: Option<&Arc<RuleBook>>,
    args: &RulesTestArgs,
    now: Timestamp,
) -> ObjectResult {
    let object = &found.object;
    let mut result = ObjectResult {
        source: found.source.clone(),
        subject: subject_of(object),
        operations: Vec::new(),
        failures: Vec::new(),
        expected: args.expect.then(|| expected(object)).flatten(),
        explanations: args.explain.then(Vec::new),
        targeted: book.is_some(),
    };
    let Some(book) = book else { return result };
    let json = object.json.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).map_err(|error| error.to_string());
    let evaluated = doc.and_then(|doc| {
        let evaluation = evaluate(book, &doc, now, &()).map_err(|error| error.to_string())?;
        if let Some(explanations) = &mut result.explanations {
            let namespace = object.namespace.as_deref();
            *explanations = explain(book, &doc, namespace, &evaluation.unselected, now);
        }
        Ok(evaluation)
    });
    match evaluated {
        Ok(evaluation) => add_evaluation(&mut result, &evaluation),
        Err(error) => result.failures.push(error),
    }
    result
}

/// Adds the detected operations and the failed expressions to a result.
fn add_evaluation(result: &mut ObjectResult, evaluation: &Evaluation) {
    let found = evaluation.findings.iter();
    let found = found.filter_map(operation);
    result.operations.extend(found);
    let failures = evaluation.failures.iter();
    result.failures.extend(failures.map(|it| {
        let (rule_set, field, error) = (&it.rule_set, &it.field, &it.error);
        format!("{rule_set}: {field}: {error}")
    }));
}

/// Returns the operation that a rule detects. None in two cases:
///
/// - The rule failed. Failures are reported separately.
/// - `expression` is false, and only `continueWhile` is true. The rule then continues an operation
///   that is already in flight. A single object does not show whether the operation is in flight.
fn operation(finding: &Finding) -> Option<DetectedOperation> {
    let values = finding.values.as_ref();
    let values = values.filter(|values| !values.only_continues)?;
    let name = finding.operation.to_string();
    let reason = values.shown.reason.as_deref().unwrap_or(&name);
    let labels = values.shown.labels.iter();
    Some(DetectedOperation {
        reason: reason.to_owned(),
        operation: name,
        item: finding.item.as_deref().map(str::to_owned),
        rule_set: finding.rule_set.name.to_string(),
        component: finding.rule_set.component.to_string(),
        state: values.state,
        message: values.shown.message.to_string(),
        progress: values.shown.progress,
        started: values.started.map(Time),
        labels: labels
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
    })
}

/// Returns the operations in the annotation of `object`. None if the object does not have the
/// annotation.
fn expected(object: &Object) -> Option<BTreeSet<String>> {
    let names = object.json["metadata"]["annotations"][EXPECT_ANNOTATION].as_str()?;
    let names = names.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    Some(names.map(str::to_owned).collect())
}

/// Formats an operation as in the annotation: `Migrating` or `Importing/disk-0`.
pub(super) fn name_with_item(operation: &str, item: Option<&str>) -> String {
    let item = item.map(|it| format!("/{it}")).unwrap_or_default();
    format!("{operation}{item}")
}

/// Compares the operations of each object with the annotation `ifo.kubevirt.io/expect` of the
/// object. Objects without the annotation are skipped. Prints each difference. Returns true if at
/// least one object was compared, and nothing was printed.
fn compare(results: &[ObjectResult]) -> bool {
    let list = |names: &BTreeSet<String>| {
        if names.is_empty() {
            return "nothing".to_owned();
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        names.join(", ")
    };
    let mut compared = 0;
    let mut is_as_expected = true;
    for result in results {
        let Some(expected) = &result.expected else {
            continue;
        };
        compared += 1;
        let found: BTreeSet<String> = result
            .operations
            .iter()
            .map(DetectedOperation::name)
            .collect();
        if found != *expected {
            is_as_expected = false;
            let at = format!("{}: {}", result.source, subject_path(&result.subject));
            let (expected, found) = (list(expected), list(&found));
            complain("error", format!("{at}: expected {expected}; found {found}"));
        }
    }
    if compared == 0 {
        complain(
            "error",
            "--expect: no object has the annotation ifo.kubevirt.io/expect, so nothing was compared",
        );
    }
    is_as_expected && compared > 0
}

fn print_table(results: &[ObjectResult]) -> Result<(), Problem> {
    let targeted: Vec<&ObjectResult> = results.iter().filter(|result| result.targeted).collect();
    let mut rows = Vec::new();
    for result in &targeted {
        let subject = subject_path(&result.subject);
        if let Some(explanations) = &result.explanations {
            let lines = explanations.join("\n");
            print(format!("{}\n{lines}\n", one_line(&subject)))?;
        }
        rows.extend(result.operations.iter().map(|operation| {
            let started = operation.started.map(|it| it.0.to_string());
            let progress = operation.progress.map(|it| format!("{it}%"));
            [
                subject.clone(),
                operation.name(),
                operation.state.name().to_owned(),
                progress.unwrap_or_default(),
                started.unwrap_or_default(),
                operation.rule_set.clone(),
                operation.message.clone(),
            ]
        }));
    }
    if !rows.is_empty() {
        let header = [
            "SUBJECT",
            "OPERATION",
            "STATE",
            "PROGRESS",
            "STARTED",
            "RULESET",
            "MESSAGE",
        ];
        print(table(header, &rows))?;
    }
    let watched = targeted.len();
    let operations: usize = results.iter().map(|result| result.operations.len()).sum();
    let others = results.len() - watched;
    complain(
        "note",
        format!(
            "operations: {operations}; objects that rule sets watch: {watched}; other objects: {others}"
        ),
    );
    Ok(())
}
