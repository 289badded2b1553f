//! `kubectl ifo describe`: shows all facts about an operation, or about all operations on an
//! object.
//!
//! A description contains the fields of the operation, the rule that detects the operation, and
//! related operations. It also contains the Events of the subject (the object that the operation is
//! about). If the user may not read the rule or the Events, the output states the reason, and the
//! command succeeds. If the server no longer serves the operation, the command shows its record.

pub(crate) mod events;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use super::history::records;
use super::list::{self, FormatArgs};
use crate::clock;
use crate::cluster::api_client::ApiClient;
use crate::cluster::connect::Connect;
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::filters::filter_check;
use crate::filters::resource_argument::ResourceArgument;
use crate::operations::operation::{InFlightOperation, OperationFacts, operation_name_in};
use crate::operations::operation_source::{OperationSource, escape, list_path};
use crate::output::colors::Colors;
use crate::output::print::{Format, TerminalText, complain, print};
use crate::output::sort::SortBy;
use ifo_api::{GROUP, ruleset};
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// The arguments of `describe`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("format", |it| it.short_alias('o')))]
#[command(after_help = "\
Examples:
  # One operation
  kubectl ifo describe web-migrating-3f9c2a1b5e6d7f80

  # All operations of a virtual machine
  kubectl ifo describe -n shop VirtualMachine/web")]
pub(super) struct DescribeArgs {
    /// Name of an operation; or a resource, such as VirtualMachine/web
    #[arg(required = true, value_name = "NAME|KIND/NAME")]
    names: Vec<String>,
    #[command(flatten)]
    format: FormatArgs,
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
    let filters = Filters::default().in_any_phase(args.connect.namespace());
    let server = args.connect.open().await?;
    let (source, operations) = OperationSource::open(server.clone(), filters.clone()).await?;
    filter_check::check_and_warn(&filters, &source, &operations).await?;
    let mut chosen: Vec<InFlightOperation> = Vec::new();
    let mut missing: Vec<Problem> = Vec::new();
    for name in &args.names {
        match find(name, &source, &operations).await {
            Ok(found) => chosen.extend(found),
            Err(problem @ (Problem::NotFound(_) | Problem::Usage(_))) => missing.push(problem),
            Err(problem) => return Err(problem),
        }
    }
    // If two arguments name the same operation, the operation is described once.
    let mut seen = BTreeSet::new();
    chosen.retain(|it| seen.insert((it.kind.clone(), it.key())));
    let format = args.format.format.unwrap_or_default();
    match format {
        _ if chosen.is_empty() => {}
        Format::Json | Format::Yaml => {
            let names = args.names.as_slice();
            let single = matches!(names, [name] if operation_name_in(name).is_some());
            print(list::objects(&chosen, format, single)?)?;
        }
        Format::Name => print(list::names(&chosen))?,
        Format::Table | Format::Wide => {
            let (now, paint) = (clock::now(), args.colors.paint());
            for (number, operation) in chosen.iter().enumerate() {
                let separator = if number > 0 { "\n\n" } else { "" };
                let facts = DescribedFacts::read(server.clone(), operation.clone()).await;
                let text = text::describe(operation, &facts, &operations, now, paint);
                print(TerminalText::from(separator) + text)?;
            }
        }
    }
    list::report_missing(missing)?;
    Ok(ExitCode::SUCCESS)
}

/// The facts of a description that are not in the operation itself.
#[derive(Clone, Debug)]
pub(crate) struct DescribedFacts {
    /// The rule that detects the operation, or a text with the reason why no rule is shown.
    rule: Value,
    /// The Events of the subject, or the reason why no Events are shown.
    events: Result<Vec<Event>, String>,
}

impl DescribedFacts {
    /// Returns placeholders for facts that are still being read.
    pub(crate) fn unread() -> Self {
        Self {
            rule: json!(not_shown("being read")),
            events: Err("being read".to_owned()),
        }
    }

    /// Reads the rule and the Events of an operation.
    pub(crate) async fn read(server: ApiClient, operation: InFlightOperation) -> Self {
        let (spec, subject) = (&operation.spec, &operation.spec.subject);
        let events = events::read(&server, subject).await;
        let rule_set = get_rule_set(&server, &spec.rule_set).await;
        let rule = rule_set.map_err(|problem| problem.to_string());
        let rule = rule.and_then(|it| rule_for(&it, &spec.operation));
        let rule = rule.unwrap_or_else(|why| json!(not_shown(&why)));
        Self {
            rule,
            events: events.map_err(|problem| problem.to_string()),
        }
    }
}

