//! Attacker: a user who may write rule sets, and who may list the objects on which the rule sets of
//! another team detect operations. The user writes rules that end, rename or hide the operations of
//! the other team. Clients of the other team must see the same operations as before.

use crate::harness::{
    OPERATION, RULE_SET, TestCluster, VM, VMI, columns, eventually, ok_if, rule_set,
    same_but_for_gaps, shared, text,
};
use crate::plugin::run;
use serde_json::{Value, json};

/// The key of the team's piece of work, as its rules yield it.
const WORK: &str = "migration/web";

/// A team with rule sets for one namespace. The team has a migration in flight. The migration has
/// operations on a VirtualMachine and on a VirtualMachineInstance.
struct Team {
    cluster: &'static TestCluster,
    namespace: &'static str,
    /// The component of the team's rule sets.
    component: String,
    before: View,
}

/// What the clients of a team see.
#[derive(Debug)]
struct View {
    /// The operations of `kubectl get ifos` with a label selector for the component.
    by_label: Vec<Value>,
    /// The operations of `kubectl get ifos` with a field selector for the component.
    by_field: Vec<Value>,
    /// The rows of `kubectl ifo -c COMPONENT`, without the ages.
    rows: Vec<Vec<String>>,
    /// The rows of `kubectl ifo` for the whole namespace, without the ages.
    all_rows: Vec<Vec<String>>,
    /// The row of the component in `kubectl ifo summary`.
    summary: Vec<String>,
}

impl Team {
    async fn with_a_migration(cluster: &'static TestCluster) -> Self {
        let namespace = cluster.namespace("team").await;
        let component = format!("own-{namespace}");
        let migrating = "object.status.printableStatus == 'Migrating'";
        for (name, target, rule) in [
            ("m", &VM, ("Migrating", migrating)),
            ("n", &VMI, ("LiveMigrating", "true")),
        ] {
            let mut rules = rule_set(&format!("{name}-{namespace}"), target, &[rule]);
            rules["spec"]["component"] = json!(component);
            rules["spec"]["namespaces"] = json!([namespace]);
            rules["spec"]["rules"][0]["message"] = json!("'of the team'");
            rules["spec"]["rules"][0]["work"] = json!(format!("'{WORK}'"));
            cluster.ready_rule_set(&rules).await;
        }
        cluster.machine(namespace, "web", "Migrating").await;
        let instance = json!({
            "apiVersion": VMI.api_version, "kind": VMI.kind, "metadata": {"name": "web"},
        });
        cluster.create(&VMI, Some(namespace), &instance).await;
        let both = [("web", "LiveMigrating"), ("web", "Migrating")];
        cluster.until_operations(namespace, &both).await;
        let before = View::of(cluster, namespace, &component).await;
        assert_eq!(before.by_label.len(), 2);
        assert_eq!(before.rows.len(), 1, "the migration is one piece of work");
        assert_eq!(before.all_rows, before.rows);
        Self {
            cluster,
            namespace,
            component,
            before,
        }
    }

    /// Returns a rule set of another component with one rule for the team's VirtualMachine. The
    /// fields `more` are added to the rule.
    fn foreign(&self, name: &str, operation: &str, more: &Value) -> Value {
        let expression = "object.status.printableStatus == 'Migrating'";
        let name = format!("{name}-{}", self.namespace);
        let mut rules = rule_set(&name, &VM, &[(operation, expression)]);
        rules["spec"]["component"] = json!(format!("other-{}", self.namespace));
        rules["spec"]["namespaces"] = json!([self.namespace]);
        let rule = rules["spec"]["rules"][0].as_object_mut();
        let rule = rule.expect("the rule is an object");
        rule.extend(more.as_object().expect("the fields are an object").clone());
        rules
    }

    /// Creates the rule set of the attacker, and waits until it detects an operation in `namespace`.
    async fn attack(&self, rules: &Value, namespace: &str) {
        self.cluster.create(&RULE_SET, None, rules).await;
        let name = text(rules, "/metadata/name");
        eventually("the attacker has an operation", async || {
            let operations = self.cluster.operations(namespace).await;
            let mut sets = operations.iter().map(|it| &it["status"]["detectedBy"]);
            let is_own = |it: &Value| it.as_array().is_some_and(|it| it.contains(&json!(name)));
            ok_if(sets.any(is_own), &operations)
        })
        .await;
    }

    /// Asserts that the clients of the team see the same operations as before the attack.
    async fn sees_the_same(&self) {
        let after = View::of(self.cluster, self.namespace, &self.component).await;
        for (before, after) in [
            (&self.before.by_label, &after.by_label),
            (&self.before.by_field, &after.by_field),
        ] {
            assert_eq!(before.len(), after.len(), "{after:#?}");
            for (before, after) in before.iter().zip(after) {
                assert!(same_but_for_gaps(before, after), "{before:#} {after:#}");
            }
        }
        assert_eq!(after.rows, self.before.rows);
        assert_eq!(after.summary, self.before.summary);
        for row in &self.before.all_rows {
            assert!(after.all_rows.contains(row), "{:#?}", after.all_rows);
        }
        let wait = ["wait", "-c", &self.component, "--timeout", "2s"];
        let waited = run(self.cluster, &wait).await;
        assert_eq!(waited.code, 1, "{}{}", waited.out, waited.err);
    }
}

