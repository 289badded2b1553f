//! Takes over from release 0.1.0 during a rolling update. A server of release 0.1.0 (the old
//! server) uses no Lease and runs as a single process.
//!
//! While the old server runs, no replica (process) of this release may lead. Otherwise two servers
//! would write to the cluster at the same time. So this module does the following:
//!
//! - It looks for the old server among the endpoints of our Service. It recognizes the old server
//!   by its readiness report, which lacks the check `replica`.
//! - It copies the operations of the old server.
//! - It allows the election of a leader when the old server has stopped.

use super::leader_link_https::HttpLinkFactory;
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

/// The time limit for copying the operations of the old server. If the old server does not answer
/// within this time, this replica becomes ready without operations.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// After SIGTERM, the old server closes its listener, and writes its last custom resource up to
/// 10 s later. So a terminating endpoint that does not answer counts as running for this time.
const TERMINATION_PERIOD: Duration = Duration::from_mins(1);

/// The name of the port in our Service.
const PORT: &str = "https";

/// The result of the search for an old server (release 0.1.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Succession {
    /// The search for an old server has not ended yet.
    #[default]
    Pending,
    /// No old server exists, or it does not answer.
    Nothing,
    /// The operations of the old server are in the index of this replica.
    Loaded,
}

/// Takes over from an old server (release 0.1.0), if there is one.
pub struct Predecessor {
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
    /// Set to true when no old server runs any more. Then the election may acquire a Lease that was
    /// never held.
    may_begin: watch::Sender<bool>,
    created: Instant,
    /// For each endpoint that does not answer: the time of the first failed check.
    first_failures: HashMap<SocketAddr, Instant>,
}

impl Predecessor {
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

    /// Checks periodically if the old server runs. Copies its operations while it runs. The future
    /// never completes.
    pub async fn follow(&mut self, writer: &mut Writer) {
        let mut before = None;
        loop {
            let found = self.find_server().await;
            if let PredecessorState::At(address) = found
                && before.replace(address) != Some(address)
            {
                tracing::info!(%address, "a server of a release without a Lease still runs; no replica leads until it has ended");
            }
            let loading = tokio::time::timeout(LOAD_TIMEOUT, self.load(writer, found));
            let is_loaded = loading.await.unwrap_or(false);
            let is_late = self.created.elapsed() > LOAD_TIMEOUT;
            let is_gone = found == PredecessorState::Nothing;
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
            if is_gone {
                self.may_begin.send_replace(true);
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }

    /// Copies the operations of the old server into the index, if they are newer than the index.
    /// Returns true if the index has been filled, now or earlier.
    ///
    /// If the old server answers, the list request goes directly to its address. Through the
    /// kube-apiserver, the request could reach a new replica, which has only a copy.
    ///
    /// If the old server does not answer, the list request goes through the kube-apiserver. It may
    /// reach a new replica that has copied the operations earlier.
    async fn load(&self, writer: &mut Writer, found: PredecessorState) -> bool {
        let loading = async {
            let link = match found {
                PredecessorState::At(address) => {
                    let credentials = self.credentials.clone();
                    let address = address.to_string();
                    self.links.to_older_release(&address, credentials).await?
                }
                PredecessorState::Silent | PredecessorState::Nothing => {
                    HttpLinkFactory::through(self.client.clone())
                }
            };
            super::mirror::load_newest(writer, &link).await
        };
        match loading.await {
            Ok(()) => writer.head() > Rv(0),
            Err(error) => {
                tracing::debug!(%error, "no operations to take over");
                false
            }
        }
    }

    /// Looks for an old server among the endpoints of our Service.
    async fn find_server(&mut self) -> PredecessorState {
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
                    so a server of an older release may still be running"
                );
                return PredecessorState::Silent;
            }
        };
        let mut found = PredecessorState::Nothing;
        for endpoint in endpoints(&slices) {
            if endpoint.address.to_string() == self.own_address {
                continue;
            }
            match self.probe(endpoint).await {
                PredecessorState::Nothing => {}
                PredecessorState::Silent => found = PredecessorState::Silent,
                PredecessorState::At(address) => return PredecessorState::At(address),
            }
        }
        found
    }

    async fn probe(&mut self, endpoint: Endpoint) -> PredecessorState {
        match self.links.readiness(&endpoint.address.to_string()).await {
            Ok(report) => {
                if report.contains("]replica ") {
                    return PredecessorState::Nothing;
                }
                PredecessorState::At(endpoint.address)
            }
            Err(error) => {
                let since = *self
                    .first_failures
                    .entry(endpoint.address)
                    .or_insert_with(Instant::now);
                tracing::debug!(address = %endpoint.address, %error, "an endpoint does not answer");
                if endpoint.is_terminating && since.elapsed() < TERMINATION_PERIOD {
                    PredecessorState::Silent
                } else {
                    PredecessorState::Nothing
                }
            }
        }
    }
}

/// The result of a search for an old server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PredecessorState {
    /// No old server exists.
    Nothing,
    /// An old server may exist, but it does not answer.
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
        let port = ports.find(|port| port.name.as_deref() == Some(PORT));
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
    use super::*;
    use serde_json::json;

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
