//! Tests of retries, time limits, pages and proxies. `transcripts/requests.txt` shows the requests of
//! commands.

use super::cluster::parameter;
use super::fake_apiserver::{execute, list_response, operation, plugin, serve, status_response};
use serde_json::Value;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[test]
fn requests_to_a_server_that_is_syncing_are_retried() {
    let requests = Arc::new(AtomicUsize::new(0));
    let (_runtime, address) = serve(move |_| {
        if requests.fetch_add(1, Ordering::Relaxed) < 2 {
            status_response(429, "TooManyRequests", "storage is (re)initializing")
        } else {
            list_response(&[operation(1)], "")
        }
    });
    let output = execute(plugin(address).arg("list"));
    output.exits(0);
    output.prints("VirtualMachine/vm-1");
}

#[test]
fn a_request_has_a_time_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let address = silent.local_addr().expect("a listener has an address");
    let late = execute(plugin(address).args(["list", "--request-timeout", "200ms"]));
    late.exits(1);
    late.says("--request-timeout");
}

#[test]
fn all_pages_are_read_and_an_expired_list_is_read_in_one_page() {
    for (expires, count) in [(false, 10_000), (true, 1_000)] {
        let (_runtime, address) = serve(move |request| {
            let begin: usize = parameter(request, "continue").parse().unwrap_or_default();
            if expires && begin > 0 {
                return status_response(410, "Expired", "too old");
            }
            let end = match parameter(request, "limit").parse::<usize>() {
                Ok(limit) => begin + limit,
                Err(_) => count,
            };
            let items: Vec<Value> = (begin..end).map(operation).collect();
            let next = if end < count {
                end.to_string()
            } else {
                String::new()
            };
            list_response(&items, &next)
        });
        let output = execute(plugin(address).args(["list", "-o", "name"]));
        assert_eq!(output.stdout.lines().count(), count, "{}", output.stderr);
    }
}

#[test]
fn the_proxy_of_the_environment_respects_no_proxy() {
    let proxy = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    proxy
        .set_nonblocking(true)
        .expect("a socket can be non-blocking");
    let address = proxy
        .local_addr()
        .expect("a listener has an address")
        .to_string();
    // Lists operations and returns the first line of the first request to the proxy. None if the
    // plugin does not use the proxy.
    let request_to_proxy = |server: &str, no_proxy: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
        command
            .env("KUBECONFIG", "/nonexistent")
            .env("HTTPS_PROXY", format!("http://{address}"))
            .env("HTTP_PROXY", &address)
            .env("NO_PROXY", no_proxy)
            .args(["list", "--request-timeout=3m", "--server", server]);
        let plugin = std::thread::spawn(move || execute(&mut command));
        let mut first = None;
        while !plugin.is_finished() {
            if let Ok((mut stream, _)) = proxy.accept() {
                stream.set_nonblocking(false).expect("a socket can block");
                let mut start = [0; 32];
                std::io::Read::read_exact(&mut stream, &mut start).expect("a request is longer");
                first.get_or_insert(String::from_utf8_lossy(&start).into_owned());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_ne!(plugin.join().expect("the thread must not panic").code, 0);
        first.map(|it| it.lines().next().unwrap_or_default().to_owned())
    };
    // The plugin uses no proxy for a loopback address. So the test uses 0.0.0.0, which is not a
    // loopback address. No server listens on its port 1.
    for (server, no_proxy, uses_proxy) in [
        ("https://0.0.0.0:1", "", true),
        ("http://0.0.0.0:1", "", true),
        ("https://0.0.0.0:1", "127.0.0.1", true),
        ("https://0.0.0.0:1", "0.0.0.0", false),
        ("https://0.0.0.0:1", "example,0.0.0.0/8", false),
    ] {
        let expected = uses_proxy.then(|| "CONNECT 0.0.0.0:1 HTTP/1.1".to_owned());
        let found = request_to_proxy(server, no_proxy);
        assert_eq!(found, expected, "{server} {no_proxy}");
    }
}
