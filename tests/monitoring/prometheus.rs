//! Finds and starts Prometheus, and sends queries to it.

use crate::harness::{Demo, OutputLines, eventually};
use crate::{alert_groups, repository};
use kube::{Client, Config};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokio::process::Child;

/// Returns the folder with `prometheus` and `promtool`:
///
/// - If the environment variable `IFO_PROMETHEUS` is set, its value is the folder.
/// - If the variable is not set, the function downloads the Debian package of Prometheus.
/// - If this machine has no such package, the function calls [`skip`] and returns None.
pub fn programs() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("IFO_PROMETHEUS") {
        return Some(folder.into());
    }
    let package = Command::new(repository("tests/debian-package"))
        .arg("prometheus")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("tests/debian-package must start");
    match package.status.code() {
        Some(0) => {
            let folder = String::from_utf8(package.stdout).expect("the path must be UTF-8");
            Some(Path::new(folder.trim()).join("usr/bin"))
        }
        Some(3) => {
            skip("there is no Debian package of Prometheus");
            None
        }
        _ => panic!("tests/debian-package failed: {}", package.status),
    }
}

/// Prints that the current test is skipped. If the environment has `IFO_REQUIRE_E2E=1` or
/// `CI=true`, fails the test instead.
fn skip(why: &str) {
    let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    assert!(
        !set("IFO_REQUIRE_E2E", "1") && !set("CI", "true"),
        "tests with Prometheus must not be skipped here: {why}"
    );
    let test = std::thread::current();
    let name = test.name().unwrap_or("a test with Prometheus").to_owned();
    // If the test passes, Rust's test runner hides the output of `eprintln!`. So this function
    // writes directly to standard error.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {name}: {why}");
}

/// Writes the alerts in `deploy/components/monitoring/prometheusrule.yaml` to a file that
/// Prometheus reads. The field `for` of an alert is the time for which its condition must be true
/// before the alert fires. If `hold` is a duration such as `1s`, it replaces this field in all
/// alerts.
pub fn write_rules(file: &Path, hold: Option<&str>) {
    let mut groups = alert_groups();
    for group in &mut groups {
        let alerts = group["rules"].as_array_mut().expect("they must be a list");
        for alert in alerts.iter_mut().filter(|_| hold.is_some()) {
            alert["for"] = json!(hold);
        }
    }
    let groups = json!({"groups": groups});
    // Prometheus reads YAML, and JSON is valid YAML.
    std::fs::write(file, groups.to_string()).expect("the folder must be writable");
}

/// A running Prometheus that scrapes a [`Demo`] and evaluates the alerts. Dropping this value kills
/// the process.
pub struct Prometheus {
    client: Client,
    log: OutputLines,
    _process: Child,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Starts Prometheus on a free port of 127.0.0.1. Prometheus scrapes the demo once a second,
    /// over TLS, with the token of the demo's administrator. [`write_rules`] describes `hold`.
    pub async fn start(programs: &Path, demo: &Demo, hold: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = |name: &str| folder.path().join(name);
        let (ca, token) = credentials(&demo.kubeconfig);
        std::fs::write(file("ca.crt"), ca).expect("the folder must be writable");
        let target = demo.config.cluster_url.authority().expect("an address");
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [file("rules.yaml")],
            "scrape_configs": [{
                "job_name": "ifo-apiserver",
                "scheme": "https",
                "authorization": {"credentials": token},
                "tls_config": {"ca_file": file("ca.crt")},
                "static_configs": [{
                    "targets": [target.as_str()],
                    // In a cluster, prometheus-operator sets these labels.
                    "labels": {"namespace": "ifo-system", "pod": "ifo-apiserver-0"},
                }],
            }],
        });
        std::fs::write(file("prometheus.yml"), config.to_string()).expect("it must be writable");
        write_rules(&file("rules.yaml"), hold);
        let mut process = tokio::process::Command::new(programs.join("prometheus"))
            .arg(format!(
                "--config.file={}",
                file("prometheus.yml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", file("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("prometheus must start");
        let log = OutputLines::collect(process.stderr.take().expect("it is piped"));
        let address = eventually("the address of Prometheus in its log", async || {
            let lines = log.lines();
            let line = lines.iter().find(|it| it.contains("Listening on"))?;
            Some(line.rsplit_once("address=")?.1.trim().to_owned())
        })
        .await;
        let url = format!("http://{address}")
            .parse()
            .expect("it is an address");
        let client = Client::try_from(Config::new(url)).expect("the configuration is valid");
        Self {
            client,
            log,
            _process: process,
            _folder: folder,
        }
    }

    /// Sends a GET request to `/api/v1/<path>`, and returns the field `data` of the answer. Fails
    /// if Prometheus reports an error.
    pub async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters);
        let request = http::Request::get(format!("/api/v1/{path}?{}", query.finish()));
        let request = request.body(Vec::new()).expect("the request is valid");
        let answer: Result<Value, _> = self.client.request(request).await;
        let mut answer = answer.unwrap_or_else(|error| {
            panic!(
                "{path} {parameters:?}: {error}; log: {:#?}",
                self.log.lines()
            )
        });
        assert_eq!(answer["status"], "success", "{parameters:?}: {answer}");
        answer["data"].take()
    }

    /// Evaluates a query at the current time, and returns the values of all series. Leaves out the
    /// value `NaN`. A query yields `NaN` if it divides zero by zero, or if a histogram is empty.
    pub async fn query(&self, query: &str) -> Vec<String> {
        let data = self.get("query", &[("query", query)]).await;
        let series = data["result"].as_array().expect("the result is a vector");
        let values = series.iter().filter_map(|it| it["value"][1].as_str());
        let values = values.filter(|value| *value != "NaN");
        values.map(str::to_owned).collect()
    }
}

/// Reads the CA of the first cluster and the token of the first user from a kubeconfig. Returns the
/// CA in PEM format.
fn credentials(kubeconfig: &Path) -> (Vec<u8>, String) {
    use base64::Engine as _;
    let text = std::fs::read_to_string(kubeconfig).expect("the demo has written it");
    let kubeconfig: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let ca = crate::text(
        &kubeconfig,
        "/clusters/0/cluster/certificate-authority-data",
    );
    let ca = base64::prelude::BASE64_STANDARD.decode(ca);
    let token = crate::text(&kubeconfig, "/users/0/user/token");
    (ca.expect("it is base64"), token.to_owned())
}
