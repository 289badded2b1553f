//! The objects of both resources: operations of the live one, and their copies, made
//! change by change.

use super::definition::{TWIN, define};
use super::masks::token;
use super::side::Side;
use crate::harness::{Caller, Events, Kind, OPERATION, VM, World, rule_set, text};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use std::time::Duration;

/// Objects in the namespace with many large ones, and the size of each one's message in
/// bytes: together well above 128 KiB, from which on answers are compressed.
const FAT: (usize, usize) = (220, 700);

/// Name of a custom object that no request is about.
const OTHER: &str = "other";

/// Both resources, with the same objects.
pub struct Twin {
    world: &'static World,
    /// The first of the namespaces; the names of the others begin with it.
    namespace: &'static str,
    pub live: Side,
    pub custom: Side,
    live_events: Events,
    custom_events: Events,
    /// How many of the live resource's changes were made to the custom one too.
    mirrored: usize,
    /// A version before the first object of the custom resource.
    oldest: String,
}

impl Twin {
    /// Makes the custom resource, starts operations in four namespaces, and copies them.
    pub async fn create(world: &'static World) -> Self {
        let oldest = define(world).await;
        let namespace = world.namespace("twin").await;
        for other in ["-b", "-c", "-fat"] {
            let name = format!("{namespace}{other}");
            let object = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
            });
            world.admin.post("/api/v1/namespaces", &object).await.ok();
        }
        let watch = async |kind: &Kind| {
            let selector = format!("twin%20in%20({namespace},{namespace}-fat)");
            let path = format!("{}?watch=1&labelSelector={selector}", kind.path(None));
            let events = Events::of(&world.admin, &path).await;
            events.expect("an administrator may watch")
        };
        let mut twin = Self {
            world,
            namespace,
            live: Side::new(OPERATION.group_version().0, namespace),
            custom: Side::new(TWIN.group_version().0, namespace),
            live_events: watch(&OPERATION).await,
            custom_events: watch(&TWIN).await,
            mirrored: 0,
            oldest,
        };
        twin.fill().await;
        twin
    }

    /// The first of the namespaces.
    pub fn namespace(&self) -> &'static str {
        self.namespace
    }

    /// Who asks.
    pub fn caller(&self) -> &'static Caller {
        &self.world.admin
    }

    /// Starts operations: in the order of their keys, `twin-1-b` comes before `twin-1`.
    async fn fill(&mut self) {
        let namespace = self.namespace;
        let here = [
            namespace,
            &format!("{namespace}-b"),
            &format!("{namespace}-c"),
        ];
        self.rules(namespace, &here).await;
        let fat = format!("{namespace}-fat");
        self.rules(&fat, &[&fat]).await;
        for (namespace, name, status) in [
            (
                here[0],
                "a",
                json!({"size": "1", "nodeName": "node-1", "progress": 45}),
            ),
            (
                here[0],
                "b",
                json!({"size": "5", "message": "<moving> \"it\" & more, é"}),
            ),
            (
                here[0],
                "c",
                json!({"size": "10", "nodeName": "node-2", "progress": 0}),
            ),
            (here[0], "d", json!({"nodeName": "node-2"})),
            (here[1], "a", json!({"size": "1"})),
            (here[1], "z", json!({"nodeName": "node-1"})),
            (here[2], "m", json!({"size": "7", "state": "Blocked"})),
        ] {
            self.start(namespace, name, status).await;
        }
        let (many, size) = FAT;
        for number in 0..many {
            let status = json!({"printableStatus": "Migrating", "message": "x".repeat(size)});
            self.machine(&fat, &format!("m{number:03}"), status).await;
        }
        self.mirror_until("the many", |events| {
            (events.len() == 7 + many).then_some(())
        })
        .await;

        let a = self.name_of("a");
        let before = self.lists("").await;
        let pages = self.lists("?limit=2").await;
        let selected = format!("?limit=2&labelSelector=twin%3D{namespace}");
        let everywhere = [
            self.world
                .admin
                .get(&(OPERATION.path(None) + &selected))
                .await
                .ok(),
            self.world
                .admin
                .get(&(TWIN.path(None) + &selected))
                .await
                .ok(),
        ];
        for (number, side) in [&mut self.live, &mut self.custom].into_iter().enumerate() {
            let version = text(&before[number], "/metadata/resourceVersion");
            let token = text(&pages[number], "/metadata/continue");
            side.set("name", a.clone());
            side.set("one", side.expand(&format!("{{list}}/{a}")));
            side.set("before", version.to_owned());
            side.set("token", token.to_owned());
            let all_token = text(&everywhere[number], "/metadata/continue");
            side.set("all-token", all_token.to_owned());
            let mut object = before[number]["items"][0].clone();
            object["metadata"] = json!({"name": "new", "namespace": namespace});
            side.set("object", object.to_string());
            tokens(side, token);
        }
    }

    /// Changes of all kinds, so that there are versions to go back to.
    pub async fn transitions(&mut self) {
        let here = self.namespace;
        self.start(here, "e", json!({"nodeName": "node-1", "size": "3"}))
            .await;
        self.change(here, "a", json!({"progress": 60})).await;
        // Leaves one field selection and enters another one.
        self.change(here, "b", json!({"state": "Failing"})).await;
        // The same with label selections, if labels follow the subject.
        self.change(here, "c", json!({"message": "moved", "nodeName": "node-1"}))
            .await;
        self.change(here, "b", json!({"state": "Progressing"}))
            .await;
        let other = format!("{here}-b");
        self.change(&other, "z", json!({"progress": 99})).await;
        // Settles, completes and is deleted.
        let d = self.name_of("d");
        self.set_status(here, "d", json!({"printableStatus": "Running"}))
            .await;
        self.mirror_until("d is gone", |events| gone(events, &d))
            .await;
        let b = self.name_of("b");
        self.set_status(here, "b", json!({"printableStatus": "Running"}))
            .await;
        self.mirror_until("b is gone", |events| gone(events, &b))
            .await;
        self.change(here, "c", json!({"state": "Failing"})).await;
        // Fits all selections that streams have, so that it ends them.
        let last = json!({"nodeName": "node-1", "size": "2", "progress": 1});
        self.start(here, super::streams::LAST, last).await;

        let now = self.lists("").await;
        for (side, list) in [&mut self.live, &mut self.custom].into_iter().zip(&now) {
            let version = text(list, "/metadata/resourceVersion");
            side.set("now", version.to_owned());
        }
        self.make_other().await;
    }

    /// Makes a custom object that no request is about.
    async fn make_other(&self) {
        let mut object: Value = self.custom.value("object").parse().expect("it is JSON");
        object["metadata"] = json!({"name": OTHER, "namespace": "default"});
        let all = TWIN.path(Some("default"));
        self.world.admin.post(&all, &object).await.ok();
    }

    /// Changes that object for ever. kube-apiserver sends a watch no bookmark unless it has
    /// seen something newer than what the watch began with, and in a quiet cluster nothing
    /// else sees to that; the live resource always sends one.
    pub async fn stir(&self) {
        let path = format!("{}/{OTHER}", TWIN.path(Some("default")));
        for count in 0_u64.. {
            let patch = json!({"metadata": {"annotations": {"count": count.to_string()}}});
            self.world.admin.merge(&path, &patch).await.ok();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Makes the versions before the custom resource's first object unavailable, as they
    /// are after five minutes by themselves.
    pub async fn expire(&self) {
        let log = self.world.control_plane.state.dir.join("etcd.log");
        let log = std::fs::read_to_string(log).expect("etcd writes a log");
        let (_, url) = log
            .split_once("--listen-client-urls=")
            .expect("etcd writes its arguments");
        let url = url
            .split(['"', ' ', ','])
            .next()
            .expect("there is something");
        let etcd = Caller::new(kube::Config::new(url.parse().expect("it is a URI")));
        let compaction = json!({"revision": self.oldest, "physical": true});
        etcd.post("/v3/kv/compaction", &compaction).await.ok();
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
        self.world.ready_rule_set(&rules).await;
    }

    async fn machine(&self, namespace: &str, name: &str, status: Value) {
        let machine = json!({
            "apiVersion": VM.api_version, "kind": VM.kind,
            "metadata": {"name": name}, "status": status,
        });
        self.world.create(&VM, Some(namespace), &machine).await;
    }

    /// Starts an operation on a new subject, and copies it.
    async fn start(&mut self, namespace: &str, name: &str, mut status: Value) {
        status["printableStatus"] = json!("Migrating");
        let before = self.mirrored;
        self.machine(namespace, name, status).await;
        self.mirror_until("it starts", |events| (events.len() > before).then_some(()))
            .await;
    }

    /// Changes an operation by its subject, and copies that.
    async fn change(&mut self, namespace: &str, name: &str, status: Value) {
        let before = self.mirrored;
        self.set_status(namespace, name, status).await;
        self.mirror_until("it changes", |events| (events.len() > before).then_some(()))
            .await;
    }

    async fn set_status(&self, namespace: &str, name: &str, status: Value) {
        let path = format!("{}/{name}", VM.path(Some(namespace)));
        let patch = json!({"status": status});
        self.world.admin.merge(&path, &patch).await.ok();
    }

    /// Waits for changes of the live resource, makes the same ones to the custom one,
    /// one after the other, and waits until both were told of.
    async fn mirror_until(&mut self, what: &str, find: impl Fn(&[Value]) -> Option<()>) {
        let events = self
            .live_events
            .until(what, |events| find(events).map(|()| events.to_vec()));
        let events = events.await;
        for number in self.mirrored..events.len() {
            self.mirror(&events[number]).await;
            let copy = self
                .custom_events
                .until("its copy", |all| all.get(number).cloned())
                .await;
            let live = &events[number]["object"];
            let custom = &copy["object"];
            let nth = events[..number]
                .iter()
                .filter(|it| it["object"]["metadata"]["uid"] == live["metadata"]["uid"])
                .count();
            let name = text(live, "/metadata/name");
            for (side, object) in [(&mut self.live, live), (&mut self.custom, custom)] {
                let version = text(object, "/metadata/resourceVersion");
                side.note(version, format!("{name}#{nth}"));
                side.note(text(object, "/metadata/uid"), format!("uid of {name}"));
            }
        }
        self.mirrored = events.len();
    }

    /// Makes a change of the live resource to the custom one.
    async fn mirror(&self, event: &Value) {
        let admin = &self.world.admin;
        let object = &event["object"];
        let all = TWIN.path(Some(text(object, "/metadata/namespace")));
        let one = format!("{all}/{}", text(object, "/metadata/name"));
        if event["type"] == "DELETED" {
            admin.delete(&one).await.ok();
            return;
        }
        let mut copy = object.clone();
        copy["apiVersion"] = json!(TWIN.api_version);
        let metadata = copy["metadata"]
            .as_object_mut()
            .expect("objects have metadata");
        for own in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
            metadata.remove(own);
        }
        if event["type"] == "ADDED" {
            admin.post(&all, &copy).await.ok();
        } else {
            let last = admin.get(&one).await.ok();
            copy["metadata"]["resourceVersion"] = last["metadata"]["resourceVersion"].clone();
            let kind = "application/json";
            let put = admin.send(http::Method::PUT, &one, kind, copy.to_string());
            put.await.ok();
        }
    }

    /// The name of the operation on this subject in the first namespace.
    fn name_of(&mut self, subject: &str) -> String {
        let namespace = self.namespace;
        let find = |events: &[Value]| {
            let mut objects = events.iter().map(|event| &event["object"]);
            let found = objects.find(|object| {
                object["metadata"]["namespace"] == namespace
                    && object["spec"]["subject"]["name"] == subject
            });
            found.map(|object| text(object, "/metadata/name").to_owned())
        };
        self.live_events
            .now(find)
            .expect("the operation was started")
    }

    /// Both lists of the first namespace, with options.
    async fn lists(&self, options: &str) -> [Value; 2] {
        let namespace = Some(self.namespace);
        let live = OPERATION.path(namespace) + options;
        let custom = TWIN.path(namespace) + options;
        let admin = &self.world.admin;
        [admin.get(&live).await.ok(), admin.get(&custom).await.ok()]
    }
}

fn gone(events: &[Value], name: &str) -> Option<()> {
    let of_it = |event: &&Value| event["object"]["metadata"]["name"] == name;
    let last = events.iter().rfind(of_it)?;
    (last["type"] == "DELETED").then_some(())
}

/// Continue tokens that something is wrong with.
fn tokens(side: &mut Side, good: &str) {
    let good = token(good);
    let mut changed = |name: &str, field: &str, value: Value| {
        let mut token = good.clone();
        token[field] = value;
        if token[field].is_null() {
            token.as_object_mut().expect("it is one").remove(field);
        }
        side.set(name, URL_SAFE_NO_PAD.encode(token.to_string()));
    };
    changed("token-without-version", "v", Value::Null);
    changed("token-of-version-2", "v", json!("meta.k8s.io/v2"));
    changed("token-at-zero", "rv", json!(0));
    changed("token-without-start", "start", Value::Null);
    changed("token-upwards", "start", json!("/../../x\u{0}"));
    changed("token-at-newest", "rv", json!(-1));
    changed("token-expired", "rv", json!(1));
    side.set("expired", "1".to_owned());
}
