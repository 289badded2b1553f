//! `kubectl ifo describe`: all about an operation, or about all of a resource's: its
//! fields, the rule that found it, what is related, and the resource's recent events.
//! What may not be read is said in its section, and is no error.

mod events;
mod related;
mod rule;
#[cfg(test)]
mod tests;
mod text;

use super::connect::Connect;
use super::filter::Filters;
use super::kin::Kin;
use super::kinds::Kinds;
use super::known;
use super::list::objects;
use super::lookup::Lookup;
use super::operation::{ListedOperation, own_name};
use super::output::{OutputShape, complain, print};
use super::paint::Colors;
use super::problem::Problem;
use super::server::ApiServer;
use super::source::OperationSource;
use super::target::TargetName;
use crate::clock;
use k8s_openapi::api::core::v1::Event;
use related::Related;
use rule::DescribedRule;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

/// Owners that are looked up at most, for what is related: each is a request.
const MOST_OWNERS: usize = 200;

/// The arguments of `describe`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # One operation
  kubectl ifo describe web-migrating-3f9c2a1b

  # All operations of a virtual machine
  kubectl ifo describe -n shop VirtualMachine/web")]
pub(super) struct DescribeArgs {
    /// Name of an operation; or a resource, such as VirtualMachine/web
    #[arg(required = true, value_name = "NAME|KIND/NAME")]
    names: Vec<String>,
    /// Form of the output; json and yaml give the objects
    #[arg(
        short = 'O',
        short_alias = 'o',
        long = "output",
        value_enum,
        ignore_case = true,
        value_name = "FORM",
        help_heading = "Output"
    )]
    shape: Option<OutputShape>,
    /// Operations in any phase are shown anyway.
    #[arg(short = 'A', long, hide = true)]
    all_phases: bool,
    #[command(flatten)]
    colors: Colors,
    #[command(flatten)]
    connect: Connect,
}

/// Prints what there is to tell.
pub(super) async fn run(args: &DescribeArgs) -> Result<ExitCode, Problem> {
    let filters = Filters::all_in(args.connect.namespace());
    let server = args.connect.open().await?;
    let (source, operations) = OperationSource::open(server.clone(), filters.clone(), true).await?;
    known::check_aloud(&filters, &source, &operations).await?;
    let kinds = Kinds::new(server.clone());
    let mut chosen: Vec<usize> = Vec::new();
    let mut missing: Vec<Problem> = Vec::new();
    for name in &args.names {
        match find(name, &operations, &kinds, &source).await {
            Ok(found) => chosen.extend(found),
            Err(problem @ Problem::NotFound(_)) => missing.push(problem),
            Err(problem) => return Err(problem),
        }
    }
    // Somebody may name the same one twice.
    let mut seen = BTreeSet::new();
    chosen.retain(|number| seen.insert(*number));
    let shape = args.shape.unwrap_or_default();
    match shape {
        _ if chosen.is_empty() => {}
        OutputShape::Json | OutputShape::Yaml => {
            let by_name = args.names.iter().all(|name| own_name(name).is_some());
            let single = chosen.len() == 1 && by_name && missing.is_empty();
            let chosen: Vec<ListedOperation> =
                chosen.iter().map(|it| operations[*it].clone()).collect();
            print(&objects(&chosen, shape, single)?)?;
        }
        OutputShape::Name => {
            for number in chosen {
                print(&(operations[number].resource_name(source.served.group()) + "\n"))?;
            }
        }
        OutputShape::Table | OutputShape::Wide => {
            let mut lookup = Lookup::new(server.clone(), kinds, MOST_OWNERS);
            // First those of what is told of: there may be too many of all others.
            let first: Vec<ListedOperation> =
                chosen.iter().map(|it| operations[*it].clone()).collect();
            lookup.owners(&first).await;
            lookup.owners(&operations).await;
            let accounts = accounts(&server, &operations, &chosen, &lookup).await;
            let paint = args.colors.paint();
            print(&text::text(&accounts, clock::now(), paint))?;
        }
    }
    // After what was found, as kubectl does.
    let mut missing = missing.into_iter();
    let Some(first) = missing.next() else {
        return Ok(ExitCode::SUCCESS);
    };
    for problem in missing {
        complain("error", problem);
    }
    Err(first)
}

/// The operations that go by a name, the ones that are over last.
async fn find(
    name: &str,
    operations: &[ListedOperation],
    kinds: &Kinds,
    source: &OperationSource,
) -> Result<Vec<usize>, Problem> {
    let numbers = |fits: &dyn Fn(&ListedOperation) -> bool| {
        let fitting = operations.iter().enumerate().filter(|(_, it)| fits(it));
        let mut found: Vec<usize> = fitting.map(|(number, _)| number).collect();
        found.sort_by_key(|number| {
            let it = &operations[*number];
            (!it.active, it.subject.namespace.clone(), it.started)
        });
        found
    };
    if let Some(name) = own_name(name) {
        let found = numbers(&|it| it.name == name);
        if found.is_empty() {
            return Err(Problem::NotFound(format!(
                "there is no operation {name:?}; see: kubectl ifo list -A -O name, or name a \
                 resource as Kind/name"
            )));
        }
        return Ok(found);
    }
    let mut target: TargetName = name.parse().map_err(Problem::Usage)?;
    target.resolve(kinds).await;
    let found = numbers(&|it| {
        let item_fits = target.item.is_none() || target.item == it.item;
        item_fits && target.is_subject(&it.subject)
    });
    if found.is_empty() {
        let why = target
            .unknown(source, operations)
            .await
            .map(|it| format!(" ({it})"));
        return Err(Problem::NotFound(format!(
            "there is no operation on {target}{}; see what there is: kubectl ifo list -A",
            why.unwrap_or_default()
        )));
    }
    Ok(found)
}

/// What is told of one operation.
struct Account<'a> {
    operation: &'a ListedOperation,
    /// The object as it was served.
    object: Value,
    /// The rule that found it, or why it is not shown.
    rule: Result<DescribedRule, String>,
    related: Vec<Related<'a>>,
    /// Of the subject, where this is the last operation of it that is told of; or why
    /// they are not shown.
    events: Option<Result<Vec<Event>, String>>,
}

async fn accounts<'a>(
    server: &ApiServer,
    operations: &'a [ListedOperation],
    chosen: &[usize],
    lookup: &'a Lookup,
) -> Vec<Account<'a>> {
    let kin = Kin::of(operations, &lookup.known);
    let mut rule_sets = BTreeMap::new();
    let mut accounts: Vec<Account<'a>> = Vec::new();
    for (place, number) in chosen.iter().enumerate() {
        let operation = &operations[*number];
        let name = &operation.rule_set;
        if !rule_sets.contains_key(name) {
            rule_sets.insert(name, rule::rule_set(server, name).await);
        }
        let next = chosen.get(place + 1).map(|it| &operations[*it].subject);
        let last = next != Some(&operation.subject);
        let events = if last {
            Some(events::of(server, &operation.subject).await)
        } else {
            None
        };
        let raw = operation.raw.as_ref();
        accounts.push(Account {
            operation,
            object: raw
                .and_then(|raw| serde_json::from_str(raw.get()).ok())
                .unwrap_or_default(),
            rule: rule_sets[name]
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|rule_set| DescribedRule::of(rule_set, &operation.operation)),
            related: related::to(operation, &kin),
            events,
        });
    }
    accounts
}
