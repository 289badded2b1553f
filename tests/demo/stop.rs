//! Tests of how the demo stops after a signal. It must exit with the code 0, and delete its
//! kubeconfig. It must not delete the kubeconfig of another demo at the same path.

use super::harness::{
    Demo, OutputLines, demo_command, signal, wait_for_exit, wait_for_signal_handlers,
};

#[tokio::test(flavor = "multi_thread")]
async fn an_old_demo_does_not_remove_the_kubeconfig_of_a_newer_one() {
    let mut old = Demo::start(&[]).await;
    let path = old.kubeconfig.clone();
    let mut new = Demo::start_at(&path, &[]).await;
    let content = std::fs::read_to_string(&path).unwrap();
    old.signal("TERM");
    assert_eq!(
        old.wait_for_exit().await.code(),
        Some(0),
        "{:#?}",
        old.log()
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
    new.operations().await;
    new.signal("TERM");
    assert_eq!(
        new.wait_for_exit().await.code(),
        Some(0),
        "{:#?}",
        new.log()
    );
    // After SIGTERM, a server behind a Service logs this line, and stops after a delay. The demo
    // must stop without this delay.
    let is_wait = |line: &String| line.contains("is now unready");
    assert!(!new.log().iter().any(is_wait), "{:#?}", new.log());
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_during_the_start_ends_a_demo_and_leaves_no_file() {
    for name in ["INT", "TERM"] {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let mut command = demo_command(&["demo", "--kubeconfig-out"]);
        let mut child = command.arg(&kubeconfig).spawn().unwrap();
        let log = OutputLines::collect(child.stderr.take().unwrap());
        wait_for_signal_handlers(&child).await;
        signal(child.id().unwrap(), name);
        // Without a signal handler, the kernel would kill the demo, and `code` would be None.
        let code = wait_for_exit(&mut child).await.code();
        assert_eq!(code, Some(0), "{name}: {:#?}", log.lines());
        assert!(!kubeconfig.exists());
    }
}
