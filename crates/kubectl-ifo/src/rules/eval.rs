//! `kubectl ifo rules eval`: evaluates one expression on one object, and prints the value with its
//! CEL type, or the error.
//!
//! The result can differ from that of the expression in a rule set:
//!
//! - `variables` and `item` do not exist, because a rule set defines these names.
//! - The expression can use the whole evaluation budget of an object. In the server, all rules
//!   share this budget.
//! - A missing field is an error. In a rule, a missing field means that the rule does not match.

use super::input_files;
use crate::clock;
use crate::output::{Format, complain, print, print_value};
use crate::problem::Problem;
use clap::ValueEnum;
use ifo_cel::{
    Budget, CompileError, Doc, DocError, Environment, EvaluationFault, EvaluationScope, ResultKind,
    STEPS_PER_OBJECT, compile,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The arguments of `rules eval`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl ifo rules eval 'object.status.phase' --object pod.yaml")]
pub(crate) struct RulesEvalArgs {
    /// CEL expression on `object` and `now`; `variables` and `item` do not exist
    #[arg(value_name = "EXPRESSION", allow_hyphen_values = true)]
    expression: String,
    /// The object, YAML or JSON; - for standard input
    #[arg(long, value_name = "FILE")]
    object: PathBuf,
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
    let json = object.to_string();
    let outcome = evaluate(&args.expression, json.as_bytes());
    let has_value = outcome.is_ok();
    let format = match args.output {
        EvalFormat::Text => {
            match outcome {
                Ok((type_name, value)) => print(&format!("{type_name} {value}\n"))?,
                Err(why) => complain("error", why),
            }
            return Ok(has_value);
        }
        EvalFormat::Json => Format::Json,
        EvalFormat::Yaml => Format::Yaml,
    };
    let document = match outcome {
        Ok((type_name, value)) => json!({"type": type_name, "value": value}),
        Err(NoValue::Compile(error)) => json!({"error": {
            "phase": "compile",
            "message": error.message,
            "line": error.line,
            "column": error.column,
        }}),
        Err(failure) => json!({"error": {
            "phase": "evaluate",
            "message": failure.to_string(),
        }}),
    };
    print_value(&document, format)?;
    Ok(has_value)
}

/// Reads the only object in the file `path`. The object need not be a Kubernetes object.
fn read(path: &Path) -> Result<Value, String> {
    let text = input_files::text_in(path).map_err(|error| error.to_string())?;
    let mut documents = input_files::documents(&text, false)?;
    match documents.len() {
        1 => match documents.remove(0) {
            object @ Value::Object(_) => Ok(object),
            _ => Err("not an object".to_owned()),
        },
        0 => Err("there is no object in it".to_owned()),
        several => Err(format!("there are {several} objects in it, and not one")),
    }
}

fn evaluate(source: &str, json: &[u8]) -> Result<(String, Value), NoValue> {
    let program =
        compile(source, ResultKind::Any, &Environment::default()).map_err(NoValue::Compile)?;
    let doc = Doc::parse(json, program.projection()).map_err(NoValue::Read)?;
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    let mut scope = EvaluationScope::new(&doc, clock::now(), &mut budget);
    let answer = program.value(&mut scope).map_err(NoValue::Evaluate)?;
    Ok((answer.type_name, answer.value))
}
