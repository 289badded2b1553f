//! Creates a client for a cluster from the kubeconfig and the connection flags of kubectl.
//!
//! The context, the credentials, the impersonated user, the time limit and the proxy are those that
//! kubectl would use.

use crate::clock;
use crate::cluster::api_client::ApiClient;
use crate::cluster::problem::Problem;
use crate::operations::from_files::FileContents;
use crate::output::print::complain;
use http::Uri;
use http::uri::Scheme;
use ifo_api::labels;
use ifo_client::error_text::{chain, one_line};
use ifo_client::proxy::proxy;
use kube::client::Body;
use kube::config::{
    AuthInfo, Context, KubeConfigOptions, Kubeconfig, KubeconfigError, NamedCluster, NamedContext,
};
use kube::{Client, Config};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Connection flags of kubectl, and `--from`. The flags of kubectl have the same meanings as there,
/// except that all namespaces are the default, and that `-v` has no effect.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connect {
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Only operations on subjects in this namespace; all namespaces if omitted
    #[arg(short, long, value_parser = namespace, value_name = "NAME")]
    namespace: Option<String>,
    /// Operations in all namespaces, which is the default; overrides --namespace, as in kubectl
    #[arg(long)]
    all_namespaces: bool,
    /// Time limit for one answer, such as 30s; 0 for no limit
    #[arg(long, default_value = "0", hide_default_value = true, value_parser = clock::duration, value_name = "TIME")]
    request_timeout: Duration,
    /// Read a support bundle, a must-gather folder, or the output of kubectl get ifos -A -o yaml
    /// instead of a cluster; `-` for standard input
    #[arg(long, value_name = "DIR|FILE", conflicts_with = "ClusterFlags")]
    from: Option<PathBuf>,
    /// Accepted for compatibility with kubectl, without effect: no request is logged
    #[arg(short, long = "v", value_name = "LEVEL", hide_short_help = true)]
    verbosity: Option<u32>,
}

/// The flags that choose a cluster or a user. `--from` reads files instead of a cluster, so these
/// flags cannot be used with `--from`.
#[derive(Debug, Clone, Default, clap::Args)]
struct ClusterFlags {
    /// Path of the kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Cluster of the kubeconfig
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// User of the kubeconfig
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// User to impersonate
    #[arg(long = "as", value_name = "USER")]
    impersonate: Option<String>,
    /// Group to impersonate; may be given several times
    #[arg(long = "as-group", value_name = "GROUP")]
    impersonate_groups: Vec<String>,
    /// UID to impersonate
    #[arg(long = "as-uid", value_name = "UID")]
    impersonate_uid: Option<String>,
    /// Extra field of the user to impersonate; may be given several times
    #[arg(long = "as-user-extra", value_parser = extra, value_name = "KEY=VALUE")]
    impersonate_extras: Vec<(String, String)>,
    /// Address of the kube-apiserver
    #[arg(short, long, value_name = "URL")]
    server: Option<String>,
    /// Bearer token
    #[arg(long, value_name = "TOKEN", hide_short_help = true)]
    token: Option<String>,
    /// File with the certificate authority of the kube-apiserver
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    certificate_authority: Option<String>,
    /// File with the client certificate
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    client_certificate: Option<String>,
    /// File with the key of the client certificate
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    client_key: Option<String>,
    /// Server name that is compared with the certificate of the kube-apiserver
    #[arg(long, value_name = "NAME", hide_short_help = true)]
    tls_server_name: Option<String>,
    /// Do not check the kube-apiserver's certificate
    #[arg(long, hide_short_help = true)]
    insecure_skip_tls_verify: bool,
}

fn extra(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} does not have the form KEY=VALUE")),
    }
}

/// Checks the name of a namespace. An invalid name would match no namespace, or would change the
/// path of a request.
pub(crate) fn checked_namespace(text: &str) -> Result<String, String> {
    let is_name = text.len() <= 63 && !text.contains('.') && labels::is_subdomain(text);
    let why = "a namespace has 1 to 63 lower-case letters, digits and '-', and neither begins nor \
               ends with '-'";
    is_name.then(|| text.to_owned()).ok_or(why.to_owned())
}

