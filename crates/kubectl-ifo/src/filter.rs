//! Which operations a command is about. Enters: the flags that all commands share.
//! Leaves: whether an operation is meant. [`known`](super::known) checks the values.

use super::kinds::{ChosenKind, Kinds};
use super::operation::ListedOperation;
use super::output::OutputShape;
use super::problem::Problem;
use ifo_api::labels;
use std::fmt;

/// Output formats of kubectl's that are none here. They are names that an operation could
/// have; none has.
const NO_FORMATS: [&str; 8] = [
    "custom-columns",
    "custom-columns-file",
    "go-template",
    "go-template-file",
    "jsonpath",
    "jsonpath-as-json",
    "jsonpath-file",
    "template",
];

/// The flags that choose operations.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct Filters {
    /// Only operations of this component, such as kubevirt; may be given several times
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub(super) component: Vec<String>,
    /// Only operations on subjects of this kind, such as VirtualMachine, virtualmachines or vm; may be given several times
    #[arg(short, long, value_name = "KIND", value_delimiter = ',')]
    pub(super) kind: Vec<ChosenKind>,
    /// Only this operation, such as Migrating; may be given several times
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub(super) operation: Vec<String>,
    /// Only operations with labels that fit, such as a=b,c!=d
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub(super) selector: Option<String>,
    /// Completed operations too
    #[arg(short = 'A', long)]
    pub(super) all_phases: bool,
    /// From `--namespace`, which belongs to the connection's flags.
    #[arg(skip)]
    pub(super) namespace: Option<String>,
    /// Whether `-o` names output formats, too.
    #[arg(skip)]
    pub(super) takes_format: bool,
}

/// One value of a flag that chooses operations.
#[derive(Clone, Copy, Debug)]
pub(super) enum FilterValue<'a> {
    Component(&'a String),
    Kind(&'a ChosenKind),
    Operation(&'a String),
    Namespace(&'a String),
}

impl FilterValue<'_> {
    /// Filters with this value alone.
    pub(super) fn alone(self) -> Filters {
        self.put_into(Filters::default())
    }

    /// `filters` with this value in place of all values of its flag.
    pub(super) fn put_into(self, filters: Filters) -> Filters {
        let mut filters = filters;
        match self {
            Self::Component(value) => filters.component = vec![value.clone()],
            Self::Kind(value) => filters.kind = vec![value.clone()],
            Self::Operation(value) => filters.operation = vec![value.clone()],
            Self::Namespace(value) => filters.namespace = Some(value.clone()),
        }
        filters
    }
}

/// As it is typed.
impl fmt::Display for FilterValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Component(value) => write!(f, "--component {value}"),
            Self::Kind(value) => write!(f, "--kind {value}"),
            Self::Operation(value) => write!(f, "--operation {value}"),
            Self::Namespace(value) => write!(f, "--namespace {value}"),
        }
    }
}

impl Filters {
    /// All operations in a namespace, or in all namespaces, in any phase.
    pub(super) fn all_in(namespace: Option<&String>) -> Self {
        Self {
            all_phases: true,
            namespace: namespace.cloned(),
            ..Self::default()
        }
    }

    /// With the namespace that the connection's flags name, if they do.
    pub(super) fn within(&self, namespace: Option<&String>) -> Self {
        Self {
            namespace: namespace.cloned(),
            ..self.clone()
        }
    }

    /// The output format that somebody asked for by `-o`, as kubectl has it; it is no
    /// filter then. What kubectl has and this has not is an error: a filter that fits
    /// nothing would say that nothing is in flight.
    pub(super) fn take_format(&mut self) -> Result<Option<OutputShape>, Problem> {
        self.takes_format = true;
        let format = |value: &String| <OutputShape as clap::ValueEnum>::from_str(value, true).ok();
        let is_template =
            |value: &&String| value.contains(['=', '{']) || NO_FORMATS.contains(&value.as_str());
        if let Some(value) = self.operation.iter().find(is_template) {
            return Err(Problem::Usage(format!(
                "unsupported output format {value:?}; there are table, wide, json, yaml and name"
            )));
        }
        let found = self.operation.iter().rev().find_map(format);
        self.operation.retain(|value| format(value).is_none());
        Ok(found)
    }

    /// The same for a command that has no output format: `instead` says what has.
    pub(super) fn refuse_format(&mut self, instead: &str) -> Result<(), Problem> {
        let found = self.take_format()?;
        self.takes_format = false;
        match found {
            Some(_) => Err(Problem::Usage(instead.to_owned())),
            None => Ok(()),
        }
    }

    /// Asks the cluster what the kinds are.
    pub(super) async fn resolve(&mut self, kinds: &Kinds) {
        for kind in &mut self.kind {
            kind.resolve(kinds).await;
        }
    }

