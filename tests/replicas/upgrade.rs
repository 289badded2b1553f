//! Tests of the upgrade from release 0.1.0 and of the downgrade back to it, with the steps of
//! docs/upgrade.md. Release 0.1.0 (the old server) runs as one process and uses no Lease. The
//! operations must survive the upgrade and the downgrade. During the upgrade, clients must be able
//! to read the operations at every moment.
//!
//! The control plane of these tests runs no controllers. So the tests themselves start and stop the
//! replicas (processes) of the server, and write the EndpointSlices of the Service.

use crate::cluster::{LEASE, Replica, Replicas};
use crate::harness::{
    Caller, MANIFEST_FOLDERS, OPERATION, PodProgram, RULE_SET, VM, apart, condition, eventually,
    migrating, ok_if, previous_release, print_skipped, text,
};
use crate::load_balancer::{Endpoint, Endpoints};
use crate::operation_identity::identity;
use crate::{TURNS, check_custom_resources, list_clients};
use http::Method;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The namespace of the VirtualMachines. Each migrating VirtualMachine has one operation.
const NAMESPACE: &str = "upgraded";

/// API path of the EndpointSlices in the namespace of the server.
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ifo-system/endpointslices";

const DISRUPTION_BUDGET: &str =
    "/apis/policy/v1/namespaces/ifo-system/poddisruptionbudgets/ifo-apiserver";

/// Name of the step in which the test makes the kube-apiserver connect to a new server instead of
/// the old server.
const RECONNECTS: &str = "while the kube-apiserver connects to a new server";

/// Pause between two reads, and between two checks of the old server.
const PAUSE: Duration = Duration::from_millis(50);

/// Environment variables of the servers. They make a server delete a custom resource when its
/// operation has ended.
const VARIABLES: [(&str, &str); 1] = [("RETAIN_COMPLETED_IFOS", "false")];

/// The identity (name, UID and creation timestamp) of each operation. The key is the name of the
/// VirtualMachine.
type Identities = BTreeMap<String, [String; 3]>;

#[test]
fn operations_survive_the_upgrade_from_release_0_1_0_and_the_way_back() {
    upgrade_and_downgrade("upgrade", "deploy");
}

#[test]
fn custom_resources_survive_the_upgrade_from_release_0_1_0_and_the_way_back() {
    upgrade_and_downgrade("upgrade-persistence", "deploy/persistence");
}

fn upgrade_and_downgrade(name: &str, folder: &str) {
    let _turn = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(previous), Some(ip)) = (previous_release(name), address_of_this_machine(name)) else {
        return;
    };
    let is_persistent = folder != "deploy";
    let previous_folders = folders(&previous.join("source"), folder);
    let current_folders = folders(Path::new(env!("CARGO_MANIFEST_DIR")), folder);
    let previous = PodProgram {
        path: previous.join("ifo-apiserver"),
        ip,
    };
    let current = PodProgram {
        ip,
        ..PodProgram::default()
    };
    apart(name, async |control_plane| {
        let previous_folders = &as_strs(&previous_folders);
        let mut replicas = Replicas::install(
            control_plane,
            previous.clone(),
            previous_folders,
            &VARIABLES,
        )
        .await;
        let slices = Slices {
            admin: replicas.admin.clone(),
            ip,
        };
        replicas.add().await;
        slices.put(&replicas.all[0], false).await;
        replicas.wait_until_served().await;
        let mut machines = MachinesAndOperations::new(&replicas.admin).await;
        machines.create("before", 10).await;
        machines.assert_start_times_detected().await;
        machines.relabel_every_other("before").await;

        let list_client = ListClient::start(&replicas.admin, machines.operations.clone());
        replicas
            .apply(current, &as_strs(&current_folders), &VARIABLES)
            .await;
        upgrade(&mut replicas, &slices, &mut machines, &list_client).await;
        machines.wait_until_same(&BTreeSet::new()).await;
        assert_eq!(count_leaders(&replicas).await, 1);
        if is_persistent {
            check_custom_resources::wait_until_equal(&replicas).await;
        }
        list_client.stop_and_check(&replicas);
        machines.end(&["before-0".to_owned()]).await;
        machines.create("after", 4).await;

        machines.relabel_every_other("after").await;
        downgrade(&mut replicas, &slices, previous, previous_folders).await;
        // Release 0.1.0 computes names and UIDs without the component. So it does not restore the
        // operations that started in the new release, but detects them again.
        let mut may_differ = machines.names("after");
        if is_persistent {
            machines.wait_until_same(&may_differ).await;
            check_custom_resources::wait_until_equal(&replicas).await;
        } else {
            // Without persistence mode, release 0.1.0 starts without operations, and detects them
            // again. It takes the start time of an operation from the `managedFields` of the
            // VirtualMachine. If the VirtualMachine was changed after the start of the operation,
            // this time is wrong. Then the operation gets another identity.
            may_differ.extend(machines.changed.clone());
            machines.wait_until_same(&may_differ).await;
        }
        let all: Vec<String> = machines.operations.keys().cloned().collect();
        machines.end(&all).await;
        assert_releases_wrote_in_turn(&replicas);
        if is_persistent {
            check_custom_resources::wait_until_equal(&replicas).await;
            check_custom_resources::assert_written_once(&replicas);
        }
    });
}

