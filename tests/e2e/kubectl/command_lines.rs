//! The table of kubectl command lines and their expected results. Arguments are separated by single
//! spaces. [`super::commands`] replaces these words in the command lines and in the results:
//!
//! - `$ns`: the namespace of the test
//! - `$a`, `$b`, `$c`: the names of the operations on the VirtualMachines a, b and c
//! - `$file`: the path of a JSON file with the operation `$a`

/// The expected result of a command.
#[derive(Clone, Copy, Debug)]
pub enum Expect {
    /// A table of the operations on these VirtualMachines, in this order. `ca` means c and a.
    Rows(&'static str, Columns),
    /// The list of all operations, in JSON or YAML.
    List,
    /// The operation `$a`, in JSON or YAML.
    One,
    /// Exactly this text on standard output.
    Text(&'static str),
    /// Standard output that contains these texts, in this order.
    Words(&'static [&'static str]),
    /// Success, with standard error that contains this text.
    Note(&'static str),
    /// Failure, with standard error that contains this text.
    Refusal(&'static str),
    /// Failure. Standard error reports that operations do not support this verb.
    NoVerb(&'static str),
}

/// The columns of a table of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// The default columns.
    Usual,
    /// The namespace, and the default columns.
    Namespace,
    /// The columns of `-o wide`.
    Wide,
    /// The default columns, and a column with all labels.
    Labels,
    /// The default columns, and columns for the labels `team` and `ifo.kubevirt.io/operation`.
    TwoLabels,
}

use Columns::{Labels, Namespace, TwoLabels, Usual, Wide};
use Expect::{List, NoVerb, Note, One, Refusal, Rows, Text, Words};

/// The output of `-o name` for all operations.
const NAMES: &str = "inflightoperation.live.ifo.kubevirt.io/$a\n\
    inflightoperation.live.ifo.kubevirt.io/$b\n\
    inflightoperation.live.ifo.kubevirt.io/$c\n";

/// All command lines, each with its expected result.
pub const LINES: &[(&str, Expect)] = &[
    // Commands that select objects.
    ("get ifos -n $ns", Rows("abc", Usual)),
    ("get ifo $a -n $ns", Rows("a", Usual)),
    ("get ifo/$a -n $ns", Rows("a", Usual)),
    ("get ifo $c $a -n $ns", Rows("ca", Usual)),
    ("get inflightoperation -n $ns", Rows("abc", Usual)),
    ("get inflightoperations -n $ns", Rows("abc", Usual)),
    (
        "get inflightoperations.live.ifo.kubevirt.io -n $ns",
        Rows("abc", Usual),
    ),
    (
        "get inflightoperations.v1alpha1.live.ifo.kubevirt.io -n $ns",
        Rows("abc", Usual),
    ),
    (
        "get ifos -n $ns -l ifo.kubevirt.io/operation=Migrating",
        Rows("b", Usual),
    ),
    (
        "get ifos -n $ns -l ifo.kubevirt.io/operation!=Migrating,team",
        Rows("ac", Usual),
    ),
    (
        "get ifos -n $ns -l ifo.kubevirt.io/subject-name,!no-such-label",
        Rows("abc", Usual),
    ),
    (
        "get ifos -n $ns --field-selector=spec.subject.name=b",
        Rows("b", Usual),
    ),
    (
        "get ifos -n $ns --field-selector=status.phase=Active,spec.operation!=Migrating",
        Rows("ac", Usual),
    ),
    (
        "get ifos -n $ns --field-selector=metadata.name=$a",
        Rows("a", Usual),
    ),
    ("get ifos -n $ns --chunk-size=2", Rows("abc", Usual)),
    (
        "get ifos -n $ns --sort-by=.spec.operation",
        Rows("bac", Usual),
    ),
    // Commands with different output formats.
    ("get ifos -A -l team=$ns", Rows("abc", Namespace)),
    ("get ifos -n $ns -o wide", Rows("abc", Wide)),
    ("get ifos -n $ns --show-labels", Rows("abc", Labels)),
    (
        "get ifos -n $ns -L team,ifo.kubevirt.io/operation",
        Rows("abc", TwoLabels),
    ),
    ("get ifos -n $ns -o json", List),
    ("get ifos -n $ns -o yaml", List),
    ("get ifo $a -n $ns -o json", One),
    ("get ifo $a -n $ns -o yaml", One),
    ("get ifos -n $ns -o name", Text(NAMES)),
    ("get ifos -n $ns -o name --chunk-size=1", Text(NAMES)),
    (
        "get ifo $a -n $ns -o name",
        Text("inflightoperation.live.ifo.kubevirt.io/$a\n"),
    ),
    (
        "get ifos -n $ns -o jsonpath={.items[*].spec.subject.name}",
        Text("a b c"),
    ),
    (
        "get ifo $a -n $ns -o jsonpath={.status.conditions[?(@.type==\"Detected\")].status}",
        Text("True"),
    ),
    (
        "get ifos -n $ns -o go-template={{range.items}}{{.metadata.name}};{{end}}",
        Text("$a;$b;$c;"),
    ),
    (
        "get ifos -n $ns -o custom-columns=WHO:.spec.subject.name,DONE:.status.progress",
        Text("WHO   DONE\na     50\nb     50\nc     50\n"),
    ),
    (
        "get --raw /apis/live.ifo.kubevirt.io/v1alpha1/namespaces/$ns/inflightoperations/$a",
        One,
    ),
    // Commands that list several resources. kubectl adds the resource to the column NAME, for
    // example `configmap/a`. The default table of operations has no column NAME.
    (
        "get ifos,configmaps -n $ns",
        Words(&[
            "MESSAGE",
            "VirtualMachine/a ",
            "VirtualMachine/c ",
            "DATA",
            "configmap/kube-root-ca.crt",
        ]),
    ),
    (
        "get ifos,configmaps -n $ns -o wide",
        Words(&[
            "MESSAGE",
            "inflightoperation.live.ifo.kubevirt.io/$a ",
            "inflightoperation.live.ifo.kubevirt.io/$c ",
            "DATA",
            "configmap/kube-root-ca.crt",
        ]),
    ),
    (
        "get virtualmachines,ifos -n $ns -o name",
        Words(&["virtualmachine.kubevirt.io/a\n", "/c\n", NAMES]),
    ),
    // Requests for objects that do not exist, invalid requests, and forbidden requests.
    (
        "get ifos -n no-such-namespace",
        Note("No resources found in no-such-namespace namespace."),
    ),
    ("get ifo nope -n $ns --ignore-not-found", Text("")),
    (
        "get ifo nope -n $ns",
        Refusal(
            "Error from server (NotFound): \
             inflightoperations.live.ifo.kubevirt.io \"nope\" not found",
        ),
    ),
    (
        "get ifos -n $ns --field-selector=spec.bogus=1",
        Refusal("field label not supported: spec.bogus"),
    ),
    (
        "get ifos -n $ns -l a=b=c",
        Refusal(": found \"=\", expected: ',' or the end"),
    ),
    (
        "get ifos -n $ns --as=nobody",
        Refusal(
            "Error from server (Forbidden): inflightoperations.live.ifo.kubevirt.io is \
             forbidden: User \"nobody\" cannot list resource \"inflightoperations\" in API \
             group \"live.ifo.kubevirt.io\" in the namespace \"$ns\"",
        ),
    ),
    (
        "get --raw /apis/live.ifo.kubevirt.io/v1alpha1/nothing",
        Refusal("(NotFound): the server could not find the requested resource"),
    ),
    // Commands that describe objects or resources.
    (
        "describe ifo $a -n $ns",
        Words(&[
            "Name:         $a\nNamespace:    $ns\nLabels:",
            "ifo.kubevirt.io/component=kubevirt",
            "Annotations:  <none>\nAPI Version:  live.ifo.kubevirt.io/v1alpha1\n",
            "Spec:",
            "Operation:  Starting",
            "Subject:",
            "VirtualMachine",
            "Status:",
            "Conditions:",
            "State:",
            "Progressing",
            "Events:",
            "Normal",
            "Noticed",
            "The moon was full.",
        ]),
    ),
    (
        "describe ifos -n $ns",
        Words(&[
            "$a",
            "Operation:  Starting",
            "$b",
            "Operation:  Migrating",
            "$c",
        ]),
    ),
    (
        "explain ifo",
        Words(&[
            "InFlightOperation",
            "DESCRIPTION:",
            "in flight on one subject",
            "metadata",
            "spec",
            "status",
        ]),
    ),
    (
        "explain ifo --recursive",
        Words(&[
            "metadata",
            "ownerReferences",
            "blockOwnerDeletion",
            "spec",
            "component",
            "item",
            "operation",
            "ruleSet",
            "subject",
            "apiVersion",
            "kind",
            "name",
            "namespace",
            "ownerReferences",
            "uid",
            "status",
            "completed",
            "conditions",
            "lastTransitionTime",
            "observedGeneration",
            "detectedBy",
            "lastDetected",
            "message",
            "phase",
            "progress",
            "reason",
            "startTimeSource",
            "state",
            "subjectGeneration",
        ]),
    ),
    (
        "explain ifo.spec.subject",
        Words(&[
            "subject",
            "DESCRIPTION:",
            "The object on which the operation was detected.",
            "FIELDS:",
            "apiVersion\t<string> -required-",
            "such as `kubevirt.io/v1`",
            "uid\t<string>",
        ]),
    ),
    (
        "explain ifo.status.progress",
        Words(&["progress", "<integer>", "percent"]),
    ),
    (
        "explain ifos.status.conditions --api-version=live.ifo.kubevirt.io/v1alpha1",
        Words(&["observedGeneration\t<integer>"]),
    ),
    (
        "api-versions",
        Words(&[
            "\nifo.kubevirt.io/v1alpha1\n",
            "\nlive.ifo.kubevirt.io/v1alpha1\n",
        ]),
    ),
    (
        "api-resources --api-group=live.ifo.kubevirt.io --no-headers",
        Words(&[
            "inflightoperations",
            "ifo,ifos",
            "live.ifo.kubevirt.io/v1alpha1",
            "true",
            "InFlightOperation\n",
        ]),
    ),
    (
        "api-resources --namespaced=true --verbs=list,watch -o name",
        Words(&["\ninflightoperations.live.ifo.kubevirt.io\n"]),
    ),
    ("auth can-i list ifos -A", Text("yes\n")),
    ("auth can-i get ifo/$a -n $ns", Text("yes\n")),
    ("auth can-i watch ifos -n $ns --as=nobody", Refusal("")),
    // Commands that wait for conditions. Some conditions are already true, and one condition does
    // not become true.
    (
        "wait ifo/$a -n $ns --for=condition=Progressing --timeout=60s",
        Text("inflightoperation.live.ifo.kubevirt.io/$a condition met\n"),
    ),
    (
        "wait ifos -n $ns --all --for=condition=Completed=false --timeout=60s",
        Text(
            "inflightoperation.live.ifo.kubevirt.io/$a condition met\n\
             inflightoperation.live.ifo.kubevirt.io/$b condition met\n\
             inflightoperation.live.ifo.kubevirt.io/$c condition met\n",
        ),
    ),
    (
        "wait ifo/$a -n $ns --for=condition=Completed --timeout=1s",
        Refusal("timed out waiting for the condition on inflightoperations/$a"),
    ),
    // Commands that write. All of them must fail.
    ("delete ifo $a -n $ns", NoVerb("delete")),
    ("delete ifos -n $ns --all", NoVerb("delete")),
    ("edit ifo $a -n $ns", NoVerb("patch")),
    ("label ifo $a -n $ns a=b", NoVerb("patch")),
    ("annotate ifo $a -n $ns a=b", NoVerb("patch")),
    (
        "patch ifo $a -n $ns --type=merge -p {\"spec\":{\"item\":\"x\"}}",
        NoVerb("patch"),
    ),
    ("apply -f $file", NoVerb("patch")),
    ("apply --server-side -f $file", NoVerb("patch")),
    ("replace -f $file", NoVerb("update")),
    ("create -f $file", NoVerb("create")),
    (
        "scale ifo $a -n $ns --replicas=2",
        Refusal(
            "Error from server (NotFound): inflightoperations.live.ifo.kubevirt.io \"a-starting-",
        ),
    ),
];
