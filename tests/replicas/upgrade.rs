//! Tests of the upgrade from release 0.1.0, which runs as one process without a Lease, and of the
//! downgrade. The steps are those of docs/installation.md. The tests replace the controllers: they
//! start and stop the Pods, and write the EndpointSlices of the Service.

use crate::balancer::{Endpoint, Endpoints};
use crate::cluster::{LEASE, Replica, Replicas};
use crate::harness::{
    Caller, FOLDERS, Image, OPERATION, RULE_SET, VM, apart, condition, eventually, migrating, so,
    text,
};
use crate::identity::identity;
use crate::{TURNS, readers, records};
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The namespace of the machines.
const NAMESPACE: &str = "upgraded";

/// The EndpointSlices of the server's namespace.
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ifo-system/endpointslices";

const DISRUPTION_BUDGET: &str =
    "/apis/policy/v1/namespaces/ifo-system/poddisruptionbudgets/ifo-apiserver";

/// The step in which the connections of the kube-apiserver to the old server break.
const RECONNECTS: &str = "while the kube-apiserver connects anew";

/// Pause between two observations.
const PAUSE: Duration = Duration::from_millis(50);

/// A custom resource is deleted when its operation has ended.
const VARIABLES: [(&str, &str); 1] = [("RETAIN_COMPLETED_IFOS", "false")];

/// Name, UID and creation timestamp of operations, by the name of their machine.
type Identities = BTreeMap<String, [String; 3]>;

#[test]
fn operations_survive_the_upgrade_from_release_0_1_0_and_the_way_back() {
    up_and_back("upgrade", "deploy");
}

#[test]
fn custom_resources_survive_the_upgrade_from_release_0_1_0_and_the_way_back() {
    up_and_back("upgrade-persistence", "deploy/persistence");
}

fn up_and_back(name: &str, folder: &str) {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(previous), Some(ip)) = (previous_release(name), address(name)) else {
        return;
    };
    let is_persistent = folder != "deploy";
    let previous_folders = folders(&previous.join("source"), folder);
    let current_folders = folders(Path::new(env!("CARGO_MANIFEST_DIR")), folder);
    let previous = Image {
        program: previous.join("ifo-apiserver"),
        ip,
    };
    let current = Image {
        ip,
        ..Image::default()
    };
    apart(name, async |control_plane| {
        let from = &as_str(&previous_folders);
        let mut replicas =
            Replicas::install(control_plane, previous.clone(), from, &VARIABLES).await;
        let slices = Slices {
            admin: replicas.admin.clone(),
            ip,
        };
        replicas.add().await;
        slices.put(&replicas.all[0], false).await;
        replicas.served().await;
        let mut machines = Machines::new(&replicas.admin).await;
        machines.create("before", 10).await;
        machines.must_have_been_detected().await;
        machines.change_every_other("before").await;

        let reads = Reads::start(&replicas.admin, machines.held.clone());
        replicas
            .apply(current, &as_str(&current_folders), &VARIABLES)
            .await;
        upgrade(&mut replicas, &slices, &mut machines, &reads).await;
        machines.must_be_the_same(&BTreeSet::new()).await;
        assert_eq!(leaders(&replicas).await, 1);
        if is_persistent {
            records::agree(&replicas).await;
        }
        reads.must_have_succeeded(&replicas);
        machines.end(&["before-0".to_owned()]).await;
        machines.create("after", 4).await;

        machines.change_every_other("after").await;
        downgrade(&mut replicas, &slices, previous, from).await;
        if is_persistent {
            machines.must_be_the_same(&BTreeSet::new()).await;
            records::agree(&replicas).await;
        } else {
            // For the other operations, managedFields contain the time of the start.
            machines.must_be_the_same(&machines.changed).await;
        }
        let all: Vec<String> = machines.held.keys().cloned().collect();
        machines.end(&all).await;
        writers_took_turns(&replicas);
        if is_persistent {
            records::agree(&replicas).await;
            records::were_written_once(&replicas);
        }
    });
}

