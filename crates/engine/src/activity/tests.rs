//! Tests of [`Activities`].

use super::*;
use ifo_api::activity::{
    NOT_YET_READ, NOTHING_IN_FLIGHT, OPERATIONS_IN_FLIGHT, RULE_SETS_NOT_WORKING,
};
use ifo_api::completeness::Gap;
use ifo_api::metadata::Condition;
use ifo_api::testing;
use serde_json::{Value, json};

/// The activities of a cluster, and the objects that clients see.
struct Fixture {
    activities: Activities,
    shown: BTreeMap<Key, Arc<Activity>>,
    now: Timestamp,
}

impl Fixture {
    fn new() -> Self {
        let mut fixture = Self {
            activities: Activities::new("ifo-system".into(), []),
            shown: BTreeMap::new(),
            now: "2026-01-02T03:04:05Z".parse().unwrap(),
        };
        fixture.apply(false);
        fixture
    }

    /// Applies the writes. Returns their number.
    fn apply(&mut self, with_numbers: bool) -> usize {
        let writes = self.activities.writes(self.now, with_numbers);
        let count = writes.len();
        for write in writes {
            match write {
                Write::Put { key, object } => {
                    let activity = object.activity().unwrap().clone();
                    self.shown.insert(key, activity);
                }
                Write::Delete { key } => {
                    self.shown.remove(&key).expect("the activity exists");
                }
            }
        }
        count
    }

    fn put(&mut self, name: &str, fields: &Value) {
        let key = Key::new("shop", name);
        let mut operation = testing::operation(fields);
        operation.metadata.name = name.into();
        let object = Object::from(operation);
        self.activities.record(&Write::Put { key, object });
        self.apply(false);
    }

    fn delete(&mut self, name: &str) {
        let key = Key::new("shop", name);
        self.activities.record(&Write::Delete { key });
        self.apply(false);
    }

    fn set_gaps(&mut self, rule_sets: Vec<Gap>) {
        self.activities.set_gaps(Arc::new(Gaps {
            rule_sets_are_read: true,
            total: 3,
            components: ["kubevirt".into()].into(),
            rule_sets,
        }));
        self.apply(false);
    }

    fn activity(&self, namespace: &str, name: &str) -> Option<&Activity> {
        let key = Collection::Activities.key(namespace, name);
        self.shown.get(&key).map(|activity| &**activity)
    }

    /// Returns the status and the reason of the condition `Idle`.
    fn idle(&self, namespace: &str, name: &str) -> Option<(&str, &str)> {
        let idle = self.activity(namespace, name)?.idle()?;
        Some((&idle.status, &idle.reason))
    }

    fn cluster(&self) -> (&str, &str) {
        self.idle("ifo-system", "cluster")
            .expect("it always exists")
    }
}

fn gap(namespaces: Option<&[&str]>, is_being_read: bool) -> Gap {
    Gap {
        rule_set: "vm-rules".into(),
        reason: "does not compile".to_owned(),
        is_being_read,
        component: "kubevirt".into(),
        kind: None,
        operations: Vec::new(),
        namespaces: namespaces.map(|all| all.iter().map(|it| (*it).into()).collect()),
        cluster_scoped: false,
        lacks_nodes: false,
    }
}

fn namespaces(names: &[&str]) -> Existing {
    let all = names
        .iter()
        .map(|name| ((*name).into(), Timestamp::UNIX_EPOCH));
    Existing::Namespaces(Arc::new(all.collect()))
}

#[test]
fn nothing_is_idle_before_the_targets_are_read_but_what_is_busy_is_busy() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.cluster(), ("Unknown", NOT_YET_READ));
    fixture.put("a", &json!({}));
    assert_eq!(fixture.cluster(), ("False", OPERATIONS_IN_FLIGHT));
    fixture.delete("a");
    assert_eq!(fixture.cluster(), ("Unknown", NOT_YET_READ));
    fixture.set_gaps(vec![gap(None, true)]);
    assert_eq!(fixture.cluster(), ("Unknown", NOT_YET_READ));
    fixture.set_gaps(Vec::new());
    assert_eq!(fixture.cluster(), ("True", NOTHING_IN_FLIGHT));
}

