//! The table of command lines: what each prints, or how it is refused.

use super::program::{Kubectl, Said};
use super::{Scene, VM};
use crate::harness::{World, eventually, text};
use futures::StreamExt as _;
use serde_json::{Value, json};

/// The columns of operations.
const COLUMNS: [&str; 9] = [
    "NAME",
    "KIND",
    "SUBJECT",
    "OPERATION",
    "PHASE",
    "STATE",
    "PROGRESS",
    "AGE",
    "MESSAGE",
];
const WIDE: [&str; 5] = ["COMPONENT", "RULESET", "REASON", "STARTED", "COMPLETED"];

/// Commands at once: each waits for the server most of its time.
const AT_ONCE: usize = 4;

/// What a command should come to.
enum Expect {
    /// A table with these rows below this header; any AGE will do.
    Table(Vec<String>, Vec<Vec<String>>),
    /// Exactly this text.
    Text(String),
    /// This object, in JSON or YAML.
    Object(Value),
    /// These words, in this order.
    Words(Vec<String>),
    /// Success, with this on standard error.
    Note(String),
    /// Failure, with these words on standard error.
    Refusal(String),
}

use Expect::{Note, Object, Refusal, Table, Text, Words};

/// Runs all lines, and fails with all that went wrong.
pub async fn all_answer(world: &World, kubectl: &Kubectl) {
    let scene = Scene::set(world, "kubectl").await;
    // kube-apiserver fetches the documentation some time after the registration.
    eventually("operations are documented", async || {
        let said = kubectl.say(&["explain", "ifo"]).await;
        if said.succeeded {
            Ok(())
        } else {
            Err(said.err)
        }
    })
    .await;
    let folder = tempfile::tempdir().expect("there is room for a file");
    let file = folder.path().join("operation.json");
    std::fs::write(&file, scene.operations[0].to_string()).expect("the folder is ours");
    let file = file.to_str().expect("our paths are UTF-8");
    let event = happened(world, &scene).await;
    let lines = futures::stream::iter(lines(&scene, file, &event));
    let mut answers = lines
        .map(async |(line, expect)| {
            let args: Vec<&str> = line.split(' ').collect();
            let said = kubectl.say(&args).await;
            (line, expect, said)
        })
        .buffered(AT_ONCE);
    let mut wrong = Vec::new();
    while let Some((line, expect, said)) = answers.next().await {
        if let Err(difference) = compare(&said, &expect) {
            wrong.push(format!(
                "kubectl {line}: {difference}\n{}{}",
                said.out, said.err
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(
        world.operations(scene.namespace).await,
        scene.operations,
        "nothing that was refused had an effect"
    );
}

/// An Event on the first operation, as a controller may record one; its message.
async fn happened(world: &World, scene: &Scene) -> String {
    let operation = &scene.operations[0];
    let message = "The moon was full.";
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "moon"},
        "type": "Normal", "reason": "Noticed", "message": message,
        "involvedObject": {
            "apiVersion": operation["apiVersion"], "kind": operation["kind"],
            "namespace": scene.namespace, "name": scene.name(0),
            "uid": operation["metadata"]["uid"],
        },
    });
    let path = format!("/api/v1/namespaces/{}/events", scene.namespace);
    world.admin.post(&path, &event).await.ok();
    message.to_owned()
}

/// The command lines, a word each between spaces.
fn lines(scene: &Scene, file: &str, event: &str) -> Vec<(String, Expect)> {
    let namespace = scene.namespace;
    let (ifos, ifo) = (
        format!("get ifos -n {namespace}"),
        format!("get ifo -n {namespace} {}", scene.name(0)),
    );
    let one = scene.name(0);
    let header = |before: &[&str], after: &[&str]| -> Vec<String> {
        let all = before.iter().chain(&COLUMNS).chain(after);
        all.map(ToString::to_string).collect()
    };
    let rows = |which: &[usize]| -> Vec<Vec<String>> {
        which.iter().map(|it| row(&scene.operations[*it])).collect()
    };
    let all = || Table(header(&[], &[]), rows(&[0, 1, 2]));
    let only = |which: &[usize]| Table(header(&[], &[]), rows(which));
    // All rows, with another cell at the end.
    let with = |column: &[&str], cells: &dyn Fn(&Value) -> Vec<String>| {
        let more = |operation: &Value| [row(operation), cells(operation)].concat();
        let rows = scene.operations.iter().map(more).collect();
        Table(header(&[], column), rows)
    };
    let label = |operation: &Value, key: &str| {
        operation["metadata"]["labels"][key]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let labels = |operation: &Value| {
        let labels = operation["metadata"]["labels"].as_object();
        let labels = labels.into_iter().flatten();
        let pairs = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or("")));
        vec![pairs.collect::<Vec<_>>().join(",")]
    };
    let names = |prefix: &str, end: &str| {
        let name = |it: &Value| format!("{prefix}{}{end}", text(it, "/metadata/name"));
        scene.operations.iter().map(name).collect::<String>()
    };
    // Its metadata is kubectl's own.
    let list = json!({"apiVersion": "v1", "kind": "List", "items": scene.operations});
    let words = |words: &[&str]| Words(words.iter().map(ToString::to_string).collect());
    let refused = |verb: &str| {
        Refusal(format!(
            "{verb} is not supported on resources of kind \"inflightoperations.live.ifo.kubevirt.io\""
        ))
    };
    let refusal = |text: &str| Refusal(text.to_owned());
    let no_rights = format!(
        "inflightoperations.live.ifo.kubevirt.io is forbidden: User \"nobody\" cannot list resource \"inflightoperations\" in API group \"live.ifo.kubevirt.io\" in the namespace \"{namespace}\""
    );
    vec![
        (ifos.clone(), all()),
        (ifo.clone(), only(&[0])),
        (format!("get ifo/{one} -n {namespace}"), only(&[0])),
        (format!("get ifo -n {namespace} {} {}", scene.name(2), one), only(&[2, 0])),
        (format!("get inflightoperation -n {namespace}"), all()),
        (format!("get inflightoperations -n {namespace}"), all()),
        (format!("get inflightoperations.live.ifo.kubevirt.io -n {namespace}"), all()),
        (format!("get inflightoperations.v1alpha1.live.ifo.kubevirt.io -n {namespace}"), all()),
        (format!("{ifos} -o wide"), with(&WIDE, &wide)),
        (format!("get ifos -A -l team={namespace}"), Table(
            header(&["NAMESPACE"], &[]),
            rows(&[0, 1, 2])
                .into_iter()
                .map(|row| [vec![namespace.to_owned()], row].concat())
                .collect(),
        )),
        (format!("{ifos} -o json"), Object(list.clone())),
        (format!("{ifos} -o yaml"), Object(list)),
        (format!("{ifo} -o json"), Object(scene.operations[0].clone())),
        (format!("{ifo} -o yaml"), Object(scene.operations[0].clone())),
        (format!("{ifos} -o name"), Text(names("inflightoperation.live.ifo.kubevirt.io/", "\n"))),
        (format!("{ifos} -o jsonpath={{.items[*].spec.subject.name}}"), Text("a b c".to_owned())),
        (format!("{ifo} -o jsonpath={{.status.conditions[?(@.type==\"Detected\")].status}}"),
            Text("True".to_owned())),
        (format!("{ifos} -o go-template={{{{range.items}}}}{{{{.metadata.name}}}};{{{{end}}}}"),
            Text(names("", ";"))),
        (format!("{ifos} -o custom-columns=WHO:.spec.subject.name,WHAT:.spec.operation,N:.status.progress --no-headers"),
            Words(["a", "Starting", "50", "b", "Migrating", "50", "c", "Starting", "50"].map(str::to_owned).to_vec())),
        (format!("{ifos} --sort-by=.spec.operation"), only(&[1, 0, 2])),
        (format!("{ifos} --sort-by=.spec.operation -o name"), Text(
            [1, 0, 2].map(|it| format!("inflightoperation.live.ifo.kubevirt.io/{}\n", scene.name(it))).concat(),
        )),
        (format!("{ifos} --show-labels"), with(&["LABELS"], &labels)),
        (format!("{ifos} -L team,ifo.kubevirt.io/operation"), with(&["TEAM", "OPERATION"], &|it| {
            vec![label(it, "team"), label(it, "ifo.kubevirt.io/operation")]
        })),
        (format!("{ifos} --chunk-size=2"), all()),
        (format!("{ifos} --chunk-size=1 -o name"), Text(names("inflightoperation.live.ifo.kubevirt.io/", "\n"))),
        (format!("{ifos} -l ifo.kubevirt.io/operation=Migrating"), only(&[1])),
        (format!("{ifos} -l ifo.kubevirt.io/operation!=Migrating,team"), only(&[0, 2])),
        (format!("{ifos} -l ifo.kubevirt.io/subject-name"), all()),
        (format!("{ifos} --field-selector=spec.subject.name=b"), only(&[1])),
        (format!("{ifos} --field-selector=status.phase=Active,spec.operation!=Migrating"), only(&[0, 2])),
        (format!("{ifos} --field-selector=metadata.name={one}"), only(&[0])),
        // Several resources at once have their kind before their name.
        (format!("get ifos,configmaps -n {namespace}"), words(&[
            "MESSAGE", "inflightoperation.live.ifo.kubevirt.io/a-starting-",
            "inflightoperation.live.ifo.kubevirt.io/c-starting-", "DATA", "configmap/kube-root-ca.crt",
        ])),
        (format!("get {},ifos -n {namespace} -o name", VM.plural), words(&[
            "virtualmachine.kubevirt.io/a", "virtualmachine.kubevirt.io/c",
            "inflightoperation.live.ifo.kubevirt.io/a-", "inflightoperation.live.ifo.kubevirt.io/c-",
        ])),
        ("get ifos -n no-such-namespace".to_owned(), Note("No resources found in no-such-namespace namespace.".to_owned())),
        (format!("get ifo -n {namespace} nope"), refusal("(NotFound): inflightoperations.live.ifo.kubevirt.io \"nope\" not found")),
        (format!("get ifo -n {namespace} nope --ignore-not-found"), Text(String::new())),
        (format!("{ifos} --field-selector=spec.bogus=1"), refusal("(BadRequest): Unable to find \"live.ifo.kubevirt.io/v1alpha1, Resource=inflightoperations\" that match label selector \"\", field selector \"spec.bogus=1\": field label not supported: spec.bogus")),
        (format!("{ifos} -l a=b=c"), refusal("unable to parse requirement: found '=', expected: ',' or 'end of string'")),
        (format!("{ifos} --as=nobody"), Refusal(no_rights)),
        (format!("get --raw /apis/live.ifo.kubevirt.io/v1alpha1/namespaces/{namespace}/inflightoperations/{one}"),
            Object(scene.operations[0].clone())),
        ("get --raw /apis/live.ifo.kubevirt.io/v1alpha1/nothing".to_owned(),
            refusal("(NotFound): the server could not find the requested resource")),

        (format!("describe ifo -n {namespace} {one}"), words(&[
            "Name:", one, "Namespace:", namespace, "Labels:", "ifo.kubevirt.io/component=kubevirt",
            "Annotations:  <none>", "Kind:         InFlightOperation", "Spec:", "Operation:  Starting",
            "Subject:", "VirtualMachine", "Status:", "Conditions:", "State:", "Progressing",
            "Events:", "Normal", "Noticed", event,
        ])),
        (format!("describe ifos -n {namespace}"), words(&[one, "Operation:  Starting", scene.name(1), "Operation:  Migrating", scene.name(2)])),

        ("explain ifo".to_owned(), words(&["InFlightOperation", "DESCRIPTION:", "in flight on one subject", "metadata", "spec", "status"])),
        ("explain ifo --recursive".to_owned(), words(&[
            "metadata", "ownerReferences", "blockOwnerDeletion", "spec", "component", "item", "operation",
            "ruleSet", "subject", "apiVersion", "kind", "name", "namespace", "ownerReferences", "uid",
            "status", "completed", "conditions", "lastTransitionTime", "observedGeneration", "detectedBy",
            "lastDetected", "message", "phase", "progress", "reason", "startTimeSource", "state", "subjectGeneration",
        ])),
        ("explain ifo.spec.subject".to_owned(), words(&[
            "subject", "DESCRIPTION:", "The object that the operation happens on.", "FIELDS:",
            "apiVersion\t<string> -required-", "such as `kubevirt.io/v1`", "uid\t<string>",
        ])),
        ("explain ifo.status.progress".to_owned(), words(&["progress", "integer", "percent"])),
        ("explain inflightoperations.status.conditions --api-version=live.ifo.kubevirt.io/v1alpha1".to_owned(),
            words(&["observedGeneration\t<integer>"])),

        ("api-versions".to_owned(), words(&["ifo.kubevirt.io/v1alpha1\n", "live.ifo.kubevirt.io/v1alpha1\n"])),
        ("api-resources --api-group=live.ifo.kubevirt.io --no-headers".to_owned(), words(&[
            "inflightoperations", "ifo,ifos", "live.ifo.kubevirt.io/v1alpha1", "true", "InFlightOperation\n",
        ])),
        ("api-resources --namespaced=true --verbs=list,get -o name".to_owned(), words(&["inflightoperations.live.ifo.kubevirt.io\n"])),
        ("auth can-i list ifos -A".to_owned(), Text("yes\n".to_owned())),
        (format!("auth can-i get ifo/{one} -n {namespace}"), Text("yes\n".to_owned())),
        (format!("auth can-i watch ifos -n {namespace} --as=nobody"), Refusal(String::new())),

        (format!("wait ifo/{one} -n {namespace} --for=condition=Progressing --timeout=60s"),
            Text(format!("inflightoperation.live.ifo.kubevirt.io/{one} condition met\n"))),
        (format!("wait ifos -n {namespace} -l ifo.kubevirt.io/operation=Migrating --for=condition=Completed=false --timeout=60s"),
            Text(format!("inflightoperation.live.ifo.kubevirt.io/{} condition met\n", scene.name(1)))),
        (format!("wait ifo/{one} -n {namespace} --for=condition=Completed --timeout=1s"),
            Refusal(format!("timed out waiting for the condition on inflightoperations/{one}"))),

        (format!("delete ifo -n {namespace} {one}"), refused("delete")),
        (format!("delete ifos -n {namespace} --all"), refused("delete")),
        (format!("edit ifo -n {namespace} {one}"), refused("patch")),
        (format!("label ifo -n {namespace} {one} a=b"), refused("patch")),
        (format!("annotate ifo -n {namespace} {one} a=b"), refused("patch")),
        (format!("patch ifo -n {namespace} {one} --type=merge -p {{\"spec\":{{\"item\":\"x\"}}}}"), refused("patch")),
        (format!("apply -f {file}"), refused("patch")),
        (format!("apply --server-side -f {file}"), refused("patch")),
        (format!("replace -f {file}"), refused("update")),
        (format!("create -f {file}"), refused("create")),
        (format!("scale ifo -n {namespace} {one} --replicas=2"), refusal("(NotFound): the server could not find the requested resource")),
    ]
}