/// Updates from the old server to two new replicas. As in a rolling update of the Deployment, the
/// new replicas start before the old server stops.
async fn upgrade(
    replicas: &mut Replicas<'_>,
    slices: &Slices,
    machines: &mut MachinesAndOperations,
    list_client: &ListClient,
) {
    let mut old = OldServer {
        replica: replicas.all.remove(0),
        admin: replicas.admin.clone(),
        endpoints: replicas.endpoints.clone(),
        observed: 0,
    };
    list_client.begin_step("while both releases are ready");
    for _ in 0..2 {
        old.observe_during(replicas.add()).await;
        let new = replicas.all.last().expect("`add` adds a replica");
        slices.put(new, false).await;
    }
    list_client.begin_step(RECONNECTS);
    let endpoint = old.replica.endpoint.clone();
    old.observe_during(replicas.connect_to_new(endpoint)).await;
    list_client.begin_step("while the kube-apiserver is connected to a new server");
    old.observe_during(machines.create("during", 5)).await;
    old.observe_during(machines.relabel_every_other("during"))
        .await;
    assert!(old.observed > 10, "only {} observations", old.observed);

    list_client.begin_step("while the old server terminates");
    old.observed = 0;
    slices.put(&old.replica, true).await;
    replicas.endpoints.remove(old.replica.endpoint.number);
    old.replica.server.signal("TERM").await;
    // After SIGTERM, the old server serves clients for 5 s. In this time, it must still detect the
    // operations of these VirtualMachines.
    machines.create_without_waiting("late", 5).await;
    let caller = old.replica.endpoint.caller.0.clone();
    let mut step = 0;
    while old.assert_alone_while_running().await {
        step += 1;
        machines.relabel_all("late", 5, step).await;
        if let Ok(listed) = identities(&caller).await {
            machines.record(listed);
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert!(old.observed > 10, "only {} observations", old.observed);
    let late = machines
        .operations
        .keys()
        .filter(|it| it.starts_with("late"));
    assert_eq!(
        late.count(),
        5,
        "the old server must detect the late operations"
    );
    slices.delete(&old.replica).await;

    list_client.begin_step("until a new server leads");
    replicas.wait_until_recovered().await;
    list_client.begin_step("after the upgrade");
}

impl Replicas<'_> {
    /// Makes the kube-apiserver connect to a new server while the old server is still ready. In a
    /// real update, the kube-apiserver may do this at any time.
    async fn connect_to_new(&self, old: Arc<Endpoint>) {
        self.endpoints.remove(old.number);
        old.close_connections();
        self.wait_until_served().await;
        self.endpoints.add(old);
    }
}

/// Downgrades to release 0.1.0, with the steps of docs/upgrade.md.
async fn downgrade(
    replicas: &mut Replicas<'_>,
    slices: &Slices,
    previous: PodProgram,
    folders: &[&str],
) {
    // The steps set the strategy `Recreate` in the Deployment of release 0.1.0. So all new replicas
    // stop before the old server starts.
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
    replicas.wait_until_served().await;
}

/// The server of release 0.1.0 during the update. While this server runs, no new replica may lead.
/// The test checks this repeatedly with [`Self::assert_alone_while_running`].
struct OldServer {
    replica: Replica,
    admin: Caller,
    endpoints: Endpoints,
    /// Number of checks in which this server was running and no new replica was the leader.
    observed: usize,
}

impl OldServer {
    /// Returns true if this server is still running. Fails if a new replica is the leader although
    /// this server is running.
    async fn assert_alone_while_running(&mut self) -> bool {
        let lease = self.admin.get(LEASE).await;
        let holder = text(&lease.body, "/spec/holderIdentity").to_owned();
        let mut leaders = Vec::new();
        for endpoint in self.endpoints.all() {
            if endpoint.number != self.replica.endpoint.number
                && is_leader(&endpoint.caller.0).await == Ok(true)
            {
                leaders.push(endpoint.number);
            }
        }
        // The search for a leader came first. If the old server is running now, it was also running
        // during the search.
        let is_running = self.replica.server.is_running();
        if is_running {
            assert_eq!(holder, "", "the Lease must have no holder: {}", lease.text);
            assert!(leaders.is_empty(), "no replica must lead: {leaders:?}");
            self.observed += 1;
        }
        is_running
    }

    /// Awaits `work`. Meanwhile, checks repeatedly that this server is running and that no new
    /// replica leads.
    async fn observe_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                is_running = self.assert_alone_while_running() => {
                    assert!(is_running, "the old server has exited");
                }
            }
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}

