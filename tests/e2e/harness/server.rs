//! Starts the server under test as a process, as the kubelet would start its container. The process
//! gets the flags, environment variables and Secrets of a Deployment. Most tests use the Deployment
//! in `deploy/`.

use super::{Caller, eventually};
use kube::Config;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tokio::process::{Child, ChildStdin, Command};
use uuid::Uuid;

/// Environment variables with short times, so that the tests are faster.
const SETTINGS: [(&str, &str); 3] = [
    ("DEBOUNCE_THRESHOLD", "3s"),
    ("K8S_INFORMER_RESYNC", "1s"),
    ("REQUEUE_INTERVAL", "5s"),
];

/// A shell script that runs the server. When the standard input of the script is closed, the script
/// kills the server. The input is closed when the test process exits, so no server keeps running.
const UNTIL_STDIN_ENDS: &str = r#"exec 3<&0
(while read -r _ <&3; do :; done; kill -KILL $$) >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null"#;

/// Flags of the leader election, with shorter times than the defaults. The first leader waits for
/// one lease duration before it leads. With the default of 8 s, each start would be slow.
const SHORT_LEASE_FLAGS: [&str; 3] = [
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
];

/// A server process, which represents the container of a Pod. A second start of the process
/// represents a restart of the container, so the UID of the Pod stays the same.
#[derive(Debug)]
pub struct ServerProcess {
    pod: Pod,
    port: u16,
    child: Child,
    /// The standard input of [`UNTIL_STDIN_ENDS`]. Dropping this value kills the server.
    lifeline: Option<ChildStdin>,
    kubeconfig: PathBuf,
}

/// The fields of a Pod that the tests need to start its container.
#[derive(Debug)]
struct Pod {
    /// The folder of the log and of the port file.
    dir: PathBuf,
    namespace: String,
    uid: Uuid,
    container: Value,
}

/// Returns the folder that replaces the mounted volume of the Secret `name`. `dir` is the folder of
/// the server. The test must write the files of the Secret to the returned folder. In a cluster,
/// the kubelet writes these files.
pub fn mounted_secret(dir: &Path, name: &str) -> PathBuf {
    dir.join("secrets").join(name)
}

/// Returns the container of a Pod spec. The folders of [`mounted_secret`] replace the paths of mounted
/// Secrets. For example, if the Secret `a` is mounted at `/etc/tls`, `--tls-cert-file=/etc/tls/tls.crt`
/// becomes `--tls-cert-file=/tmp/t/secrets/a/tls.crt`.
fn container(dir: &Path, spec: &Value) -> Value {
    let container = &spec["containers"][0];
    let mut replaced = container.to_string();
    for volume in spec["volumes"].as_array().into_iter().flatten() {
        let Some(secret) = volume["secret"]["secretName"].as_str() else {
            continue;
        };
        let mut mounts = container["volumeMounts"].as_array().into_iter().flatten();
        let mount = mounts.find(|mount| mount["name"] == volume["name"]);
        let mount = mount.expect("each volume must be mounted");
        let folder = mounted_secret(dir, secret).display().to_string();
        replaced = replaced.replace(super::text(mount, "/mountPath"), &folder);
    }
    serde_json::from_str(&replaced).expect("paths need no escaping in JSON")
}

impl ServerProcess {
    /// Starts a new Pod of this Deployment, and does not wait until it is ready. The server writes its
    /// log and its port to files in the folder `dir`. It has the rights of the user in the kubeconfig.
    pub fn start_unready(dir: &Path, deployment: &Value, kubeconfig: &Path) -> Self {
        let spec = &deployment["spec"]["template"]["spec"];
        let pod = Pod {
            dir: dir.to_owned(),
            namespace: super::text(deployment, "/metadata/namespace").to_owned(),
            uid: Uuid::new_v4(),
            container: container(dir, spec),
        };
        // With `--register`, the server writes the port into its APIService. So the port must be
        // known before the start.
        let args = pod.container["args"].as_array().into_iter().flatten();
        let port = if args.clone().any(|arg| arg == "--register") {
            free_port()
        } else {
            0
        };
        let mut server = Self {
            child: pod.spawn(kubeconfig, port),
            lifeline: None,
            pod,
            port: 0,
            kubeconfig: kubeconfig.to_owned(),
        };
        server.lifeline = server.child.stdin.take();
        server
    }