#[test]
fn an_operation_makes_its_namespace_nodes_component_and_the_cluster_busy() {
    let mut fixture = Fixture::new();
    fixture.set_gaps(Vec::new());
    fixture
        .activities
        .set_existing(&namespaces(&["shop", "other"]));
    fixture
        .activities
        .set_existing(&Existing::Nodes(vec!["n1".into(), "n2".into()]));
    fixture.apply(false);
    let status = json!({"nodes": ["n1", "unlisted", "no/node"], "state": "Blocked"});
    fixture.put("a", &json!({"status": status}));
    let idle = |fixture: &Fixture, namespace: &str, name: &str| {
        let status = fixture
            .idle(namespace, name)
            .map(|(status, _)| status.to_owned());
        status.unwrap_or_default()
    };
    for (namespace, name, status) in [
        ("shop", "namespace", "False"),
        ("other", "namespace", "True"),
        ("ifo-system", "cluster", "False"),
        ("ifo-system", "component.kubevirt", "False"),
        ("ifo-system", "node.n1", "False"),
        ("ifo-system", "node.n2", "True"),
        ("ifo-system", "node.unlisted", "False"),
        ("ifo-system", "node.no/node", ""),
    ] {
        assert_eq!(
            idle(&fixture, namespace, name),
            status,
            "{namespace}/{name}"
        );
    }
    let shop = &fixture.activity("shop", "namespace").unwrap().status;
    assert_eq!((shop.operations, shop.blocked, shop.failing), (1, 1, 0));
    assert_eq!(shop.oldest.as_ref().unwrap().name, "a");
    // A completed operation is over, even if it is retained.
    fixture.put(
        "a",
        &json!({"status": {"phase": "Completed", "state": "Ended"}}),
    );
    assert_eq!(idle(&fixture, "shop", "namespace"), "True");
    assert_eq!(idle(&fixture, "ifo-system", "node.unlisted"), "");
    // A deleted namespace has no activity.
    fixture.activities.set_existing(&namespaces(&["other"]));
    fixture.apply(false);
    assert_eq!(idle(&fixture, "shop", "namespace"), "");
}

#[test]
fn a_rule_set_cannot_create_activities_of_many_nodes() {
    let mut fixture = Fixture::new();
    fixture.set_gaps(Vec::new());
    let nodes = |fixture: &Fixture| {
        let all = fixture.shown.keys();
        all.filter(|key| key.name.starts_with("node.")).count()
    };
    for number in 0..MAX_UNLISTED_NODES + 10 {
        let node = format!("invented-{number}");
        fixture.put(&format!("o{number}"), &json!({"status": {"nodes": [node]}}));
    }
    assert_eq!(nodes(&fixture), MAX_UNLISTED_NODES);
    // A node of the cluster is busy, although its operation was not counted before.
    let last = format!("invented-{}", MAX_UNLISTED_NODES + 9);
    fixture
        .activities
        .set_existing(&Existing::Nodes(vec![last.as_str().into()]));
    fixture.apply(false);
    let busy = Some(("False", OPERATIONS_IN_FLIGHT));
    assert_eq!(fixture.idle("ifo-system", &format!("node.{last}")), busy);
    for number in 0..MAX_UNLISTED_NODES + 10 {
        fixture.delete(&format!("o{number}"));
    }
    assert_eq!(nodes(&fixture), 1);
    assert_eq!(fixture.cluster(), ("True", NOTHING_IN_FLIGHT));
}

#[test]
fn a_held_operation_is_not_in_flight() {
    let mut fixture = Fixture::new();
    fixture.set_gaps(Vec::new());
    fixture.put("a", &json!({"status": {"state": "Held"}}));
    assert_eq!(fixture.cluster(), ("True", NOTHING_IN_FLIGHT));
    fixture.put("a", &json!({"status": {"state": "Progressing"}}));
    assert_eq!(fixture.cluster(), ("False", OPERATIONS_IN_FLIGHT));
}