/// The rolling update to two replicas, with a surge of one.
async fn upgrade(
    replicas: &mut Replicas<'_>,
    slices: &Slices,
    machines: &mut Machines,
    reads: &Reads,
) {
    let mut old = Predecessor {
        replica: replicas.all.remove(0),
        admin: replicas.admin.clone(),
        endpoints: replicas.endpoints.clone(),
        observed: 0,
    };
    reads.begin("while both releases are ready");
    for _ in 0..2 {
        old.leads_alone_during(replicas.add()).await;
        let new = replicas.all.last().expect("it was added");
        slices.put(new, false).await;
    }
    reads.begin(RECONNECTS);
    let endpoint = old.replica.endpoint.clone();
    old.leads_alone_during(replicas.connect_to_new(endpoint))
        .await;
    reads.begin("while the kube-apiserver asks a new server");
    old.leads_alone_during(machines.create("during", 5)).await;
    old.leads_alone_during(machines.change_every_other("during"))
        .await;
    assert!(old.observed > 10, "{} are too few", old.observed);

    reads.begin("while the old server terminates");
    old.observed = 0;
    slices.put(&old.replica, true).await;
    replicas.endpoints.remove(old.replica.endpoint.number);
    old.replica.server.signal("TERM").await;
    // The old server still detects these operations. It serves for 5 s.
    machines.start("late", 5).await;
    let caller = old.replica.endpoint.caller.0.clone();
    let mut step = 0;
    while old.leads_alone().await {
        step += 1;
        machines.change_all("late", 5, step).await;
        if let Ok(seen) = identities(&caller).await {
            machines.hold(seen);
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert!(old.observed > 10, "{} are too few", old.observed);
    let late = machines.held.keys().filter(|it| it.starts_with("late"));
    assert_eq!(late.count(), 5, "the old server detected them");
    slices.delete(&old.replica).await;

    reads.begin("until a new server leads");
    replicas.recovered().await;
    reads.begin("after the upgrade");
}

impl Replicas<'_> {
    /// Connects the kube-apiserver to a new server. This can happen to one of several
    /// kube-apiservers while both releases are ready.
    async fn connect_to_new(&self, old: Arc<Endpoint>) {
        self.endpoints.remove(old.number);
        old.hang_up();
        self.served().await;
        self.endpoints.add(old);
    }
}

/// The steps of docs/installation.md.
async fn downgrade(
    replicas: &mut Replicas<'_>,
    slices: &Slices,
    previous: Image,
    folders: &[&str],
) {
    // Scale to one and then to none, as the strategy Recreate does.
    while let Some(replica) = replicas.all.first() {
        slices.delete(replica).await;
        replicas.remove_oldest().await;
    }
    replicas.apply(previous, folders, &VARIABLES).await;
    replicas.add().await;
    slices.put(&replicas.all[0], false).await;
    for path in [LEASE, DISRUPTION_BUDGET] {
        let answer = replicas.admin.delete(path).await;
        assert_eq!(answer.code, 200, "{path}: {}", answer.text);
    }
    replicas.served().await;
}

/// The server of release 0.1.0 during the update.
struct Predecessor {
    replica: Replica,
    admin: Caller,
    endpoints: Endpoints,
    /// The number of observations that no new replica led while this server ran.
    observed: usize,
}

impl Predecessor {
    /// Returns true if it still runs. Fails if a new replica leads at the same time.
    async fn leads_alone(&mut self) -> bool {
        let lease = self.admin.get(LEASE).await;
        let holder = text(&lease.body, "/spec/holderIdentity").to_owned();
        let mut leaders = Vec::new();
        for endpoint in self.endpoints.all() {
            if endpoint.number != self.replica.endpoint.number
                && leads(&endpoint.caller.0).await == Ok(true)
            {
                leaders.push(endpoint.number);
            }
        }
        // This is asked last. If the server runs now, it was running during the observations.
        let is_running = self.replica.server.is_running();
        if is_running {
            assert_eq!(holder, "", "the Lease is held: {}", lease.text);
            assert!(leaders.is_empty(), "{leaders:?} lead");
            self.observed += 1;
        }
        is_running
    }

    /// Observes it during this work. It must run until the end of the work.
    async fn leads_alone_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                is_running = self.leads_alone() => assert!(is_running, "the old server ended"),
            }
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}