/// The cells of an operation, but for AGE.
pub fn row(operation: &Value) -> Vec<String> {
    let progress = &operation["status"]["progress"];
    let cells = [
        text(operation, "/metadata/name"),
        text(operation, "/spec/subject/kind"),
        text(operation, "/spec/subject/name"),
        text(operation, "/spec/operation"),
        text(operation, "/status/phase"),
        text(operation, "/status/state"),
        &format!("{progress}%"),
        text(operation, "/status/message"),
    ];
    cells.map(str::to_owned).to_vec()
}

/// What `-o wide` adds.
fn wide(operation: &Value) -> Vec<String> {
    let cells = [
        "/spec/component",
        "/spec/ruleSet",
        "/status/reason",
        "/metadata/creationTimestamp",
        "/status/completed",
    ];
    cells.map(|it| text(operation, it).to_owned()).to_vec()
}

fn compare(said: &Said, expect: &Expect) -> Result<(), String> {
    let refused = matches!(expect, Refusal(_));
    if said.succeeded == refused {
        return Err(format!("refused: {}", !said.succeeded));
    }
    // Whatever is on standard error, such as a warning, would trouble a user.
    if !matches!(expect, Note(_) | Refusal(_)) && !said.err.is_empty() {
        return Err("it complains".to_owned());
    }
    match expect {
        Table(header, rows) => same(&table(&said.out)?, &(header.clone(), rows.clone())),
        Text(text) => same(&said.out, text),
        Object(object) => {
            let read = serde_saphyr::from_str(&said.out);
            let mut read: Value = read.map_err(|it| it.to_string())?;
            if let (Some(read), "List") = (read.as_object_mut(), text(object, "/kind")) {
                read.remove("metadata");
            }
            same(&read, object)
        }
        Words(words) => {
            let mut rest = said.out.as_str();
            for word in words {
                let at = rest.find(word).ok_or(format!("no {word:?}"))?;
                rest = &rest[at + word.len()..];
            }
            Ok(())
        }
        Note(text) | Refusal(text) => {
            if said.err.contains(text.as_str()) {
                Ok(())
            } else {
                Err(format!("no {text:?}"))
            }
        }
    }
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        Ok(())
    } else {
        Err(format!("{found:?} where {wanted:?} is wanted"))
    }
}

/// A header and its rows, without the cells below AGE, which must look like an age.
fn table(text: &str) -> Result<(Vec<String>, Vec<Vec<String>>), String> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let names: Vec<String> = header.split_whitespace().map(str::to_owned).collect();
    let mut starts: Vec<usize> = Vec::new();
    for name in &names {
        // Two columns may have one name.
        let after = starts.last().map_or(0, |start| start + 1);
        let at = header[after..].find(name.as_str()).expect("it is there");
        starts.push(after + at);
    }
    let mut rows = Vec::new();
    for line in lines {
        let mut row = Vec::new();
        for (at, start) in starts.iter().enumerate() {
            let end = starts.get(at + 1).copied().unwrap_or(line.len());
            let cell = line.get(*start..end.min(line.len())).unwrap_or_default();
            let cell = cell.trim_end();
            if names[at] != "AGE" {
                row.push(cell.to_owned());
            } else if !cell.starts_with(|it: char| it.is_ascii_digit()) {
                return Err(format!("{cell:?} is no age"));
            }
        }
        rows.push(row);
    }
    Ok((names, rows))
}