impl View {
    async fn of(cluster: &TestCluster, namespace: &str, component: &str) -> Self {
        let list = async |selector: String| {
            let path = format!("{}?{selector}", OPERATION.path(Some(namespace)));
            let mut list = cluster.admin.get(&path).await.ok();
            match list["items"].take() {
                Value::Array(items) => items,
                other => panic!("the list has no items: {other}"),
            }
        };
        let label = format!("labelSelector=ifo.kubevirt.io%2Fcomponent%3D{component}");
        let summary = run(cluster, &["summary", "-n", namespace]).await.out;
        let summary = summary.lines().find(|it| it.starts_with(component));
        Self {
            by_label: list(label).await,
            by_field: list(format!("fieldSelector=spec.component%3D{component}")).await,
            rows: rows(cluster, &["list", "-n", namespace, "-c", component]).await,
            all_rows: rows(cluster, &["list", "-n", namespace]).await,
            summary: cells(summary.unwrap_or_default()),
        }
    }
}

/// Returns the rows of a table of the plugin, without the header and without the ages.
async fn rows(cluster: &TestCluster, args: &[&str]) -> Vec<Vec<String>> {
    let listed = run(cluster, args).await;
    let mut lines = listed.out.lines();
    let header = columns(lines.next().unwrap_or_default());
    let age = header.iter().position(|it| *it == "AGE");
    let age = age.unwrap_or_else(|| panic!("{}{}", listed.out, listed.err));
    lines
        .map(|line| {
            let mut cells = cells(line);
            cells.remove(age);
            cells
        })
        .collect()
}

/// Returns the cells of a line of a table.
fn cells(line: &str) -> Vec<String> {
    columns(line).into_iter().map(str::to_owned).collect()
}

#[test]
fn supersedes_ends_no_operation_of_another_team() {
    shared(async |cluster| {
        let team = Team::with_a_migration(cluster).await;
        let rules = team.foreign("a", "Taking", &json!({"supersedes": ["*"]}));
        team.attack(&rules, team.namespace).await;
        team.sees_the_same().await;
    });
}

#[test]
fn a_rule_set_does_not_take_over_an_operation_of_another_team() {
    shared(async |cluster| {
        let team = Team::with_a_migration(cluster).await;
        // The name sorts before the names of the team's rule sets.
        let fields = json!({
            "message": "'taken'", "startedAt": "timestamp('2020-01-01T00:00:00Z')",
            "outcome": "'Failed'",
        });
        let rules = team.foreign("a", "Migrating", &fields);
        team.attack(&rules, team.namespace).await;
        team.sees_the_same().await;
        // The removal of the attacker's rule set must not change the team's operation either.
        let path = format!("{}/{}", RULE_SET.path(None), text(&rules, "/metadata/name"));
        cluster.admin.delete(&path).await.ok();
        let own = [("web", "LiveMigrating"), ("web", "Migrating")];
        cluster.until_operations(team.namespace, &own).await;
        team.sees_the_same().await;
    });
}

#[test]
fn a_work_key_hides_no_operation_of_another_team() {
    shared(async |cluster| {
        let team = Team::with_a_migration(cluster).await;
        // An operation with an early start becomes the root of a piece of work, which is the only
        // member that has a line.
        for (name, key) in [
            ("a", format!("'{WORK}'")),
            ("b", format!("'@{}/{WORK}'", team.namespace)),
            ("c", "'migration/'".to_owned()),
        ] {
            let fields = json!({"work": key, "startedAt": "timestamp('2020-01-01T00:00:00Z')"});
            let operation = format!("Taking{}", name.to_uppercase());
            let rules = team.foreign(name, &operation, &fields);
            team.attack(&rules, team.namespace).await;
            team.sees_the_same().await;
        }
    });
}

#[test]
fn a_work_key_hides_no_operation_of_another_namespace() {
    shared(async |cluster| {
        let team = Team::with_a_migration(cluster).await;
        // The attacker has rights in another namespace only, and uses the component of the team.
        let other = cluster.namespace("team-attacker").await;
        cluster.machine(other, "web", "Migrating").await;
        for (name, key) in [
            ("a", format!("'{WORK}'")),
            ("b", format!("'@{}/{WORK}'", team.namespace)),
            ("c", format!("'../@{}/{WORK}'", team.namespace)),
        ] {
            let fields = json!({"work": key, "startedAt": "timestamp('2020-01-01T00:00:00Z')"});
            let operation = format!("Taking{}", name.to_uppercase());
            let mut rules = team.foreign(name, &operation, &fields);
            rules["spec"]["component"] = json!(team.component);
            rules["spec"]["namespaces"] = json!([other]);
            team.attack(&rules, other).await;
            let everywhere = rows(cluster, &["list", "-A", "-c", &team.component]).await;
            for row in &team.before.rows {
                let shows = |it: &Vec<String>| row.iter().all(|cell| it.contains(cell));
                assert!(everywhere.iter().any(shows), "{everywhere:#?}");
            }
        }
        team.sees_the_same().await;
    });
}