/// Checks the name of a namespace. An empty value is accepted and means that the flag is absent, as
/// in kubectl. An example is `-n "$NS"` with an unset variable.
fn namespace(text: &str) -> Result<String, String> {
    match text {
        "" => Ok(String::new()),
        text => checked_namespace(text),
    }
}

/// Returns the error for a command or a flag that needs a cluster, such as `wait` and `--watch`.
/// `what` is the name of the command or the flag.
pub(crate) fn needs_cluster(what: &str) -> Problem {
    Problem::Usage(format!(
        "{what} cannot be used with --from: the operations in files do not change, and files \
         do not show the present state of the cluster"
    ))
}

impl Connect {
    /// Returns true if the command reads files instead of a cluster.
    pub(crate) fn reads_files(&self) -> bool {
        self.from.is_some()
    }

    /// Returns the namespace of `--namespace`. None for all namespaces.
    pub(crate) fn namespace(&self) -> Option<&String> {
        let namespace = self.namespace.as_ref().filter(|it| !it.is_empty());
        namespace.filter(|_| !self.all_namespaces)
    }

    /// Creates a client, but sends no request yet. The address of the cluster comes from the flags,
    /// `KUBECONFIG`, `~/.kube/config`, or the service account of the Pod.
    ///
    /// With `--from`, the client reads files instead of a cluster.
    pub(crate) async fn open(&self) -> Result<ApiClient, Problem> {
        if let Some(path) = &self.from {
            return open_files(path);
        }
        let config = self.cluster.config().await?;
        let address = config.cluster_url.to_string();
        let default_namespace = config.default_namespace.clone();
        let hint = config.auth_info.exec.as_ref().map(|it| {
            let text = |it: &Option<String>| it.clone().unwrap_or_default();
            let (command, hint) = (text(&it.command), text(&it.install_hint));
            format!("; the login command is {command:?} ({hint})")
        });
        let client = Client::try_from(config).map_err(|error| {
            Problem::Config(one_line(&(chain(&error) + &hint.unwrap_or_default())))
        })?;
        Ok(ApiClient {
            default_namespace,
            timeout: Some(self.request_timeout).filter(|timeout| !timeout.is_zero()),
            ..ApiClient::new(client, address.trim_end_matches('/'))
        })
    }

    /// Returns the name of the chosen context. None if the kubeconfig has no current context.
    pub(crate) fn context_name(&self) -> Option<String> {
        let flags = &self.cluster;
        given(flags.context.as_ref()).or_else(|| flags.load().ok()?.current_context)
    }
}

impl ClusterFlags {
    fn kubeconfig_file(&self) -> Option<&PathBuf> {
        let file = self.kubeconfig.as_ref();
        file.filter(|it| !it.as_os_str().is_empty())
    }

    fn load(&self) -> Result<Kubeconfig, KubeconfigError> {
        self.kubeconfig_file()
            .map_or_else(read_kubeconfig, Kubeconfig::read_from)
    }

