//! `kubectl ifo rules eval`: evaluates one expression on one object, and prints the value with its
//! CEL type, or the error.
//!
//! The result can differ from the result of the same expression in a rule set:
//!
//! - Without `--rules`, `variables` does not exist. Without `--operation`, `item` does not exist.
//! - The expression can use the whole evaluation budget of an object. In the server, the rule sets
//!   that watch the object share this budget equally, and the rules of a rule set share its part.
//! - A missing field is an error. In the `expression` of a rule, a missing field means that the
//!   rule does not match.

use super::rule_sets::load;
use crate::clock;
use crate::cluster::problem::Problem;
use crate::operations::from_files::text;
use crate::output::print::{Format, complain, formats, print, print_excerpt, print_value};
use ifo_cel::{
    Budget, Doc, Environment, EvaluationFault, EvaluationScope, Program, ResultKind,
    STEPS_PER_OBJECT, TypedValue, compile, excerpt,
};
use ifo_client::manifest::{self, MemoryBudget};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The arguments of `rules eval`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl ifo rules eval 'object.status.phase' --object pod.yaml
  kubectl ifo rules eval 'variables.ready' --object vm.yaml --rules my-rules.yaml
  kubectl ifo rules eval 'item.name' --object plan.yaml --rules plans.yaml --operation VM")]
pub(crate) struct RulesEvalArgs {
    /// CEL expression on `object` and `now`; with --rules also on `variables`, and with --operation
    /// on `item`
    #[arg(value_name = "EXPRESSION", allow_hyphen_values = true)]
    expression: String,
    /// The object, YAML or JSON; `-` for standard input
    #[arg(long, value_name = "FILE")]
    object: PathBuf,
    /// An OperationRuleSet, whose variables the expression can use
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// The operation of a rule with forEach in the rule set; the expression is evaluated for each
    /// element of the forEach list, as `item`
    #[arg(long, value_name = "NAME", requires = "rules")]
    operation: Option<String>,
    /// The value of `now`, in RFC 3339; default: the current time
    #[arg(long, value_name = "TIME")]
    now: Option<Timestamp>,
    /// Output format
    #[arg(short = 'O', long, short_alias = 'o', value_parser = formats(["text", "json", "yaml"]), default_value = "text")]
    output: Format,
}

/// Evaluates the expression, and prints the value or the error. Returns true if there is a value.
pub(super) fn run(args: &RulesEvalArgs) -> Result<bool, Problem> {
    let Some(values) = evaluate(args) else {
        return Ok(false);
    };
    if args.output.is_table() {
        for TypedValue { type_name, value } in values {
            print(format!("{type_name} {value}\n"))?;
        }
        return Ok(true);
    }
    let values = values.iter();
    let mut values = values.map(|it| json!({"type": it.type_name, "value": it.value}));
    let document = if args.operation.is_some() {
        json!({"items": values.collect::<Vec<_>>()})
    } else {
        values.next().unwrap_or_default()
    };
    print_value(&document, args.output)?;
    Ok(true)
}

/// Returns the value of the expression. With `--operation`, returns one value for each element of
/// the list that `forEach` yields. If there is no value, prints the reason.
fn evaluate(args: &RulesEvalArgs) -> Option<Vec<TypedValue>> {
    let complain_at = |why: String, place: Option<(usize, usize)>| {
        complain("error", why);
        let excerpt = place.map(|(line, column)| excerpt(&args.expression, line, column));
        print_excerpt(&excerpt.unwrap_or_default());
    };
    let object = reported(read(&args.object))?;
    let (environment, list) = reported(rule_set_names(args))?;
    let compiled = compile(&args.expression, ResultKind::Any, &environment);
    let compiled = compiled.inspect_err(|error| {
        let hint = error.hint.as_ref().map(|hint| format!(" (hint: {hint})"));
        let why = format!("{error}{}", hint.unwrap_or_default());
        complain_at(why, Some((error.line, error.column)));
    });
    let program = compiled.ok()?;
    let mut projection = program.projection().clone();
    if let Some(list) = &list {
        projection.merge(list.projection());
    }
    let json = object.to_string();
    let doc = reported(Doc::parse(json.as_bytes(), &projection))?;
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    let now = args.now.unwrap_or_else(clock::now);
    let mut scope = EvaluationScope::new(&doc, now, &mut budget);
    scope.set_variables(&environment);
    let values = match &list {
        None => program.value(&mut scope).map(|value| vec![value]),
        Some(list) => list.items(&mut scope).and_then(|items| {
            let values = items.into_iter().map(|item| {
                scope.set_item(Some(item));
                program.value(&mut scope)
            });
            values.collect()
        }),
    };
    let values = values.inspect_err(|fault| match fault {
        EvaluationFault::Error { place, .. } => complain_at(fault.to_string(), *place),
        _ => complain_at(fault.to_string(), None),
    });
    values.ok()
}

/// If `result` is an error, prints the error and returns None.
fn reported<T>(result: Result<T, impl Display>) -> Option<T> {
    result.inspect_err(|why| complain("error", why)).ok()
}

/// Reads the only object in the file `path`. The object need not be a Kubernetes object.
fn read(path: &Path) -> Result<Value, String> {
    let text = text(path).map_err(|error| error.to_string());
    let documents = text.and_then(|it| manifest::documents(&it, &mut MemoryBudget::default()));
    let object = documents.and_then(|it| match <[Value; 1]>::try_from(it) {
        Ok([object]) if object.is_object() => Ok(object),
        Ok(_) => Err("not an object".to_owned()),
        Err(documents) => Err(format!("expected one object, found {}", documents.len())),
    });
    object.map_err(|why| format!("{}: {why}", path.display()))
}

/// Returns the environment with the variables of the rule set in `--rules`. With `--operation`,
/// also returns the `forEach` expression of the rule for this operation.
fn rule_set_names(args: &RulesEvalArgs) -> Result<(Environment, Option<Program>), String> {
    let Some(path) = &args.rules else {
        return Ok((Environment::default(), None));
    };
    let rules = load(std::slice::from_ref(path)).filter(|it| it.is_valid);
    let rules = rules.ok_or("the rule set has errors")?;
    let [rule_set] = rules.rule_sets.as_slice() else {
        let (path, count) = (path.display(), rules.rule_sets.len());
        return Err(format!("{path}: expected one rule set, found {count}"));
    };
    let environment = rule_set.compiled.environment.clone();
    let Some(name) = &args.operation else {
        return Ok((environment, None));
    };
    let mut rules = rule_set.compiled.rules.iter();
    let rule = rules.find(|rule| *rule.operation == **name);
    let each = rule.and_then(|rule| rule.for_each.as_ref());
    let each = each.ok_or_else(|| format!("no rule with forEach has the operation {name}"))?;
    Ok((environment.with_item(), Some(each.list.clone())))
}
