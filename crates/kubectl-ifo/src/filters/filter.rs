//! Defines the filter flags that most commands share, such as `--kind`. Decides which operations
//! the flags select. An operation is something that happens to an object, such as a migration. The
//! module [`filter_check`](crate::filters::filter_check) checks whether the values of the flags
//! exist in the cluster.

use crate::cluster::api_client::ApiClient;
use crate::cluster::discovered_kinds::ChosenKind;
use crate::cluster::problem::Problem;
use crate::filters::label_selector::LabelSelector;
use crate::operations::operation::{InFlightOperation, OperationFacts as _};
use crate::output::print::Format;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ifo_api::labels;
use ifo_api::live::State;
use std::fmt;
use std::mem::discriminant;

/// The flags that select operations.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct Filters {
    /// Only operations of this component, such as kubevirt; may be given several times
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) component: Vec<String>,
    /// Only operations on subjects of this kind, such as VirtualMachine, virtualmachines or vm; may
    /// be given several times
    #[arg(short, long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) kind: Vec<ChosenKind>,
    /// Only this operation, such as Migrating; may be given several times
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) operation: Vec<String>,
    /// Only operations with matching labels, such as a=b,c!=d
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) selector: LabelSelector,
    /// Only operations that touch this node, such as worker-3; may be given several times
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = node_name)]
    pub(crate) node: Vec<String>,
    /// Also completed operations
    #[arg(short = 'A', long)]
    pub(crate) all_phases: bool,
    /// The states of `--state` and `--failing`. If the list is empty, all states are selected.
    #[arg(skip)]
    pub(crate) states: Vec<State>,
    /// The names of `get`. If the list is empty, operations of all names are selected.
    #[arg(skip)]
    pub(crate) names: Vec<String>,
    /// The value of `--namespace`, which is one of the connection flags.
    #[arg(skip)]
    pub(crate) namespace: Option<String>,
}

/// One value of a filter flag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FilterValue<'a> {
    Component(&'a String),
    Kind(&'a ChosenKind),
    Operation(&'a String),
    Node(&'a String),
    Namespace(&'a String),
}

impl FilterValue<'_> {
    /// Returns true if `other` is a value of the same flag.
    pub(crate) fn is_of_flag(&self, other: &Self) -> bool {
        discriminant(self) == discriminant(other)
    }

    /// Returns true if this value selects `operation`. Names are compared regardless of upper and
    /// lower case, except those of nodes and namespaces.
    pub(crate) fn matches(self, operation: &InFlightOperation) -> bool {
        let (spec, subject) = (&operation.spec, &operation.spec.subject);
        match self {
            Self::Component(name) => spec.component.eq_ignore_ascii_case(name),
            Self::Kind(kind) => kind.matches_object(&subject.kind, &subject.api_version),
            Self::Operation(name) => spec.operation.eq_ignore_ascii_case(name),
            Self::Node(name) => operation.status.nodes.iter().any(|it| it == name),
            Self::Namespace(name) => subject.namespace.as_deref() == Some(name),
        }
    }
}

/// Formats the long flag, and the value as the user typed it.
impl fmt::Display for FilterValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Component(value) => write!(f, "--component {value}"),
            Self::Kind(kind) => write!(f, "--kind {}", kind.text),
            Self::Operation(value) => write!(f, "--operation {value}"),
            Self::Node(value) => write!(f, "--node {value}"),
            Self::Namespace(value) => write!(f, "--namespace {value}"),
        }
    }
}

impl Filters {
    /// Returns the filters for operations in any phase. This is for commands that always show all
    /// phases. In these commands, `-A` (`--all-phases`) has the meaning that it has in kubectl: all
    /// namespaces. So with `-A`, `namespace` has no effect.
    pub(crate) fn in_any_phase(&self, namespace: Option<&String>) -> Self {
        Self {
            all_phases: true,
            ..self.with_namespace(namespace.filter(|_| !self.all_phases))
        }
    }

    /// Returns the filters with another namespace. None means all namespaces.
    pub(crate) fn with_namespace(&self, namespace: Option<&String>) -> Self {
        Self {
            namespace: namespace.cloned(),
            ..self.clone()
        }
    }

