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

use bytes::Bytes;
use futures::{FutureExt as _, TryFutureExt as _, future::BoxFuture, stream};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{
    BodyExt, Full, LengthLimitError, Limited, StreamBody, combinators::UnsyncBoxBody,
};
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
    client::{Body, ConfigExt as _, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
    core::Status,
};
use rustls::pki_types::ServerName;
use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::{Instant, timeout, timeout_at};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt as _, retry::RetryLayer, service_fn};

/// Maximum number of watches on one connection. For the next watch, this module opens another
/// connection. A kube-apiserver allows 100 concurrent streams on a connection. The other 20 streams
/// are a reserve for watches that are ending.
const WATCHES_PER_CONNECTION: usize = 80;

/// HTTP/2 window of one stream in bytes. This is the amount of data that the API server may send
/// before the reader has read it. With a round trip of 1 ms, the window allows 64 MB/s.
const STREAM_WINDOW: u32 = 64 << 10;

/// HTTP/2 window of a connection in bytes. It is the sum of the windows of
/// [`WATCHES_PER_CONNECTION`] watches, so that one slow reader does not block the other watches.
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

/// Maximum size of the body of an error answer in bytes. A larger body counts as empty. The limit
/// is necessary because kube collects the whole body.
const MAX_ERROR: usize = 64 << 10;

/// Maximum size in bytes of an answer that is neither a watch nor a page of a list. The request
/// fails if its answer is larger.
const MAX_ANSWER: usize = 8 << 20;

/// The reason why no client can be created. The text of the error is one line that names the
/// kubeconfig, with the causes of the error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConnectError(String);

/// The access to a cluster: clients with the same address and credentials. Clones are cheap.
#[derive(Clone)]
pub struct Connection {
    /// The client for ordinary requests. It repeats a request after an answer with 429, 503 or 504.
    /// The `api_timeout` of [`connect`] limits each request that is not a watch.
    pub client: Client,
    make_client: Arc<dyn Fn() -> Client + Send + Sync>,
    /// The client for the next watches, and the number of watches that may still use it.
    watch_client: Arc<Mutex<(Client, usize)>>,
}

impl Connection {
    /// Creates a connection that uses `client` for all requests. Tests pass a client of a simulated
    /// API server, for which there is no kubeconfig.
    pub fn through(client: Client) -> Self {
        let every = client.clone();
        Self::new(client, Arc::new(move || every.clone()))
    }

    fn new(client: Client, make_client: Arc<dyn Fn() -> Client + Send + Sync>) -> Self {
        Self {
            watch_client: Arc::new(Mutex::new((client.clone(), 0))),
            client,
            make_client,
        }
    }

    /// Returns a client with a separate connection and without retries, for callers that retry
    /// themselves. The `api_timeout` of [`connect`] limits each request that is not a watch.
    pub fn without_retries(&self) -> Client {
        (self.make_client)()
    }

    /// Returns a client for one more watch. [`WATCHES_PER_CONNECTION`] watches share a client. When
    /// the last of them ends, the connection of the client closes.
    pub(super) fn watch_client(&self) -> Client {
        let mut next = self
            .watch_client
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if next.1 == 0 {
            *next = ((self.make_client)(), WATCHES_PER_CONNECTION);
        }
        next.1 -= 1;
        next.0.clone()
    }
}

/// Reads the configuration and creates the clients. This function sends no request to the cluster,
/// so the ifo server starts even if the cluster cannot be reached. The caller must run in a tokio
/// runtime.
///
/// `kubeconfig` is the path of the kubeconfig. `None` means the first of these sources that can be
/// read:
///
/// 1. the files in the variable `KUBECONFIG`, or `~/.kube/config` without this variable
/// 2. the service account of the Pod
///
/// `api_timeout` (`K8S_API_TIMEOUT`) is the time limit of each request, including its answer. It does
/// not apply to watches.
///
/// # Errors
///
/// There is neither a kubeconfig nor a service account of a Pod, or the configuration cannot be
/// used.
pub async fn connect(
    kubeconfig: Option<&Path>,
    api_timeout: Duration,
) -> Result<Connection, ConnectError> {
    let path = kubeconfig.map_or_else(
        || std::env::var("KUBECONFIG").unwrap_or_else(|_| "~/.kube/config".into()),
        |path| path.display().to_string(),
    );
    let fail = |reason: String| ConnectError(format!("kubeconfig {path}: {reason}"));
    let read = match kubeconfig {
        Some(path) => Kubeconfig::read_from(path),
        None => Kubeconfig::read(),
    };
    let (config, proxy) = match read {
        Ok(kubeconfig) => {
            let given = KubeConfigOptions::default();
            let mut config = Config::from_custom_kubeconfig(kubeconfig.clone(), &given)
                .await
                .map_err(|error| fail(chain(&error)))?;
            config.apply_debug_overrides();
            let proxy = proxy_for(&kubeconfig, &config.cluster_url).map_err(fail)?;
            (config, proxy)
        }
        // The text of this error would repeat the path.
        Err(KubeconfigError::ReadConfig(error, _)) if kubeconfig.is_some() => {
            return Err(fail(error.to_string()));
        }
        Err(error) if kubeconfig.is_some() => return Err(fail(chain(&error))),
        Err(error) => {
            let config = Config::incluster().map_err(|in_cluster| {
                let (kubeconfig, in_cluster) = (chain(&error), chain(&in_cluster));
                ConnectError(format!(
                    "no cluster: kubeconfig {path}: {kubeconfig}; in-cluster: {in_cluster}"
                ))
            })?;
            (config, None)
        }
    };
    clients(config, proxy, api_timeout).map_err(|error| fail(chain(error.as_ref())))
}

