//! `kubectl ifo rules test`: shows the operations that the rules detect on objects. With
//! `--expect`, the operations are compared with an annotation of each object.
//!
//! The rules are evaluated as in `ifo-apiserver`, with these differences:
//!
//! - `now` is the time at which the command runs.
//! - No rule set is throttled. (The server evaluates a rule set less often if the evaluation of the
//!   rule set takes too much time.)
//! - Operations are not tracked over time. So `supersedes`, `appearAfter` and `stateAfter` have no
//!   effect: all detected operations are shown. An operation is not shown if only `continueWhile`
//!   is true. The start of an operation is known only if its rule computes the start (`startedAt`).

use super::explain::explain;
use super::input::{FoundObject, read_objects};
use super::rule_sets::{RuleFiles, load};
use crate::clock;
use crate::cluster::problem::Problem;
use crate::operations::operation::subject_path;
use crate::output::plain_text::one_line;
use crate::output::print::{Format, complain, formats, print, print_value, table};
use ifo_api::live::SubjectReference;
use ifo_api::{Gvr, Text};
use ifo_cel::Doc;
use ifo_client::manifest::Object;
use ifo_engine::detect::{Evaluation, Finding, MAX_OPERATIONS_ON_OBJECT, RuleValues, evaluate};
use ifo_engine::rules::RuleBook;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

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
    #[command(flatten)]
    rules: RuleFiles,
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

/// The result for one object.
struct ObjectResult<'a> {
    source: &'a str,
    evaluation: Evaluation,
    /// True if a rule set watches the resource of the object.
    is_watched: bool,
    /// The expressions that failed, and what differs from the annotation [`EXPECT_ANNOTATION`].
    failures: Vec<String>,
    /// The reason why each rule detects its operation, or why not. Empty without `--explain`.
    explanations: Vec<String>,
}

/// The annotation with the operations that the rules are expected to detect on an object. The value
/// contains names of operations, separated by commas. If an operation is about an item of the
/// object, such as a disk, the item follows after a slash: `Importing/disk-0`. An empty value means
/// that no operation is expected.
const EXPECT_ANNOTATION: &str = "ifo.kubevirt.io/expect";

/// Evaluates the rules on all objects, and prints the results. Returns true if all files could be
/// read, all rule sets are valid, and no expression failed. With `--expect`, at least one object
/// must have an expectation, and each expectation must be met.
pub(super) fn run(args: &RulesTestArgs) -> Result<bool, Problem> {
    let Some(rules) = load(&args.rules.files) else {
        return Ok(false);
    };
    let (found, is_readable) = read_objects(&args.objects);
    let mut is_successful = rules.is_valid && is_readable;
    let kinds = rules.kinds(&found);
    let resource = |it: &FoundObject| kinds.resource(&it.object.api_version, &it.object.kind);
    let resources: Vec<Gvr> = found.iter().map(resource).collect();
    let objects = found.iter().map(|it| &it.object);
    let books = rules.books(resources.iter().zip(objects));
    let now = args.now.unwrap_or_else(clock::now);
    let mut results = Vec::new();
    for (found, resource) in found.iter().zip(&resources) {
        match result(found, &books[resource], args, now) {
            Ok(result) => {
                for failure in &result.failures {
                    let (source, subject) = (result.source, subject_path(result.subject()));
                    complain("error", format!("{source}: {subject}: {failure}"));
                }
                is_successful &= result.failures.is_empty();
                results.push(result);
            }
            Err(why) => {
                complain("error", format!("{}: {why}", found.source));
                is_successful = false;
            }
        }
    }
    if args.expect && !found.iter().any(|it| expected(&it.object).is_some()) {
        let why = "no object has the annotation ifo.kubevirt.io/expect, so nothing was compared";
        complain("error", format!("--expect: {why}"));
        is_successful = false;
    }
    if args.output.is_table() {
        print_table(&results)?;
    } else {
        let results: Vec<Value> = results.iter().map(ObjectResult::document).collect();
        print_value(&json!({"results": results}), args.output)?;
    }
    Ok(is_successful)
}

/// Evaluates the rules of `book` on an object. Returns an error if the object cannot be decoded.
fn result<'a>(
    FoundObject { source, object }: &'a FoundObject,
    book: &RuleBook,
    args: &RulesTestArgs,
    now: Timestamp,
) -> Result<ObjectResult<'a>, String> {
    let json = object.json.to_string();
    let doc = Doc::parse(json.as_bytes(), &book.projection).map_err(|error| error.to_string())?;
    let mut evaluation = evaluate(book, &doc, now, &()).map_err(|error| error.to_string())?;
    for rule_set in drop_hidden(&mut evaluation, now) {
        let subject = subject_path(&evaluation.subject.reference);
        let bound = format!("{MAX_OPERATIONS_ON_OBJECT} is the bound for a rule set on one object");
        let warning = format!("{source}: {subject}: {rule_set}: too many operations: {bound}");
        complain("warning", warning);
    }
    let failures = evaluation.failures.iter().map(|(rule_set, failure)| {
        let (field, error) = (&failure.what, &failure.error);
        format!("{rule_set}: {field}: {error}")
    });
    let mut result = ObjectResult {
        source,
        is_watched: !book.rule_sets.is_empty(),
        failures: failures.collect(),
        explanations: Vec::new(),
        evaluation,
    };
    if args.explain {
        result.explanations = explain(book, &doc, &result.evaluation, now);
    }
    if let Some(expected) = expected(object).filter(|_| args.expect) {
        let detected: BTreeSet<String> = result.detected().map(|it| name(it.0)).collect();
        if detected != expected {
            let (expected, detected) = (list(expected), list(detected));
            let difference = format!("expected {expected}; found {detected}");
            result.failures.push(difference);
        }
    }
    Ok(result)
}