/// Returns true if the server leads.
async fn leads(caller: &Caller) -> Result<bool, String> {
    let metrics = caller.try_get("/metrics").await?;
    let leads = metrics.text.contains("ifo_leader 1\n");
    so(leads || metrics.text.contains("ifo_leader 0\n"), &metrics)?;
    Ok(leads)
}

/// Returns the number of replicas that lead.
async fn leaders(replicas: &Replicas<'_>) -> usize {
    let mut count = 0;
    for replica in &replicas.all {
        let leads = leads(&replica.endpoint.caller.0).await;
        count += usize::from(leads.expect("it serves metrics"));
    }
    count
}

/// The machines of the test and their operations.
struct Machines {
    admin: Caller,
    /// Operations that a client has received and that have not ended.
    held: Identities,
    /// Machines that were changed after the start of their operations. A server that does not have
    /// these operations would take the change as the start.
    changed: BTreeSet<String>,
}

impl Machines {
    async fn new(admin: &Caller) -> Self {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE},
        });
        admin.post("/api/v1/namespaces", &namespace).await.ok();
        let rules = migrating(NAMESPACE);
        admin.post(&RULE_SET.path(None), &rules).await.ok();
        eventually("the rule set is ready", async || {
            let path = format!("{}/{NAMESPACE}", RULE_SET.path(None));
            let found = admin.try_get(&path).await?;
            so(condition(&found.body, "Ready")["status"] == "True", &found)
        })
        .await;
        Self {
            admin: admin.clone(),
            held: Identities::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Records these operations. Known operations must be unchanged.
    fn hold(&mut self, seen: Identities) {
        for (name, identity) in seen {
            let known = self.held.entry(name.clone()).or_insert(identity.clone());
            assert_eq!(*known, identity, "{name}");
        }
    }

    fn path(name: &str) -> String {
        format!("{}/{name}", VM.path(Some(NAMESPACE)))
    }

    /// Creates machines that migrate.
    async fn start(&self, prefix: &str, count: usize) {
        for number in 0..count {
            let machine = json!({
                "apiVersion": VM.api_version, "kind": VM.kind,
                "metadata": {"name": format!("{prefix}-{number}")},
                "status": {"printableStatus": "Migrating"},
            });
            let all = VM.path(Some(NAMESPACE));
            self.admin.post(&all, &machine).await.ok();
        }
    }

    /// The same, and waits until their operations are listed.
    async fn create(&mut self, prefix: &str, count: usize) {
        self.start(prefix, count).await;
        let seen = eventually("their operations are listed", async || {
            let seen = identities(&self.admin).await?;
            let ours = seen.keys().filter(|it| it.starts_with(prefix)).count();
            so(ours == count, &seen)?;
            Ok(seen)
        })
        .await;
        self.hold(seen);
    }

    /// Changes all machines with this prefix without changing their status.
    async fn change_all(&mut self, prefix: &str, count: usize, step: u64) {
        for number in 0..count {
            let name = format!("{prefix}-{number}");
            let patch = json!({"metadata": {"labels": {"step": step.to_string()}}});
            self.admin.merge(&Self::path(&name), &patch).await.ok();
            self.changed.insert(name);
        }
    }

    /// Changes every second machine without changing its status, until `managedFields` have a later
    /// time than the start of its operation.
    async fn change_every_other(&mut self, prefix: &str) {
        let mut machines = self.held.clone();
        machines.retain(|name, _| name.starts_with(prefix));
        for (name, [_, _, start]) in machines.iter().step_by(2) {
            let mut step = 0;
            eventually("the machine has changed since", async || {
                step += 1;
                let patch = json!({"metadata": {"labels": {"step": step.to_string()}}});
                let machine = self.admin.merge(&Self::path(name), &patch).await.ok();
                let fields = machine["metadata"]["managedFields"].as_array();
                let times = fields.into_iter().flatten().map(|it| text(it, "/time"));
                let last = times.max().unwrap_or_default();
                so(last > start.as_str(), last)
            })
            .await;
            self.changed.insert(name.clone());
        }
    }

    /// Fails if the start of an operation was taken from `managedFields`.
    async fn must_have_been_detected(&self) {
        let all = self.admin.get(&OPERATION.path(Some(NAMESPACE))).await.ok();
        for operation in all["items"].as_array().into_iter().flatten() {
            let source = text(operation, "/status/startTimeSource");
            assert_eq!(source, "Detected", "{operation}");
        }
    }

    /// Waits until exactly the recorded operations are listed. The operations of the machines in
    /// `other` can differ.
    async fn must_be_the_same(&self, other: &BTreeSet<String>) {
        eventually("the operations are the same", async || {
            let seen = identities(&self.admin).await?;
            let names: BTreeSet<_> = self.held.keys().chain(seen.keys()).collect();
            let differs = |name: &&String| {
                let (before, after) = (self.held.get(*name), seen.get(*name));
                before != after && !(other.contains(*name) && before.is_some() && after.is_some())
            };
            let different: Vec<_> = names.into_iter().filter(differs).collect();
            let both = different
                .iter()
                .map(|name| (self.held.get(*name), seen.get(*name)));
            so(different.is_empty(), both.collect::<Vec<_>>())
        })
        .await;
    }

    /// Ends the migration of these machines, and waits until their operations have ended.
    async fn end(&mut self, names: &[String]) {
        for name in names {
            let patch = json!({"status": {"printableStatus": "Running"}});
            self.admin.merge(&Self::path(name), &patch).await.ok();
        }
        eventually("the operations end", async || {
            let seen = identities(&self.admin).await?;
            so(names.iter().all(|it| !seen.contains_key(it)), &seen)
        })
        .await;
        self.held.retain(|name, _| !names.contains(name));
    }
}

