//! Test of an operation from its start to its end, as kubectl and a client that watches see it.

use crate::harness::{
    StateAfterEvents, columns, condition, event_types, is, migrating, shared, text, without_gaps,
};

/// The default columns that kubectl prints for operations.
const HEADER: [&str; 5] = ["SUBJECT", "OPERATION", "STATE", "AGE", "MESSAGE"];

#[test]
fn a_migration_appears_on_kubectl_watches_and_disappears_after_the_debounce() {
    shared(async |cluster| {
        let namespace = cluster.new_namespace("appears").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "my-vm", "Running").await;
        let mut watches = [
            cluster.kubectl_watch("get ifos -A -w"),
            cluster.kubectl_watch(&format!("get ifos -n {namespace} -w")),
        ];
        let mut events = cluster.watch(namespace).await;
        cluster.set_status(namespace, "my-vm", "Migrating").await;
        let expected = ["VirtualMachine/my-vm", "Migrating", "Progressing"];
        for (watch, prefix) in watches.iter_mut().zip([&["NAMESPACE"][..], &[]]) {
            let header = watch
                .until("a header", |lines| lines.first().cloned())
                .await;
            let words: Vec<&str> = header.split_whitespace().collect();
            assert_eq!(words, [prefix, &HEADER].concat());
            let skipped = prefix.len();
            let is_row = |line: &String| {
                let row = columns(line);
                row.len() > skipped + 2
                    && row[skipped..skipped + 3] == expected
                    && (skipped == 0 || row[0] == namespace)
            };
            let find = |lines: &[String]| lines.iter().any(is_row).then_some(());
            watch.until("the operation's row", find).await;
        }

        let running = [("my-vm", "Migrating")];
        let operation = cluster
            .until_operations(namespace, &running)
            .await
            .remove(0);
        let name = text(&operation, "/metadata/name");
        cluster.set_status(namespace, "my-vm", "Running").await;
        let life = ["ADDED", "MODIFIED", "MODIFIED", "DELETED"];
        let is_over = |events: &[_]| (event_types(events, name) == life).then(|| events.to_vec());
        let events = events
            .until("the operation settles and is deleted", is_over)
            .await;
        assert!(StateAfterEvents::of(&events).objects.is_empty());
        let events = without_gaps(&events);
        let states = events.iter().map(|it| text(it, "/object/status/state"));
        assert!(
            states.eq(["Progressing", "Settling", "Ended", "Ended"]),
            "{events:?}"
        );
        let completed = &events[2]["object"];
        assert_eq!(completed["status"]["phase"], "Completed");
        assert_eq!(condition(completed, "Completed")["status"], "True");
        assert!(is(completed, "Detected", "False"), "{completed}");
        for field in ["/metadata/uid", "/metadata/creationTimestamp", "/spec"] {
            let expected = operation.pointer(field);
            assert!(expected.is_some(), "{operation}");
            let mut seen = events.iter().map(|event| event["object"].pointer(field));
            assert!(seen.all(|it| it == expected), "{field}: {events:?}");
        }
        for watch in &mut watches {
            let is_ended = |line: &String| {
                let row = columns(line);
                row.contains(&"VirtualMachine/my-vm") && row.contains(&"Ended")
            };
            let find = |lines: &[String]| lines.iter().any(is_ended).then_some(());
            watch.until("the completed operation", find).await;
        }
    });
}