/// Removes what the server would not show at the time `now`:
///
/// - The findings of rules that failed. Failures are reported separately.
/// - The findings for which `expression` is false, and only `continueWhile` is true. The rule then
///   continues an operation that is already in flight. A single object does not show whether the
///   operation is in flight.
/// - A start in the future.
/// - The operations of a rule set beyond [`MAX_OPERATIONS_ON_OBJECT`]. Returns the names of the rule
///   sets with such operations.
fn drop_hidden(evaluation: &mut Evaluation, now: Timestamp) -> impl Iterator<Item = Text> + use<> {
    let mut counts: BTreeMap<Text, usize> = BTreeMap::new();
    evaluation.findings.retain_mut(|finding| {
        let values = finding.values.as_mut().filter(|it| !it.only_continues);
        let Some(values) = values else { return false };
        values.started = values.started.filter(|at| *at <= now);
        let count = counts.entry(finding.rule_set.name.clone()).or_default();
        *count += 1;
        *count <= MAX_OPERATIONS_ON_OBJECT
    });
    counts.retain(|_, count| *count > MAX_OPERATIONS_ON_OBJECT);
    counts.into_keys()
}

impl ObjectResult<'_> {
    fn subject(&self) -> &SubjectReference {
        &self.evaluation.subject.reference
    }

    /// Returns the operations that clients would see, with their values.
    fn detected(&self) -> impl Iterator<Item = (&Finding, &RuleValues)> {
        let findings = self.evaluation.findings.iter();
        findings.filter_map(|it| Some((it, it.values.as_ref()?)))
    }

    /// Returns the JSON and YAML form.
    fn document(&self) -> Value {
        let operations = self.detected().map(|(finding, values)| {
            let shown = &values.shown;
            json!({
                "operation": finding.operation,
                "item": finding.item,
                "ruleSet": finding.rule_set.name,
                "component": finding.rule_set.component,
                "state": values.state,
                "reason": shown.reason.as_ref().unwrap_or(&finding.operation),
                "message": shown.message,
                "progress": shown.progress,
                "started": values.started,
                "labels": shown.labels,
            })
        });
        json!({
            "source": self.source,
            "subject": self.subject(),
            "operations": operations.collect::<Vec<_>>(),
            "failures": self.failures,
            "explanations": self.explanations,
        })
    }
}

/// Returns the operations in the annotation of `object`. None if the object does not have the
/// annotation.
fn expected(object: &Object) -> Option<BTreeSet<String>> {
    let names = object.json["metadata"]["annotations"][EXPECT_ANNOTATION].as_str()?;
    let names = names.split(',').map(str::trim);
    let names = names.filter(|name| !name.is_empty());
    Some(names.map(str::to_owned).collect())
}

fn list(names: BTreeSet<String>) -> String {
    let names: Vec<String> = names.into_iter().collect();
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

fn name(finding: &Finding) -> String {
    name_with_item(&finding.operation, finding.item.as_deref())
}

/// Formats an operation as in the annotation: `Migrating` or `Importing/disk-0`.
pub(super) fn name_with_item(operation: &str, item: Option<&str>) -> String {
    let item = item.map(|it| format!("/{it}")).unwrap_or_default();
    format!("{operation}{item}")
}

fn print_table(results: &[ObjectResult<'_>]) -> Result<(), Problem> {
    let mut rows = Vec::new();
    for result in results {
        let subject = subject_path(result.subject());
        if !result.explanations.is_empty() {
            let lines = result.explanations.join("\n");
            print(format!("{}\n{lines}\n", one_line(&subject)))?;
        }
        rows.extend(result.detected().map(|(finding, values)| {
            let progress = values.shown.progress.map(|it| format!("{it}%"));
            [
                subject.clone(),
                name(finding),
                values.state.name().to_owned(),
                progress.unwrap_or_default(),
                values.started.map(|it| it.to_string()).unwrap_or_default(),
                finding.rule_set.name.to_string(),
                values.shown.message.to_string(),
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
    let watched = results.iter().filter(|it| it.is_watched).count();
    let (operations, others) = (rows.len(), results.len() - watched);
    let counts = format!("operations: {operations}; objects that rule sets watch: {watched}");
    complain("note", format!("{counts}; other objects: {others}"));
    Ok(())
}
