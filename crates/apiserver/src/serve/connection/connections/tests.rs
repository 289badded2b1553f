use super::*;

/// 4 slots for newcomers, 6 for front proxies, 6 for users.
const SLOTS: usize = 16;

async fn connect(all: &Arc<Connections>, last: u8) -> OpenSlot {
    let address = IpAddr::from([10, 0, 0, last]);
    all.add_newcomer(address, all.wait_for_socket().await)
}

/// Opens a connection with a request of this user that is in flight. None if it is refused.
async fn user(all: &Arc<Connections>, name: &str) -> Option<(OpenSlot, RequestInFlight)> {
    let slot = connect(all, 1).await;
    let in_flight = RequestInFlight::of(&slot.connection);
    let user = User {
        name: name.to_owned(),
        ..User::default()
    };
    let admitted = slot.connection.admit(ConnectionClass::User, Some(&user));
    admitted.is_ok().then_some((slot, in_flight))
}

fn is_evicted(slot: &OpenSlot) -> bool {
    slot.connection.evicted.is_cancelled()
}

#[tokio::test]
async fn a_newcomer_evicts_the_oldest_newcomer_of_the_largest_network() {
    let all = Connections::new(SLOTS);
    let lone = connect(&all, 1).await;
    let mut crowd = Vec::new();
    for _ in 0..60 {
        crowd.push(connect(&all, 2).await);
    }
    assert!(!is_evicted(&lone));
    assert_eq!(crowd.iter().filter(|it| !is_evicted(it)).count(), 3);
    assert!(crowd[..57].iter().all(is_evicted));
    // An idle newcomer is evicted before an older one that has had no request.
    drop(RequestInFlight::of(&crowd[58].connection));
    let _next = connect(&all, 3).await;
    assert!(is_evicted(&crowd[58]) && !is_evicted(&crowd[57]));
}

#[tokio::test]
async fn a_user_gets_a_slot_of_the_user_with_most_connections() {
    let all = Connections::new(SLOTS);
    let mut eve = Vec::new();
    for _ in 0..6 {
        eve.push(user(&all, "eve").await.expect("a slot is free"));
    }
    assert!(user(&all, "eve").await.is_none());
    let mut others = Vec::new();
    for name in ["a", "b", "c", "a"] {
        others.push(user(&all, name).await.expect("eve has more connections"));
    }
    assert!(eve[..4].iter().all(|(slot, _)| is_evicted(slot)));
    assert!(others.iter().all(|(slot, _)| !is_evicted(slot)));
    // If no user has more connections, only an idle connection is evicted.
    let all = Connections::new(SLOTS);
    let mut lone = Vec::new();
    for number in 0..6 {
        lone.push(
            user(&all, &number.to_string())
                .await
                .expect("a slot is free"),
        );
    }
    assert!(user(&all, "d").await.is_none());
    let (idle, in_flight) = lone.remove(3);
    drop(in_flight);
    assert!(user(&all, "d").await.is_some() && is_evicted(&idle));
}

#[tokio::test]
async fn users_and_newcomers_leave_the_slots_of_the_front_proxy_free() {
    let all = Connections::new(SLOTS);
    let mut open = Vec::new();
    for number in 0..30 {
        open.push(user(&all, &number.to_string()).await);
        open.push(None);
    }
    let mut proxies = Vec::new();
    for last in 11..17 {
        let proxy = connect(&all, last).await;
        let in_flight = RequestInFlight::of(&proxy.connection);
        assert_eq!(
            proxy.connection.admit(ConnectionClass::FrontProxy, None),
            Ok(())
        );
        proxies.push((proxy, in_flight));
    }
    // A seventh proxy gets the slot of another one only if that one is idle.
    let seventh = |slot: &Arc<ClientConnection>| slot.admit(ConnectionClass::FrontProxy, None);
    let slot = connect(&all, 9).await;
    assert_eq!(seventh(&slot.connection), Err(ConnectionRefused));
    proxies[0].1 = RequestInFlight::of(&slot.connection);
    assert_eq!(seventh(&slot.connection), Ok(()));
    assert!(is_evicted(&proxies[0].0));
}

#[test]
fn an_ipv6_network_counts_as_one_address() {
    let network = |address: &str| network(address.parse().unwrap());
    assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:2"));
    assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
}
