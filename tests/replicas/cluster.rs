//! A cluster with several replicas of the server. The functions start and stop replicas, and wait
//! until they serve operations.

use crate::harness::relay::Relay;
use crate::harness::{
    API_SERVICE, Caller, Cluster, OPERATION, ServerProcess, eventually, is, text,
};
use crate::load_balancer::{self, Endpoint, Endpoints};
use serde_json::{Value, json};
use std::sync::Arc;

/// The folders of manifests of persistence mode.
const FOLDERS: [&str; 5] = [
    "deploy/crd",
    "deploy/crd-persistence",
    "deploy/persistence",
    "deploy/targets-default",
    "apiservice",
];

/// API path of the Lease. The replica that holds the Lease is the leader.
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ifo-system/leases/ifo-apiserver";

/// All replicas, behind the address of a load balancer.
pub struct Replicas<'a> {
    pub cluster: &'a Cluster,
    /// A client of the kube-apiserver. Its user is a member of system:masters.
    pub admin: Caller,
    pub endpoints: Endpoints,
    /// The replicas. The oldest replica is the first.
    pub all: Vec<Replica>,
    /// The manifest of the Deployment, with the flags and environment variables of the replicas.
    deployment: Value,
    /// Number of replicas that were started so far, including stopped replicas.
    started: usize,
}

/// One replica: the server process, the relay between this process and the kube-apiserver, and the
/// endpoint in the load balancer. With the relay, a test can interrupt the connections of the
/// replica to the kube-apiserver.
pub struct Replica {
    pub server: ServerProcess,
    pub relay: Relay,
    pub endpoint: Arc<Endpoint>,
}

impl Replica {
    /// Starts the server again after its process has exited, as a kubelet restarts a container.
    /// Waits until the server is ready.
    pub async fn start_again(&mut self) {
        self.server.start_again().await;
        self.endpoint.recover();
    }
}

impl<'a> Replicas<'a> {
    /// Installs the manifests of persistence mode, and starts `count` replicas. They delete the custom
    /// resource of an operation when the operation has ended.
    pub async fn start(cluster: &'a Cluster, count: usize) -> Self {
        let mut installed = cluster.install(&FOLDERS).await;
        let container = &mut installed.deployment["spec"]["template"]["spec"]["containers"][0];
        let env = container["env"].as_array_mut();
        let env = env.expect("the container must have a list of variables");
        env.retain(|it| it["name"] != "RETAIN_COMPLETED_IFOS");
        env.push(json!({"name": "RETAIN_COMPLETED_IFOS", "value": "false"}));
        let endpoints = Endpoints::default();
        let port = load_balancer::start(&endpoints).await;
        cluster.register(installed.registration, port).await;
        let mut replicas = Self {
            cluster,
            admin: cluster.admin.clone(),
            endpoints,
            all: Vec::new(),
            deployment: installed.deployment,
            started: 0,
        };
        for _ in 0..count {
            replicas.add().await;
        }
        replicas.wait_until_recovered().await;
        replicas
    }

    /// Starts one more replica, as a new Pod, and waits until it is ready.
    pub async fn add(&mut self) {
        let number = self.started;
        self.started += 1;
        let relay = Relay::start(&self.cluster.control_plane.addresses.apiserver_url).await;
        let name = format!("replica-{number}");
        let deployment = &self.deployment;
        let mut server = self
            .cluster
            .start_behind(&relay.url, &name, deployment)
            .await;
        server.until_ready().await;
        // The kube-apiserver sends such headers with each forwarded request.
        let mut config = server.stranger();
        for (name, value) in [
            ("x-remote-user", "test"),
            ("x-remote-group", "system:masters"),
        ] {
            let name = http::HeaderName::from_static(name);
            config
                .headers
                .push((name, http::HeaderValue::from_static(value)));
        }
        let caller = self.cluster.front_proxy_of(config);
        let endpoint = Endpoint::new(number, server.port(), caller, server.stranger());
        let endpoint = Arc::new(endpoint);
        self.endpoints.add(endpoint.clone());
        self.all.push(Replica {
            server,
            relay,
            endpoint,
        });
    }

    /// Stops the oldest replica, as if its Pod were deleted.
    pub async fn remove_oldest(&mut self) {
        let mut oldest = self.all.remove(0);
        oldest.endpoint.disturb();
        let status = oldest.server.terminate().await;
        assert!(status.success(), "{status}");
        self.endpoints.remove(oldest.endpoint.number);
    }

    /// Waits until a replica holds the Lease. Returns the index of the replica.
    pub async fn leader(&self) -> usize {
        eventually("a replica holds the Lease", async || {
            let lease = self.admin.try_get(LEASE).await?;
            let holder = text(&lease.body, "/spec/holderIdentity");
            let holds = |replica: &Replica| {
                let (uid, _) = holder.split_once('_').unwrap_or_default();
                uid == replica.server.uid().to_string()
            };
            let leader = self.all.iter().position(holds);
            leader.ok_or_else(|| format!("{}: {}", lease.code, lease.text))
        })
        .await
    }

    /// Waits until a replica leads, all replicas are ready, and the kube-apiserver serves
    /// operations.
    pub async fn wait_until_recovered(&self) {
        self.leader().await;
        load_balancer::wait_until_all_ready(&self.endpoints).await;
        for replica in &self.all {
            replica.endpoint.recover();
        }
        let available = |it: &Value| is(it, "Available", "True");
        let what = "the registration is available";
        self.admin.until_object(what, API_SERVICE, available).await;
        // The kube-apiserver may still have connections to a stopped replica. A request on such a
        // connection fails. After ten successful requests, the test assumes that the kube-apiserver
        // has closed these connections.
        for _ in 0..10 {
            self.admin.until_code(&OPERATION.path(None), 200).await;
        }
    }

    /// Returns the last log lines of each replica, including stopped replicas.
    pub fn logs(&self) -> String {
        let logs = (0..self.started).map(|number| {
            let dir = &self.cluster.control_plane.addresses.dir;
            let log = crate::harness::tail(&dir.join(format!("replica-{number}")));
            format!("replica {number}: {log}\n")
        });
        logs.collect()
    }
}
