//! How a demo stops, and what it leaves behind.

use super::harness::{Written, binary, catches_signals, ended, signal};

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
        // A signal that nothing catches ends a process without a code.
        let code = ended(&mut child).await.code();
        let log = log.lines();
        assert_eq!(code, Some(0), "{name}: {log:#?}");
        let waits = |line: &String| line.contains("not ready any more");
        assert!(!log.iter().any(waits), "{name}: {log:#?}");
        assert!(!kubeconfig.exists());
    }
}