/// The operations in flight. A machine never has two.
async fn identities(caller: &Caller) -> Result<Identities, String> {
    let list = readers::read(caller, &OPERATION.path(Some(NAMESPACE))).await?;
    let mut found = Identities::new();
    for operation in list.body["items"].as_array().into_iter().flatten() {
        let name = text(operation, "/spec/subject/name").to_owned();
        if operation["status"]["phase"] == "Active" {
            let other = found.insert(name, identity(operation));
            assert_eq!(other, None, "two operations of one machine: {}", list.text);
        }
    }
    Ok(found)
}

impl Observations {
    /// A read that began in this step has ended.
    fn note(&mut self, begun: &'static str, seen: Result<Identities, String>, must: &Identities) {
        self.reads += 1;
        match seen {
            Ok(seen) => {
                let lost = must.iter().filter(|(name, it)| seen.get(*name) != Some(it));
                let lost: Vec<_> = lost.collect();
                if !lost.is_empty() {
                    self.wrong.push(format!("{begun}: not listed: {lost:?}"));
                }
            }
            Err(failure) => {
                let failure = (begun, self.step, failure);
                *self.failures.entry(failure).or_default() += 1;
            }
        }
    }
}

/// Fails if one release wrote rule sets or custom resources between two writes of the other
/// release.
fn writers_took_turns(replicas: &Replicas<'_>) {
    let log = &replicas.control_plane.state.audit_log;
    let log = std::fs::read_to_string(log).expect("the control plane keeps an audit log");
    let mut writers = Vec::new();
    for line in log.lines() {
        let event: Value = serde_json::from_str(line).unwrap_or_default();
        let is_write = ["create", "update", "patch", "delete"].contains(&text(&event, "/verb"));
        if is_write
            && text(&event, "/objectRef/apiGroup") == "ifo.kubevirt.io"
            && text(&event, "/user/username") == "system:serviceaccount:ifo-system:ifo-apiserver"
        {
            writers.push(text(&event, "/userAgent") == "ifo-apiserver/0.1.0");
        }
    }
    writers.dedup();
    assert_eq!(writers, [true, false, true], "true is release 0.1.0");
}

