//! Creates and changes the test objects of the two resources that the test compares: the live
//! resource of `ifo-apiserver`, and a custom resource. The objects of the live resource are
//! operations on VirtualMachines. The objects of the custom resource are copies of these
//! operations.

use super::copy_changes::Mirror;
use super::definition::TWIN;
use super::masks::token;
use super::side::Side;
use crate::harness::{
    Caller, NAMESPACE, OPERATION, TestCluster, VM, eventually, ok_if, rule_set, text,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::Mutex;

/// The number of operations in the namespace with large operations, and the number of characters of two
/// bytes in the message of each of them. Their list has more than 128 KiB, so `ifo-apiserver` and the
/// kube-apiserver compress it.
const LARGE_OPERATIONS: (usize, usize) = (90, 1_000);

/// The live resource and the custom resource, with the same objects.
pub struct Twin {
    cluster: &'static TestCluster,
    /// The first of four namespaces. The names of the other three begin with this name.
    namespace: &'static str,
    pub live: Side,
    pub custom: Side,
    mirror: Mutex<Mirror>,
    /// A resourceVersion that is older than the first object of the custom resource.
    oldest: String,
}

impl Twin {
    /// Creates the four namespaces of the test, and starts the watches with which changes are
    /// copied. `oldest` is a resourceVersion that is older than the first object of the custom
    /// resource.
    pub async fn create(cluster: &'static TestCluster, oldest: String) -> Self {
        let namespace = cluster.new_namespace("twin").await;
        for other in ["-b", "-c", "-fat"] {
            let object = NAMESPACE.object(&format!("{namespace}{other}"), json!({}));
            cluster.create(&NAMESPACE, None, &object).await;
        }
        let mirror = Mirror::start(cluster, namespace, &format!("{namespace}-fat")).await;
        Self {
            cluster,
            namespace,
            live: Side::new(OPERATION.group_version().0, namespace),
            custom: Side::new(TWIN.group_version().0, namespace),
            mirror: Mutex::new(mirror),
            oldest,
        }
    }

    pub fn namespace(&self) -> &'static str {
        self.namespace
    }

    /// Returns the client that sends the requests.
    pub fn caller(&self) -> &'static Caller {
        &self.cluster.admin
    }

    /// Starts operations, and copies them to the custom resource. Then sets the placeholders whose
    /// values depend on these operations. A placeholder is a name in braces in the requests of the
    /// test, such as `{before}`.
    pub async fn fill(&mut self) {
        let namespace = self.namespace;
        let here = [
            namespace,
            &format!("{namespace}-b"),
            &format!("{namespace}-c"),
        ];
        self.rules(namespace, &here).await;
        let fat = format!("{namespace}-fat");
        self.rules(&fat, &[&fat]).await;
        let objects = json!({
            "0/a": {"size": "1", "nodeName": "node-1", "progress": 45},
            "0/b": {"size": "5", "message": "<moving> \"it\" & more, é"},
            "0/c": {"size": "10", "nodeName": "node-2", "progress": 0},
            "0/d": {"nodeName": "node-2"},
            "1/a": {"size": "1"},
            "1/z": {"nodeName": "node-1"},
            "2/m": {"size": "7", "state": "Blocked"},
        });
        for (key, status) in objects.as_object().into_iter().flatten() {
            let (number, name) = key.split_once('/').expect("a key has two parts");
            let namespace = here[number.parse::<usize>().expect("a number")];
            self.start(namespace, name, status.clone()).await;
        }
        let (many, size) = LARGE_OPERATIONS;
        for number in 0..many {
            let status = json!({"printableStatus": "Migrating", "message": "é".repeat(size)});
            self.cluster
                .vm(&fat, &format!("m{number:02}"), status)
                .await;
        }
        self.until("all operations exist", |operations| {
            operations.len() == 7 + many
        })
        .await;

        let a = self.name_of("a").await;
        let read = async || {
            let page = self.get("{list}?limit=2").await;
            let page_of_all = self.get("{all}?limit=2&{mine}").await;
            [self.get("{list}").await, page, page_of_all]
        };
        let [before, page, page_of_all] = self.without_changes(read).await;
        for (number, side) in [&mut self.live, &mut self.custom].into_iter().enumerate() {
            let before = &before[number];
            let [token, all_token] =
                [&page, &page_of_all].map(|it| text(&it[number], "/metadata/continue"));
            side.set("name", a.clone());
            side.set("one", side.expand(&format!("{{list}}/{a}")));
            side.set(
                "before",
                text(before, "/metadata/resourceVersion").to_owned(),
            );
            side.set("token", token.to_owned());
            side.set("all-token", all_token.to_owned());
            let mut object = before["items"][0].clone();
            object["metadata"] = json!({"name": "new", "namespace": namespace});
            side.set("object", object.to_string());
            set_continue_tokens(side, token);
        }
    }

    /// Makes changes of all kinds while the watches in [`super::streams`] are open. Then sets the
    /// placeholder `now`.
    pub async fn make_changes(&mut self) {
        let here = self.namespace;
        self.start(here, "e", json!({"nodeName": "node-1", "size": "3"}))
            .await;
        self.change(here, "a", json!({"progress": 60})).await;
        // This change makes the operation match other field selectors.
        self.change(here, "b", json!({"state": "Failing"})).await;
        // This change makes the operation match other label selectors, because one of its labels
        // contains the name of the node.
        self.change(here, "c", json!({"message": "moved", "nodeName": "node-1"}))
            .await;
        self.change(here, "b", json!({"state": "Progressing"}))
            .await;
        let other = format!("{here}-b");
        self.change(&other, "z", json!({"progress": 99})).await;
        // After this change, no rule detects the operations on `d` and `b` any more. Their state
        // becomes `Settling`. Then they complete, and the server deletes them.
        for subject in ["d", "b"] {
            let name = self.name_of(subject).await;
            let status = json!({"printableStatus": "Running"});
            self.set_status(here, subject, status).await;
            self.until(&format!("{name} is gone"), |operations| {
                let mut names = operations.values().map(|it| text(it, "/metadata/name"));
                names.all(|it| it != name)
            })
            .await;
        }
        self.change(here, "c", json!({"state": "Failing"})).await;
        // The comparison of the open watches ends with this operation, so the selectors of all
        // these watches must match it.
        let last = json!({"nodeName": "node-1", "size": "2", "progress": 1});
        self.start(here, super::streams::LAST, last).await;

        let now = self
            .without_changes(async || self.get("{list}").await)
            .await;
        for (side, list) in [&mut self.live, &mut self.custom].into_iter().zip(&now) {
            let version = text(list, "/metadata/resourceVersion");
            side.set("now", version.to_owned());
        }
        self.make_other().await;
    }

    /// Creates an object of the custom resource in another namespace. The kube-apiserver sends a
    /// bookmark only if an object has changed after the start version of the watch. So without this
    /// object, a watch of the custom resource from the resourceVersion `{now}` would get no
    /// bookmark. Watches of the live resource always get a bookmark.
    async fn make_other(&self) {
        let mut object: Value = self
            .custom
            .value("object")
            .parse()
            .expect("the placeholder contains JSON");
        object["metadata"] = json!({"name": self.namespace, "namespace": "default"});
        let all = TWIN.path(Some("default"));
        self.cluster.admin.post(&all, &object).await.ok();
    }

    /// Compacts etcd, so that requests with a resourceVersion before `oldest` fail as expired.
    /// Without this call, the kube-apiserver would compact etcd only after five minutes.
    pub async fn expire(&self) {
        let log = self.cluster.control_plane.addresses.dir.join("etcd.log");
        let log = std::fs::read_to_string(log).expect("etcd writes a log");
        let (_, url) = log
            .split_once("--listen-client-urls=")
            .expect("etcd logs its arguments");
        let url = url
            .split(['"', ' ', ','])
            .next()
            .expect("split returns at least one part");
        let etcd = Caller::new(kube::Config::new(url.parse().expect("the URL is valid")));
        let compaction = json!({"revision": self.oldest, "physical": true});
        let answer = etcd.post("/v3/kv/compaction", &compaction).await;
        // The kube-apiserver may have compacted etcd already.
        let is_compacted = answer.text.contains("revision has been compacted");
        assert!(answer.code == 200 || is_compacted, "{answer:?}");
    }

    /// Copies changes repeatedly. Never returns.
    pub async fn copy_forever(&self) {
        loop {
            let mut mirror = self.mirror.lock().await;
            mirror.copy_changes([&self.live, &self.custom]).await;
            drop(mirror);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until both resources have the same objects. Returns the number of changes that have
    /// been copied so far.
    pub async fn wait_until_equal(&self) -> usize {
        let mut mirror = self.mirror.lock().await;
        mirror.wait_until_equal([&self.live, &self.custom]).await
    }

    /// Calls `work` while both resources have the same objects, and returns the result of `work`.
    /// If an object changes during `work`, calls `work` again.
    pub async fn without_changes<T>(&self, mut work: impl AsyncFnMut() -> T) -> T {
        eventually("no object changes for a while", async || {
            let before = self.wait_until_equal().await;
            let result = work().await;
            let changes = self.wait_until_equal().await - before;
            ok_if(changes == 0, changes)?;
            Ok(result)
        })
        .await
    }

    async fn rules(&self, name: &str, namespaces: &[&str]) {
        let rule = "object.status.printableStatus == 'Migrating'";
        let mut rules = rule_set(name, &VM, &[("Migrating", rule)]);
        rules["spec"]["namespaces"] = json!(namespaces);
        rules["spec"]["labels"] = json!({"team": "virt", "twin": name});
        rules["spec"]["labelExpressions"] = json!([
            {"key": "node", "expression": "object.status.nodeName"},
            {"key": "size", "expression": "object.status.size"},
        ]);
        for field in ["message", "progress", "state"] {
            rules["spec"]["rules"][0][field] = json!(format!("object.status.{field}"));
        }
        self.cluster.ready_rule_set(&rules).await;
    }

    /// Creates a VirtualMachine that migrates, and waits until its operation is copied.
    async fn start(&mut self, namespace: &str, name: &str, mut status: Value) {
        status["printableStatus"] = json!("Migrating");
        self.cluster.vm(namespace, name, status.clone()).await;
        self.until_shown(namespace, name, &status).await;
    }

    /// Changes the status of a VirtualMachine, and waits until the change of its operation is
    /// copied.
    async fn change(&mut self, namespace: &str, name: &str, status: Value) {
        self.set_status(namespace, name, status.clone()).await;
        self.until_shown(namespace, name, &status).await;
    }

    /// Waits until the copied operation on a VirtualMachine shows these fields of the
    /// VirtualMachine's status.
    async fn until_shown(&self, namespace: &str, subject: &str, status: &Value) {
        let places = [
            ("message", "/status/message"),
            ("progress", "/status/progress"),
            ("state", "/status/state"),
            ("nodeName", "/metadata/labels/node"),
            ("size", "/metadata/labels/size"),
        ];
        let shown = |operation: &Value| {
            let mut set = places.iter().filter(|(field, _)| !status[field].is_null());
            set.all(|(field, place)| operation.pointer(place) == Some(&status[field]))
        };
        self.until(&format!("{subject} shows {status}"), |operations| {
            let mut own = operations.values().filter(|it| {
                it["metadata"]["namespace"] == namespace && it["spec"]["subject"]["name"] == subject
            });
            own.any(shown)
        })
        .await;
    }

    async fn until(&self, what: &str, is: impl Fn(&BTreeMap<String, Value>) -> bool) {
        let mut mirror = self.mirror.lock().await;
        mirror.until([&self.live, &self.custom], what, is).await;
    }

    async fn set_status(&self, namespace: &str, name: &str, status: Value) {
        let patch = json!({"status": status});
        self.cluster.merge(&VM, namespace, name, &patch).await;
    }

    /// Returns the name of the operation on this VirtualMachine in the first namespace.
    async fn name_of(&self, subject: &str) -> String {
        let mirror = self.mirror.lock().await;
        let name = mirror.find(|event| {
            let object = &event["object"];
            let own = object["metadata"]["namespace"] == self.namespace
                && object["spec"]["subject"]["name"] == subject;
            own.then(|| text(object, "/metadata/name").to_owned())
        });
        name.expect("the test has started this operation")
    }

    /// Sends a GET request to both resources. The path can contain placeholders.
    async fn get(&self, path: &str) -> [Value; 2] {
        let paths = [self.live.expand(path), self.custom.expand(path)];
        let admin = &self.cluster.admin;
        [
            admin.get(&paths[0]).await.ok(),
            admin.get(&paths[1]).await.ok(),
        ]
    }
}

/// Sets placeholders, such as `token-at-zero`, for the parameter `continue` of a list. The value of
/// each is an invalid token: a copy of the valid token `good` in which one field is changed. Also
/// sets the placeholder `expired` to an expired resourceVersion.
fn set_continue_tokens(side: &mut Side, good: &str) {
    for (name, field, value) in [
        ("token-without-version", "v", Value::Null),
        ("token-of-version-2", "v", json!("meta.k8s.io/v2")),
        ("token-at-zero", "rv", json!(0)),
        ("token-without-start", "start", Value::Null),
        ("token-upwards", "start", json!("/../../x\u{0}")),
        ("token-at-newest", "rv", json!(-1)),
        ("token-expired", "rv", json!(1)),
    ] {
        let mut token = token(good);
        let fields = token.as_object_mut().expect("a token is a JSON object");
        fields.remove(field);
        if !value.is_null() {
            fields.insert(field.to_owned(), value);
        }
        side.set(name, URL_SAFE_NO_PAD.encode(token.to_string()));
    }
    side.set("expired", "1".to_owned());
}
