//! The connection to a cluster: a client for requests, and clients for watches.
//!
//! The clients have kube's layers (address of the server, refreshed credentials, headers) on top of
//! a custom hyper client. The custom client offers HTTP/2 with small windows. In contrast, kube's
//! default client uses HTTP/1.1, and up to 417 KB of buffer for each watch.
//!
//! A hyper client opens one HTTP/2 connection for a host. A kube-apiserver allows 100 concurrent
//! streams on a connection. If all streams are in use, further requests wait until a stream ends. A
//! stream with a watch ends after minutes. So this module spreads the watches over several clients,
//! each with its own connection. Ordinary requests have a client of their own.

use super::buffered_connector::BufferedConnector;
use super::time_limits::{ConnectWithin, TimeLimited};
use http::Uri;
use hyper_util::{
    client::{
        legacy::{
            Builder,
            connect::{HttpConnector, proxy::Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::{TokioExecutor, TokioTimer},
};
use ifo_client::error_text::chain;
use ifo_client::proxy::proxy;
use kube::{
    Client, Config,
    client::{
        Body, ConfigExt as _,
        middleware::{AuthLayer, ExtraHeadersLayer},
        retry::RetryPolicy,
    },
    config::{KubeConfigOptions, Kubeconfig},
};
use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tower::{BoxError, Service, ServiceBuilder, retry::RetryLayer};

/// Maximum number of watches on one connection. For the next watch, this module opens another
/// connection. A kube-apiserver allows 100 concurrent streams on a connection. The other 20 streams
/// are a reserve for watches that are ending.
const WATCHES_PER_CONNECTION: usize = 80;

/// HTTP/2 window of one stream in bytes. This is the amount of data that the API server may send
/// before the reader has read it. With a round trip of 1 ms, the window allows 64 MB/s.
const STREAM_WINDOW: u32 = 64 << 10;

/// HTTP/2 window of a connection in bytes. It covers the windows of all watches, so that one slow
/// reader does not block the other watches.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 80;

/// Read buffer of an HTTP/1.1 connection in bytes. `kubectl proxy` and some load balancers use
/// HTTP/1.1.
const HTTP1_BUFFER: usize = 64 << 10;

/// Interval of HTTP/2 pings on a silent connection. If the API server disappears without closing
/// the connection, the client notices this after [`PING_INTERVAL`] plus [`PING_TIMEOUT`].
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// Time limit for the answer to a ping.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit for setting up a connection (TCP, proxy and TLS), as in client-go.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The address of the cluster and the time limit of requests.
#[derive(Clone, Debug)]
pub struct ConnectOptions {
    /// The path of the kubeconfig. `None` means the first of these sources that can be read:
    ///
    /// 1. the files in the variable `KUBECONFIG`, or `~/.kube/config` without this variable
    /// 2. the service account of the Pod
    pub kubeconfig: Option<PathBuf>,
    /// Time limit of each request, including its answer (`K8S_API_TIMEOUT`). The time limit does
    /// not apply to watches.
    pub api_timeout: Duration,
}

/// The reason why no client can be created. The text of the error is one line that names the
/// kubeconfig.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be read or used.
    #[error("kubeconfig {path}: {reason}")]
    Kubeconfig {
        /// The path of the kubeconfig. Without [`ConnectOptions::kubeconfig`], the value of the
        /// variable `KUBECONFIG` or `~/.kube/config`.
        path: String,
        /// The error with its causes.
        reason: String,
    },
    /// There is neither a kubeconfig nor a service account of a Pod.
    #[error("no cluster: kubeconfig {path}: {kubeconfig}; in-cluster: {in_cluster}")]
    NoCluster {
        /// The value of the variable `KUBECONFIG`, or `~/.kube/config` without this variable.
        path: String,
        /// The reason why no kubeconfig can be used.
        kubeconfig: String,
        /// The reason why there is no in-cluster configuration.
        in_cluster: String,
    },
}

/// The access to a cluster: clients with the same address and credentials. Clones are cheap.
#[derive(Clone)]
pub struct Connection {
    /// The client for ordinary requests. It repeats a request after an answer with 429, 503 or 504.
    /// [`ConnectOptions::api_timeout`] limits each request that is not a watch.
    pub client: Client,
    /// The address of the kube-apiserver, and the credentials. A follower (a replica that copies
    /// the operations of the leader) can use the same credentials for its requests to the leader.
    /// `None` if [`Connection::through`] created the connection.
    pub config: Option<Config>,
    watch_clients: Arc<WatchClients>,
}

/// The clients for watches. Each client has a separate connection.
struct WatchClients {
    make: Box<dyn Fn() -> Client + Send + Sync>,
    /// The existing clients, each with a counter of its watches. The counter is the number of
    /// references to the `Arc`: one in this list, and one in each [`WatchClient`] of the client.
    open: Mutex<Vec<(Client, Arc<()>)>>,
}

/// A client, with the permission to run one of its [`WATCHES_PER_CONNECTION`] watches. When this
/// value is dropped, another watch can take the place.
pub(super) struct WatchClient {
    pub(super) client: Client,
    _counter: Arc<()>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates a connection that uses `client` for all requests. Tests pass a client of a simulated
    /// API server, for which there is no kubeconfig.
    pub fn through(client: Client) -> Self {
        let every = client.clone();
        Self::new(client, Box::new(move || every.clone()))
    }

    fn new(client: Client, make: Box<dyn Fn() -> Client + Send + Sync>) -> Self {
        Self {
            client,
            config: None,
            watch_clients: Arc::new(WatchClients {
                make,
                open: Mutex::default(),
            }),
        }
    }

    /// Returns a client with a separate connection and without retries, for callers that retry
    /// themselves. [`ConnectOptions::api_timeout`] limits each request that is not a watch.
    pub fn without_retries(&self) -> Client {
        (self.watch_clients.make)()
    }

    /// Returns a client for one more watch. If each existing client has [`WATCHES_PER_CONNECTION`]
    /// watches, creates a client with a new connection.
    pub(super) fn watch_client(&self) -> WatchClient {
        let mut open = self
            .watch_clients
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let free = open
            .iter()
            .find(|(_, counter)| Arc::strong_count(counter) <= WATCHES_PER_CONNECTION);
        let (client, counter) = if let Some((client, counter)) = free {
            (client.clone(), Arc::clone(counter))
        } else {
            let (client, counter) = ((self.watch_clients.make)(), Arc::new(()));
            open.push((client.clone(), Arc::clone(&counter)));
            (client, counter)
        };
        WatchClient {
            client,
            _counter: counter,
        }
    }
}

/// Reads the configuration and creates the clients. This function sends no request to the cluster,
/// so the ifo server starts even if the cluster cannot be reached. The caller must run in a tokio
/// runtime.
///
/// # Errors
///
/// There is neither a kubeconfig nor a service account of a Pod, or the configuration cannot be
/// used.
pub async fn connect(options: &ConnectOptions) -> Result<Connection, ConnectError> {
    let path = options.kubeconfig.as_ref().map_or_else(
        || std::env::var("KUBECONFIG").unwrap_or_else(|_| "~/.kube/config".into()),
        |path| path.display().to_string(),
    );
    let fail = |error: &dyn std::error::Error| ConnectError::Kubeconfig {
        path: path.clone(),
        reason: chain(error),
    };

    let read = match &options.kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let (config, proxy) = match read {
        Ok(kubeconfig) => {
            let mut config =
                Config::from_custom_kubeconfig(kubeconfig.clone(), &KubeConfigOptions::default())
                    .await
                    .map_err(|e| fail(&e))?;
            config.apply_debug_overrides();
            let proxy = proxy_for(&kubeconfig, &config.cluster_url);
            let proxy = proxy.map_err(|reason| ConnectError::Kubeconfig {
                path: path.clone(),
                reason,
            })?;
            (config, proxy)
        }
        Err(error) if options.kubeconfig.is_some() => return Err(fail(&error)),
        Err(error) => {
            let config = Config::incluster().map_err(|in_cluster| ConnectError::NoCluster {
                path: path.clone(),
                kubeconfig: chain(&error),
                in_cluster: chain(&in_cluster),
            })?;
            (config, None)
        }
    };

    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let stack = ClientLayers::new(&config, options.api_timeout).map_err(|e| fail(&e))?;
    match proxy {
        None => Ok(stack.connection(tcp)),
        Some(proxy) => {
            let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
            if let Some(auth) = proxy.basic_auth() {
                tunnel = tunnel.with_auth(auth.clone());
            }
            Ok(stack.connection(tunnel))
        }
    }
}

/// Returns the proxy for `server` with the proxy's credentials, or `None` if `server` must be
/// reached directly. Fails if the proxy's address is not a valid URL with the scheme `http`.
fn proxy_for(kubeconfig: &Kubeconfig, server: &Uri) -> Result<Option<Intercept>, String> {
    let proxy_url = || {
        let current = kubeconfig.current_context.as_deref()?;
        let mut contexts = kubeconfig.contexts.iter();
        let context = contexts.find(|it| it.name == current)?.context.as_ref()?;
        let mut clusters = kubeconfig.clusters.iter();
        let cluster = clusters.find(|it| it.name == context.cluster)?;
        cluster.cluster.as_ref()?.proxy_url.as_deref()
    };
    let environment = |name: &str| std::env::var(name).ok();
    let Some(proxy) = proxy(server, proxy_url(), environment) else {
        return Ok(None);
    };
    let found = Matcher::builder().all(proxy).build().intercept(server);
    // This error does not contain the address, because the address may contain a password.
    // `found.uri()` below contains no password.
    let found = found.ok_or("the address of the proxy is not a valid URL")?;
    if found.uri().scheme_str() == Some("http") {
        return Ok(Some(found));
    }
    Err(format!(
        "the address of the proxy is {}, but only proxies with an http:// address are supported",
        found.uri()
    ))
}

/// The layers that all clients of a connection share.
struct ClientLayers {
    config: Config,
    tls: rustls::ClientConfig,
    server_name: Option<rustls::pki_types::ServerName<'static>>,
    /// The authentication layer, which all clients share so that a token is refreshed only once.
    auth: Option<AuthLayer>,
    headers: ExtraHeadersLayer,
    limit: Duration,
}

impl ClientLayers {
    fn new(config: &Config, limit: Duration) -> Result<Self, kube::Error> {
        let server_name = match &config.tls_server_name {
            Some(name) => Some(
                rustls::pki_types::ServerName::try_from(name.clone()).map_err(|e| {
                    kube::Error::Service(format!("tls-server-name {name:?}: {e}").into())
                })?,
            ),
            None => None,
        };
        Ok(Self {
            config: config.clone(),
            tls: config.rustls_client_config()?,
            server_name,
            auth: config.auth_layer()?,
            headers: config.extra_headers_layer()?,
            limit,
        })
    }

    fn connection<C>(self, connector: C) -> Connection
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: hyper::rt::Read
            + hyper::rt::Write
            + hyper_util::client::legacy::connect::Connection
            + Unpin
            + Send
            + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let calls = self.client(connector.clone(), true);
        let config = Some(self.config.clone());
        let make = move || self.client(connector.clone(), false);
        Connection {
            config,
            ..Connection::new(calls, Box::new(make))
        }
    }

    /// Creates a client with a separate connection pool. If `retry` is true, the client repeats a
    /// request after an answer with 429, 503 or 504, until the time limit of the request. If
    /// `retry` is false, the user of the client must retry.
    fn client<C>(&self, connector: C, retry: bool) -> Client
    where
        C: Service<Uri> + Clone + Send + Sync + 'static,
        C::Response: hyper::rt::Read
            + hyper::rt::Write
            + hyper_util::client::legacy::connect::Connection
            + Unpin
            + Send
            + 'static,
        C::Future: Send + 'static,
        C::Error: Into<BoxError>,
    {
        let mut https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(self.tls.clone())
            .https_or_http();
        if let Some(name) = &self.server_name {
            https = https.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(
                name.clone(),
            ));
        }
        let connector = ConnectWithin {
            connector: https
                .enable_all_versions()
                .wrap_connector(BufferedConnector(connector)),
            limit: CONNECT_TIMEOUT,
        };
        let http: hyper_util::client::legacy::Client<_, Body> = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(HTTP1_BUFFER)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .build(connector);
        let service = ServiceBuilder::new()
            .layer(self.config.base_uri_layer())
            .option_layer(retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
            .option_layer(self.auth.as_ref().map(ByRef))
            .layer(self.headers.clone())
            .map_err(BoxError::from)
            .service(http);
        Client::new(
            TimeLimited {
                service,
                limit: self.limit,
            },
            self.config.default_namespace.clone(),
        )
    }
}

/// Applies a layer by reference, because kube's [`AuthLayer`] cannot be cloned.
struct ByRef<'a, L>(&'a L);