    /// The values that choose operations, but for the label selector.
    pub(super) fn values(&self) -> Vec<FilterValue<'_>> {
        let components = self.component.iter().map(FilterValue::Component);
        let kinds = self.kind.iter().map(FilterValue::Kind);
        let operations = self.operation.iter().map(FilterValue::Operation);
        let namespace = self.namespace.iter().map(FilterValue::Namespace);
        let all = components.chain(kinds).chain(operations).chain(namespace);
        all.collect()
    }

    /// Whether all operations are meant that are in flight.
    pub(super) fn are_none(&self) -> bool {
        self.component.is_empty()
            && self.kind.is_empty()
            && self.operation.is_empty()
            && self.selector.is_none()
            && self.namespace.is_none()
    }

    /// A label selector that every selected operation matches; it may match others, too.
    /// The server compares these labels without regard to case where that matters
    /// (`serve::completeness`).
    pub(super) fn label_selector(&self) -> String {
        let one_of = |label: &str, values: &[String]| {
            let usable = !values.is_empty() && values.iter().all(|it| labels::is_value(it));
            usable.then(|| format!("{}{label} in ({})", labels::PREFIX, values.join(",")))
        };
        let own = self.selector.clone().filter(|it| !it.trim().is_empty());
        let component = one_of("component", &self.component);
        let operation = one_of("operation", &self.operation);
        let parts: Vec<String> = [own, component, operation].into_iter().flatten().collect();
        parts.join(",")
    }

    /// What is said where nothing is to be shown.
    pub(super) fn nothing(&self) -> &'static str {
        match (self.all_phases, self.are_none()) {
            (true, true) => "No operations.",
            (true, false) => "No operations that fit the filters.",
            (false, true) => "No operations in flight.",
            (false, false) => "No operations in flight that fit the filters.",
        }
    }

    /// Whether `operation` is meant, whatever its phase. Labels are for the server to see
    /// to.
    pub(super) fn matches(&self, operation: &ListedOperation) -> bool {
        let subject = &operation.subject;
        let mut kinds = self.kind.iter();
        let is_kind = |it: &ChosenKind| it.is_of(&subject.kind, &subject.api_version);
        one_of(&self.component, &operation.component)
            && (self.kind.is_empty() || kinds.any(is_kind))
            && one_of(&self.operation, &operation.operation)
            && (self.namespace.is_none() || self.namespace == subject.namespace)
    }

    /// Whether `operation` is meant, and in a phase that is.
    pub(super) fn shows(&self, operation: &ListedOperation) -> bool {
        (operation.active || self.all_phases) && self.matches(operation)
    }
}

/// Whether a value is one of those that are wanted; if none is named, all are.
pub(super) fn one_of(wanted: &[String], value: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|it| it.eq_ignore_ascii_case(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migrating(namespace: Option<&str>) -> ListedOperation {
        let mut operation = ListedOperation {
            operation: "Migrating".to_owned(),
            component: "kubevirt".to_owned(),
            active: true,
            ..ListedOperation::default()
        };
        operation.subject.kind = "VirtualMachine".to_owned();
        operation.subject.namespace = namespace.map(str::to_owned);
        operation
    }

    #[test]
    fn each_flag_narrows_and_case_does_not_matter() {
        let all = Filters::default();
        let operation = migrating(Some("a"));
        assert!(all.shows(&operation));
        let mut filters = Filters {
            component: vec!["olm".to_owned(), "KubeVirt".to_owned()],
            kind: vec!["virtualmachine".parse().unwrap()],
            operation: vec!["migrating".to_owned()],
            ..Filters::default()
        };
        assert!(filters.shows(&operation));
        filters.kind = vec!["Pod".parse().unwrap()];
        assert!(!filters.shows(&operation));
    }

    #[test]
    fn a_namespace_is_the_subjects_and_not_the_objects() {
        let filters = Filters::default().within(Some(&"a".to_owned()));
        assert!(filters.shows(&migrating(Some("a"))));
        let mut on_a_node = migrating(None);
        on_a_node.namespace = Some("a".to_owned());
        assert!(!filters.shows(&on_a_node));
    }

    #[test]
    fn completed_ones_are_shown_on_request() {
        let mut completed = migrating(None);
        completed.active = false;
        let mut filters = Filters::default();
        assert!(!filters.shows(&completed) && filters.matches(&completed));
        filters.all_phases = true;
        assert!(filters.shows(&completed));
    }

    #[test]
    fn label_selector_selects_components_and_operations() {
        assert_eq!(Filters::default().label_selector(), "");
        let mut filters = Filters {
            component: vec!["olm".to_owned(), "kubevirt".to_owned()],
            selector: Some("team=x".to_owned()),
            ..typed(&["Migrating"])
        };
        assert_eq!(
            filters.label_selector(),
            "team=x,ifo.kubevirt.io/component in (olm,kubevirt),\
             ifo.kubevirt.io/operation in (Migrating)"
        );
        // No label has this value, and the server would refuse the selector.
        filters.component = vec!["a b".to_owned()];
        filters.selector = None;
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

    #[test]
    fn an_operation_with_the_name_of_a_format_is_a_format() {
        for name in ["json", "JSON", "Json"] {
            let mut filters = typed(&["Migrating", name]);
            assert_eq!(filters.take_format(), Ok(Some(OutputShape::Json)));
            assert_eq!(filters.operation, ["Migrating"]);
            assert_eq!(filters.take_format(), Ok(None));
        }
    }

    #[test]
    fn a_format_that_only_kubectl_has_is_no_operation() {
        for text in [
            "jsonpath={.items[*].metadata.name}",
            "custom-columns=NAME:.metadata.name",
            "go-template={{.items}}",
            "{.items}",
            "jsonpath",
        ] {
            let refused = typed(&[text]).take_format();
            assert!(matches!(refused, Err(Problem::Usage(_))), "{refused:?}");
        }
    }
}
