//! Compares the files in `deploy/dashboards` and `deploy/k9s` with the server. The tests check the
//! requests of dashboards, the fields that the examples read, and the columns of the views.

use super::super::operation_records;
use super::websockets::{listening, open_path};
use super::*;
use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../deploy/dashboards/README.md");
const EXAMPLES: [&str; 3] = [
    include_str!("../../../deploy/dashboards/console-extensions.json"),
    include_str!("../../../deploy/dashboards/console-operations.tsx"),
    include_str!("../../../deploy/dashboards/headlamp.tsx"),
];
const VIEWS: &str = include_str!("../../../deploy/k9s/views.yaml");
const PLUGINS: &str = include_str!("../../../deploy/k9s/plugins.yaml");

/// Returns the texts in backticks.
fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns the version in the metadata of an object or a list. Headlamp ignores an event whose
/// version is not a number above the version of its list.
fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    version.parse().expect("the version must be a number")
}

#[tokio::test]
async fn the_server_answers_the_requests_of_dashboards() {
    let mut fixture = Fixture::filled();
    let listening = listening(&fixture).await;
    let (_, table) = PAGE.split_once("## What dashboards request").unwrap();
    let rows = table.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut clients = BTreeSet::new();
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        clients.insert(cells[0]);
        let list = format!("{BASE}/inflightoperations");
        let listed = version(&fixture.json(&list, &[]).await);
        let path = code(cells[1])[0].replace("API", BASE);
        let path = path.replace("VERSION", &listed.to_string());
        let headers = code(cells[2]).into_iter();
        let headers: Vec<_> = headers.map(|it| it.split_once(": ").unwrap()).collect();
        let expected = code(cells[3])[0];
        if !headers.contains(&("Upgrade", "websocket")) {
            assert_eq!(
                fixture.json(&path, &headers).await["kind"],
                expected,
                "{row}"
            );
            continue;
        }
        let opened = open_path(&listening, &path, &headers).await;
        let mut client = opened.unwrap_or_else(|refused| panic!("{row}: {refused:?}"));
        fixture.put(listed + 1, "a", "x", |it| {
            it["status"]["progress"] = json!(listed % 100);
        });
        let event = as_json(&client.next_event().await);
        assert_eq!(event["type"], "MODIFIED", "{row}");
        assert_eq!(event["object"]["kind"], expected, "{row}");
        assert_eq!(version(&event["object"]), listed + 1, "{row}");
    }
    assert_eq!(clients.len(), 4, "{clients:?}");
}

#[tokio::test]
async fn the_examples_read_fields_that_operations_have() {
    let fixture = Fixture::filled();
    let list = fixture
        .json(&format!("{BASE}/inflightoperations"), &[])
        .await;
    let examples = EXAMPLES.concat();
    let field = regex::Regex::new(r"\bit((?:\.[a-zA-Z]+)+)").unwrap();
    let fields = field
        .captures_iter(&examples)
        .map(|it| it[1].replace('.', "/"));
    let fields: BTreeSet<String> = fields.collect();
    assert!(fields.len() > 5, "{fields:?}");
    for field in fields {
        assert!(list["items"][0].pointer(&field).is_some(), "{field}");
    }
    let kind = format!(
        "{}~{}~{}",
        ifo_api::LIVE_GROUP,
        ifo_api::VERSION,
        ifo_api::live::KIND
    );
    assert!(examples.contains(&kind), "{kind}");
}

#[test]
fn the_views_and_keys_of_k9s_name_columns_that_exist() {
    let (_, reader) = index_from(
        Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(10),
        },
        Rv(1),
    );
    let resources = [
        inflight_operations(reader.clone()),
        activities(reader.clone()),
        operation_records(reader),
    ];
    let views: Value = serde_saphyr::from_str(VIEWS).unwrap();
    let views = views["views"].as_object().unwrap();
    assert_eq!(views.len(), resources.len());
    let used = PLUGINS.split("$COL-").skip(1);
    let used: BTreeSet<_> = used.filter_map(|it| it.split_whitespace().next()).collect();
    assert_eq!(used.len(), 2, "{used:?}");
    for resource in resources {
        let info = &resource.info;
        let view = &views[&format!("{}/{}/{}", info.group, info.version, info.plural)];
        let served = resource.columns.iter().map(|it| it.name.to_uppercase());
        let served: BTreeSet<String> = served.chain(["NAMESPACE".to_owned()]).collect();
        let columns = view["columns"].as_array().unwrap().iter();
        let mut shown = BTreeSet::new();
        for column in columns.map(|it| it.as_str().unwrap()) {
            let name = column.split(['|', ':']).next().unwrap();
            shown.insert(name);
            // A column with a path does not need a column of the server.
            assert!(
                column.contains(':') || served.contains(name),
                "{column}: {served:?}"
            );
        }
        let sorted = view["sortColumn"].as_str().unwrap();
        assert!(
            shown.contains(sorted.split(':').next().unwrap()),
            "{sorted}"
        );
        // The keyboard shortcuts of k9s (`plugins`) do not use columns of activities.
        assert!(info.plural == "activities" || used.is_subset(&shown));
    }
}
