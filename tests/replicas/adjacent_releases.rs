//! Tests of two neighbouring releases. One of them has a field of operations that the other one
//! does not have. Each leads in turn, while the other one mirrors it.
//!
//! The second release is this one, built with the feature `neighbour-release`. The field exists
//! only in its wire types, from which its objects and its OpenAPI document get it, as in a real
//! release.

use crate::TURNS;
use crate::cluster::Replicas;
use crate::harness::{
    Events, FOLDERS, Image, OPERATION, RULE_SET, VM, apart, condition, eventually, is_in_gap,
    kubectl, migrating, so, text,
};
use crate::identity::identity;
use crate::readers::{self, version};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::PoisonError;
use std::time::Instant;

/// The namespace of the machines.
const NAMESPACE: &str = "neighbours";

/// The field that only one of the two releases knows.
const FIELD: &str = "neighbourField";

/// The value that this release writes into it.
const VALUE: &str = "known";

/// The names of the machines that only [`Neighbours::events_must_agree`] needs begin with this.
const WATCHED: &str = "watched-";

/// Completed operations stay, so that they are mirrored, too.
const VARIABLES: [(&str, &str); 1] = [("RETAIN_COMPLETED_IFOS", "true")];

/// Indices of the replicas. The newer release has the field.
const NEWER: usize = 0;
const OLDER: usize = 1;

#[test]
fn adjacent_releases_mirror_each_other_exactly_and_take_over() {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    apart("neighbours", async |control_plane| {
        let newer = Image {
            program: neighbour_release(),
            ..Image::default()
        };
        let mut replicas = Replicas::install(control_plane, newer, &FOLDERS, &VARIABLES).await;
        replicas.add().await;
        replicas.recovered().await;
        replicas.use_image(Image::default());
        replicas.add().await;
        replicas.recovered().await;
        let mut test = Neighbours::new(replicas).await;
        test.publishes_the_field(NEWER, true).await;
        test.publishes_the_field(OLDER, false).await;

        // The newer release leads, and the older one mirrors it.
        test.must_lead(NEWER).await;
        test.start(&["kept", "changed", "ended", "ended-later"])
            .await;
        test.end("ended").await;
        test.must_agree(&["kept", "changed", "ended", "ended-later"])
            .await;

        // The older release takes over.
        let before = test.hand_over(NEWER, OLDER).await;
        test.start(&["of-older"]).await;
        test.step("changed").await;
        test.end("ended-later").await;
        let changed = ["changed", "ended-later", "of-older"];
        test.must_have_changed_only(&changed, &before).await;
        test.start_again(NEWER).await;
        test.must_agree(&["kept", "ended"]).await;

        // The newer release takes over again, from a mirror of the older one.
        let before = test.hand_over(OLDER, NEWER).await;
        test.start(&["of-newer"]).await;
        test.step("changed").await;
        test.must_have_changed_only(&["changed", "of-newer"], &before)
            .await;
        test.start_again(OLDER).await;
        test.must_agree(&["kept", "ended", "changed", "of-newer"])
            .await;
    });
}

/// The operation of a machine, as a replica shows it.
type Objects = BTreeMap<String, Value>;

