//! `kubectl ifo describe`: shows all facts about an operation, or about all operations on an
//! object.
//!
//! A description contains the fields of the operation, the rule that detects the operation, and
//! related operations. It also contains the Events of the subject (the object that the operation is
//! about). If the user may not read the rule or the Events, the output states the reason, and the
//! command succeeds. If the server no longer serves the operation, the command shows its record.

mod argument;
pub(crate) mod events;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use super::api_client::ApiClient;
use super::colors::Colors;
use super::completion;
use super::connect::Connect;
use super::discovered_kinds::Kinds;
use super::filter::Filters;
use super::filter_check;
use super::list;
use super::operation::{InFlightOperation, OperationFacts as _, operation_name_in};
use super::operation_source::{OperationSource, escape};
use super::output::{Format, TerminalText, print};
use super::problem::Problem;
use crate::clock;
use argument::DescribeArgument;
use clap_complete::ArgValueCompleter;
use ifo_api::{GROUP, VERSION, ruleset};
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// The arguments of `describe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # One operation
  kubectl ifo describe web-migrating-3f9c2a1b5e6d7f80

  # All operations of a virtual machine
  kubectl ifo describe -n shop VirtualMachine/web")]
pub(super) struct DescribeArgs {
    /// Name of an operation; or a resource, such as VirtualMachine/web
    #[arg(
        required = true,
        value_name = "NAME|KIND/NAME",
        add = ArgValueCompleter::new(completion::operations)
    )]
    names: Vec<String>,
    /// Output format; json and yaml print the objects
    #[arg(
        short = 'O',
        short_alias = 'o',
        long = "output",
        value_enum,
        ignore_case = true,
        value_name = "FORM",
        help_heading = "Output"
    )]
    format: Option<Format>,
    /// Has no effect: operations in any phase are shown
    #[arg(short = 'A', long, hide = true)]
    all_phases: bool,
    #[command(flatten)]
    colors: Colors,
    #[command(flatten)]
    connect: Connect,
}

/// Prints the operations that the arguments name: as descriptions, or in the format of `-O`.
pub(super) async fn run(args: &DescribeArgs) -> Result<ExitCode, Problem> {
    let filters = Filters::all_in(args.connect.namespace());
    let server = args.connect.open().await?;
    let (source, operations) = OperationSource::open(server.clone(), filters.clone()).await?;
    filter_check::check_and_warn(&filters, &source, &operations).await?;
    let kinds = Kinds::new(server.clone());
    let mut chosen: Vec<InFlightOperation> = Vec::new();
    let mut missing: Vec<Problem> = Vec::new();
    for text in &args.names {
        let argument = DescribeArgument::parse(text, &kinds).await?;
        match argument.find(&source, &operations).await {
            Ok(found) => chosen.extend(found),
            Err(problem @ (Problem::NotFound(_) | Problem::Usage(_))) => missing.push(problem),
            Err(problem) => return Err(problem),
        }
    }
    // If two arguments name the same operation, the operation is described once.
    let mut seen = BTreeSet::new();
    chosen.retain(|it| seen.insert((it.kind.clone(), it.key())));
    let format = args.format.unwrap_or_default();
    match format {
        _ if chosen.is_empty() => {}
        Format::Json | Format::Yaml => {
            let mut names = args.names.iter();
            let by_name = names.all(|name| operation_name_in(name).is_some());
            let single = chosen.len() == 1 && by_name && missing.is_empty();
            print(list::objects(&chosen, format, single)?)?;
        }
        Format::Name => print(list::names(&chosen))?,
        Format::Table | Format::Wide => {
            let mut facts = Vec::new();
            for operation in &chosen {
                facts.push(DescribedFacts::read(server.clone(), operation.clone()).await);
            }
            let (now, paint) = (clock::now(), args.colors.paint());
            for (number, (operation, facts)) in chosen.iter().zip(&facts).enumerate() {
                let separator = if number > 0 { "\n\n" } else { "" };
                let text = text::describe(operation, facts, &operations, now, paint);
                print(TerminalText::from(separator) + text)?;
            }
        }
    }
    list::report_missing(missing)?;
    Ok(ExitCode::SUCCESS)
}

/// What must be read to describe an operation.
#[derive(Clone, Debug)]
pub(crate) struct DescribedFacts {
    /// The rule that detects the operation, or the reason why no rule is shown.
    rule: Result<Value, String>,
    /// The Events of the subject, or the reason why no Events are shown.
    events: Result<Vec<Event>, String>,
}

impl DescribedFacts {
    /// Returns the facts of an operation that are still being read.
    pub(crate) fn unread() -> Self {
        Self {
            rule: Err("being read".to_owned()),
            events: Err("being read".to_owned()),
        }
    }

    /// Reads the rule and the Events of an operation.
    pub(crate) async fn read(server: ApiClient, operation: InFlightOperation) -> Self {
        let (spec, subject) = (&operation.spec, &operation.spec.subject);
        let events = events::read(&server, subject).await;
        let rule_set = get_rule_set(&server, &spec.rule_set).await;
        let rule = match rule_set {
            Ok(rule_set) => rule_for(&rule_set, &spec.operation),
            Err(problem) => Err(problem.to_string()),
        };
        Self {
            rule,
            events: events.map_err(|problem| problem.to_string()),
        }
    }
}

/// Reads a rule set.
pub(crate) async fn get_rule_set(server: &ApiClient, name: &str) -> Result<Value, Problem> {
    let plural = ruleset::PLURAL;
    let path = format!("/apis/{GROUP}/{VERSION}/{plural}/{}", escape(name));
    server.get(&path).await
}

/// Returns the rule for `operation`, with the variables that it uses, the target of the rule set and
/// the reason why the rule set is not ready. If the rule set has no such rule, returns an error
/// message.
fn rule_for(rule_set: &Value, operation: &str) -> Result<Value, String> {
    let items = |pointer: &str| rule_set.pointer(pointer).and_then(Value::as_array);
    let mut rules = items("/spec/rules").into_iter().flatten();
    let rule = rules.find(|rule| rule["operation"] == operation);
    let rule = rule.ok_or_else(|| format!("the rule set has no rule for {operation} any more"))?;
    let mut rule = rule.clone();
    // A variable can use only earlier variables. So the loop visits a variable after all expressions
    // that can use this variable.
    let mut variables = json!({});
    for variable in items("/spec/variables").into_iter().flatten().rev() {
        let name = variable["name"].as_str().unwrap_or_default();
        let used = format!("variables.{name}");
        if rule.to_string().contains(&used) || variables.to_string().contains(&used) {
            variables[name] = variable["expression"].clone();
        }
    }
    rule["variables"] = variables;
    rule["target"] = rule_set["spec"]["target"].clone();
    let mut conditions = items("/status/conditions").into_iter().flatten();
    if let Some(ready) = conditions.find(|it| it["type"] == "Ready" && it["status"] != "True") {
        rule["notReady"] = ready["message"].clone();
    }
    Ok(rule)
}
