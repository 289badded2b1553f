//! Tests of the start, the addresses and the stop of the real binary.

use crate::demo::{Demo, Written, catches_signals, ended, signal};
use crate::impostor::Impostor;
use crate::listener::tls;
use crate::server::{Certificate, Server, command, write_files};
use kube::Client;
use std::path::Path;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

/// A server that does not have to serve requests, with its log.
fn spawn(mut command: Command) -> (Child, Written) {
    let mut child = command.spawn().unwrap();
    let log = Written::of(child.stderr.take().unwrap());
    (child, log)
}

/// Asserts that this signal ends the server with the documented code. Without a handler, the
/// process would end without a code, or not at all as PID 1.
async fn ends(mut child: Child, log: &Written, name: &str) {
    signal(child.id().unwrap(), name);
    let code = ended(&mut child).await.code();
    assert_eq!(code, Some(0), "{name}: {:#?}", log.lines());
    // The Service has not led any client here, so the stop has no delay.
    let unready = |line: &String| line.contains("is now unready");
    assert!(!log.lines().iter().any(unready), "{:#?}", log.lines());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_the_server_from_its_first_moment() {
    // The impostor accepts connections in its backlog, and never answers.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), &mute.local_addr().unwrap().to_string());
    for name in ["TERM", "INT"] {
        let (child, log) = spawn(command(folder.path(), Certificate::Given));
        catches_signals(&child).await;
        ends(child, &log, name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_the_server_while_it_reads_an_endless_kubeconfig() {
    let folder = tempfile::tempdir().unwrap();
    write_files(folder.path(), "127.0.0.1:1");
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::remove_file(&kubeconfig).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(&kubeconfig)
        .status();
    assert!(made.unwrap().success());
    for name in ["TERM", "INT"] {
        let (child, log) = spawn(command(folder.path(), Certificate::Given));
        // Opening a FIFO blocks until the server has opened it, too. While it is open, reading does
        // not end.
        let _writer = open_for_writing(&kubeconfig).await;
        ends(child, &log, name).await;
    }
}

async fn open_for_writing(pipe: &Path) -> tokio::fs::File {
    let open = tokio::fs::OpenOptions::new().write(true).open(pipe).await;
    open.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_the_server_while_it_waits_for_the_cluster() {
    const TRUST: &str =
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    const CA: &str = "/api/v1/namespaces/ifo-system/secrets/ifo-apiserver-serving-ca";
    for (path, certificate, args) in [
        (TRUST, Certificate::Given, &[][..]),
        (CA, Certificate::Own, &[]),
        (
            "/api/v1/namespaces",
            Certificate::Given,
            &["--retain-completed-ifos"],
        ),
    ] {
        for name in ["TERM", "INT"] {
            let impostor = Impostor::silent_about(path).await;
            let folder = tempfile::tempdir().unwrap();
            write_files(folder.path(), &impostor.address.to_string());
            let mut command = command(folder.path(), certificate);
            command.args(args);
            let (child, log) = spawn(command);
            impostor.is_silent().await;
            ends(child, &log, name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_server_waits_for_its_clients_to_move_before_it_stops() {
    let impostor = Impostor::start([]).await;
    let mut server = Server::start(&impostor).await;
    let ready = server.text("/readyz?exclude=informer-sync").await;
    assert_eq!(ready.unwrap(), "ok");
    server.signal("TERM");
    server.logged("is now unready").await;
    let code = server.ended().await.code();
    assert_eq!(code, Some(0), "{:#?}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_the_server_at_once() {
    let impostor = Impostor::start([]).await;
    let mut server = Server::start(&impostor).await;
    server.text("/readyz?exclude=informer-sync").await.unwrap();
    server.signal("TERM");
    server.logged("is now unready").await;
    server.signal("TERM");
    let code = server.ended().await.code();
    assert_eq!(code, Some(1), "{:#?}", server.log());
    server.logged("stopped at once by a second signal").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_stops_without_waiting_for_idle_clients() {
    let mut demo = Demo::start(&[]).await;
    let port = demo.config.cluster_url.port_u16().unwrap();
    let _tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut silent = tls(&demo, b"h2").await;
    // The SETTINGS frame of the server shows that it has completed the handshake.
    silent.read_exact(&mut [0; 9]).await.unwrap();
    demo.signal("TERM");
    assert_eq!(demo.ended().await.code(), Some(0), "{:#?}", demo.log());
    // Each wait of the stop is logged.
    for wait in ["is now unready", "cut off at shutdown"] {
        let log = demo.log();
        assert!(!log.iter().any(|line| line.contains(wait)), "{log:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_bind_address_ipv4_and_ipv6_are_served() {
    let impostor = Impostor::start([]).await;
    let server = Server::start_with(&impostor, &["-v=1"]).await;
    let port = server.config.cluster_url.port_u16().unwrap();
    let mut hosts = vec!["127.0.0.1"];
    if TcpListener::bind("[::1]:0").await.is_ok() {
        hosts.push("[::1]");
    }
    for host in hosts {
        let mut config = server.config.clone();
        config.cluster_url = format!("https://{host}:{port}").parse().unwrap();
        let client = Client::try_from(config).unwrap();
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        client.request_text(request).await.unwrap();
        // Not the form `[::ffff:127.0.0.1]`.
        server.logged(&format!("client={host}:")).await;
    }
}
