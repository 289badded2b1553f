//! Tests of the start and the end of the server process: how the real binary stops after a signal,
//! and on which addresses it listens.

use crate::demo::{Demo, Process};
use crate::fake_apiserver::FakeApiServer;
use crate::hostile_connections::{PREFACE, tls};
use crate::running_server::{CertificateSource, RunningServer, command, write_files};
use kube::Client;
use std::path::Path;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Asserts that this signal stops the server at once with exit code 0. If the server had no signal
/// handler, the kernel would kill the process, and there would be no exit code. In a container, the
/// server has PID 1, and the kernel would even ignore the signal.
async fn assert_signal_stops(mut server: Process, name: &str) {
    server.signal(name);
    let code = server.wait_for_exit().await.code();
    assert_eq!(code, Some(0), "{name}: {:#?}", server.log());
    // A ready server logs this text and then delays its stop, so that clients can move to another
    // replica. A server that was never ready has no clients, so it must stop without this delay.
    let is_delay = |line: &String| line.contains("is now unready");
    assert!(!server.log().iter().any(is_delay), "{:#?}", server.log());
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
        let server = Process::spawn(command(folder.path(), CertificateSource::Given));
        // Opening a FIFO for writing blocks until the server opens it for reading. While the writer
        // is open, the server does not reach the end of the file.
        let _writer = open_for_writing(&kubeconfig).await;
        assert_signal_stops(server, name).await;
    }
}

async fn open_for_writing(pipe: &Path) -> tokio::fs::File {
    let open = tokio::fs::OpenOptions::new().write(true).open(pipe).await;
    open.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_stops_the_server_while_it_waits_for_the_cluster() {
    const AUTHENTICATION_CONFIG_MAPS: &str =
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    const CA_SECRET: &str = "/api/v1/namespaces/ifo-system/secrets/ifo-apiserver-serving-ca";
    for (path, certificate, args) in [
        (
            AUTHENTICATION_CONFIG_MAPS,
            CertificateSource::Given,
            &[][..],
        ),
        (CA_SECRET, CertificateSource::Own, &[]),
        (
            "/api/v1/namespaces",
            CertificateSource::Given,
            &["--retain-completed-ifos"],
        ),
    ] {
        for name in ["TERM", "INT"] {
            let api_server = FakeApiServer::start_without_answers_to(path).await;
            let folder = tempfile::tempdir().unwrap();
            write_files(folder.path(), &api_server.address.to_string());
            let mut command = command(folder.path(), certificate);
            command.args(args);
            let server = Process::spawn(command);
            api_server.wait_for_unanswered_request().await;
            assert_signal_stops(server, name).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ready_server_waits_for_its_clients_to_move_before_it_stops() {
    let api_server = FakeApiServer::start([]).await;
    let mut server = RunningServer::start(&api_server).await;
    let ready = server.text("/readyz?exclude=informer-sync").await;
    assert_eq!(ready.unwrap(), "ok");
    // The server logs requests only from the verbosity 1.
    assert!(!server.log().iter().any(|line| line.contains(" access: ")));
    server.signal("TERM");
    server.wait_for_log(&["is now unready"]).await;
    let code = server.wait_for_exit().await.code();
    assert_eq!(code, Some(0), "{:#?}", server.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_signal_stops_the_server_at_once() {
    let api_server = FakeApiServer::start([]).await;
    let mut server = RunningServer::start(&api_server).await;
    server.text("/readyz?exclude=informer-sync").await.unwrap();
    server.signal("TERM");
    server.wait_for_log(&["is now unready"]).await;
    server.signal("TERM");
    let code = server.wait_for_exit().await.code();
    assert_eq!(code, Some(1), "{:#?}", server.log());
    let stopped = ["stopped at once by a second signal"];
    server.wait_for_log(&stopped).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_stops_without_waiting_for_idle_clients() {
    let mut demo = Demo::start(&[]).await;
    let port = demo.config.cluster_url.port_u16().unwrap();
    let _tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut idle = tls(&demo, b"h2").await;
    // The server sends its SETTINGS frame after the preface. This read waits for the frame.
    idle.write_all(PREFACE).await.unwrap();
    idle.flush().await.unwrap();
    idle.read_exact(&mut [0; 9]).await.unwrap();
    demo.signal("TERM");
    assert_eq!(
        demo.wait_for_exit().await.code(),
        Some(0),
        "{:#?}",
        demo.log()
    );
    // A demo that waits for a client logs one of these texts.
    for wait in ["is now unready", "still open at shutdown"] {
        let log = demo.log();
        assert!(!log.iter().any(|line| line.contains(wait)), "{log:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_bind_address_ipv4_and_ipv6_are_served() {
    let api_server = FakeApiServer::start([]).await;
    let server = RunningServer::start_with(&api_server, &["-v=1"]).await;
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
        // The server must log an IPv4 client as `127.0.0.1`, not as `[::ffff:127.0.0.1]`.
        server.wait_for_log(&[&format!("client={host}:")]).await;
    }
}