    /// Waits until the server has written its port and its readiness probe succeeds.
    pub async fn until_ready(&mut self) {
        self.until_listening().await;
        self.wait_until_probe_succeeds().await;
    }

    /// Waits until the server has written its port.
    pub async fn until_listening(&mut self) {
        self.port = self.written_port().await;
    }

    /// Starts the server again on the same port after its process has ended. Waits until the
    /// readiness probe succeeds.
    pub async fn start_again(&mut self) {
        let _ = std::fs::remove_file(self.pod.dir.join("port"));
        self.child = self.pod.spawn(&self.kubeconfig, self.port);
        self.lifeline = self.child.stdin.take();
        assert_eq!(self.written_port().await, self.port);
        self.wait_until_probe_succeeds().await;
    }

    /// Returns true if the process is running.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM, as a kubelet does, and waits until the process exits.
    pub async fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM").await;
        let grace = self.child.wait();
        let ended = tokio::time::timeout(super::DEADLINE, grace).await;
        ended
            .expect("the server must exit after SIGTERM")
            .expect("the process is a child of this one")
    }

    /// Sends a signal, such as `TERM`, to the process.
    pub async fn signal(&self, name: &str) {
        let (signal, pid) = (format!("-{name}"), self.pid().to_string());
        let sent = Command::new("kill").args([signal, pid]).status().await;
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }

    /// Kills the process with SIGKILL.
    pub async fn kill(&mut self) {
        let killed = self.child.kill().await;
        killed.expect("the process is a child of this one");
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child
            .id()
            .expect("the test uses the id of a running server only")
    }

    /// Returns the UID of the Pod.
    pub fn uid(&self) -> Uuid {
        self.pod.uid
    }

    /// Returns the port that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of the server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Returns the configuration of a client without credentials. Like a kubelet, the client does
    /// not verify the certificate of the server.
    pub fn stranger(&self) -> Config {
        without_credentials(&self.url())
    }

    /// Returns the certificate (DER) that the server presents.
    pub async fn certificate(&self) -> Vec<u8> {
        super::presented::presented_certificate(self.port).await
    }

    /// Returns the log of the server.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.pod.dir.join("ifo-apiserver.log")).unwrap_or_default()
    }

    /// Waits until the server has written its port to a file, and returns the port.
    async fn written_port(&mut self) -> u16 {
        let file = self.pod.dir.join("port");
        eventually("the server listens", async || {
            assert!(
                self.is_running(),
                "the server ended:\n{}",
                tail(&self.pod.dir)
            );
            let text = std::fs::read_to_string(&file).map_err(|error| error.to_string())?;
            text.trim().parse().map_err(|_| text.clone())
        })
        .await
    }

    /// Waits until the readiness probe of the Deployment succeeds.
    async fn wait_until_probe_succeeds(&mut self) {
        let path = super::text(&self.pod.container, "/readinessProbe/httpGet/path").to_owned();
        let caller = Caller::new(self.stranger());
        eventually("the readiness probe succeeds", async || {
            assert!(
                self.is_running(),
                "the server ended:\n{}",
                tail(&self.pod.dir)
            );
            let answer = caller.try_get(&path).await?;
            super::ok_if(answer.code == 200, answer)
        })
        .await;
    }
}

/// Returns the configuration of a client of the server at this URL. Like a kubelet, the client has no
/// credentials, and does not verify the certificate of the server.
pub fn without_credentials(url: &str) -> Config {
    let mut config = Config::new(url.parse().expect("the URL is valid"));
    config.accept_invalid_certs = true;
    config
}

/// Returns a port that no process listens on.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address.expect("the host has a free port").port()
}

