//! Tests of stopping the demo, and of the files that remain.

use super::harness::{Demo, Written, binary, catches_signals, ended, signal};

#[tokio::test(flavor = "multi_thread")]
async fn an_old_demo_does_not_remove_the_kubeconfig_of_a_newer_one() {
    let mut old = Demo::start(&[]).await;
    let path = old.kubeconfig.clone();
    let mut new = Demo::start_at(&path, &[]).await;
    new.logged(&["WARN", "another demo", path.to_str().unwrap()])
        .await;
    let content = std::fs::read_to_string(&path).unwrap();
    old.signal("TERM");
    assert_eq!(old.ended().await.code(), Some(0), "{:#?}", old.log());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    new.operations().await;
    new.signal("TERM");
    assert_eq!(new.ended().await.code(), Some(0), "{:#?}", new.log());
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_during_the_start_ends_a_demo_and_leaves_no_file() {
    for name in ["INT", "TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = binary(&["demo", "--kubeconfig-out"]);
        let mut child = command.arg(&kubeconfig).spawn().unwrap();
        let log = Written::of(child.stderr.take().unwrap());
        catches_signals(&child).await;
        signal(child.id().unwrap(), name);
        // A process that a signal ends without a handler has no exit code.
        let code = ended(&mut child).await.code();
        let log = log.lines();
        assert_eq!(code, Some(0), "{name}: {log:#?}");
        let waits = |line: &String| line.contains("is now unready");
        assert!(!log.iter().any(waits), "{name}: {log:#?}");
        assert!(!kubeconfig.exists());
    }
}