    async fn config(&self) -> Result<Config, Problem> {
        let (mut config, proxy_url) = match self.load() {
            Ok(kubeconfig) => self.chosen(kubeconfig).await?,
            Err(error) if self.kubeconfig_file().is_some() => return Err(error.into()),
            // With `--server`, no kubeconfig is needed, as in kubectl.
            Err(_) if given(self.server.as_ref()).is_some() => {
                self.chosen(Kubeconfig::default()).await?
            }
            Err(error) => (Config::incluster().map_err(|_| error)?, None),
        };
        if config.cluster_url.scheme().is_none() {
            // As in kubectl, an address without a scheme is `http`, even with a certificate
            // authority.
            let with_scheme = format!("http://{}", config.cluster_url).parse();
            config.cluster_url = with_scheme.map_err(KubeconfigError::ParseClusterUrl)?;
        }
        config.tls_server_name = given(self.tls_server_name.as_ref()).or(config.tls_server_name);
        if let Some(file) = given(self.certificate_authority.as_ref()) {
            config.root_cert = Some(Vec::new());
            config.root_cert_file = Some(file.into());
        }
        config.accept_invalid_certs |= self.insecure_skip_tls_verify;
        self.override_auth(&mut config.auth_info);
        if config.cluster_url.scheme() == Some(&Scheme::HTTP) {
            config.auth_info = without_credentials(&config.auth_info);
        }
        config.proxy_url = proxy_for(&config.cluster_url, proxy_url.as_deref())?;
        // A watch can have no events for a minute, until the next bookmark. Timeouts of the kube
        // crate would end such a watch. For other requests, `ApiClient` enforces
        // `--request-timeout`.
        config.read_timeout = None;
        config.write_timeout = None;
        // kube would retry a failed request for minutes, but the user needs the error immediately.
        config.default_retry = false;
        Ok(config)
    }

    /// Returns the configuration for the chosen context, cluster and user, and the proxy of the
    /// cluster.
    async fn chosen(
        &self,
        mut kubeconfig: Kubeconfig,
    ) -> Result<(Config, Option<String>), Problem> {
        let current = kubeconfig.current_context.take();
        let name = given(self.context.as_ref()).or(given(current.as_ref()));
        let mut contexts = kubeconfig.contexts.iter();
        let context = contexts.find(|it| Some(&it.name) == name.as_ref());
        let context = context.and_then(|it| it.context.clone());
        let context = context.unwrap_or_default();
        let mut chosen = KubeConfigOptions {
            context: name,
            cluster: given(self.cluster.as_ref()).or(given(Some(&context.cluster))),
            user: given(self.user.as_ref()).or(given(context.user.as_ref())),
        };
        if let Some(user) = &chosen.user
            && !kubeconfig.auth_infos.iter().any(|it| it.name == *user)
        {
            let why = format!("the kubeconfig has no user {user:?}");
            return Err(Problem::Config(why));
        }
        self.complete(&mut kubeconfig, &mut chosen);
        let mut clusters = kubeconfig.clusters.iter();
        let cluster = clusters.find(|it| Some(&it.name) == chosen.cluster.as_ref());
        let proxy_url = cluster.and_then(|it| it.cluster.as_ref()?.proxy_url.clone());
        let config = Config::from_custom_kubeconfig(kubeconfig, &chosen).await?;
        Ok((config, proxy_url))
    }

    /// Adds the cluster of `--server`, and a context for the chosen cluster, because the kube crate
    /// needs a cluster and a context. If flags replace the certificate authority, removes the one
    /// of the kubeconfig. The kube crate would fail if the removed one is invalid.
    fn complete(&self, kubeconfig: &mut Kubeconfig, chosen: &mut KubeConfigOptions) {
        let server = given(self.server.as_ref());
        if server.is_some() {
            kubeconfig.clusters.push(NamedCluster {
                name: chosen.cluster.get_or_insert_default().clone(),
                ..NamedCluster::default()
            });
        }
        if chosen.context.is_none() && chosen.cluster.is_some() {
            kubeconfig.contexts.push(NamedContext {
                context: Some(Context::default()),
                ..NamedContext::default()
            });
            chosen.context = Some(String::new());
        }
        let replaces_authority =
            self.insecure_skip_tls_verify || given(self.certificate_authority.as_ref()).is_some();
        for it in &mut kubeconfig.clusters {
            let cluster = it.cluster.get_or_insert_default();
            cluster.server = server.clone().or(cluster.server.take());
            if replaces_authority {
                cluster.certificate_authority = None;
                cluster.certificate_authority_data = None;
            }
        }
    }

