//! `kubectl ifo describe`: shows all facts about an operation, or about all operations on an
//! object.
//!
//! A description contains the fields of the operation, the rule that detects the operation, and
//! related operations. It also contains the Events of the subject (the object that the operation is
//! about). If the user may not read the rule or the Events, the output states the reason, and the
//! command succeeds. If the server no longer serves the operation, the command shows its record.

mod argument;
mod events;
mod related_operations;
mod rule_details;
#[cfg(test)]
mod tests;
mod text;

use super::api_client::ApiClient;
use super::colors::Colors;
use super::connect::Connect;
use super::discovered_kinds::Kinds;
use super::filter::Filters;
use super::filter_check;
use super::history::record_resource_name;
use super::list::objects;
use super::listed_operation::{ListedOperation, operation_name_in};
use super::operation_source::OperationSource;
use super::output::{ListFormat, complain, print};
use super::owner_lookup::OwnerLookup;
use super::ownership::Ownership;
use super::problem::Problem;
use crate::clock;
use argument::DescribeArgument;
use k8s_openapi::api::core::v1::Event;
use related_operations::Related;
use rule_details::DescribedRule;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Largest number of owners that are looked up to find related operations. Each owner needs a
/// request. If there are more owners, some related operations may be missing.
const MAX_OWNERS: usize = 200;

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
    #[arg(required = true, value_name = "NAME|KIND/NAME")]
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
    format: Option<ListFormat>,
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
    let (source, mut operations) =
        OperationSource::open(server.clone(), filters.clone(), true).await?;
    filter_check::check_and_warn(&filters, &source, &operations).await?;
    let kinds = Kinds::new(server.clone());
    let served = operations.len();
    let mut chosen: Vec<usize> = Vec::new();
    let mut missing: Vec<Problem> = Vec::new();
    for text in &args.names {
        let argument = DescribeArgument::parse(text, &kinds).await?;
        let found = argument.find(&operations[..served]);
        if !found.is_empty() {
            chosen.extend(found);
            continue;
        }
        match argument.records(&source, &operations[..served]).await {
            Ok(records) => {
                chosen.extend(operations.len()..operations.len() + records.len());
                operations.extend(records);
            }
            Err(problem @ Problem::NotFound(_)) => missing.push(problem),
            Err(problem) => return Err(problem),
        }
    }
    // The operations with an index from `served` on are records.
    let resource_name = |number: usize| match &operations[number] {
        record if number >= served => record_resource_name(&record.name),
        operation => operation.resource_name(source.served.group()),
    };
    // If two arguments name the same operation, the operation is described once.
    let mut seen = BTreeSet::new();
    chosen.retain(|number| seen.insert((*number >= served, operations[*number].key())));
    let format = args.format.unwrap_or_default();
    match format {
        _ if chosen.is_empty() => {}
        ListFormat::Json | ListFormat::Yaml => {
            let by_name = args
                .names
                .iter()
                .all(|name| operation_name_in(name).is_some());
            let single = chosen.len() == 1 && by_name && missing.is_empty();
            let chosen: Vec<ListedOperation> =
                chosen.iter().map(|it| operations[*it].clone()).collect();
            print(objects(&chosen, format, single)?)?;
        }
        ListFormat::Name => {
            for number in chosen {
                print(resource_name(number) + "\n")?;
            }
        }
        ListFormat::Table | ListFormat::Wide => {
            let mut lookup = OwnerLookup::new(server.clone(), kinds, MAX_OWNERS);
            // The owners of the described operations are looked up first, because the lookup stops
            // after `MAX_OWNERS` owners.
            let first: Vec<ListedOperation> =
                chosen.iter().map(|it| operations[*it].clone()).collect();
            lookup.look_up(&first).await;
            lookup.look_up(&operations).await;
            let descriptions = describe_all(&server, &operations, &chosen, &lookup).await;
            let paint = args.colors.paint();
            print(text::text(&descriptions, clock::now(), paint))?;
        }
    }
    // As in kubectl, errors about missing operations are printed after the operations that were
    // found.
    let mut missing = missing.into_iter();
    let Some(first) = missing.next() else {
        return Ok(ExitCode::SUCCESS);
    };
    for problem in missing {
        complain("error", problem);
    }
    Err(first)
}

/// The facts about one operation.
struct OperationDescription<'a> {
    operation: &'a ListedOperation,
    /// The JSON of the InFlightOperation, as the command received it.
    object: Value,
    /// The rule that detects the operation, or the reason why no rule is shown.
    rule: Result<DescribedRule, String>,
    related: Vec<Related<'a>>,
    /// The Events of the subject, or the reason why no Events are shown. None if the next
    /// description is about the same subject, because that description then has the Events.
    events: Option<Result<Vec<Event>, String>>,
}

async fn describe_all<'a>(
    server: &ApiClient,
    operations: &'a [ListedOperation],
    chosen: &[usize],
    lookup: &'a OwnerLookup,
) -> Vec<OperationDescription<'a>> {
    let ownership = Ownership::of(operations, &lookup.known);
    let mut rule_sets = BTreeMap::new();
    let mut descriptions: Vec<OperationDescription<'a>> = Vec::new();
    for (position, number) in chosen.iter().enumerate() {
        let operation = &operations[*number];
        let name = &operation.rule_set;
        if !rule_sets.contains_key(name) {
            rule_sets.insert(name, rule_details::read_rule_set(server, name).await);
        }
        let next = chosen.get(position + 1).map(|it| &operations[*it].subject);
        let is_last_of_subject = next != Some(&operation.subject);
        let events = if is_last_of_subject {
            Some(events::read(server, &operation.subject).await)
        } else {
            None
        };
        let raw = operation.raw.as_ref();
        descriptions.push(OperationDescription {
            operation,
            object: raw
                .and_then(|raw| serde_json::from_str(raw.get()).ok())
                .unwrap_or_default(),
            rule: rule_sets[name]
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|rule_set| DescribedRule::of(rule_set, &operation.operation)),
            related: related_operations::to(operation, &ownership),
            events,
        });
    }
    descriptions
}
