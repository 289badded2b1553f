use super::*;
use std::fmt::Write as _;

fn names(text: &str) -> Vec<String> {
    let objects = read(text).unwrap();
    objects
        .iter()
        .map(|o| format!("{} {} {}", o.api_version, o.kind, o.name))
        .collect()
}

#[test]
fn documents_and_list_items_are_split_into_objects() {
    let yaml = "---\n# nothing\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: b}}\n";
    assert_eq!(names(yaml), ["v1 Pod a", "apps/v1 Deployment b"]);
    let json = r#"{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"c"}}]} {"apiVersion":"v1","kind":"Pod","metadata":{"name":"d"}}"#;
    assert_eq!(names(json), ["v1 Pod c", "v1 Pod d"]);
}

#[test]
fn the_items_of_a_list_in_a_list_are_objects() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}}";
    let list = |items: &str| format!("{{apiVersion: v1, kind: List, items: [{items}]}}");
    assert_eq!(
        names(&list(&format!("{pod}, {}", list(pod)))),
        ["v1 Pod a"; 2]
    );
}

#[test]
fn the_documents_before_an_error_are_returned_with_the_error() {
    let json = "{\"a\": 1} {\"a\": 2}\n";
    for (text, found, expected) in [
        (json.to_owned() + "{\"a\": }", 2, "at line 2 column 7"),
        (json.to_owned() + "}", 2, "at line 2 column 1"),
        (
            "a: 1\n---\na: 2\n---\na: [\n---\na: 4\n".to_owned(),
            2,
            "line 5",
        ),
        ("{a: 1}\n---\n{a: 2}\n---\n{a: [\n".to_owned(), 2, "line "),
        ("a: 1\na: 2\n".to_owned(), 0, "duplicate mapping key"),
        ("{\"items\": [{},".to_owned(), 0, "EOF while parsing"),
        (
            "{\"a\": 1}\n---\n# b\n---\n{\"a\": 2}\n---\n{a: [}".to_owned(),
            2,
            "line 7",
        ),
        ("{\n  a: 1,\n  b: [1}\n".to_owned(), 0, "line 3, "),
        ("{{- if .a }}\nb: 1\n".to_owned(), 0, "line 1, "),
    ] {
        let budget = &mut MemoryBudget::default();
        let (documents, end) = documents_before_error(text.as_bytes(), budget);
        let error = end.unwrap_err();
        assert_eq!(documents.len(), found, "{text}: {error}");
        assert!(error.contains(expected), "{text}: {error}");
        assert!(budget.left < MAX_MEMORY || found == 0, "{text}");
    }
    let (documents, end) = documents_before_error(b"\xfd7zXZ", &mut MemoryBudget::default());
    assert!(documents.is_empty() && end.unwrap_err().contains("gzip and tar"));
}

#[test]
fn kustomizations_are_skipped() {
    let yaml = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\n";
    assert_eq!(
        names(yaml),
        ["kustomize.toolkit.fluxcd.io/v1 Kustomization a"]
    );
}

#[test]
fn a_kind_whose_name_ends_in_list_without_items_is_an_object() {
    assert_eq!(
        names("{apiVersion: x/v1, kind: AllowList, metadata: {name: a}}"),
        ["x/v1 AllowList a"]
    );
}

#[test]
fn errors_are_reported_with_their_position() {
    for (text, expected) in [
        ("a: b\nc: [", "line 2, column 4: unclosed bracket"),
        (
            "apiVersion: v1\nkind: Pod\n---\napiVersion: v1\n",
            "document 1: Pod without metadata",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {}\n",
            "Pod without metadata.name",
        ),
        (
            "{apiVersion: v1, kind: List, items: [7]}",
            "document 1: item 0: not an object",
        ),
        ("{\n\"a\": b: c}", "line 2"),
        ("{\"a\": 1,\n]", "line 2"),
        ("just text", "document 1: not an object"),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn yaml_aliases_cannot_expand_without_limit() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for n in 1..12 {
        let before = vec![format!("*a{}", n - 1); 10].join(",");
        writeln!(bomb, "a{n}: &a{n} [{before}]").unwrap();
    }
    assert!(read(&bomb).is_err());
    let long = "x".repeat(1 << 20);
    let aliases = vec!["*a"; 1000].join(",");
    assert!(read(&format!("a: &a {long}\nb: [{aliases}]\n")).is_err());
}

#[test]
fn documents_before_a_limit_are_not_parsed_again_without_a_common_limit() {
    let aliases = |name: &str| [name; 10].join(",");
    let (b, c, d) = (aliases("*a"), aliases("*b"), aliases("*c"));
    let text = "x".repeat(20_000);
    let document = format!("a: &a {text}\nb: &b [{b}]\nc: &c [{c}]\nd: [{d}]\n---\n");
    let budget = &mut MemoryBudget::default();
    let (documents, end) = documents_before_error(document.repeat(10).as_bytes(), budget);
    let error = end.unwrap_err();
    assert!(error.contains("breached"), "{error}");
    assert!(documents.is_empty(), "{}", documents.len());
    // The memory of the documents before a syntax error is limited, too.
    let document = format!("a: {}\n---\n", "x".repeat(10_000));
    let mut budget = MemoryBudget { left: 55_000 };
    let text = document.repeat(9) + "a: [\n";
    let (documents, end) = documents_before_error(text.as_bytes(), &mut budget);
    assert_eq!(documents.len(), 5);
    assert!(end.unwrap_err().contains("limit for all files together"));
}

#[test]
fn files_that_share_a_budget_may_take_only_its_memory_together() {
    let object = "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a, [b\"}}";
    let yaml = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n";
    for text in [object, yaml] {
        let value = documents(text, &mut MemoryBudget::default()).unwrap();
        let needed: usize = value.iter().map(|it| json_memory(&it.to_string())).sum();
        let mut budget = MemoryBudget { left: 7 * needed };
        let read = (0..100).map_while(|_| documents(text, &mut budget).ok());
        let read = read.count();
        assert!((4..=7).contains(&read), "{read} times {text}");
    }
    let bomb = format!("[{}]", vec!["{\"a\":0}"; 1000].join(","));
    for text in [format!("- {bomb}"), bomb] {
        let mut budget = MemoryBudget { left: 500_000 };
        let error = documents(&text, &mut budget).unwrap_err();
        assert!(error.contains("limit for all files together"), "{error}");
    }
}
