//! Takes over from release 0.1.0 during a rolling update. A server of release 0.1.0 (the old
//! server) uses no Lease and runs as a single process.
//!
//! While the old server runs, no replica (process) of this release may lead. Otherwise two servers
//! would write to the cluster at the same time. This module does the following:
//!
//! - It looks for the old server among the endpoints of our Service. It recognizes the old server
//!   by its readiness report, which lacks the check `replica`.
//! - It copies the operations of the old server.
//! - It allows the election of a leader when the old server has stopped.

use super::leader_link_https::HttpLinkFactory;
use super::leader_link_interface::LinkError;
use crate::index::{Rv, Writer};
use ifo_client::error_text::chain;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::config::AuthInfo;
use kube::{Api, Client};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The time between two checks of the old server.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The time limit for one attempt to copy the operations of the old server. After a failed attempt,
/// this replica tries again. If no attempt has succeeded within this time after the start of this
/// replica, this replica becomes ready without operations.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// A terminating endpoint that does not answer counts as a running old server for this time. The
/// time starts at the first of its consecutive failed checks. The reason: after SIGTERM, the old
/// server closes its listener, but writes custom resources for up to 10 s.
const TERMINATION_PERIOD: Duration = Duration::from_mins(1);

/// An endpoint that does not answer and is not terminating counts as a running old server for this
/// time, because a running old server can miss the time limit of a check. The time starts at the
/// first of its consecutive failed checks.
///
/// In a new cluster, an endpoint that does not answer is usually a replica that has not started
/// yet. By default, this endpoint does not delay the first leader. The reason: the first leader
/// waits for one lease duration anyway, and the default lease duration (8 s) is longer than this
/// time.
const SILENCE_PERIOD: Duration = Duration::from_secs(5);

/// The name of the port in our Service.
const PORT_NAME: &str = "https";

/// What this replica knows so far about the operations of an old server (release 0.1.0). The search
/// for an old server never ends, so `Nothing` can change to `Loaded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Succession {
    /// This replica still tries to find an old server and to copy its operations.
    #[default]
    Pending,
    /// No old server exists, or its operations could not be copied in time.
    Nothing,
    /// The operations of the old server are in the index of this replica.
    Loaded,
}

/// Takes over from an old server (release 0.1.0), if there is one.
pub struct PredecessorSearch {
    /// A client for the kube-apiserver that does not retry requests.
    client: Client,
    links: HttpLinkFactory,
    /// The credentials of this replica for the kube-apiserver. The old server accepts no other
    /// credentials.
    credentials: AuthInfo,
    namespace: String,
    service: String,
    /// The `IP:PORT` of this replica. The search skips this endpoint.
    own_address: String,
    succession: watch::Sender<Succession>,
    /// The permission to elect the first leader: while the value is true, this replica may acquire
    /// a Lease that no replica has held before. The search sends true when no old server runs any
    /// more. If an old server answers afterwards, the search sends false.
    may_begin: watch::Sender<bool>,
    created: Instant,
    /// For each endpoint whose last check failed: the time of the first of its consecutive failed
    /// checks.
    first_failures: HashMap<SocketAddr, Instant>,
}

impl PredecessorSearch {
    /// Creates a search for an old server among the endpoints of the Service `service` in
    /// `namespace`. `own_address` is the address of this replica.
    pub fn new(
        client: Client,
        links: HttpLinkFactory,
        credentials: AuthInfo,
        (namespace, service): (&str, &str),
        own_address: String,
        succession: watch::Sender<Succession>,
        may_begin: watch::Sender<bool>,
    ) -> Self {
        Self {
            client,
            links,
            credentials,
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            own_address,
            succession,
            may_begin,
            created: Instant::now(),
            first_failures: HashMap::new(),
        }
    }

