//! Reads the OperationRuleSets in the files of the user, and compiles them as `ifo-apiserver` does.
//! The errors of an invalid rule set are printed. The other rule sets are still compiled.

use super::input::{FoundObject, read_objects};
use crate::output::print::{complain, print_excerpt};
use ifo_api::Gvr;
use ifo_api::ruleset::{KIND, OperationRuleSetSpec};
use ifo_cel::{ObjectSchema, nearest_value};
use ifo_client::manifest::Object;
use ifo_client::offline_kinds::KnownKinds;
use ifo_engine::rules::{MAX_COMPILE_TIME, RuleBook, RuleSet, RuleSetError, compile_within};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// The files with the rule sets of a command.
#[derive(Debug, clap::Args)]
pub(super) struct RuleFiles {
    /// OperationRuleSets: files, folders (read as `kubectl apply -k` if they have a
    /// kustomization.yaml), `-` for standard input; for the names of resources also CRDs
    #[arg(required = true, value_name = "RULES")]
    pub(super) files: Vec<PathBuf>,
}

/// The contents of the files with rule sets.
#[derive(Debug)]
pub(super) struct LoadedRules {
    /// The rule sets that compile.
    pub(super) rule_sets: Vec<CompiledRuleSet>,
    objects: Vec<FoundObject>,
    /// True if there was no error.
    pub(super) is_valid: bool,
}

/// A rule set that compiles.
#[derive(Debug)]
pub(super) struct CompiledRuleSet {
    /// The path of the file, and the name of the rule set.
    pub(super) location: String,
    /// The spec of the rule set, as in the file.
    pub(super) spec: OperationRuleSetSpec,
    /// The compiled rule set, as the server uses it.
    pub(super) compiled: Arc<RuleSet>,
}

/// Compiles the rule sets in files, and prints all errors. Returns None if no rule set compiles.
pub(super) fn load(paths: &[PathBuf]) -> Option<LoadedRules> {
    let (objects, mut is_valid) = read_objects(paths);
    let mut rule_sets = Vec::new();
    let mut sources: BTreeMap<&str, &str> = BTreeMap::new();
    for FoundObject { source, object } in &objects {
        if !object.is_meant_as_rule_set() {
            continue;
        }
        let location = format!("{source}: {}", object.name);
        let mut errors = Vec::new();
        let spec = match sources.insert(&object.name, source) {
            Some(first) => Err(format!("is defined twice, first in {first}")),
            None => decode(object, &mut errors),
        };
        let spec = spec.map_err(|why| errors.push(why));
        for why in &errors {
            complain("error", format!("{location}: {why}"));
        }
        let compiled = spec.ok().and_then(|spec| {
            let compiled = Arc::new(compile(&location, &object.name, &spec, None)?);
            errors.is_empty().then_some(CompiledRuleSet {
                location,
                spec,
                compiled,
            })
        });
        is_valid &= compiled.is_some();
        rule_sets.extend(compiled);
    }
    if sources.is_empty() && is_valid {
        complain("error", format!("no {KIND} in the files"));
        is_valid = false;
    }
    (!rule_sets.is_empty()).then_some(LoadedRules {
        rule_sets,
        objects,
        is_valid,
    })
}

impl LoadedRules {
    /// Returns the kinds that the files declare: the kinds of CRDs, and the targets of rule sets.
    /// `others` are further objects, which can contain CRDs.
    pub(super) fn kinds(&self, others: &[FoundObject]) -> KnownKinds {
        let objects = self.objects.iter().chain(others).map(|it| &it.object);
        let targets = self.rule_sets.iter().map(|it| &it.spec.target);
        KnownKinds::of(objects).with_targets(targets)
    }