/// Formats the reason why a part is not shown.
fn not_shown(why: &str) -> String {
    format!("<not shown: {why}>")
}

/// Reads the rule set `name` as JSON.
pub(crate) async fn get_rule_set(server: &ApiClient, name: &str) -> Result<Value, Problem> {
    let list = list_path(GROUP, ruleset::PLURAL, None);
    server.get(&format!("{list}/{}", escape(name))).await
}

/// Returns the rule for `operation`, with the variables that the rule uses and the target of the
/// rule set. If the rule set is not ready, the reason is added. If the rule set has no such rule,
/// returns an error message.
fn rule_for(rule_set: &Value, operation: &str) -> Result<Value, String> {
    let items = |pointer: &str| rule_set.pointer(pointer).and_then(Value::as_array);
    let mut rules = items("/spec/rules").into_iter().flatten();
    let rule = rules.find(|rule| rule["operation"] == operation);
    let rule = rule.ok_or_else(|| format!("the rule set has no rule for {operation} any more"))?;
    let mut rule = rule.clone();
    // A variable can use only earlier variables. The loop goes backwards, so it visits a variable
    // after all expressions that can use this variable.
    let mut variables = json!({});
    for variable in items("/spec/variables").into_iter().flatten().rev() {
        let name = variable["name"].as_str().unwrap_or_default();
        let text = format!("{rule}{variables}");
        let parts: Vec<&str> = text.split(&format!("variables.{name}")).collect();
        // `variables.names` is another variable, and `object.variables.name` is a field.
        let is_other = |after: char| after.is_ascii_alphanumeric() || after == '_';
        let is_use = |it: &[&str]| !it[0].ends_with('.') && !it[1].starts_with(is_other);
        if parts.windows(2).any(is_use) {
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

/// Returns the operations that an argument names, the worst first. The argument is the name of an
/// operation, or the subject of operations. `operations` are the operations that the server serves.
/// If none of them matches, returns the newest matching record of a completed operation.
async fn find(
    argument: &str,
    source: &OperationSource,
    operations: &[InFlightOperation],
) -> Result<Vec<InFlightOperation>, Problem> {
    let name = operation_name_in(argument);
    let mut resource: Option<ResourceArgument> = None;
    if name.is_none() {
        let subject = resource.insert(argument.parse().map_err(Problem::Usage)?);
        subject.kind.resolve(&source.server).await;
    }
    let is_named = |it: &InFlightOperation| match &resource {
        None => name == Some(&*it.metadata.name),
        Some(resource) => {
            let is_item =
                resource.item.is_none() || resource.item.as_deref() == it.spec.item.as_deref();
            is_item && resource.matches(&it.spec.subject)
        }
    };
    let mut found = operations.to_vec();
    found.retain(is_named);
    if !found.is_empty() {
        SortBy::NEED.sort(&mut found);
        return Ok(found);
    }
    let selector = match &resource {
        None => format!("metadata.name={}", name.unwrap_or_default()),
        Some(resource) => format!("spec.subject.name={}", resource.name),
    };
    let records = records(source, &selector).await;
    let unread = match &records {
        // The files of `--from` can lack records.
        Ok(_) | Err(Problem::NotFound(_)) => String::new(),
        Err(problem) => format!("; records cannot be read: {problem}"),
    };
    let records = records.unwrap_or_default().into_iter().filter(is_named);
    if let Some(newest) = records.max_by_key(OperationFacts::completed) {
        let note = "showing the newest record of a completed operation; see: kubectl ifo history";
        complain("note", note);
        return Ok(vec![newest]);
    }
    source.server.check_files()?;
    let what = match &resource {
        None => format!("operation {:?}", name.unwrap_or_default()),
        Some(resource) => {
            resource.check_kind(source, operations).await?;
            format!("operation on {}", resource.text)
        }
    };
    let text = format!("there is no {what}{unread}; see what there is: kubectl ifo list -A");
    Err(Problem::NotFound(text))
}
