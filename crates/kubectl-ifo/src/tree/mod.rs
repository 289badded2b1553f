//! `kubectl ifo tree`: shows the operations as trees. The levels of a tree are a component (such as
//! `kubevirt`), a namespace, and objects with their operations. An object is below its owner.

mod draw;
mod forest;
mod graph;
mod owners;
#[cfg(test)]
mod tests;

use super::list::{CommonArgs, names};
use crate::clock;
use crate::cluster::problem::Problem;
use crate::filters::filter::Filters;
use crate::filters::filter_check;
use crate::filters::resource_argument::ResourceArgument;
use crate::operations::operation::{InFlightOperation, OperationFacts as _};
use crate::operations::operation_source::OperationSource;
use crate::output::print::{Format, encode};
use crate::output::reprint;
use draw::draw;
use graph::OwnerGraph;
use ifo_api::completeness::Incomplete;
use owners::OwnerLookup;
use serde_json::json;
use std::process::ExitCode;

/// The flags of `tree`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
Examples:
  # All operations in flight, by component and namespace
  kubectl ifo tree

  # One virtual machine and its descendants
  kubectl ifo tree -n shop --for VirtualMachine/web

  # As JSON, including completed operations
  kubectl ifo tree -A -o json")]
pub(super) struct TreeArgs {
    /// Show only this resource and its descendants, such as VirtualMachine/web
    #[arg(long = "for", value_name = "KIND/NAME", help_heading = "Filters")]
    resource: Option<ResourceArgument>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Prints the trees once, or with `--watch` again after each change.
pub(super) async fn run(args: &TreeArgs) -> Result<ExitCode, Problem> {
    let (mut filters, format) = args.common.chosen()?;
    let sort = args.common.output.sort_by.clone().unwrap_or_default();
    let server = args.common.connect.open().await?;
    server.check_files()?;
    filters.resolve(&server).await;
    let mut resource = args.resource.clone();
    if let Some(resource) = &mut resource {
        resource.kind.resolve(&server).await;
    }
    // An operation that the filters exclude can connect other objects in the tree. So the command
    // requests these operations, too, and applies the filters when it builds the tree. With
    // `--for`, this includes completed operations.
    let wanted = Filters {
        all_phases: args.resource.is_some() || filters.all_phases,
        ..Filters::default().with_namespace(filters.namespace.as_ref())
    };
    let (source, operations) = OperationSource::open(server.clone(), wanted).await?;
    let mut labelled = operations.clone();
    labelled.retain(|it| filters.selector.matches(&it.metadata.labels));
    filter_check::check_and_warn(&filters, &source, &labelled).await?;
    if let Some(resource) = &resource {
        resource.check_kind(&source, &operations).await?;
    }
    let empty_message = match &resource {
        None => filters.empty_result_message().to_owned(),
        Some(resource) => format!("Nothing is in flight for {}.", resource.text),
    };
    let output = &args.common.output;
    let style = server.table_style(format, output.colors.paint()).await;
    // With `--for`, the tree needs all operations. Even a completed or excluded operation can
    // connect an object with its owner.
    let is_wanted =
        |it: &InFlightOperation| resource.is_some() || it.is_active() || filters.all_phases;
    let is_included = |it: &InFlightOperation| filters.shows(it);
    let mut lookup = OwnerLookup::new(server);
    let tree = async |mut operations: Vec<InFlightOperation>, incomplete: Option<&Incomplete>| {
        sort.sort(&mut operations);
        lookup.look_up_for(&operations, is_included).await;
        let graph = OwnerGraph::of(&operations, is_included, &lookup.known);
        let forest = forest::forest(&graph, resource.as_ref());
        match format {
            Format::Json | Format::Yaml => {
                let mut value = json!({"components": forest::json(&forest)});
                if let Some(incomplete) = incomplete {
                    value["incomplete"] = json!(incomplete.to_string());
                }
                encode(&value, format)
            }
            Format::Name => Ok(names(forest::operations(&forest))),
            Format::Table | Format::Wide => Ok(draw(&forest, clock::now(), &style)),
        }
    };
    reprint::run(
        &source,
        operations,
        format,
        output,
        &empty_message,
        is_wanted,
        tree,
    )
    .await
}
