//! Another running server of ours, as a source: in a rolling update, the one that goes.
//! It is asked directly, since the Service may lead to ourselves.
//!
//! It is known by the CA that the kube-apiserver knows us by, under our Service's name;
//! it knows us by our own credentials, and asks the kube-apiserver whether we may list.

use super::list::List;
use super::{Failure, Page, Source};
use crate::index::Rv;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::live::InFlightOperation;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::ListParams;
use kube::{Api, Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::sync::OnceCell;

/// How long another replica is waited for, from looking for it to its last page: nobody is
/// answered before.
const WITHIN: Duration = Duration::from_secs(2);

/// How long it may take to connect: an address that leads nowhere leaves time for another.
const CONNECT: Duration = Duration::from_millis(500);

/// Replicas that are asked, one after the other, until one answers.
const MAX_ASKED: usize = 3;

/// Bytes of an operation that are read. Labels and conditions included, it has at most half
/// of that.
const MAX_OBJECT: usize = 64 << 10;

/// Where operations are.
const PATH: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Name of the port in our Service.
const PORT: &str = "https";

/// Where to look for another replica.
#[derive(Clone, Debug)]
pub enum Whereabouts {
    /// There.
    At(http::Uri),
    /// Behind our Service, not at this address, which is our own.
    Behind(IpAddr),
}

/// Another replica.
pub struct Replica {
    /// How to reach the cluster, with our credentials.
    config: Config,
    client: Client,
    api_service: &'static str,
    namespace: String,
    service: String,
    whereabouts: Whereabouts,
    /// The one that answered first, with its first page; it is asked for the rest.
    found: OnceCell<List>,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replica")
            .field("whereabouts", &self.whereabouts)
            .finish_non_exhaustive()
    }
}

impl Replica {
    /// One behind `service` of `namespace`, whose CA is in the `APIService` of this name.
    /// `config` has the credentials to show, and `client` reads the cluster.
    pub fn new(
        (config, client): (Config, Client),
        api_service: &'static str,
        (namespace, service): (&str, &str),
        whereabouts: Whereabouts,
    ) -> Self {
        Self {
            config,
            client,
            api_service,
            namespace: namespace.to_owned(),
            service: service.to_owned(),
            whereabouts,
            found: OnceCell::new(),
        }
    }

    async fn ask(&self, next: Option<&str>) -> Result<Page, Failure> {
        if let Some(list) = self.found.get() {
            return page(list, next).await;
        }
        let urls = self.urls().await?;
        if urls.is_empty() {
            return Ok(Page::default());
        }
        let authorities = self.authorities().await?;
        let mut last = Failure::Lasting("there is none".to_owned());
        for url in urls {
            let list = List::new(self.connect(&url, authorities.clone())?, PATH, MAX_OBJECT);
            match page(&list, next).await {
                Ok(first) => {
                    // Nobody else asks meanwhile; if so, either will do.
                    let _ = self.found.set(list);
                    return Ok(first);
                }
                Err(failure) => {
                    tracing::info!(%url, %failure, "another replica does not tell");
                    last = failure;
                }
            }
        }
        Err(last)
    }

    async fn urls(&self) -> Result<Vec<http::Uri>, Failure> {
        let own = match &self.whereabouts {
            Whereabouts::At(url) => return Ok(vec![url.clone()]),
            Whereabouts::Behind(own) => own,
        };
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        let of_service = format!("kubernetes.io/service-name={}", self.service);
        let slices = slices
            .list(&ListParams::default().labels(&of_service))
            .await;
        let slices = slices.map_err(|error| failure("EndpointSlices", &error))?;
        Ok(others(&slices.items, *own)
            .into_iter()
            .take(MAX_ASKED)
            .filter_map(|address| format!("https://{address}").parse().ok())
            .collect())
    }

