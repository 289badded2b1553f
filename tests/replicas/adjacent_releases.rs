//! Test of two replicas (processes) of the server that belong to adjacent releases. The newer
//! release has a field of operations that the older release does not know.
//!
//! The replica of the newer release leads first, then the replica of the older release, then the
//! newer one again. The leader detects operations. The other replica is a follower, which copies
//! the leader's operations. The copies must be exact, including the field that the older release
//! does not know.
//!
//! The older release is the current code. The newer release is the same code with the Cargo feature
//! `neighbour-release`, which adds the field.

use crate::TURNS;
use crate::cluster::Replicas;
use crate::harness::{
    Events, MANIFEST_FOLDERS, OPERATION, PodProgram, RULE_SET, VM, apart, condition, eventually,
    is_in_gap, kubectl, migrating, ok_if, text,
};
use crate::list_clients::{self, version};
use crate::operation_identity::identity;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::Instant;

/// The namespace of the VirtualMachines. Each migrating VirtualMachine has one operation.
const NAMESPACE: &str = "neighbours";

/// The field of operations that only the newer release knows.
const FIELD: &str = "neighbourField";

/// The value that the newer release writes into the field.
const VALUE: &str = "known";

/// Prefix of the names of the VirtualMachines that [`Neighbours::assert_events_agree`] creates. The
/// checks of [`FIELD`] ignore these VirtualMachines.
const WATCHED: &str = "watched-";

/// Environment variables of the replicas. They make the replicas retain completed operations, so
/// that the test covers these operations, too.
const VARIABLES: [(&str, &str); 1] = [("RETAIN_COMPLETED_IFOS", "true")];

/// Index in [`Replicas::all`] of the replica of the newer release, which has the field.
const NEWER: usize = 0;
/// Index in [`Replicas::all`] of the replica of the older release.
const OLDER: usize = 1;

#[test]
fn adjacent_releases_copy_each_others_operations_exactly_and_take_over() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("neighbours", async |control_plane| {
        let newer = PodProgram {
            path: build_neighbour_release(),
            ..PodProgram::default()
        };
        let mut replicas =
            Replicas::install(control_plane, newer, &MANIFEST_FOLDERS, &VARIABLES).await;
        replicas.add().await;
        replicas.wait_until_recovered().await;
        replicas.use_program(PodProgram::default());
        replicas.add().await;
        replicas.wait_until_recovered().await;
        let mut test = Neighbours::new(replicas).await;
        test.assert_openapi_field(NEWER, true).await;
        test.assert_openapi_field(OLDER, false).await;

        // The newer release leads, and the older release follows.
        test.wait_for_leader(NEWER).await;
        test.create(&["kept", "changed", "ended", "ended-later"])
            .await;
        test.end("ended").await;
        test.assert_replicas_agree(&["kept", "changed", "ended", "ended-later"])
            .await;

        // The older release takes over.
        let before = test.hand_over(NEWER, OLDER).await;
        test.create(&["of-older"]).await;
        test.step("changed").await;
        test.end("ended-later").await;
        let changed = ["changed", "ended-later", "of-older"];
        test.assert_only_changed(&changed, &before).await;
        test.start_again(NEWER).await;
        test.assert_replicas_agree(&["kept", "ended"]).await;

        // The newer release takes over again. It was restarted before, so it has copied all
        // operations from the older release.
        let before = test.hand_over(OLDER, NEWER).await;
        test.create(&["of-newer"]).await;
        test.step("changed").await;
        test.assert_only_changed(&["changed", "of-newer"], &before)
            .await;
        test.start_again(OLDER).await;
        test.assert_replicas_agree(&["kept", "ended", "changed", "of-newer"])
            .await;
    });
}

/// The operations that a replica serves. The key is the name of the VirtualMachine.
type Objects = BTreeMap<String, Value>;

struct Neighbours<'a> {
    replicas: Replicas<'a>,
    leader: usize,
    /// A watch at the leader. [`Self::hand_over`] starts this watch before the replica becomes the
    /// leader, so the watch covers the handover.
    leader_watch: Events,
    /// The name, UID and creation timestamp of each operation that the test has created. The key is
    /// the name of the VirtualMachine.
    identities: BTreeMap<String, [String; 3]>,
    steps: u32,
}