/// Returns true if the server is the leader, according to its metrics.
async fn is_leader(caller: &Caller) -> Result<bool, String> {
    let metrics = caller.try_get("/metrics").await?;
    let is_leader = metrics.text.contains("ifo_leader 1\n");
    ok_if(
        is_leader || metrics.text.contains("ifo_leader 0\n"),
        &metrics,
    )?;
    Ok(is_leader)
}

/// Returns the number of replicas that are the leader.
async fn count_leaders(replicas: &Replicas<'_>) -> usize {
    let mut count = 0;
    for replica in &replicas.all {
        let is_leader = is_leader(&replica.endpoint.caller.0).await;
        count += usize::from(is_leader.expect("a replica must serve its metrics"));
    }
    count
}

/// The VirtualMachines of the test and their operations.
struct MachinesAndOperations {
    admin: Caller,
    /// The operations that must exist. The server has listed each of them at least once, and the
    /// test has not ended them.
    operations: Identities,
    /// The names of VirtualMachines that the test changed after the start of their operations. If a
    /// server starts without these operations, it takes the time of the change as the start time.
    changed: BTreeSet<String>,
}

impl MachinesAndOperations {
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
            ok_if(condition(&found.body, "Ready")["status"] == "True", &found)
        })
        .await;
        Self {
            admin: admin.clone(),
            operations: Identities::new(),
            changed: BTreeSet::new(),
        }
    }

    /// Records the operations `listed`. Fails if an operation was recorded before with another
    /// name, UID or creation timestamp.
    fn record(&mut self, listed: Identities) {
        for (name, identity) in listed {
            let known = self
                .operations
                .entry(name.clone())
                .or_insert(identity.clone());
            assert_eq!(*known, identity, "{name}");
        }
    }

    /// Returns the names of the VirtualMachines with operations that begin with `prefix`.
    fn names(&self, prefix: &str) -> BTreeSet<String> {
        let names = self.operations.keys();
        names.filter(|it| it.starts_with(prefix)).cloned().collect()
    }

    fn path(name: &str) -> String {
        format!("{}/{name}", VM.path(Some(NAMESPACE)))
    }

    /// Creates VirtualMachines that migrate.
    async fn create_without_waiting(&self, prefix: &str, count: usize) {
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

    /// Creates VirtualMachines that migrate, and waits until their operations are listed.
    async fn create(&mut self, prefix: &str, count: usize) {
        self.create_without_waiting(prefix, count).await;
        let listed = eventually("the operations are listed", async || {
            let listed = identities(&self.admin).await?;
            let ours = listed.keys().filter(|it| it.starts_with(prefix)).count();
            ok_if(ours == count, &listed)?;
            Ok(listed)
        })
        .await;
        self.record(listed);
    }

    /// Changes a label of the VirtualMachines `{prefix}-0`, `{prefix}-1` ... Their status stays the
    /// same.
    async fn relabel_all(&mut self, prefix: &str, count: usize, step: u64) {
        for number in 0..count {
            let name = format!("{prefix}-{number}");
            let patch = json!({"metadata": {"labels": {"step": step.to_string()}}});
            self.admin.merge(&Self::path(&name), &patch).await.ok();
            self.changed.insert(name);
        }
    }

    /// Changes a label of every second VirtualMachine with the prefix `prefix`. The status stays
    /// the same. Repeats the change until the newest time in `managedFields` is later than the
    /// start of the operation.
    async fn relabel_every_other(&mut self, prefix: &str) {
        let mut machines = self.operations.clone();
        machines.retain(|name, _| name.starts_with(prefix));
        for (name, [_, _, start]) in machines.iter().step_by(2) {
            let mut step = 0;
            eventually("managedFields have a later time", async || {
                step += 1;
                let patch = json!({"metadata": {"labels": {"step": step.to_string()}}});
                let machine = self.admin.merge(&Self::path(name), &patch).await.ok();
                let fields = machine["metadata"]["managedFields"].as_array();
                let times = fields.into_iter().flatten().map(|it| text(it, "/time"));
                let last = times.max().unwrap_or_default();
                ok_if(last > start.as_str(), last)
            })
            .await;
            self.changed.insert(name.clone());
        }
    }

    /// Asserts that the start time of each operation is the time at which the server detected the
    /// operation. The start time must not come from `managedFields`.
    async fn assert_start_times_detected(&self) {
        let all = self.admin.get(&OPERATION.path(Some(NAMESPACE))).await.ok();
        for operation in all["items"].as_array().into_iter().flatten() {
            let source = text(operation, "/status/startTimeSource");
            assert_eq!(source, "Detected", "{operation}");
        }
    }

    /// Waits until exactly the recorded operations are listed, with the same identities. If a
    /// VirtualMachine is in `may_differ`, its operation may have another name, UID or creation
    /// timestamp.
    async fn wait_until_same(&self, may_differ: &BTreeSet<String>) {
        eventually("the operations are the same", async || {
            let listed = identities(&self.admin).await?;
            let names: BTreeSet<_> = self.operations.keys().chain(listed.keys()).collect();
            let differs = |name: &&String| {
                let (before, after) = (self.operations.get(*name), listed.get(*name));
                let both_exist = before.is_some() && after.is_some();
                before != after && !(may_differ.contains(*name) && both_exist)
            };
            let different: Vec<_> = names.into_iter().filter(differs).collect();
            let both = different
                .iter()
                .map(|name| (self.operations.get(*name), listed.get(*name)));
            ok_if(different.is_empty(), both.collect::<Vec<_>>())
        })
        .await;
    }

    /// Ends the migration of these VirtualMachines, and waits until their operations have ended.
    async fn end(&mut self, names: &[String]) {
        for name in names {
            let patch = json!({"status": {"printableStatus": "Running"}});
            self.admin.merge(&Self::path(name), &patch).await.ok();
        }
        eventually("the operations end", async || {
            let listed = identities(&self.admin).await?;
            ok_if(names.iter().all(|it| !listed.contains_key(it)), &listed)
        })
        .await;
        self.operations.retain(|name, _| !names.contains(name));
    }
}