    /// The values of `-o` are output formats and names of operations. This method removes the
    /// output formats, and returns the last one.
    ///
    /// A template, such as `jsonpath={.items}`, is an error. Only kubectl supports templates.
    pub(crate) fn take_format(&mut self) -> Result<Option<Format>, Problem> {
        let format = |value: &String| <Format as clap::ValueEnum>::from_str(value, true).ok();
        let is_template = |value: &&String| value.contains(['=', '{']);
        if let Some(value) = self.operation.iter().find(is_template) {
            return Err(Problem::Usage(format!(
                "unsupported output format {value:?}; supported formats: table, wide, json, yaml and name"
            )));
        }
        let found = self.operation.iter().rev().find_map(format);
        self.operation.retain(|value| format(value).is_none());
        Ok(found)
    }

    /// Returns an error with this message if a value of `-o` is an output format. Commands without
    /// output formats call this method.
    pub(crate) fn refuse_format(&mut self, message: &str) -> Result<(), Problem> {
        match self.take_format()? {
            Some(_) => Err(Problem::Usage(message.to_owned())),
            None => Ok(()),
        }
    }

    /// Looks up the values of `--kind` in the discovery of the cluster.
    pub(crate) async fn resolve(&mut self, server: &ApiClient) {
        for kind in &mut self.kind {
            kind.resolve(server).await;
        }
    }

    /// Returns the values of the filter flags. The label selector is not included.
    pub(crate) fn values(&self) -> Vec<FilterValue<'_>> {
        let components = self.component.iter().map(FilterValue::Component);
        let kinds = self.kind.iter().map(FilterValue::Kind);
        let operations = self.operation.iter().map(FilterValue::Operation);
        let nodes = self.node.iter().map(FilterValue::Node);
        let namespace = self.namespace.iter().map(FilterValue::Namespace);
        let all = components.chain(kinds).chain(operations).chain(nodes);
        all.chain(namespace).collect()
    }

    /// Returns the filter flags as the user can type them.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags: Vec<String> = self.values().iter().map(ToString::to_string).collect();
        let states = self.states.iter().map(|it| it.name());
        flags.extend(states.map(|it| format!("--state {it}")));
        let selector = Some(&self.selector.text).filter(|it| !it.is_empty());
        flags.extend(selector.map(|it| format!("--selector {it}")));
        flags
    }

    /// Returns true if the filters select all operations in flight.
    pub(crate) fn is_unfiltered(&self) -> bool {
        self.flags().is_empty()
    }

    /// Returns the field selector of a list, such as `status.nodes=worker-3`. Without
    /// `--all-phases`, the selector contains the phase. If the filters select exactly one node, the
    /// selector contains the node. The same holds for the state. Several nodes or states are left
    /// out, because a field selector cannot contain alternatives.
    pub(crate) fn list_selector(&self) -> String {
        let active = (!self.all_phases).then(|| "status.phase=Active".to_owned());
        let state = match self.states.as_slice() {
            [state] => Some(format!("status.state={}", state.name())),
            _ => None,
        };
        let node = Some(self.watch_selector()).filter(|it| !it.is_empty());
        let parts: Vec<String> = [active, node, state].into_iter().flatten().collect();
        parts.join(",")
    }

    /// Returns the field selector of a watch. If the filters select exactly one node, the selector
    /// contains the node. The selector contains neither the phase nor the state, because both
    /// change while an operation is watched.
    pub(crate) fn watch_selector(&self) -> String {
        match self.node.as_slice() {
            [node] => format!("status.nodes={node}"),
            _ => String::new(),
        }
    }

    /// Returns the label selector with which the plugin asks `ifo-apiserver` whether its lists of
    /// operations are complete. `OperationSource::probe` and `wait` send this selector. For the
    /// answer, `ifo-apiserver` considers only rule sets that can detect operations with matching
    /// labels.
    ///
    /// The selector contains `--selector`, and the components and operations of the filters. If a
    /// component cannot be the value of a label, the selector contains no components. The same
    /// holds for operations.
    pub(crate) fn label_selector(&self) -> String {
        let label_in = |label: &str, values: &[String]| {
            let usable = !values.is_empty() && values.iter().all(|it| labels::is_value(it));
            usable.then(|| format!("{}{label} in ({})", labels::PREFIX, values.join(",")))
        };
        let own = Some(self.selector.text.clone()).filter(|it| !it.is_empty());
        let component = label_in("component", &self.component);
        let operation = label_in("operation", &self.operation);
        let parts: Vec<String> = [own, component, operation].into_iter().flatten().collect();
        parts.join(",")
    }

    /// Returns the message for an empty result.
    pub(crate) fn empty_result_message(&self) -> &'static str {
        let mut states = self.states.iter();
        if !self.states.is_empty() && states.all(|it| it.is_completed()) {
            return "No operations match the filters. The server may have deleted completed \
                    operations; see: kubectl ifo history";
        }
        match (self.is_unfiltered(), self.all_phases) {
            (true, true) => "No operations.",
            (true, false) => "No operations in flight.",
            (false, _) => "No operations match the filters.",
        }
    }

    /// Returns true if the filters select `operation`, regardless of its phase and state.
    pub(crate) fn matches(&self, operation: &InFlightOperation) -> bool {
        let name = &operation.metadata.name;
        (self.names.is_empty() || self.names.iter().any(|it| name == it))
            && self.selector.matches(&operation.metadata.labels)
            && self.all_flags(|it| it.matches(operation))
    }

    /// Returns true if `fits` returns true for at least one value of each flag that has values.
    pub(crate) fn all_flags(&self, fits: impl Fn(FilterValue<'_>) -> bool) -> bool {
        let values = self.values();
        let has_fit = |flag| values.iter().any(|it| it.is_of_flag(flag) && fits(*it));
        values.iter().all(has_fit)
    }

    /// Returns true if the filters select the state of `operation`.
    pub(crate) fn has_state(&self, operation: &InFlightOperation) -> bool {
        self.states.is_empty() || self.states.contains(&operation.status.state)
    }

    /// Returns true if the filters select `operation`, including its phase and its state.
    pub(crate) fn shows(&self, operation: &InFlightOperation) -> bool {
        (operation.is_active() || self.all_phases)
            && self.has_state(operation)
            && self.matches(operation)
    }
}