#[test]
fn a_gap_makes_only_the_affected_activities_unknown() {
    let mut fixture = Fixture::new();
    fixture
        .activities
        .set_existing(&namespaces(&["shop", "other"]));
    fixture.set_gaps(vec![gap(Some(&["shop"]), false)]);
    let unknown = Some(("Unknown", RULE_SETS_NOT_WORKING));
    assert_eq!(fixture.idle("shop", "namespace"), unknown);
    assert_eq!(fixture.idle("ifo-system", "component.kubevirt"), unknown);
    assert_eq!(fixture.cluster(), ("Unknown", RULE_SETS_NOT_WORKING));
    let activity = fixture.activity("shop", "namespace").unwrap();
    let message = &activity.idle().unwrap().message;
    assert!(message.ends_with("Run kubectl get ors."), "{message}");
    let idle = Some(("True", NOTHING_IN_FLIGHT));
    assert_eq!(fixture.idle("other", "namespace"), idle);
}

#[test]
fn a_gap_affects_nodes_only_if_its_rule_set_can_name_nodes() {
    let mut fixture = Fixture::new();
    let nodes = Existing::Nodes(vec!["n1".into()]);
    fixture.activities.set_existing(&nodes);
    for (lacks_nodes, node) in [
        (false, ("Unknown", RULE_SETS_NOT_WORKING)),
        (true, ("True", NOTHING_IN_FLIGHT)),
    ] {
        fixture.set_gaps(vec![Gap {
            lacks_nodes,
            ..gap(None, false)
        }]);
        assert_eq!(fixture.idle("ifo-system", "node.n1"), Some(node));
        assert_eq!(fixture.cluster(), ("Unknown", RULE_SETS_NOT_WORKING));
    }
}

#[test]
fn numbers_alone_are_written_only_on_demand_and_keep_the_time() {
    let mut fixture = Fixture::new();
    fixture.set_gaps(Vec::new());
    fixture.put("a", &json!({}));
    let since = fixture
        .activity("shop", "namespace")
        .unwrap()
        .idle()
        .cloned();
    fixture.now += jiff::SignedDuration::from_secs(60);
    fixture.put("b", &json!({}));
    let numbers = |fixture: &Fixture| {
        let shop = fixture.activity("shop", "namespace").unwrap();
        shop.status.operations
    };
    assert_eq!(numbers(&fixture), 1);
    assert!(fixture.activities.has_outdated_numbers());
    assert!(fixture.apply(true) > 0);
    assert_eq!(numbers(&fixture), 2);
    let now = fixture
        .activity("shop", "namespace")
        .unwrap()
        .idle()
        .cloned();
    let time = |it: Option<Condition>| it.map(|it| it.last_transition_time);
    assert_eq!(time(now), time(since));
    assert!(!fixture.activities.has_outdated_numbers());
    assert_eq!(fixture.apply(true), 0);
}

#[test]
fn a_new_leader_keeps_the_time_of_what_stays_busy() {
    let mut before = Fixture::new();
    before.set_gaps(Vec::new());
    before.put("a", &json!({}));
    let operation = Object::from(testing::operation(&json!({"metadata": {"name": "a"}})));
    let mut index: Vec<(Key, Object)> = vec![(Key::new("shop", "a"), operation)];
    let shown = before.shown.clone();
    index.extend(
        shown
            .into_iter()
            .map(|(key, it)| (key, Object::Activity(it))),
    );
    let index = index.iter().map(|(key, object)| (key, object));
    let mut after = Fixture {
        activities: Activities::new("ifo-system".into(), index),
        shown: before.shown.clone(),
        now: before.now + jiff::SignedDuration::from_secs(60),
    };
    after.apply(false);
    let time = |fixture: &Fixture| {
        let cluster = fixture.activity("ifo-system", "cluster").unwrap();
        cluster.idle().unwrap().last_transition_time
    };
    assert_eq!(time(&after), time(&before));
    after.delete("a");
    assert_eq!(after.cluster(), ("Unknown", NOT_YET_READ));
}