/// Returns the last lines of a server's log. `dir` is the folder of the server.
pub fn tail(dir: &Path) -> String {
    let log = std::fs::read_to_string(dir.join("ifo-apiserver.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = &lines[lines.len().saturating_sub(60)..];
    format!("last lines of the server's log:\n{}", last.join("\n"))
}

impl Pod {
    /// Starts the process of the container. The process listens on loopback.
    fn spawn(&self, kubeconfig: &Path, port: u16) -> Child {
        let Self { dir, container, .. } = self;
        let env = self.environment();
        // If the container has a `command`, its first word is the name of the server's binary. The
        // tests start the binary under test instead, so this word is left out.
        let words = |field: &str| -> Vec<String> {
            let words = container[field].as_array().cloned().unwrap_or_default();
            let words = words.iter().filter_map(Value::as_str);
            words.map(|word| expand(word, &env)).collect()
        };
        let command = words("command");
        let args: Vec<String> = command.into_iter().skip(1).chain(words("args")).collect();
        let flag = |arg: &str| arg.split('=').next().map(str::to_owned);
        let has = |name: &str| args.iter().any(|arg| flag(arg).as_deref() == Some(name));
        let mut ours = vec![
            format!("--secure-port={port}"),
            format!("--bind-address={}", Ipv4Addr::LOCALHOST),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--port-file={}", dir.join("port").display()),
        ];
        if has("--leader-elect") {
            ours.extend(SHORT_LEASE_FLAGS.map(str::to_owned));
        }
        if has("--register") {
            ours.push(format!("--service-port={port}"));
        }
        if has("--peer-token-file") {
            let file = peer_token_file(kubeconfig);
            ours.push(format!("--peer-token-file={}", file.display()));
        }
        let is_ours = |arg: &String| ours.iter().any(|own| flag(own) == flag(arg));
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(dir.join("ifo-apiserver.log"))
            .expect("the folder of the server is writable");
        // A benchmark can measure the server of another build.
        let own = || env!("CARGO_BIN_EXE_ifo-apiserver").into();
        Command::new("/bin/sh")
            .args(["-c", UNTIL_STDIN_ENDS, "sh"])
            .arg(std::env::var_os("IFO_BENCH_SERVER").unwrap_or_else(own))
            .args(args.iter().filter(|arg| !is_ours(arg)))
            .args(&ours)
            .env_clear()
            .envs(env)
            .envs(SETTINGS)
            .env("RUST_BACKTRACE", "1")
            .current_dir(dir)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a file can be opened twice"))
            .stderr(log)
            .spawn()
            .expect("the shell must start")
    }

    /// Returns the environment variables of the container.
    fn environment(&self) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        for variable in self.container["env"].as_array().into_iter().flatten() {
            let name = super::text(variable, "/name").to_owned();
            let field = super::text(variable, "/valueFrom/fieldRef/fieldPath");
            let value = match (variable["value"].as_str(), field) {
                (Some(value), _) => expand(value, &env),
                (None, "metadata.namespace") => self.namespace.clone(),
                (None, "metadata.uid") => self.uid.to_string(),
                // The server tells other replicas to connect to this IP address.
                (None, "status.podIP") => Ipv4Addr::LOCALHOST.to_string(),
                (None, _) => panic!("the tests cannot give this variable a value: {variable}"),
            };
            env.insert(name, value);
        }
        env
    }
}

/// Returns the path of the token with which a replica authenticates to other replicas. In a Pod,
/// the kubelet writes the file with this token. In the tests, the file is next to the kubeconfig.
pub fn peer_token_file(kubeconfig: &Path) -> PathBuf {
    kubeconfig.with_file_name("peer-token")
}

/// Replaces `$(NAME)` by the value of the variable, as the kubelet does.
fn expand(word: &str, env: &BTreeMap<String, String>) -> String {
    env.iter().fold(word.to_owned(), |word, (name, value)| {
        word.replace(&format!("$({name})"), value)
    })
}

/// Returns a kubeconfig whose user authenticates with this token.
pub fn kubeconfig(server: &str, ca: &Path, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority": ca}}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
    })
}