    /// The CAs by which the kube-apiserver knows our API, as DER.
    async fn authorities(&self) -> Result<Vec<Vec<u8>>, Failure> {
        let api: Api<APIService> = Api::all(self.client.clone());
        let registered = api.get(self.api_service).await;
        let registered = registered.map_err(|error| failure("the APIService", &error))?;
        let bundle = registered.spec.and_then(|spec| spec.ca_bundle);
        let bundle = bundle.ok_or_else(|| Failure::Lasting("no caBundle to trust".to_owned()))?;
        let parsed: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bundle.0)
            .map(|certificate| certificate.map(|der| der.to_vec()))
            .collect();
        parsed.map_err(|error| Failure::Lasting(format!("the caBundle: {error}")))
    }

    /// A client that shows our credentials to whoever has a certificate of our Service.
    fn connect(&self, url: &http::Uri, authorities: Vec<Vec<u8>>) -> Result<Client, Failure> {
        let mut config = self.config.clone();
        config.cluster_url = url.clone();
        config.root_cert = Some(authorities);
        config.root_cert_file = None;
        config.accept_invalid_certs = false;
        config.tls_server_name = Some(format!("{}.{}.svc", self.service, self.namespace));
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT);
        config.read_timeout = Some(WITHIN);
        config.default_retry = false;
        Client::try_from(config).map_err(|error| Failure::Lasting(error.to_string()))
    }
}

impl Source for Replica {
    fn name(&self) -> &'static str {
        "another replica"
    }

    fn within(&self) -> Duration {
        WITHIN
    }

    fn page<'a>(&'a self, next: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>> {
        async move {
            // Whoever is starting itself, or going, will not have more to tell in a second.
            let asked = self.ask(next).await;
            asked.map_err(|failure| Failure::Lasting(failure.to_string()))
        }
        .boxed()
    }
}

async fn page(list: &List, next: Option<&str>) -> Result<Page, Failure> {
    let listed = list.page::<InFlightOperation>(next).await?;
    Ok(Page {
        operations: listed.items,
        version: listed.version.and_then(|text| text.parse().ok()).map(Rv),
        next: listed.next,
    })
}

fn failure(what: &str, error: &kube::Error) -> Failure {
    Failure::Lasting(format!("cannot read {what}: {error}"))
}

/// The addresses behind a Service that serve, but for our own: ready ones first, then
/// those that are on their way out and still answer.
fn others(slices: &[EndpointSlice], own: IpAddr) -> Vec<SocketAddr> {
    let mut found: Vec<(bool, SocketAddr)> = Vec::new();
    for slice in slices {
        let mut ports = slice.ports.iter().flatten();
        let port = ports.find(|port| port.name.as_deref() == Some(PORT));
        let port = port.and_then(|port| u16::try_from(port.port?).ok());
        let Some(port) = port else { continue };
        for endpoint in &slice.endpoints {
            let conditions = endpoint.conditions.clone().unwrap_or_default();
            // Left out, as Kubernetes has it, is ready, and ready serves.
            let ready = conditions.ready.unwrap_or(true);
            let serves = conditions.serving.unwrap_or(ready);
            let address = endpoint.addresses.first();
            let address = address.and_then(|text| text.parse::<IpAddr>().ok());
            if let Some(address) = address.filter(|address| serves && *address != own) {
                found.push((!ready, SocketAddr::new(address, port)));
            }
        }
    }
    found.sort();
    found.dedup();
    found.into_iter().map(|(_, address)| address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(port: &str, endpoints: &serde_json::Value) -> EndpointSlice {
        let slice = json!({
            "metadata": {"name": "s"}, "addressType": "IPv4",
            "ports": [{"name": "metrics", "port": 1}, {"name": port, "port": 8443}],
            "endpoints": endpoints,
        });
        serde_json::from_value(slice).unwrap()
    }

    #[test]
    fn those_that_serve_are_asked_and_never_ourselves() {
        let slices = [
            slice(
                "https",
                &json!([
                    {"addresses": ["10.0.0.1"], "conditions": {"ready": true}},
                    {"addresses": ["10.0.0.2"], "conditions":
                        {"ready": false, "serving": true, "terminating": true}},
                    {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "serving": false}},
                    {"addresses": ["10.0.0.4"], "conditions": {"ready": false}},
                    {"addresses": ["no address"]},
                ]),
            ),
            slice(
                "https",
                &json!([{"addresses": ["10.0.0.9"]}, {"addresses": ["fd00::9"]}]),
            ),
            slice("other", &json!([{"addresses": ["10.0.0.7"]}])),
        ];
        let found = others(&slices, "10.0.0.1".parse().unwrap());
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.9:8443", "[fd00::9]:8443", "10.0.0.2:8443"]);
        assert!(others(&[], "10.0.0.1".parse().unwrap()).is_empty());
    }
}
