//! Connects a follower (a replica that copies the leader's operations) to the leader over HTTPS.
//!
//! The leader authenticates with a serving certificate for the name of our Service. The follower
//! verifies this certificate with the `caBundle` of our `APIService`.
//!
//! The follower authenticates with a token for the audience
//! [`link::AUDIENCE`](super::link::AUDIENCE). The follower does not send its token for the
//! kube-apiserver, because the leader's address comes from the Lease. A user who can edit the Lease
//! can write another address. If a server at this address also had a certificate for our Service,
//! the server would receive this token.

use super::link::{LinkError, failed};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::{Api, Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::time::Duration;

/// The time limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Creates the clients that send requests to leaders.
#[derive(Clone)]
pub struct LeaderAccess {
    /// Reads the `APIService`.
    pub client: Client,
    /// The name of the `APIService` with the CA bundle.
    pub api_service: &'static str,
    /// The name of our Service. The leader's certificate must be valid for this name.
    pub server_name: String,
    /// The file that contains the token with which this replica authenticates to the leader. The
    /// kubelet renews the token, so the client reads the file again at least once per minute.
    pub token_file: Option<String>,
}

impl LeaderAccess {
    /// Returns a client for the leader at `address`. The leader may be unreachable, because this
    /// method sends no request to the leader.
    pub async fn connect(self, address: String) -> Result<Client, LinkError> {
        let url = format!("https://{address}").parse();
        let url = url.map_err(|error: http::uri::InvalidUri| {
            failed("the address of the leader is not valid", &error)
        })?;
        let mut config = Config::new(url);
        config.root_cert = Some(self.authorities().await?);
        config.tls_server_name = Some(self.server_name);
        config.proxy_url = None;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        // A watch can deliver nothing for a long time, so the client has no read timeout. The
        // callers close the connection if the leader does not answer other requests in time.
        config.read_timeout = None;
        config.default_retry = false;
        config.auth_info.token_file = self.token_file;
        Ok(Client::try_from(config)?)
    }

    /// Reads the CA certificates in the `caBundle` of our `APIService`, in DER encoding.
    async fn authorities(&self) -> Result<Vec<Vec<u8>>, LinkError> {
        let api: Api<APIService> = Api::all(self.client.clone());
        let registered = api.get_opt(self.api_service).await?;
        let bundle = registered
            .and_then(|registered| registered.spec?.ca_bundle)
            .ok_or(LinkError::NotRegistered)?;
        CertificateDer::pem_slice_iter(&bundle.0)
            .map(|certificate| certificate.map(|der| der.to_vec()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| failed("the caBundle of the APIService cannot be parsed", &error))
    }
}