/// Lists the operations in flight. Returns an error if the list fails. Panics if a VirtualMachine
/// has two operations in flight.
async fn identities(caller: &Caller) -> Result<Identities, String> {
    let list = list_clients::read(caller, &OPERATION.path(Some(NAMESPACE))).await?;
    let mut found = Identities::new();
    for operation in list.body["items"].as_array().into_iter().flatten() {
        let name = text(operation, "/spec/subject/name").to_owned();
        if operation["status"]["phase"] == "Active" {
            let other = found.insert(name, identity(operation));
            assert_eq!(
                other, None,
                "a VirtualMachine has two operations: {}",
                list.text
            );
        }
    }
    Ok(found)
}

impl ListResults {
    /// Records the result of a list. `first_step` is the step in which the list began. If an
    /// operation in `expected` is missing or has another identity, the method also records this
    /// error.
    fn record(
        &mut self,
        first_step: &'static str,
        result: Result<Identities, String>,
        expected: &Identities,
    ) {
        self.reads += 1;
        match result {
            Ok(listed) => {
                let lost = expected
                    .iter()
                    .filter(|(name, it)| listed.get(*name) != Some(it));
                let lost: Vec<_> = lost.collect();
                if !lost.is_empty() {
                    self.wrong
                        .push(format!("{first_step}: not listed: {lost:?}"));
                }
            }
            Err(failure) => {
                let failure = (first_step, self.step, failure);
                *self.failures.entry(failure).or_default() += 1;
            }
        }
    }
}

/// Asserts that the releases wrote one after the other. In the audit log, the writes must come in
/// this order: release 0.1.0, the new release, release 0.1.0 again. The function checks only writes
/// of rule sets and of custom resources.
fn assert_releases_wrote_in_turn(replicas: &Replicas<'_>) {
    let log = &replicas.control_plane.addresses.audit_log;
    let log = std::fs::read_to_string(log).expect("the control plane writes an audit log");
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
    assert_eq!(
        writers,
        [true, false, true],
        "the releases must write one after the other (true means release 0.1.0)"
    );
}

/// A client that repeatedly lists the operations through the kube-apiserver.
struct ListClient {
    state: Arc<Mutex<ListResults>>,
    task: JoinHandle<()>,
}

