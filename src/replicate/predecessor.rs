//! The upgrade from a release without a Lease, which ran as a single process.
//!
//! Input: the operations that the old server lists, and the endpoints of our Service. Output: the
//! same operations in this replica's index, and the time at which the old server has ended.
//!
//! While the old server runs, no replica leads, because there would be two writers. The old server
//! is recognized by its readiness report, which does not have the check `replica`.

use super::http::HttpLinkFactory;
use crate::index::{Rv, Writer};
use ifo_client::error::chain;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::config::AuthInfo;
use kube::{Api, Client};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Interval at which the old server is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Time for which this replica waits for the operations of a server that does not answer. After it,
/// this replica becomes ready without them.
const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which a terminating server that does not answer is treated as running. The old server
/// closes its listener up to 10 s before it writes its last custom resource.
const TERMINATION_PERIOD: Duration = Duration::from_mins(1);

/// Name of the port in our Service.
const PORT: &str = "https";

/// State of the takeover from a server of a release without a Lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Succession {
    /// Not known yet.
    #[default]
    Pending,
    /// No such server exists, or it does not answer.
    Nothing,
    /// Its operations are in the index, and are served from there.
    Loaded,
}

/// Takes over from a server of a release without a Lease, if there is one.
pub struct Predecessor {
    /// A client for the kube-apiserver that does not retry.
    client: Client,
    links: HttpLinkFactory,
    /// The credentials of this replica for the kube-apiserver. The old server accepts no other
    /// credentials.
    credentials: AuthInfo,
    namespace: String,
    service: String,
    own: String,
    succession: watch::Sender<Succession>,
    /// True if the old server has ended.
    may_begin: watch::Sender<bool>,
    since: Instant,
    /// The time since when terminating endpoints do not answer.
    silent: HashMap<SocketAddr, Instant>,
}

impl Predecessor {
    /// Looks for a server behind the Service `service` of `namespace`. `own` is the address of this
    /// replica.
    pub fn new(
        client: Client,
        links: HttpLinkFactory,
        credentials: AuthInfo,
        (namespace, service): (&str, &str),
        own: String,
        succession: watch::Sender<Succession>,
        may_begin: watch::Sender<bool>,
    ) -> Self {
        Self {
            client,
            links,
            credentials,
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            own,
            succession,
            may_begin,
            since: Instant::now(),
            silent: HashMap::new(),
        }
    }

    /// Takes over its operations while it runs. Never ends.
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
            let is_late = self.since.elapsed() > LOAD_TIMEOUT;
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

    /// Reads the operations that it lists now, if they are newer. Returns false if there is nothing
    /// to read.
    ///
    /// The request goes to the server's own address. The kube-apiserver may be connected to a new
    /// replica, which only has copies, or even to this replica. So the request goes through the
    /// kube-apiserver only if the server does not answer, because another replica may have copied
    /// the operations earlier.
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

    /// Looks for a server of such a release behind our Service.
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
            if endpoint.address.to_string() == self.own {
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
                    .silent
                    .entry(endpoint.address)
                    .or_insert_with(Instant::now);
                tracing::debug!(address = %endpoint.address, %error, "an endpoint does not answer");
                if endpoint.is_ending && since.elapsed() < TERMINATION_PERIOD {
                    PredecessorState::Silent
                } else {
                    PredecessorState::Nothing
                }
            }
        }
    }
}

/// The result of looking for a server of a release without a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PredecessorState {
    /// No such server exists.
    Nothing,
    /// Such a server may exist, but does not answer.
    Silent,
    /// The server answers at this address.
    At(SocketAddr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Endpoint {
    address: SocketAddr,
    is_ending: bool,
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
                is_ending: conditions.terminating.unwrap_or(false),
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
    fn predecessor_endpoints_have_the_port_of_the_service() {
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
            .map(|it| (it.address.to_string(), it.is_ending))
            .collect();
        let want = [("10.0.0.1:8443", false), ("[fd00::9]:8443", true)];
        assert_eq!(
            found,
            want.map(|(address, ending)| (address.to_owned(), ending))
        );
    }
}
