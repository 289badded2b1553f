//! Tests of invalid flags, environment variables and files at the start of `ifo-apiserver` and its
//! demo. The program must report each error in one line, and exit. A signal during the start must end it.

use super::harness::{DEADLINE, Demo, Folders, Process, demo_command, eventually};
use std::time::Duration;
use tokio::time::timeout;

/// Starts the binary, waits until it exits, and returns its exit code and its standard error.
async fn failed_start(args: &[&str], env: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut command = demo_command(args);
    command.envs(env.iter().copied());
    let output = timeout(DEADLINE, command.output())
        .await
        .expect("the process must exit, because its configuration is invalid")
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[tokio::test]
async fn an_invalid_value_is_reported_in_one_line() {
    for (env, parts) in [
        (
            ("DEBOUNCE_THRESHOLD", "soon"),
            ["--debounce-threshold", "soon", "30s"],
        ),
        (
            ("RUST_LOG", "ifo=lo ud"),
            ["RUST_LOG", "ifo=lo ud", "expected"],
        ),
    ] {
        let (code, error) = failed_start(&["demo"], &[env]).await;
        assert_eq!(code, Some(2), "{env:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{env:?}: {error}");
        for part in parts {
            assert!(error.contains(part), "{env:?}: {part}: {error}");
        }
    }
}

#[tokio::test]
async fn flag_values_that_are_not_utf_8_are_rejected() {
    use std::os::unix::ffi::OsStrExt as _;
    let mut command = demo_command(&["demo"]);
    command.env("DEBOUNCE_THRESHOLD", std::ffi::OsStr::from_bytes(b"\xff"));
    let output = timeout(DEADLINE, command.output())
        .await
        .expect("the process must exit, and must not start with the default value")
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("--debounce-threshold"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_reported_in_one_line() {
    let first = Demo::start(&[]).await;
    let port = first.config.cluster_url.port_u16().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let kubeconfig = kubeconfig.to_str().unwrap();
    let args = [
        "demo",
        "--secure-port",
        &port,
        "--kubeconfig-out",
        kubeconfig,
    ];
    let (code, error) = failed_start(&args, &[("RUST_LOG", "error")]).await;
    assert_eq!(code, Some(1), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains(&format!("cannot listen on 127.0.0.1:{port}")) && error.contains("in use"),
        "{error}"
    );
    assert!(!std::path::Path::new(kubeconfig).exists());
}

#[tokio::test]
async fn files_that_cannot_be_read_or_written_are_named() {
    let folders = Folders::new();
    let missing = folders.objects.join("missing");
    let missing = missing.to_str().unwrap();
    for args in [
        ["demo", "--objects", missing],
        ["demo", "--rules", missing],
        ["demo", "--kubeconfig-out", &format!("{missing}/kubeconfig")],
    ] {
        // The last filter has a misspelt level. The error that ends the server is never filtered out.
        for filter in ["error", "inof"] {
            let (code, error) = failed_start(&args, &[("RUST_LOG", filter)]).await;
            assert_eq!(code, Some(1), "{args:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
            assert!(error.contains(missing), "{args:?}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_warns_if_it_replaces_the_kubeconfig_of_another_demo() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let start = || {
        let mut command = demo_command(&["demo", "--kubeconfig-out"]);
        command.arg(&kubeconfig);
        Process::spawn(command)
    };
    let mut first = start();
    eventually("the kubeconfig", async || kubeconfig.exists().then_some(())).await;
    let second = start();
    second
        .wait_for_log(&["the file exists and is replaced"])
        .await;
    let is_warning = |line: &String| line.contains("is replaced");
    assert!(!first.log().iter().any(is_warning));

    // The second demo prints its introduction after it has written the file. The first demo does
    // not delete this file.
    eventually("the introduction", async || {
        (!second.stdout().is_empty()).then_some(())
    })
    .await;
    first.signal("TERM");
    first.wait_for_exit().await;
    assert!(kubeconfig.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demo_continues_if_nobody_reads_its_output() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let mut command = demo_command(&["demo", "--kubeconfig-out"]);
    let mut demo = command.arg(&kubeconfig).spawn().unwrap();
    drop((demo.stdout.take(), demo.stderr.take()));
    let printed = async {
        eventually("the kubeconfig", async || kubeconfig.exists().then_some(())).await;
        // The demo prints its introduction after it has written the kubeconfig.
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    tokio::select! {
        () = printed => {}
        ended = demo.wait() => panic!("the demo must not exit: {ended:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_during_the_start_ends_a_demo_and_leaves_no_file() {
    for name in ["INT", "TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = demo_command(&["demo", "--kubeconfig-out"]);
        command.arg(&kubeconfig);
        let mut demo = Process::spawn(command);
        demo.wait_for_signal_handlers().await;
        demo.signal(name);
        // Without a signal handler, the kernel would kill the demo, and `code` would be None.
        let code = demo.wait_for_exit().await.code();
        assert_eq!(code, Some(0), "{name}: {:#?}", demo.log());
        assert!(!kubeconfig.exists());
    }
}
