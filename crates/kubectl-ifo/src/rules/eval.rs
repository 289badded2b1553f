//! `kubectl ifo rules eval`: evaluates one expression on one object, and prints the value with its
//! CEL type, or the error.
//!
//! The result can differ from the result of the same expression in a rule set:
//!
//! - Without `--rules`, `variables` does not exist. Without `--operation`, `item` does not exist.
//! - The expression can use the whole evaluation budget of an object. In the server, all rules
//!   share this budget.
//! - A missing field is an error. In the `expression` of a rule, a missing field means that the
//!   rule does not match.

use super::input_files::{self, Input};
use super::rule_sets;
use super::typed_value;
use crate::clock;
use crate::output::{Format, complain, print, print_excerpt, print_value};
use crate::problem::Problem;
use crate::suggestion::nearest;
use clap::ValueEnum;
use ifo_cel::{
    Budget, CompileError, Doc, DocError, Environment, EvaluationFault, EvaluationScope, Program,
    ResultKind, STEPS_PER_OBJECT, TypedValue, compile, excerpt,
};
use ifo_client::manifest::MemoryBudget;
use jiff::Timestamp;
use serde_json::{Value, json};
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
    #[arg(short = 'O', long, short_alias = 'o', value_enum, default_value_t = EvalFormat::Text)]
    output: EvalFormat,
}

/// Output format of the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EvalFormat {
    /// Type and value on one line
    Text,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

/// The reason why the expression has no value.
#[derive(Debug, thiserror::Error)]
enum NoValue {
    #[error("{0}")]
    Compile(CompileError),
    #[error("{0}")]
    Read(DocError),
    #[error("{0}")]
    Evaluate(EvaluationFault),
}

/// Evaluates the expression, and prints the value or the error. Returns true if there is a value.
pub(super) fn run(args: &RulesEvalArgs) -> Result<bool, Problem> {
    let object = match read(&args.object) {
        Ok(object) => object,
        Err(why) => {
            complain("error", format!("{}: {why}", args.object.display()));
            return Ok(false);
        }
    };
    let names = match RuleSetNames::read(args) {
        Ok(names) => names,
        Err(why) => {
            complain("error", why);
            return Ok(false);
        }
    };
    let json = object.to_string();
    let outcome = evaluate(args, &names, json.as_bytes());
    let has_value = outcome.is_ok();
    let format = match args.output {
        EvalFormat::Text => {
            match outcome {
                Ok(values) => {
                    for TypedValue { type_name, value } in values {
                        let value = typed_value::text(&type_name, &value);
                        print(format!("{type_name} {value}\n"))?;
                    }
                }
                Err(NoValue::Compile(error)) => {
                    let hint = error.hint.iter().map(|hint| format!(" (hint: {hint})"));
                    let hint: String = hint.collect();
                    complain("error", format!("{error}{hint}"));
                    print_excerpt(&error.excerpt(&args.expression));
                }
                Err(why) => {
                    complain("error", &why);
                    if let NoValue::Evaluate(EvaluationFault::Error(failure)) = &why
                        && let Some(place) = &failure.place
                        && place.variable.is_none()
                    {
                        print_excerpt(&excerpt(&args.expression, place.line, place.column));
                    }
                }
            }
            return Ok(has_value);
        }
        EvalFormat::Json => Format::Json,
        EvalFormat::Yaml => Format::Yaml,
    };
    let one = |it: &TypedValue| json!({"type": it.type_name, "value": it.value});
    let document = match outcome {
        Ok(values) if names.for_each_list.is_some() => {
            json!({"items": values.iter().map(one).collect::<Vec<_>>()})
        }
        Ok(values) => values.first().map_or(Value::Null, one),
        Err(NoValue::Compile(error)) => {
            let mut fields = json!({
                "phase": "compile",
                "message": error.message,
                "line": error.line,
                "column": error.column,
            });
            if let Some(hint) = error.hint {
                fields["hint"] = hint.into();
            }
            json!({"error": fields})
        }
        Err(failure) => json!({"error": {
            "phase": "evaluate",
            "message": failure.to_string(),
        }}),
    };
    print_value(&document, format)?;
    Ok(has_value)
}

/// The names that a rule set defines for the expression.
struct RuleSetNames {
    environment: Environment,
    /// The `forEach` of the rule that `--operation` names. None without `--operation`.
    for_each_list: Option<Program>,
}

impl RuleSetNames {
    fn read(args: &RulesEvalArgs) -> Result<Self, String> {
        let Some(path) = &args.rules else {
            return Ok(Self {
                environment: Environment::default(),
                for_each_list: None,
            });
        };
        let mut input = Input::read(std::slice::from_ref(path));
        let loaded = rule_sets::load(&mut input);
        if !input.report() {
            return Err("the rule set has errors".to_owned());
        }
        let [rule_set] = loaded.as_slice() else {
            let (path, count) = (path.display(), loaded.len());
            return Err(format!(
                "{path}: the input contains {count} rule sets, but must contain exactly one"
            ));
        };
        let environment = rule_set.compiled.environment.clone();
        let Some(name) = &args.operation else {
            return Ok(Self {
                environment,
                for_each_list: None,
            });
        };
        let mut rules = rule_set.compiled.rules.iter();
        let Some(rule) = rules.find(|rule| *rule.operation == **name) else {
            let known = rule_set.spec.rules.iter().map(|it| it.operation.as_str());
            let hint = nearest(name, known).map(|it| format!(" (hint: the most similar is {it})"));
            return Err(format!(
                "no rule has the operation {name}{}",
                hint.unwrap_or_default()
            ));
        };
        let Some(each) = &rule.for_each else {
            return Err(format!(
                "--operation needs a rule with forEach, but the rule {name} has no forEach"
            ));
        };
        Ok(Self {
            environment: environment.with_item(),
            for_each_list: Some(each.list.clone()),
        })
    }
}

/// Reads the only object in the file `path`. The object need not be a Kubernetes object.
fn read(path: &Path) -> Result<Value, String> {
    let text = input_files::text_in(path).map_err(|error| error.to_string())?;
    let mut documents = input_files::documents(&text, false, &mut MemoryBudget::default())?;
    match documents.len() {
        1 => match documents.remove(0) {
            object @ Value::Object(_) => Ok(object),
            _ => Err("not an object".to_owned()),
        },
        0 => Err("the input contains no object".to_owned()),
        several => Err(format!(
            "the input contains {several} objects, but must contain exactly one"
        )),
    }
}

/// Returns the value of the expression. With `--operation`, returns one value for each element of
/// the list that `forEach` yields.
fn evaluate(
    args: &RulesEvalArgs,
    names: &RuleSetNames,
    json: &[u8],
) -> Result<Vec<TypedValue>, NoValue> {
    let program =
        compile(&args.expression, ResultKind::Any, &names.environment).map_err(NoValue::Compile)?;
    let mut projection = program.projection().clone();
    if let Some(list) = &names.for_each_list {
        projection.merge(list.projection());
    }
    let doc = Doc::parse(json, &projection).map_err(NoValue::Read)?;
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    let now = args.now.unwrap_or_else(clock::now);
    let mut scope = EvaluationScope::new(&doc, now, &mut budget);
    scope.set_variables(&names.environment);
    let Some(list) = &names.for_each_list else {
        return Ok(vec![program.value(&mut scope).map_err(NoValue::Evaluate)?]);
    };
    let mut values = Vec::new();
    for item in list.items(&mut scope).map_err(NoValue::Evaluate)? {
        scope.set_item(Some(item));
        values.push(program.value(&mut scope).map_err(NoValue::Evaluate)?);
    }
    Ok(values)
}