struct Neighbours<'a> {
    replicas: Replicas<'a>,
    leader: usize,
    /// A watch at the leader that began before it led.
    client: Events,
    /// Name, UID and creation timestamp of each operation, by the name of its machine.
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
            so(condition(&found.body, "Ready")["status"] == "True", &found)
        })
        .await;
        let client = watch(&replicas, NEWER).await;
        Self {
            replicas,
            leader: NEWER,
            client,
            identities: BTreeMap::new(),
            steps: 0,
        }
    }

    /// Returns true if the OpenAPI document of a replica has the field.
    async fn publishes_the_field(&self, replica: usize, has: bool) {
        let path = "/openapi/v3/apis/live.ifo.kubevirt.io/v1alpha1";
        let caller = &self.replicas.all[replica].endpoint.caller.0;
        let document = caller.get(path).await.ok();
        let schemas = document["components"]["schemas"].as_object();
        let mut schemas = schemas.expect("it has schemas").values();
        let known = schemas.any(|it| !it["properties"][FIELD].is_null());
        assert_eq!(known, has, "replica {replica}");
    }

    /// Waits until this replica holds the Lease.
    async fn must_lead(&self, replica: usize) {
        eventually("the replica leads", async || {
            let leader = self.replicas.leader().await;
            so(leader == replica, leader)
        })
        .await;
    }

    /// Creates machines that migrate, and waits for their operations.
    async fn start(&mut self, names: &[&str]) {
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
            let operation = self.until(name, |it| it["status"]["message"] == "first");
            let identity = identity(&operation.await);
            self.identities.insert((*name).to_owned(), identity);
        }
    }

    /// Changes the message that the rule yields for a machine.
    async fn step(&mut self, name: &str) {
        self.steps += 1;
        let step = format!("step-{}", self.steps);
        let patch = json!({"metadata": {"labels": {"step": step}}});
        self.merge(name, &patch).await;
        self.until(name, |it| it["status"]["message"] == step).await;
    }

    /// Ends the migration of a machine.
    async fn end(&mut self, name: &str) {
        let patch = json!({"status": {"printableStatus": "Running"}});
        self.merge(name, &patch).await;
        self.until(name, |it| it["status"]["phase"] == "Completed")
            .await;
    }

    async fn merge(&self, name: &str, patch: &Value) {
        let path = format!("{}/{name}", VM.path(Some(NAMESPACE)));
        self.replicas.admin.merge(&path, patch).await.ok();
    }

    /// Waits until the operation of a machine fulfills a condition, through the aggregator.
    async fn until(&self, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        eventually("the operation is as it should be", async || {
            let path = OPERATION.path(Some(NAMESPACE));
            let list = readers::read(&self.replicas.admin, &path).await?;
            let found = by_machine(&list.body).remove(name);
            match found {
                Some(operation) if is(&operation) => Ok(operation),
                other => Err(format!("{name}: {other:?}")),
            }
        })
        .await
    }

    /// The operations that a replica shows.
    async fn objects(&self, replica: usize) -> Objects {
        let caller = &self.replicas.all[replica].endpoint.caller.0;
        let path = OPERATION.path(Some(NAMESPACE));
        let list = eventually("a replica lists", async || {
            readers::read(caller, &path).await
        });
        by_machine(&list.await.body)
    }

    /// The machines whose operations the leader has changed because of a watch gap. On an
    /// overloaded machine, gaps can occur at any time. A gap is a change, so the leader writes the
    /// object again.
    fn gaps(&self) -> BTreeSet<String> {
        self.client.now(|events| {
            let objects = events.iter().map(|it| &it["object"]);
            names(objects.filter(|it| is_in_gap(it)))
        })
    }

    /// Checks that both replicas list, get and watch the same bytes. Only the operations of these
    /// machines have the field, and kubectl shows it through either replica.
    async fn must_agree(&mut self, with_field: &[&str]) {
        let path = OPERATION.path(Some(NAMESPACE));
        let callers = [NEWER, OLDER].map(|it| self.replicas.all[it].endpoint.caller.0.clone());
        eventually("both replicas list the same bytes", async || {
            let list = readers::read(&callers[0], &path).await?;
            let exact = format!(
                "{path}?resourceVersion={}&resourceVersionMatch=Exact",
                version(&list)
            );
            let first = readers::read(&callers[0], &exact).await?;
            let second = readers::read(&callers[1], &exact).await?;
            so(first.text == second.text, [&first.text, &second.text])
        })
        .await;
        let objects = eventually("these operations have the field", async || {
            let objects = self.objects(NEWER).await;
            let mut expected: BTreeSet<String> =
                with_field.iter().map(|it| (*it).to_owned()).collect();
            for name in self.gaps() {
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
            so(fields == expected, (&fields, &expected))?;
            Ok(objects)
        })
        .await;
        for operation in objects.values() {
            let path = format!("{path}/{}", text(operation, "/metadata/name"));
            eventually("both replicas show the same bytes", async || {
                let first = readers::read(&callers[0], &path).await?;
                let second = readers::read(&callers[1], &path).await?;
                so(first.text == second.text, [&first.text, &second.text])
            })
            .await;
        }
        self.must_be_the_same_operations(&objects);
        self.events_must_agree().await;
        for replica in [NEWER, OLDER] {
            self.kubectl_shows(replica, &objects).await;
        }
    }

    /// Checks that watches at both replicas receive the same events while an operation starts,
    /// changes and ends.
    async fn events_must_agree(&mut self) {
        let mut watches = [
            watch(&self.replicas, NEWER).await,
            watch(&self.replicas, OLDER).await,
        ];
        self.steps += 1;
        let name = format!("{WATCHED}{}", self.steps);
        self.start(&[&name]).await;
        self.step(&name).await;
        self.end(&name).await;
        let operation = self.until(&name, |_| true).await;
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

    /// Checks that `kubectl get -o yaml` shows the field through the aggregator and this replica,
    /// if the object has it.
    async fn kubectl_shows(&self, replica: usize, objects: &Objects) {
        let others: Vec<_> = self
            .replicas
            .endpoints
            .all()
            .into_iter()
            .filter(|it| it.number != self.replicas.all[replica].endpoint.number)
            .collect();
        for other in &others {
            self.replicas.endpoints.remove(other.number);
            other.hang_up();
        }
        self.replicas.served().await;
        let program = &self.replicas.control_plane.state.kubectl;
        let caller = &self.replicas.all[replica].endpoint.caller.0;
        for operation in objects.values() {
            let name = text(operation, "/metadata/name");
            let path = format!("{}/{name}", OPERATION.path(Some(NAMESPACE)));
            eventually("kubectl shows the object of the replica", async || {
                let object = readers::read(caller, &path).await?.body;
                let arguments = ["get", "ifo", name, "-n", NAMESPACE, "-o", "yaml"];
                let yaml = kubectl(program, &arguments, None).await?;
                let shown = yaml.contains(&format!("\n  {FIELD}: {VALUE}\n"));
                so(shown == (object["status"][FIELD] == VALUE), yaml)
            })
            .await;
        }
        for other in others {
            self.replicas.endpoints.add(other);
        }
        self.replicas.served().await;
    }

    /// Ends the leader with SIGTERM. The other replica then leads. Returns the operations that it
    /// showed before.
    async fn hand_over(&mut self, from: usize, to: usize) -> Objects {
        self.must_lead(from).await;
        self.client = watch(&self.replicas, to).await;
        let before = self.objects(to).await;
        let leader = &mut self.replicas.all[from];
        self.replicas.endpoints.remove(leader.endpoint.number);
        let status = leader.server.terminate().await;
        assert!(status.success(), "{status}");
        self.must_lead(to).await;
        self.leader = to;
        self.replicas.served().await;
        before
    }

    /// A replica that has ended starts again, and mirrors the other one.
    async fn start_again(&mut self, replica: usize) {
        let replica = &mut self.replicas.all[replica];
        replica.start_again().await;
        self.replicas.endpoints.add(replica.endpoint.clone());
        self.replicas.recovered().await;
    }

    /// Checks that the operations of these machines have changed, as the leading release writes
    /// them. All others have the same bytes, and a client whose watch continued across the handover
    /// has received no event about them.
    async fn must_have_changed_only(&mut self, changed: &[&str], before: &Objects) {
        let after = eventually("only these operations have changed", async || {
            let after = self.objects(self.leader).await;
            let gaps = self.gaps();
            let is_wrong = |(name, operation): &(&String, &Value)| {
                if changed.contains(&name.as_str()) {
                    let has_field = operation["status"][FIELD] == VALUE;
                    has_field != (self.leader == NEWER)
                } else {
                    before.get(*name) != Some(operation) && !gaps.contains(*name)
                }
            };
            let wrong: Vec<_> = after.iter().filter(is_wrong).collect();
            so(wrong.is_empty(), (&wrong, before))?;
            Ok(after)
        })
        .await;
        assert!(after.len() >= changed.len() + 2, "{after:?}");
        self.must_be_the_same_operations(&after);

        let last = *changed.last().expect("something has changed");
        let received = self.client.until("the last change", |events| {
            let received = names(events.iter().map(|it| &it["object"]));
            received.contains(last).then_some(received)
        });
        let mut received = received.await;
        let gaps = self.gaps();
        received.retain(|name| !changed.contains(&name.as_str()) && !gaps.contains(name));
        assert!(received.is_empty(), "events of {received:?}");
    }

    /// Checks that the name, UID and creation timestamp of each operation are unchanged.
    fn must_be_the_same_operations(&self, objects: &Objects) {
        for (name, before) in &self.identities {
            let after = objects.get(name).map(identity);
            assert_eq!(after.as_ref(), Some(before), "{name}");
        }
    }
}

/// Opens a watch at a replica.
async fn watch(replicas: &Replicas<'_>, replica: usize) -> Events {
    let caller = &replicas.all[replica].endpoint.caller.0;
    let path = OPERATION.path(Some(NAMESPACE));
    let list = caller.get(&path).await;
    let path = format!("{path}?watch=1&resourceVersion={}", version(&list));
    let events = Events::of(caller, &path).await;
    events.expect("an administrator may watch")
}

/// The machines of these operations. A bookmark has none.
fn names<'a>(operations: impl Iterator<Item = &'a Value>) -> BTreeSet<String> {
    let names = operations.map(|it| text(it, "/spec/subject/name").to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// The operations of a list. No machine has two.
fn by_machine(list: &Value) -> Objects {
    let mut found = Objects::new();
    for operation in list["items"].as_array().into_iter().flatten() {
        let name = text(operation, "/spec/subject/name").to_owned();
        let other = found.insert(name, operation.clone());
        assert_eq!(other, None, "two operations of one machine: {list}");
    }
    found
}

/// Builds the neighbouring release in the same target folder. It is an example, because examples
/// share the dependencies of the tests, so only the crates with the feature are compiled again. Its
/// file name differs from that of the server under test.
fn neighbour_release() -> PathBuf {
    let started = Instant::now();
    let mut features = vec!["neighbour-release"];
    if cfg!(feature = "vendored-openssl") {
        features.push("vendored-openssl");
    }
    let mut cargo = Command::new(env!("CARGO"));
    // `cargo test` sets variables that build scripts of dependencies depend on. With them,
    // this build would compile these dependencies again, and so would the next `cargo test`.
    for (name, _) in std::env::vars_os() {
        let of_package = ["CARGO_PKG_", "CARGO_MANIFEST_"];
        if of_package
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
        .expect("cargo can be run");
    assert!(built.status.success(), "{}", built.status);
    let messages = String::from_utf8(built.stdout).expect("cargo prints JSON");
    let executable = messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "neighbour-release";
        is_it.then(|| message["executable"].as_str().map(PathBuf::from))?
    });
    // The test harness hides the output of eprintln if a test passes. A failed write is ignored.
    let seconds = started.elapsed().as_secs();
    let _ = writeln!(
        std::io::stderr(),
        "the neighbouring release was built in {seconds} s"
    );
    executable.expect("cargo tells where the example is")
}