    /// Looks for an old server every second, and copies the operations of the old server. Allows
    /// the election of a leader when no old server runs any more. An old server can answer even
    /// after that, so the search continues, and the future never completes.
    pub async fn follow(&mut self, writer: &mut Writer) {
        let mut before = None;
        loop {
            let found = self.find_old_server().await;
            if let PredecessorState::At(address) = found
                && before.replace(address) != Some(address)
            {
                tracing::info!(%address, "a server of release 0.1.0 is still running; no replica leads until that server has stopped");
            }
            let loading = tokio::time::timeout(LOAD_TIMEOUT, self.load(writer, found));
            let is_loaded = loading.await.unwrap_or(false);
            let is_late = self.created.elapsed() > LOAD_TIMEOUT;
            let is_gone = found == PredecessorState::NotFound;
            if is_loaded {
                self.succession.send_replace(Succession::Loaded);
            } else if is_late || is_gone {
                self.succession.send_if_modified(|succession| {
                    let is_pending = *succession == Succession::Pending;
                    if is_pending {
                        *succession = Succession::Nothing;
                    }
                    is_pending
                });
            }
            match found {
                PredecessorState::NotFound => {
                    self.may_begin.send_replace(true);
                }
                // An endpoint that does not answer may be a new replica that has not started yet.
                // So only an answer of an old server takes the permission back.
                PredecessorState::Silent => {}
                PredecessorState::At(_) => {
                    self.may_begin.send_replace(false);
                }
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Copies the operations of the old server into the index, if they are newer than the index.
    /// Returns true if all requests succeed, and this call or an earlier call has filled the index.
    ///
    /// - If the old server answers, the requests go directly to its address. Through the
    ///   kube-apiserver, the requests could reach a new replica, which has only a copy.
    /// - If no old server answers, the requests go through the kube-apiserver. They may reach a new
    ///   replica that has copied the operations earlier.
    async fn load(&self, writer: &mut Writer, found: PredecessorState) -> bool {
        let loading = async {
            let link = match found {
                PredecessorState::At(address) => {
                    let credentials = self.credentials.clone();
                    let address = address.to_string();
                    self.links.to_older_release(&address, credentials).await?
                }
                PredecessorState::Silent | PredecessorState::NotFound => {
                    HttpLinkFactory::through(self.client.clone())
                }
            };
            super::copy_leader_index::load_newest(writer, &link).await
        };
        match loading.await {
            Ok(()) => writer.head() > Rv(0),
            Err(error) => {
                tracing::debug!(%error, "the operations of the server of release 0.1.0 could not be copied");
                false
            }
        }
    }

    /// Looks for an old server among the endpoints of our Service.
    async fn find_old_server(&mut self) -> PredecessorState {
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        let of_service = format!("kubernetes.io/service-name={}", self.service);
        let slices = slices
            .list(&ListParams::default().labels(&of_service))
            .await;
        let slices = match slices {
            Ok(slices) => slices.items,
            Err(error) => {
                tracing::warn!(
                    error = chain(&error),
                    "the endpoints of the Service cannot be read, \
                    so a server of release 0.1.0 may still be running"
                );
                return PredecessorState::Silent;
            }
        };
        let listed = endpoints(&slices);
        // The search forgets the failures of a removed endpoint, because a new Pod can get the
        // address of this endpoint.
        self.first_failures
            .retain(|address, _| listed.iter().any(|it| it.address == *address));
        let mut found = PredecessorState::NotFound;
        for endpoint in listed {
            if endpoint.address.to_string() == self.own_address {
                continue;
            }
            match self.probe(endpoint).await {
                PredecessorState::NotFound => {}
                PredecessorState::Silent => found = PredecessorState::Silent,
                PredecessorState::At(address) => return PredecessorState::At(address),
            }
        }
        found
    }

    async fn probe(&mut self, endpoint: Endpoint) -> PredecessorState {
        let report = self.links.readiness(&endpoint.address.to_string()).await;
        self.judge(endpoint, report)
    }

    /// Decides from the readiness report of `endpoint` whether an old server runs there. `report`
    /// is an error if the endpoint has not answered.
    fn judge(&mut self, endpoint: Endpoint, report: Result<String, LinkError>) -> PredecessorState {
        match report {
            Ok(report) => {
                self.first_failures.remove(&endpoint.address);
                if report.contains("]replica ") {
                    return PredecessorState::NotFound;
                }
                PredecessorState::At(endpoint.address)
            }
            Err(error) => {
                let since = *self
                    .first_failures
                    .entry(endpoint.address)
                    .or_insert_with(Instant::now);
                tracing::debug!(address = %endpoint.address, %error, "an endpoint does not answer");
                let period = if endpoint.is_terminating {
                    TERMINATION_PERIOD
                } else {
                    SILENCE_PERIOD
                };
                if since.elapsed() < period {
                    PredecessorState::Silent
                } else {
                    PredecessorState::NotFound
                }
            }
        }
    }
}

/// The result of a search for an old server, or of the check of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PredecessorState {
    /// No old server was found. An endpoint that has not answered for [`SILENCE_PERIOD`] does not
    /// count as an old server. For a terminating endpoint, this time is [`TERMINATION_PERIOD`].
    NotFound,
    /// An old server may exist: an endpoint does not answer, or the endpoints cannot be read.
    Silent,
    /// An old server answers at this address.
    At(SocketAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Endpoint {
    address: SocketAddr,
    is_terminating: bool,
}

fn endpoints(slices: &[EndpointSlice]) -> Vec<Endpoint> {
    let mut found = Vec::new();
    for slice in slices {
        let mut ports = slice.ports.iter().flatten();
        let port = ports.find(|port| port.name.as_deref() == Some(PORT_NAME));
        let port = port.and_then(|port| u16::try_from(port.port?).ok());
        let Some(port) = port else { continue };
        for endpoint in &slice.endpoints {
            let address = endpoint.addresses.first();
            let address = address.and_then(|text| text.parse::<IpAddr>().ok());
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            found.extend(address.map(|address| Endpoint {
                address: SocketAddr::new(address, port),
                is_terminating: conditions.terminating.unwrap_or(false),
            }));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::leader_link_https::PeerCredentials;
    use super::*;
    use crate::auth::testing::Cluster;
    use crate::index::{Bounds, index_from};
    use serde_json::{Value, json};

    const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/ours/endpointslices";

    /// Creates a search in `cluster`, and a receiver of `may_begin`. Each check of an endpoint
    /// fails before it opens a connection. The reason: the check needs the CA certificate in the
    /// `APIService`, and `cluster` has no `APIService`.
    fn search_in(cluster: &Cluster) -> (PredecessorSearch, watch::Receiver<bool>) {
        let credentials = PeerCredentials::TokenFile("token".into());
        let (may_begin, may_begin_reader) = watch::channel(false);
        let links =
            HttpLinkFactory::new(cluster.client(), "api", "ours.svc".to_owned(), credentials);
        let search = PredecessorSearch::new(
            cluster.client(),
            links,
            AuthInfo::default(),
            ("ours", "ifo"),
            "10.0.0.1:8443".to_owned(),
            watch::Sender::default(),
            may_begin,
        );
        (search, may_begin_reader)
    }

    /// Stores the endpoints of this replica and of another replica. The other endpoint gets
    /// `conditions`.
    fn put_endpoints(cluster: &Cluster, conditions: &Value) {
        let slice = json!({
            "metadata": {"name": "s"}, "addressType": "IPv4",
            "ports": [{"name": "https", "port": 8443}],
            "endpoints": [
                {"addresses": ["10.0.0.1"]},
                {"addresses": ["10.0.0.2"], "conditions": conditions},
            ],
        });
        cluster.put(SLICES, json!({"metadata": {}, "items": [slice]}));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_does_not_answer_delays_the_first_leader_only_for_some_time() {
        let running = json!({});
        let terminating = json!({"terminating": true});
        for (conditions, period) in [(running, SILENCE_PERIOD), (terminating, TERMINATION_PERIOD)] {
            let cluster = Cluster::new();
            put_endpoints(&cluster, &conditions);
            let (mut search, may_begin) = search_in(&cluster);
            let bounds = Bounds {
                bytes: 1 << 20,
                age: Duration::from_mins(5),
            };
            let (mut writer, _reader) = index_from(bounds, Rv(0));
            let follow = search.follow(&mut writer);
            let mut follow = std::pin::pin!(follow);
            let second = Duration::from_secs(1);
            let before = period.saturating_sub(second);
            let _ = tokio::time::timeout(before, &mut follow).await;
            assert!(!*may_begin.borrow(), "{conditions}");
            let _ = tokio::time::timeout(2 * second, &mut follow).await;
            assert!(*may_begin.borrow(), "{conditions}");
        }
    }

    /// A check can miss its time limit although the old server runs.
    #[tokio::test(start_paused = true)]
    async fn one_slow_answer_of_a_running_old_server_does_not_end_the_search() {
        let (mut search, _) = search_in(&Cluster::new());
        let mut endpoint = Endpoint {
            address: "10.0.0.2:8443".parse().unwrap(),
            is_terminating: false,
        };
        let late = || Err(LinkError::Failed("late".to_owned()));
        let old = || Ok("[+]ping ok\n".to_owned());
        let new = Ok("[+]ping ok\n[-]replica failed\n".to_owned());
        let at = PredecessorState::At(endpoint.address);
        assert_eq!(search.judge(endpoint, late()), PredecessorState::Silent);
        assert_eq!(search.judge(endpoint, old()), at);
        // The earlier failure no longer counts when the server stops one hour later.
        tokio::time::sleep(Duration::from_hours(1)).await;
        endpoint.is_terminating = true;
        assert_eq!(search.judge(endpoint, late()), PredecessorState::Silent);
        tokio::time::sleep(TERMINATION_PERIOD).await;
        assert_eq!(search.judge(endpoint, late()), PredecessorState::NotFound);
        assert_eq!(search.judge(endpoint, new), PredecessorState::NotFound);
    }

    #[test]
    fn endpoints_have_the_named_port_and_invalid_addresses_are_skipped() {
        let slice = |port: &str| {
            let slice = json!({
                "metadata": {"name": "s"}, "addressType": "IPv4",
                "ports": [{"name": "metrics", "port": 1}, {"name": port, "port": 8443}],
                "endpoints": [
                    {"addresses": ["10.0.0.1"]},
                    {"addresses": ["fd00::9"], "conditions": {"ready": false, "terminating": true}},
                    {"addresses": ["no address"]},
                ],
            });
            serde_json::from_value(slice).unwrap()
        };
        let found = endpoints(&[slice("https"), slice("other")]);
        let found: Vec<_> = found
            .iter()
            .map(|it| (it.address.to_string(), it.is_terminating))
            .collect();
        let want = [("10.0.0.1:8443", false), ("[fd00::9]:8443", true)];
        assert_eq!(
            found,
            want.map(|(address, is_terminating)| (address.to_owned(), is_terminating))
        );
    }
}