/// A client that lists through the aggregator continuously.
struct Reads {
    state: Arc<Mutex<Observations>>,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Observations {
    /// The step of the update.
    step: &'static str,
    reads: usize,
    /// Failures, by the steps at their beginning and end.
    failures: BTreeMap<(&'static str, &'static str, String), usize>,
    /// Lists in which an operation is missing or replaced by another one.
    wrong: Vec<String>,
}

impl Reads {
    /// Starts the client. Each list must have these operations.
    fn start(admin: &Caller, expected: Identities) -> Self {
        let state = Arc::new(Mutex::new(Observations {
            step: "before the update",
            ..Observations::default()
        }));
        let (admin, shared) = (admin.clone(), state.clone());
        let task = tokio::spawn(async move {
            loop {
                let begun = locked(&shared).step;
                let seen = identities(&admin).await;
                locked(&shared).note(begun, seen, &expected);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { state, task }
    }

    /// Begins the next step of the update.
    fn begin(&self, step: &'static str) {
        locked(&self.state).step = step;
    }

    /// Ends the client. It fails if a list was wrong, or if a read failed.
    fn must_have_succeeded(self, replicas: &Replicas<'_>) {
        assert!(!self.task.is_finished(), "the client panicked");
        self.task.abort();
        let state = locked(&self.state);
        let mut failures = state.failures.keys();
        // Its requests in flight fail.
        let allowed = failures.all(|(begun, ended, _)| [*begun, *ended].contains(&RECONNECTS));
        let is_good = state.wrong.is_empty() && allowed;
        assert!(is_good, "{state:#?}\n{}", replicas.logs());
        assert!(state.reads > 50, "{} are too few", state.reads);
    }
}

fn locked(state: &Mutex<Observations>) -> MutexGuard<'_, Observations> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The EndpointSlices of the Service. Each Pod has one, because all Pods have one address
/// here, and different ports.
struct Slices {
    admin: Caller,
    ip: IpAddr,
}

impl Slices {
    /// Writes the endpoint of a Pod that is ready or terminates.
    async fn put(&self, replica: &Replica, terminating: bool) {
        let name = Self::name(replica);
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/service-name": "ifo-apiserver"},
            },
            "addressType": if self.ip.is_ipv4() { "IPv4" } else { "IPv6" },
            "ports": [{"name": "https", "port": replica.server.port()}],
            "endpoints": [{
                "addresses": [self.ip],
                "conditions": {
                    "ready": !terminating, "serving": true, "terminating": terminating,
                },
            }],
        });
        let path = format!("{SLICES}/{name}?fieldManager=test&force=true");
        let kind = "application/apply-patch+yaml";
        let answer = self
            .admin
            .send(Method::PATCH, &path, kind, slice.to_string());
        answer.await.ok();
    }

    /// Removes the endpoint of a Pod.
    async fn delete(&self, replica: &Replica) {
        let path = format!("{SLICES}/{}", Self::name(replica));
        self.admin.delete(&path).await.ok();
    }

    fn name(replica: &Replica) -> String {
        format!("ifo-apiserver-{}", replica.endpoint.number)
    }
}

/// The folder of release 0.1.0. None if this clone lacks it.
fn previous_release(test: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/previous-release");
    let built = Command::new(script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("the script can be run");
    if built.status.code() == Some(3) {
        skipped(test, "the clone lacks release 0.1.0");
        return None;
    }
    assert!(built.status.success(), "{}", built.status);
    let folder = String::from_utf8(built.stdout).expect("the script prints a path");
    Some(PathBuf::from(folder.trim()))
}

/// An address of this machine that is not loopback, because the kube-apiserver refuses loopback in
/// EndpointSlices. None if the machine has no such address.
fn address(test: &str) -> Option<IpAddr> {
    // This sends nothing: it selects the source address of packets to a documentation address.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a free port");
    let connected = socket.connect("198.51.100.1:9");
    let address = connected.and_then(|()| socket.local_addr());
    let address = address
        .ok()
        .map(|it| it.ip())
        .filter(|it| !it.is_loopback());
    if address.is_none() {
        skipped(test, "this machine has loopback addresses only");
    }
    address
}

/// Prints a message. The test harness would hide the output of eprintln if a test passes.
fn skipped(test: &str, why: &str) {
    // A failed write is ignored.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {test}: {why}");
}

/// The folders of a release to install, with this one in place of `deploy`.
fn folders(root: &Path, deploy: &str) -> Vec<String> {
    let persistence = (deploy != "deploy").then_some("deploy/crd-persistence");
    let folders = FOLDERS.map(|it| if it == "deploy" { deploy } else { it });
    let folders = persistence.into_iter().chain(folders);
    let absolute = |folder| root.join(folder).display().to_string();
    folders.map(absolute).collect()
}

fn as_str(folders: &[String]) -> Vec<&str> {
    folders.iter().map(|it| &**it).collect()
}