impl<S, L: tower::Layer<S>> tower::Layer<S> for ByRef<'_, L> {
    type Service = L::Service;

    fn layer(&self, inner: S) -> L::Service {
        self.0.layer(inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };
    use tower::service_fn;

    fn options(path: impl Into<PathBuf>) -> ConnectOptions {
        ConnectOptions {
            kubeconfig: Some(path.into()),
            api_timeout: Duration::from_secs(30),
        }
    }

    fn kubeconfig(server: &str, more: &str) -> String {
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: k, user: u}}}}], \
             clusters: [{{name: k, cluster: {{server: \"{server}\"{more}}}}}], users: [{{name: u, user: {{token: secret}}}}]}}"
        )
    }

    #[tokio::test]
    async fn an_unusable_kubeconfig_is_reported_on_one_line() {
        let dir = tempfile::tempdir().unwrap();
        let socks = kubeconfig(
            "https://192.0.2.1",
            ", proxy-url: \"socks5://192.0.2.2:1080\"",
        );
        for (name, text) in [
            ("missing", None),
            ("broken", Some("a: [")),
            ("empty", Some("{}")),
            ("socks", Some(&socks)),
        ] {
            let path = dir.path().join(name);
            if let Some(text) = text {
                std::fs::write(&path, text).unwrap();
            }
            let error = connect(&options(&path)).await.unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("kubeconfig {}: ", path.display())),
                "{error}"
            );
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[tokio::test]
    async fn requests_carry_credentials_and_a_user_agent() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}/prefix", listener.local_addr().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, kubeconfig(&server, "")).unwrap();
        let connection = connect(&options(&path)).await.unwrap();
        let watch_client = connection.watch_client();
        for client in [&connection.client, &watch_client.client] {
            let request = Request::get("/version").body(Body::empty()).unwrap();
            let (response, received) = tokio::join!(client.send(request), async {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut received = Vec::new();
                while !received.ends_with(b"\r\n\r\n") {
                    received.push(stream.read_u8().await.unwrap());
                }
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    .await
                    .unwrap();
                String::from_utf8(received).unwrap()
            });
            assert_eq!(response.unwrap().status(), 200);
            assert!(
                received.starts_with("GET /prefix/version HTTP/1.1"),
                "{received}"
            );
            assert!(
                received.contains("authorization: Bearer secret"),
                "{received}"
            );
            assert!(
                received.contains("user-agent: ifo-apiserver/"),
                "{received}"
            );
        }
    }

    #[tokio::test]
    async fn watches_are_spread_over_connections_below_the_stream_limit() {
        let never =
            service_fn(|_| std::future::pending::<Result<http::Response<Body>, BoxError>>());
        let connection = Connection::through(Client::new(never, "default"));
        let open = || connection.watch_clients.open.lock().unwrap().len();
        let mut watch_clients: Vec<_> = (0..WATCHES_PER_CONNECTION)
            .map(|_| connection.watch_client())
            .collect();
        assert_eq!(open(), 1);
        watch_clients.push(connection.watch_client());
        assert_eq!(open(), 2);
        watch_clients.clear();
        watch_clients.extend((0..2 * WATCHES_PER_CONNECTION).map(|_| connection.watch_client()));
        assert_eq!(open(), 2, "the connections must be reused");
    }
}