/// The flags that select operations by their state.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(crate) struct StateArgs {
    /// Only operations in this state, such as Blocked; may be given several times
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    #[arg(ignore_case = true, value_parser = one_of(|_| true))]
    state: Vec<State>,
    /// Only failing operations: the same as --state Failing
    #[arg(long)]
    failing: bool,
}

impl StateArgs {
    /// Adds the states to `filters`. If one of them is a state of completed operations, the filters
    /// also select completed operations.
    pub(crate) fn add_to(&self, filters: &mut Filters) {
        let failing = self.failing.then_some(State::Failing);
        filters.states = self.state.iter().copied().chain(failing).collect();
        filters.all_phases |= filters.states.iter().any(|it| it.is_completed());
    }
}

/// Returns a parser that accepts the names of some states, in upper or lower case. The error for any
/// other text lists these names, and suggests a similar one.
pub(crate) fn one_of(is_accepted: fn(&State) -> bool) -> impl TypedValueParser<Value = State> {
    let accepted = State::ALL.into_iter().filter(is_accepted);
    PossibleValuesParser::new(accepted.map(State::name)).map(|text: String| {
        let mut all = State::ALL.into_iter();
        all.find(|it| it.name().eq_ignore_ascii_case(&text))
            .expect("the parser accepts only the names of states")
    })
}

/// Parses the name of a node: `worker-3`, or `node/worker-3` as `kubectl get -o name` prints it. An
/// invalid name is an error. Such a name would match no node, or would change the path of a
/// request.
pub(crate) fn node_name(text: &str) -> Result<String, String> {
    let mut prefixes = ["node/", "Node/", "nodes/", "no/"].into_iter();
    let name = prefixes.find_map(|it| text.strip_prefix(it));
    let name = name.unwrap_or(text);
    let invalid = || format!("{text:?} is not the name of a node; an example is worker-3");
    let is_valid = labels::is_subdomain(name);
    is_valid.then(|| name.to_owned()).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selector_selects_components_and_operations() {
        assert_eq!(Filters::default().label_selector(), "");
        let mut filters = Filters {
            component: vec!["olm".to_owned(), "kubevirt".to_owned()],
            selector: "team=x".parse().unwrap(),
            ..typed(&["Migrating"])
        };
        assert_eq!(
            filters.label_selector(),
            "team=x,ifo.kubevirt.io/component in (olm,kubevirt),\
             ifo.kubevirt.io/operation in (Migrating)"
        );
        // A label cannot have the value `a b`, and the server would refuse a selector with this
        // value. So the selector does not contain the components.
        filters.component = vec!["a b".to_owned()];
        filters.selector = LabelSelector::default();
        assert_eq!(
            filters.label_selector(),
            "ifo.kubevirt.io/operation in (Migrating)"
        );
    }

    fn typed(operations: &[&str]) -> Filters {
        Filters {
            operation: operations.iter().map(|&it| it.to_owned()).collect(),
            ..Filters::default()
        }
    }
}