impl<'a> Neighbours<'a> {
    async fn new(replicas: Replicas<'a>) -> Self {
        let admin = &replicas.admin;
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
        });
        admin.post("/api/v1/namespaces", &namespace).await.ok();
        let mut rules = migrating(NAMESPACE);
        rules["spec"]["rules"][0]["message"] = json!("object.metadata.labels['step']");
        admin.post(&RULE_SET.path(None), &rules).await.ok();
        eventually("the rule set is ready", async || {
            let path = format!("{}/{NAMESPACE}", RULE_SET.path(None));
            let found = admin.try_get(&path).await?;
            ok_if(condition(&found.body, "Ready")["status"] == "True", &found)
        })
        .await;
        let leader_watch = watch(&replicas, NEWER).await;
        Self {
            replicas,
            leader: NEWER,
            leader_watch,
            identities: BTreeMap::new(),
            steps: 0,
        }
    }

    /// Asserts that the OpenAPI document of a replica has the field. If `expected` is false,
    /// asserts that the document lacks the field.
    async fn assert_openapi_field(&self, replica: usize, expected: bool) {
        let path = "/openapi/v3/apis/live.ifo.kubevirt.io/v1alpha1";
        let caller = &self.replicas.all[replica].endpoint.caller.0;
        let document = caller.get(path).await.ok();
        let schemas = document["components"]["schemas"].as_object();
        let mut schemas = schemas.expect("the document must have schemas").values();
        let has_field = schemas.any(|it| !it["properties"][FIELD].is_null());
        assert_eq!(has_field, expected, "replica {replica}");
    }

    /// Waits until this replica holds the Lease.
    async fn wait_for_leader(&self, replica: usize) {
        eventually("the replica leads", async || {
            let leader = self.replicas.leader().await;
            ok_if(leader == replica, leader)
        })
        .await;
    }

    /// Creates VirtualMachines that migrate, and waits for their operations.
    async fn create(&mut self, names: &[&str]) {
        for name in names {
            let machine = json!({
                "apiVersion": VM.api_version, "kind": VM.kind,
                "metadata": {"name": name, "labels": {"step": "first"}},
                "status": {"printableStatus": "Migrating"},
            });
            let path = VM.path(Some(NAMESPACE));
            self.replicas.admin.post(&path, &machine).await.ok();
        }
        for name in names {
            let operation = self.wait_for_operation(name, |it| it["status"]["message"] == "first");
            let identity = identity(&operation.await);
            self.identities.insert((*name).to_owned(), identity);
        }
    }

    /// Changes a label of a VirtualMachine, and waits until the message of its operation contains
    /// the new value.
    async fn step(&mut self, name: &str) {
        self.steps += 1;
        let step = format!("step-{}", self.steps);
        let patch = json!({"metadata": {"labels": {"step": step}}});
        self.merge(name, &patch).await;
        self.wait_for_operation(name, |it| it["status"]["message"] == step)
            .await;
    }

    /// Ends the migration of a VirtualMachine, and waits until its operation has completed.
    async fn end(&mut self, name: &str) {
        let patch = json!({"status": {"printableStatus": "Running"}});
        self.merge(name, &patch).await;
        self.wait_for_operation(name, |it| it["status"]["phase"] == "Completed")
            .await;
    }

    async fn merge(&self, name: &str, patch: &Value) {
        let path = format!("{}/{name}", VM.path(Some(NAMESPACE)));
        self.replicas.admin.merge(&path, patch).await.ok();
    }

    /// Waits until `is` returns true for the operation of a VirtualMachine. Reads the operation
    /// through the kube-apiserver.
    async fn wait_for_operation(&self, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually("the operation fulfils the condition", async || {
            let path = OPERATION.path(Some(NAMESPACE));
            let list = list_clients::read(&self.replicas.admin, &path).await?;
            let found = by_machine(&list.body).remove(name);
            match found {
                Some(operation) if is(&operation) => Ok(operation),
                other => Err(format!("{name}: {other:?}")),
            }
        })
        .await
    }

    /// Lists the operations at a replica.
    async fn objects(&self, replica: usize) -> Objects {
        let caller = &self.replicas.all[replica].endpoint.caller.0;
        let path = OPERATION.path(Some(NAMESPACE));
        let list = eventually("the replica answers a list request", async || {
            list_clients::read(caller, &path).await
        });
        by_machine(&list.await.body)
    }

    /// Returns the names of the VirtualMachines whose operations were in a watch gap: a time in
    /// which the leader's watch of the VirtualMachines is interrupted. On an overloaded machine,
    /// this can happen at any time.
    ///
    /// In a watch gap, the leader changes the operations: it sets their condition `Detected` to
    /// Unknown. If the newer release leads, it adds the field to each operation that it changes. If
    /// the older release leads, it removes the field.
    fn affected_by_watch_gaps(&self) -> BTreeSet<String> {
        self.leader_watch.inspect(|events| {
            let objects = events.iter().map(|it| &it["object"]);
            names(objects.filter(|it| is_in_gap(it)))
        })
    }

    /// Asserts that:
    ///
    /// - Both replicas serve the same bytes for a list, a get and a watch.
    /// - Exactly the operations of the VirtualMachines `with_field` have the field. Operations that
    ///   were in a watch gap are an exception: all of them have the field if the newer release
    ///   leads, and none if the older release leads (see [`Self::affected_by_watch_gaps`]). The
    ///   VirtualMachines whose names begin with [`WATCHED`] are not checked.
    /// - Through each replica, kubectl prints the field of exactly those operations that have it.
    async fn assert_replicas_agree(&mut self, with_field: &[&str]) {
        let path = OPERATION.path(Some(NAMESPACE));
        let callers = [NEWER, OLDER].map(|it| self.replicas.all[it].endpoint.caller.0.clone());
        eventually("both replicas list the same bytes", async || {
            let list = list_clients::read(&callers[0], &path).await?;
            let exact = format!(
                "{path}?resourceVersion={}&resourceVersionMatch=Exact",
                version(&list)
            );
            let first = list_clients::read(&callers[0], &exact).await?;
            let second = list_clients::read(&callers[1], &exact).await?;
            ok_if(first.text == second.text, [&first.text, &second.text])
        })
        .await;
        let objects = eventually("these operations have the field", async || {
            let objects = self.objects(NEWER).await;
            let mut expected: BTreeSet<String> =
                with_field.iter().map(|it| (*it).to_owned()).collect();
            for name in self.affected_by_watch_gaps() {
                if self.leader == NEWER {
                    expected.insert(name);
                } else {
                    expected.remove(&name);
                }
            }
            let mut fields = names(objects.values().filter(|it| it["status"][FIELD] == VALUE));
            for names in [&mut expected, &mut fields] {
                names.retain(|name| !name.starts_with(WATCHED));
            }
            ok_if(fields == expected, (&fields, &expected))?;
            Ok(objects)
        })
        .await;
        for operation in objects.values() {
            let path = format!("{path}/{}", text(operation, "/metadata/name"));
            eventually("both replicas return the same bytes", async || {
                let first = list_clients::read(&callers[0], &path).await?;
                let second = list_clients::read(&callers[1], &path).await?;
                ok_if(first.text == second.text, [&first.text, &second.text])
            })
            .await;
        }
        self.assert_same_operations(&objects);
        self.assert_events_agree().await;
        for replica in [NEWER, OLDER] {
            self.assert_kubectl_output(replica, &objects).await;
        }
    }

    /// Asserts that watches at both replicas receive the same events while an operation starts,
    /// changes and ends.
    async fn assert_events_agree(&mut self) {
        let mut watches = [
            watch(&self.replicas, NEWER).await,
            watch(&self.replicas, OLDER).await,
        ];
        self.steps += 1;
        let name = format!("{WATCHED}{}", self.steps);
        self.create(&[&name]).await;
        self.step(&name).await;
        self.end(&name).await;
        let operation = self.wait_for_operation(&name, |_| true).await;
        let last = operation["metadata"]["resourceVersion"].clone();
        let mut received = Vec::new();
        for watch in &mut watches {
            let until_last = |events: &[Value]| {
                let is_last = |it: &Value| it["object"]["metadata"]["resourceVersion"] == last;
                let end = events.iter().position(is_last)?;
                Some(events[..=end].to_vec())
            };
            received.push(watch.until("the end of the operation", until_last).await);
        }
        assert_eq!(received[0], received[1]);
        assert!(received[0].len() >= 3, "{received:?}");
    }

    /// Asserts that `kubectl get -o yaml` prints the field of exactly those operations that have
    /// the field. During this check, the kube-apiserver reaches only the replica `replica`, so it
    /// sends all requests to this replica.
    async fn assert_kubectl_output(&self, replica: usize, objects: &Objects) {
        let others: Vec<_> = self
            .replicas
            .endpoints
            .all()
            .into_iter()
            .filter(|it| it.number != self.replicas.all[replica].endpoint.number)
            .collect();
        for other in &others {
            self.replicas.endpoints.remove(other.number);
            other.close_connections();
        }
        self.replicas.wait_until_served().await;
        let program = &self.replicas.control_plane.addresses.kubectl;
        let caller = &self.replicas.all[replica].endpoint.caller.0;
        for operation in objects.values() {
            let name = text(operation, "/metadata/name");
            let path = format!("{}/{name}", OPERATION.path(Some(NAMESPACE)));
            eventually(
                "kubectl prints the field as the replica serves it",
                async || {
                    let object = list_clients::read(caller, &path).await?.body;
                    let arguments = ["get", "ifo", name, "-n", NAMESPACE, "-o", "yaml"];
                    let yaml = kubectl(program, &arguments, None).await?;
                    let shown = yaml.contains(&format!("\n  {FIELD}: {VALUE}\n"));
                    ok_if(shown == (object["status"][FIELD] == VALUE), yaml)
                },
            )
            .await;
        }
        for other in others {
            self.replicas.endpoints.add(other);
        }
        self.replicas.wait_until_served().await;
    }

    /// Stops the leader `from` with SIGTERM, and waits until the replica `to` leads. Returns the
    /// operations that `to` served before it led.
    async fn hand_over(&mut self, from: usize, to: usize) -> Objects {
        self.wait_for_leader(from).await;
        self.leader_watch = watch(&self.replicas, to).await;
        let before = self.objects(to).await;
        let leader = &mut self.replicas.all[from];
        self.replicas.endpoints.remove(leader.endpoint.number);
        let status = leader.server.terminate().await;
        assert!(status.success(), "{status}");
        self.wait_for_leader(to).await;
        self.leader = to;
        self.replicas.wait_until_served().await;
        before
    }

    /// Starts a stopped replica again. The replica then copies the operations of the other replica.
    async fn start_again(&mut self, replica: usize) {
        let replica = &mut self.replicas.all[replica];
        replica.start_again().await;
        self.replicas.endpoints.add(replica.endpoint.clone());
        self.replicas.wait_until_recovered().await;
    }

    /// Asserts that only the operations of the VirtualMachines `changed` differ from `before`:
    ///
    /// - A changed operation must have the field if the newer release leads. It must lack the field
    ///   if the older release leads.
    /// - Every other operation must be unchanged, except for operations that were in a watch gap.
    ///   The watch that continued during the handover must have received no event about these
    ///   unchanged operations.
    async fn assert_only_changed(&mut self, changed: &[&str], before: &Objects) {
        let after = eventually("only these operations have changed", async || {
            let after = self.objects(self.leader).await;
            let gaps = self.affected_by_watch_gaps();
            let is_wrong = |(name, operation): &(&String, &Value)| {
                if changed.contains(&name.as_str()) {
                    let has_field = operation["status"][FIELD] == VALUE;
                    has_field != (self.leader == NEWER)
                } else {
                    before.get(*name) != Some(operation) && !gaps.contains(*name)
                }
            };
            let wrong: Vec<_> = after.iter().filter(is_wrong).collect();
            ok_if(wrong.is_empty(), (&wrong, before))?;
            Ok(after)
        })
        .await;
        assert!(after.len() >= changed.len() + 2, "{after:?}");
        self.assert_same_operations(&after);

        let last = *changed
            .last()
            .expect("the caller names at least one operation");
        let received = self.leader_watch.until("the last change", |events| {
            let received = names(events.iter().map(|it| &it["object"]));
            received.contains(last).then_some(received)
        });
        let mut received = received.await;
        let gaps = self.affected_by_watch_gaps();
        received.retain(|name| !changed.contains(&name.as_str()) && !gaps.contains(name));
        assert!(received.is_empty(), "unexpected events of {received:?}");
    }

    /// Asserts that the name, UID and creation timestamp of each operation are unchanged.
    fn assert_same_operations(&self, objects: &Objects) {
        for (name, before) in &self.identities {
            let after = objects.get(name).map(identity);
            assert_eq!(after.as_ref(), Some(before), "{name}");
        }
    }
}

