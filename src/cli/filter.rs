//! Which operations a command is about. Enters: the flags that all commands share.
//! Leaves: whether an operation is meant.

use super::operation::Operation;
use super::output::Shape;

/// The flags that choose operations.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
pub(super) struct Filters {
    /// Only operations of this component, such as kubevirt; may be given several times
    #[arg(short, long, value_name = "NAME", value_delimiter = ',')]
    pub(super) component: Vec<String>,
    /// Only operations on subjects of this kind, such as VirtualMachine; may be given several times
    #[arg(short, long, value_name = "KIND", value_delimiter = ',')]
    pub(super) kind: Vec<String>,
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
}

impl Filters {
    /// With the namespace that the connection's flags name.
    pub(super) fn within(&self, namespace: Option<&String>) -> Self {
        Self {
            namespace: namespace.cloned(),
            ..self.clone()
        }
    }

    /// The output format that somebody asked for by `-o`, as kubectl has it; it is no
    /// filter then. Operations are in camel case, so none is called `json`.
    pub(super) fn take_format(&mut self) -> Option<Shape> {
        let format = |value: &String| <Shape as clap::ValueEnum>::from_str(value, false).ok();
        let found = self.operation.iter().rev().find_map(format);
        self.operation.retain(|value| format(value).is_none());
        found
    }

    /// Whether `operation` is meant, whatever its phase. Labels are for the server to see
    /// to.
    pub(super) fn matches(&self, operation: &Operation) -> bool {
        let one_of = |wanted: &[String], value: &str| {
            wanted.is_empty() || wanted.iter().any(|it| it.eq_ignore_ascii_case(value))
        };
        let subject = &operation.subject;
        one_of(&self.component, &operation.component)
            && one_of(&self.kind, &subject.kind)
            && one_of(&self.operation, &operation.operation)
            && (self.namespace.is_none() || self.namespace == subject.namespace)
    }

    /// Whether `operation` is meant, and in a phase that is.
    pub(super) fn shows(&self, operation: &Operation) -> bool {
        (operation.active || self.all_phases) && self.matches(operation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn migrating(namespace: Option<&str>) -> Operation {
        let mut operation = Operation {
            operation: "Migrating".to_owned(),
            component: "kubevirt".to_owned(),
            active: true,
            ..Operation::default()
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
            kind: vec!["virtualmachine".to_owned()],
            operation: vec!["migrating".to_owned()],
            ..Filters::default()
        };
        assert!(filters.shows(&operation));
        filters.kind = vec!["Pod".to_owned()];
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
    fn an_operation_with_the_name_of_a_format_is_a_format() {
        let mut filters = Filters {
            operation: vec!["Migrating".to_owned(), "json".to_owned()],
            ..Filters::default()
        };
        assert_eq!(filters.take_format(), Some(Shape::Json));
        assert_eq!(filters.operation, ["Migrating"]);
        assert_eq!(filters.take_format(), None);
    }
}
