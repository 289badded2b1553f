//! Tests of lists and objects as tables and as `PartialObjectMetadata`.

use super::*;

const TABLES: &[(&str, &str)] = &[("accept", TABLE)];

/// Returns the cell of the first row in the column `name`.
fn cell<'a>(table: &'a Value, name: &str) -> &'a Value {
    let columns = table["columnDefinitions"].as_array().unwrap();
    let number = columns.iter().position(|column| column["name"] == name);
    &table["rows"][0]["cells"][number.unwrap_or_else(|| panic!("no column {name}"))]
}

#[tokio::test]
async fn a_table_has_the_documented_columns_and_metadata_in_each_row() {
    let fixture = Fixture::filled();
    let table = fixture
        .json(&format!("{BASE}/namespaces/a/inflightoperations"), TABLES)
        .await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(table["metadata"]["resourceVersion"], "105");
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert!(columns.iter().all(|it| it.as_object().unwrap().len() == 5));
    let row = &table["rows"][0];
    let cells = row["cells"].as_array().unwrap();
    let shown = columns
        .iter()
        .zip(cells)
        .map(|(column, cell)| json!([column["name"], column["priority"], column["type"], cell]));
    let age = cell(&table, "Age");
    assert!(age.as_str().unwrap().contains('y'), "{age}");
    assert_eq!(
        Value::Array(shown.collect()),
        json!([
            ["Name", 1, "string", "x"],
            ["Kind", 1, "string", "VirtualMachine"],
            ["Subject", 0, "string", "vm/vm"],
            ["Operation", 0, "string", "Migrating"],
            ["State", 0, "string", "Progressing 45%"],
            ["Progress", 1, "string", "45%"],
            ["Age", 0, "date", age],
            ["Message", 0, "string", "<moving>"],
            ["Phase", 1, "string", "Active"],
            ["Component", 1, "string", "kubevirt"],
            ["RuleSet", 1, "string", "rules"],
            ["Initiator", 1, "string", "ann"],
            ["Reason", 1, "string", "Migrating"],
            ["Started", 1, "string", "2020-01-01T00:00:00Z"],
            ["Completed", 1, "string", null],
            ["Full Message", 1, "string", "<moving>"],
        ])
    );
    assert_eq!(columns[0]["format"], "name");
    assert_eq!(row["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(row["object"]["apiVersion"], "meta.k8s.io/v1");
    assert_eq!(row["object"]["metadata"]["namespace"], "a");
    assert_eq!(row["object"].as_object().unwrap().len(), 3);
}

#[tokio::test]
async fn missing_cells_are_null_and_the_item_follows_the_subject() {
    let mut fixture = Fixture::new();
    fixture.put(101, "a", "x", |object| {
        object["spec"]["item"] = json!("disk \"1\"");
        object["status"].as_object_mut().unwrap().remove("progress");
        object["status"]["conditions"] = json!([{
            "type": "Overdue", "status": "True", "reason": "LongerThanExpected", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
    });
    let path = format!("{BASE}/namespaces/a/inflightoperations/x");
    let table = fixture.json(&path, TABLES).await;
    assert_eq!(cell(&table, "Subject"), "vm/vm/disk \"1\"");
    assert_eq!(cell(&table, "State"), "Progressing (overdue)");
    assert_eq!(cell(&table, "Progress"), &Value::Null);
    assert_eq!(table["metadata"]["resourceVersion"], "101");
}

#[tokio::test]
async fn no_cell_contains_unprintable_characters_or_tabs() {
    let hostile = "a\u{1b}]0;b\u{7}\u{8}\u{9b}\u{7f}\u{85}\u{202e}\u{61c}\r\tc";
    let safe = "a�]0;b�������  c";
    let mut fixture = Fixture::new();
    fixture.put(101, "a", "x", |object| {
        for field in ["item", "component", "operation", "ruleSet", "initiator"] {
            object["spec"][field] = json!(hostile);
        }
        object["spec"]["subject"]["name"] = json!(hostile);
        object["spec"]["subject"]["kind"] = json!(hostile);
        object["status"]["reason"] = json!(hostile);
        object["status"]["message"] = json!(hostile.repeat(10));
    });
    let path = format!("{BASE}/namespaces/a/inflightoperations/x");
    let table = fixture.json(&path, TABLES).await;
    let cells = table["rows"][0]["cells"].as_array().unwrap();
    let texts: Vec<&str> = cells.iter().filter_map(Value::as_str).collect();
    let subject = format!("{safe}/{safe}/{safe}");
    let message = safe.repeat(10);
    for expected in [safe, &subject, &message] {
        assert!(
            texts.contains(&expected),
            "{expected:?} is not in {texts:?}"
        );
    }
    for cell in texts {
        let is_hostile = |c: char| c.is_control() || ifo_api::is_unprintable(c);
        assert!(!cell.contains(is_hostile), "{cell:?}");
    }
}