    fn override_auth(&self, auth: &mut AuthInfo) {
        if let Some(token) = given(self.token.as_ref()) {
            auth.token = Some(token.into());
            auth.token_file = None;
            auth.exec = None;
            auth.auth_provider = None;
        }
        if let Some(file) = given(self.client_certificate.as_ref()) {
            auth.client_certificate = Some(file);
            auth.client_certificate_data = None;
        }
        if let Some(file) = given(self.client_key.as_ref()) {
            auth.client_key = Some(file);
            auth.client_key_data = None;
        }
        let (user, uid) = (&mut auth.impersonate, &mut auth.impersonate_uid);
        *user = given(self.impersonate.as_ref()).or(user.take());
        *uid = given(self.impersonate_uid.as_ref()).or(uid.take());
        if !self.impersonate_groups.is_empty() {
            auth.impersonate_groups = Some(self.impersonate_groups.clone());
        }
        if !self.impersonate_extras.is_empty() {
            let mut extras: HashMap<String, Vec<String>> = HashMap::new();
            for (key, value) in &self.impersonate_extras {
                extras.entry(key.clone()).or_default().push(value.clone());
            }
            auth.impersonate_user_extra = Some(extras);
        }
    }
}

/// Returns the value of a flag. As in kubectl, an empty value means that the flag is absent.
fn given(flag: Option<&String>) -> Option<String> {
    flag.filter(|it| !it.is_empty()).cloned()
}

/// Reads the files at `path`, and returns a client whose lists come from these files. Prints a note
/// about the files. After this call, `clock::now` returns the time at which the files were
/// recorded.
fn open_files(path: &Path) -> Result<ApiClient, Problem> {
    let contents = FileContents::read(path)?;
    complain("note", contents.introduction());
    clock::set_time_of_files(contents.time);
    let no_cluster = tower::service_fn(|_: http::Request<Body>| async {
        Err::<http::Response<Body>, _>(io::Error::other("files answer no requests"))
    });
    let client = Client::new(no_cluster, "default");
    Ok(ApiClient {
        from_files: Some(Arc::new(contents)),
        ..ApiClient::new(client, &path.display().to_string())
    })
}

/// Reads the files that `KUBECONFIG` lists. If `KUBECONFIG` is not set, reads `~/.kube/config`. As
/// in kubectl, a listed file that does not exist is skipped. If none of the listed files exists,
/// returns an error.
fn read_kubeconfig() -> Result<Kubeconfig, KubeconfigError> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let existing = std::env::split_paths(&listed).filter(|it| it.exists());
    let mut existing = existing.peekable();
    if existing.peek().is_none() {
        return Kubeconfig::read();
    }
    existing.try_fold(Kubeconfig::default(), |merged, path| {
        merged.merge(Kubeconfig::read_from(path)?)
    })
}

/// Returns the address of the proxy for requests to `server`. The kube crate would choose wrongly:
/// it compares `NO_PROXY` with the address of the proxy instead of the server, and ignores
/// `HTTP_PROXY`.
fn proxy_for(server: &Uri, proxy_url: Option<&str>) -> Result<Option<Uri>, Problem> {
    let environment = |name: &str| std::env::var(name).ok();
    let address = proxy(server, proxy_url, environment);
    let parsed = address.map(|it| it.parse()).transpose();
    // The address can contain a password, so the error does not contain the address.
    parsed
        .map_err(|error| Problem::Config(format!("the address of the proxy is not a URL: {error}")))
}

/// Returns only the impersonation settings of `auth`. The result is for an unencrypted connection.
/// Like kubectl, the plugin sends no credentials over such a connection.
fn without_credentials(auth: &AuthInfo) -> AuthInfo {
    AuthInfo {
        impersonate: auth.impersonate.clone(),
        impersonate_uid: auth.impersonate_uid.clone(),
        impersonate_groups: auth.impersonate_groups.clone(),
        impersonate_user_extra: auth.impersonate_user_extra.clone(),
        ..AuthInfo::default()
    }
}