/// Returns the proxy for `server` with the credentials of the proxy. Returns `None` if clients must
/// connect to `server` directly. Fails if the address of the proxy is not a valid URL with the
/// scheme `http`.
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

/// Creates the clients. All clients share the TLS configuration. They also share the authentication
/// layer, so that an expired token is refreshed only once.
fn clients(
    config: Config,
    proxy: Option<Intercept>,
    limit: Duration,
) -> Result<Connection, BoxError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tunnel = proxy.map(|proxy| {
        let tunnel = Tunnel::new(proxy.uri().clone(), tcp.clone());
        match proxy.basic_auth() {
            Some(auth) => tunnel.with_auth(auth.clone()),
            None => tunnel,
        }
    });
    let tcp = service_fn(move |uri: Uri| -> BoxFuture<'static, _> {
        match tunnel.clone() {
            Some(tunnel) => tunnel.oneshot(uri).map_err(BoxError::from).boxed(),
            None => tcp.clone().oneshot(uri).map_err(BoxError::from).boxed(),
        }
    });
    let mut https = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http();
    if let Some(name) = &config.tls_server_name {
        let name = ServerName::try_from(name.clone())
            .map_err(|error| format!("tls-server-name {name:?}: {error}"))?;
        https = https.with_server_name_resolver(hyper_rustls::FixedServerNameResolver::new(name));
    }
    let https = https.enable_all_versions().wrap_connector(tcp);
    let connector = service_fn(move |uri: Uri| {
        let connecting = https.clone().oneshot(uri);
        let connected = timeout(CONNECT_TIMEOUT, connecting);
        connected
            .map(|connected| match connected {
                Ok(connected) => connected,
                Err(_) => Err(format!("no connection within {CONNECT_TIMEOUT:?}").into()),
            })
            .boxed()
    });
    let (auth, headers) = (config.auth_layer()?, config.extra_headers_layer()?);
    let client = move |retry: bool| {
        let http: hyper_util::client::legacy::Client<_, Body> = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(HTTP1_BUFFER)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            // A watch that begins on an idle connection sends no ping before its first event.
            .http2_keep_alive_while_idle(true)
            .build(connector.clone());
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            // In a client without this layer, the caller must retry after 429, 503 or 504.
            .option_layer(retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
            .option_layer(auth.as_ref())
            .layer(headers.clone())
            .map_err(BoxError::from)
            .service(http);
        let service = service_fn(move |request| limited(service.clone(), request, limit));
        Client::new(service, config.default_namespace.clone())
    };
    let calls = client(true);
    Ok(Connection::new(calls, Arc::new(move || client(false))))
}

/// The body of an answer.
type AnswerBody = UnsyncBoxBody<Bytes, BoxError>;

/// Sends a request, and limits the time and the size of its answer. There are two exceptions:
///
/// - A watch has neither limit, because it lasts for minutes. The modules `watch_task` and `lines`
///   have timeouts for the lines of a watch, and limit the size of each line.
/// - A page of a list has only the time limit. The module `list` limits its size.
async fn limited<S, B>(
    service: S,
    mut request: Request<Body>,
    limit: Duration,
) -> Result<Response<AnswerBody>, BoxError>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BoxError>,
{
    let agent = concat!("ifo-apiserver/", env!("CARGO_PKG_VERSION"));
    let headers = request.headers_mut();
    headers
        .entry(header::USER_AGENT)
        .or_insert(HeaderValue::from_static(agent));
    let query = request.uri().query().unwrap_or_default();
    let is_page = query.split('&').any(|pair| pair.starts_with("limit="));
    let mut pairs = query.split('&');
    if pairs.any(|pair| matches!(pair, "watch=1" | "watch=true")) {
        let response = service.oneshot(request).await.map_err(Into::into)?;
        return readable(response.map(|body| body.map_err(Into::into).boxed_unsync())).await;
    }
    let until = Instant::now() + limit;
    let late = move |_| BoxError::from(format!("no complete answer within {limit:?}"));
    let response = timeout_at(until, service.oneshot(request)).await;
    let response = response.map_err(late)?.map_err(Into::into)?;
    let response = response.map(|body| {
        let frames = stream::unfold(body, move |mut body| async move {
            let frame = match timeout_at(until, body.frame()).await {
                Ok(frame) => frame?.map_err(Into::into),
                Err(elapsed) => Err(late(elapsed)),
            };
            Some((frame, body))
        });
        let max_size = if is_page { usize::MAX } else { MAX_ANSWER };
        Limited::new(StreamBody::new(frames), max_size).boxed_unsync()
    });
    readable(response).await
}

/// Makes an error answer readable for kube. If the body is a JSON object, kube reads the code from
/// the body. A proxy can send a JSON object without the code, so this function adds the code. A
/// body of more than [`MAX_ERROR`] bytes counts as empty.
async fn readable(response: Response<AnswerBody>) -> Result<Response<AnswerBody>, BoxError> {
    let code = response.status();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(response);
    }
    let (head, body) = response.into_parts();
    let limited = Limited::new(body, MAX_ERROR).boxed_unsync();
    let body = match limited.collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => Bytes::new(),
        Err(error) => return Err(error),
    };
    let body = match serde_json::from_slice::<Status>(&body) {
        Ok(status) => serde_json::to_vec(&status.with_code(code.as_u16()))?,
        Err(_) => String::from_utf8_lossy(&body).into_owned().into_bytes(),
    };
    let body = Full::from(body).map_err(|never| match never {});
    Ok(Response::from_parts(head, body.boxed_unsync()))
}

#[cfg(test)]
mod tests;