    /// Returns a rule book for each resource in `objects`. As in the server, a rule book contains
    /// all rule sets that watch the resource. `objects` contains each object with its resource.
    pub(super) fn books<'a>(
        &self,
        objects: impl Iterator<Item = (&'a Gvr, &'a Object)>,
    ) -> BTreeMap<&'a Gvr, Arc<RuleBook>> {
        let mut books = BTreeMap::new();
        for (resource, first) in objects {
            books.entry(resource).or_insert_with(|| {
                let (kind, namespaced) = (first.kind.clone(), first.namespace.is_some());
                let own = self.rule_sets.iter();
                let own = own.filter(|it| it.spec.target == *resource);
                let own = own.map(|it| it.compiled.clone()).collect();
                // The server gives each version of a rule book a new generation. Here, the
                // generation is always 1, because the rules do not change while a command runs.
                Arc::new(RuleBook::new(1, resource.clone(), kind, namespaced, own))
            });
        }
        books
    }

    /// Prints a warning for each unknown operation in the field `supersedes` of a rule. This field
    /// is a list of operations. When the rule's own operation starts on an object, the listed
    /// operations on this object end.
    ///
    /// An operation is unknown if no rule of the same component in the files detects it on the same
    /// target. This is no error, because a rule set outside these files can detect the operation.
    pub(super) fn warn_of_unknown_superseded(&self) {
        for rule_set in &self.rule_sets {
            let OperationRuleSetSpec {
                component, target, ..
            } = &rule_set.spec;
            let specs = self.rule_sets.iter().map(|it| &it.spec);
            let own = specs.filter(|it| it.component == *component && it.target == *target);
            let known = own.flat_map(|it| it.rules.iter().map(|rule| rule.operation.as_str()));
            let known: BTreeSet<&str> = known.collect();
            for rule in &rule_set.spec.rules {
                let listed = rule.supersedes.iter().map(String::as_str);
                for other in listed.filter(|it| *it != "*" && !known.contains(it)) {
                    let similar = nearest_value(other, known.iter().copied());
                    let hint = similar.map(|it| format!(" (hint: the most similar is {it})"));
                    let (operation, hint) = (&rule.operation, hint.unwrap_or_default());
                    let why = format!(
                        "no rule of this component in the files detects {other} on this resource{hint}"
                    );
                    let place = format!("{}: rules[{operation}].supersedes", rule_set.location);
                    complain("warning", format!("{place}: {why}"));
                }
            }
        }
    }
}

/// Decodes the spec of a rule set. Adds unknown fields to `errors`, because the kube-apiserver would
/// drop these fields.
fn decode(object: &Object, errors: &mut Vec<String>) -> Result<OperationRuleSetSpec, String> {
    object.check_rule_set_kind()?;
    let mut add_unknown = |path: serde_ignored::Path<'_>| {
        // `serde_ignored` writes a question mark for a field that can be missing.
        let path = path.to_string().replace(".?", "");
        errors.push(format!("unknown field spec.{path}"));
    };
    let decoder = serde_ignored::Deserializer::new(&object.json["spec"], &mut add_unknown);
    let decoded = serde_path_to_error::deserialize(decoder);
    decoded.map_err(|error: serde_path_to_error::Error<serde_json::Error>| {
        let why = error.inner().to_string();
        let hint = if why.ends_with("expected a string") {
            " (hint: put quotes around the text)"
        } else {
            ""
        };
        // The path of the spec itself is `.`.
        let path = format!("spec.{}", error.path());
        format!("{}: {why}{hint}", path.trim_end_matches('.'))
    })
}

/// Compiles a rule set. With `schema`, also checks the expressions against the schema of the
/// target. Prints the errors.
pub(super) fn compile(
    location: &str,
    name: &str,
    spec: &OperationRuleSetSpec,
    schema: Option<&dyn ObjectSchema>,
) -> Option<RuleSet> {
    let start = Instant::now();
    let compiled = compile_within(name, spec, schema, &|| start.elapsed() > MAX_COMPILE_TIME);
    let compiled = compiled.inspect_err(|errors| report("error", location, errors));
    compiled.ok()
}

/// Prints the errors or warnings of a rule set, with their positions in expressions.
pub(super) fn report(level: &str, location: &str, errors: &[RuleSetError]) {
    for error in errors {
        complain(level, format!("{location}: {error}"));
        print_excerpt(&error.excerpt().unwrap_or_default());
    }
}