/// The results of the lists of [`ListClient`] so far.
#[derive(Debug, Default)]
struct ListResults {
    /// The current step of the update.
    step: &'static str,
    reads: usize,
    /// The number of failed lists. The key is the step in which the list began, the step in which
    /// it ended, and the error.
    failures: BTreeMap<(&'static str, &'static str, String), usize>,
    /// Descriptions of lists in which an expected operation was missing or had another identity.
    wrong: Vec<String>,
}

impl ListClient {
    /// Starts the client. Each of its lists must contain the `expected` operations.
    fn start(admin: &Caller, expected: Identities) -> Self {
        let state = Arc::new(Mutex::new(ListResults {
            step: "before the update",
            ..ListResults::default()
        }));
        let (admin, shared) = (admin.clone(), state.clone());
        let task = tokio::spawn(async move {
            loop {
                let first_step = locked(&shared).step;
                let result = identities(&admin).await;
                locked(&shared).record(first_step, result, &expected);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { state, task }
    }

    /// Sets the name of the current step of the update.
    fn begin_step(&self, step: &'static str) {
        locked(&self.state).step = step;
    }

    /// Stops the client. Fails if a list lacked an operation, or if a list failed outside of the
    /// step [`RECONNECTS`].
    fn stop_and_check(self, replicas: &Replicas<'_>) {
        assert!(!self.task.is_finished(), "the client panicked");
        self.task.abort();
        let state = locked(&self.state);
        let mut failures = state.failures.keys();
        // In the step `RECONNECTS`, the test closes connections of the kube-apiserver. Requests on
        // these connections may fail.
        let are_allowed = failures.all(|(begun, ended, _)| [*begun, *ended].contains(&RECONNECTS));
        let is_good = state.wrong.is_empty() && are_allowed;
        assert!(is_good, "{state:#?}\n{}", replicas.logs());
        assert!(
            state.reads > 50,
            "the client read only {} lists",
            state.reads
        );
    }
}

fn locked(state: &Mutex<ListResults>) -> MutexGuard<'_, ListResults> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes the EndpointSlices of the Service. All Pods of this test have the same address, but
/// different ports. An EndpointSlice has one port for all its addresses, so each Pod needs its own
/// EndpointSlice.
struct Slices {
    admin: Caller,
    ip: IpAddr,
}

impl Slices {
    /// Writes the EndpointSlice of a Pod. If `terminating` is true, the Pod is marked as
    /// terminating and not ready. Otherwise it is marked as ready.
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

    /// Deletes the EndpointSlice of a Pod.
    async fn delete(&self, replica: &Replica) {
        let path = format!("{SLICES}/{}", Self::name(replica));
        self.admin.delete(&path).await.ok();
    }

    fn name(replica: &Replica) -> String {
        format!("ifo-apiserver-{}", replica.endpoint.number)
    }
}

/// Returns an address of this machine that is not a loopback address, because the kube-apiserver
/// refuses loopback addresses in EndpointSlices. Returns None if the machine has no such address.
/// In this case, prints that the test `test` is skipped.
fn address_of_this_machine(test: &str) -> Option<IpAddr> {
    // Connecting a UDP socket sends no packet. It only makes the kernel select the local address
    // for packets to the remote address. The remote address is reserved for documentation.
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a UDP port is free");
    let connected = socket.connect("198.51.100.1:9");
    let address = connected.and_then(|()| socket.local_addr());
    let address = address
        .ok()
        .map(|it| it.ip())
        .filter(|it| !it.is_loopback());
    if address.is_none() {
        print_skipped(
            test,
            "this machine has only loopback addresses, or no route to other machines",
        );
    }
    address
}

/// Returns the paths of the manifest folders of a release. `root` is the folder of the release. The
/// result contains the folders in [`MANIFEST_FOLDERS`], except that the value of the parameter
/// `deploy_folder` replaces `"deploy"`.
///
/// If this value is not `"deploy"`, it is the folder of persistence mode. The result then also
/// contains the folder with the CRD of the custom resources.
fn folders(root: &Path, deploy_folder: &str) -> Vec<String> {
    let persistence = (deploy_folder != "deploy").then_some("deploy/crd-persistence");
    let folders = MANIFEST_FOLDERS.map(|it| if it == "deploy" { deploy_folder } else { it });
    let folders = persistence.into_iter().chain(folders);
    let absolute = |folder| root.join(folder).display().to_string();
    folders.map(absolute).collect()
}

fn as_strs(folders: &[String]) -> Vec<&str> {
    folders.iter().map(|it| &**it).collect()
}