/// Lists the operations at a replica, and starts a watch at this replica from the resourceVersion
/// of the list.
async fn watch(replicas: &Replicas<'_>, replica: usize) -> Events {
    let caller = &replicas.all[replica].endpoint.caller.0;
    let path = OPERATION.path(Some(NAMESPACE));
    let list = caller.get(&path).await;
    let path = format!("{path}?watch=1&resourceVersion={}", version(&list));
    let events = Events::of(caller, &path).await;
    events.expect("an administrator must be allowed to watch")
}

/// Returns the names of the VirtualMachines of these operations. Skips bookmarks, because they have
/// no VirtualMachine.
fn names<'a>(operations: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let names = operations.map(|it| text(it, "/spec/subject/name").to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns the operations of a list. The key is the name of the VirtualMachine. Fails if a
/// VirtualMachine has two operations.
fn by_machine(list: &Value) -> Objects {
    let mut found = Objects::new();
    for operation in list["items"].as_array().into_iter().flatten() {
        let name = text(operation, "/spec/subject/name").to_owned();
        let other = found.insert(name, operation.clone());
        assert_eq!(other, None, "a VirtualMachine has two operations: {list}");
    }
    found
}

/// Builds the newer release in the target folder of this build, and returns the path of its binary.
/// The binary is a Cargo example, for two reasons:
///
/// - Examples use the dependencies that were compiled for the tests. So cargo compiles again only
///   the crates with the feature.
/// - The file name of the example differs from that of the server's binary. So the build does not
///   overwrite the current server.
fn build_neighbour_release() -> PathBuf {
    let started = Instant::now();
    let mut features = vec!["neighbour-release"];
    if cfg!(feature = "vendored-openssl") {
        features.push("vendored-openssl");
    }
    let mut cargo = Command::new(env!("CARGO"));
    // `cargo test` sets these variables, and the build scripts of some dependencies read them. If
    // they stayed set, this build would compile these dependencies again, and so would the next
    // `cargo test`.
    for (name, _) in std::env::vars_os() {
        let package_variable_prefixes = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if package_variable_prefixes
            .iter()
            .any(|it| name.to_string_lossy().starts_with(it))
        {
            cargo.env_remove(name);
        }
    }
    let built = cargo
        .args(["build", "--locked", "--quiet"])
        .arg("--message-format=json-render-diagnostics")
        .args(["--features", &features.join(",")])
        .args(["--example", "neighbour-release"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo must start");
    assert!(built.status.success(), "{}", built.status);
    let messages = String::from_utf8(built.stdout).expect("cargo must print JSON");
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "neighbour-release";
        is_it.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    // If the test passes, Rust's test runner hides the output of `eprintln`. So this function
    // writes the message directly to the standard error.
    let seconds = started.elapsed().as_secs();
    let _ = writeln!(
        std::io::stderr(),
        "the neighbouring release was built in {seconds} s"
    );
    executable.expect("cargo must print the path of the example")
}
