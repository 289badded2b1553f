//! Tests of the limits of connections: reserved slots, the limit of each user, and the choice of
//! the connection to evict.

use super::class::{ClassKind, Owner};
use super::*;
use crate::auth::User;
use crate::serve::concurrency_limit::SlotOwner;
use proptest::prelude::*;

/// Number of slots in most tests. A slot is the place of one open connection.
///
/// - 4 slots are reserved for newcomers: connections without a request, or only with probes.
/// - 2 slots are reserved for the front proxy (the kube-apiserver that forwards requests).
/// - All users together can use the other 10 slots. From one address, a user who is not an
///   administrator can use 5 slots.
const SLOTS: usize = 16;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn user(name: &str) -> ConnectionClass {
    ConnectionClass::User(Owner::Known(SlotOwner::User(name.to_owned())))
}

fn administrator() -> ConnectionClass {
    ConnectionClass::User(Owner::Administrator("admin".to_owned()))
}

/// Opens a connection from the address 10.0.0.`last`.
async fn connect(all: &Arc<Connections>, last: u8) -> OpenSlot {
    all.add_newcomer(address(last), all.wait_for_socket().await)
}

/// Opens a connection from 10.0.0.`last`, and starts a request that moves the connection to
/// `class`. The returned boolean is true if the connection gets a slot in the class.
async fn open_with_request(
    all: &Arc<Connections>,
    last: u8,
    class: ConnectionClass,
) -> (OpenSlot, RequestInFlight, bool) {
    let slot = connect(all, last).await;
    let in_flight = RequestInFlight::of(&slot.connection);
    let admitted = slot.connection.admit(class).is_ok();
    (slot, in_flight, admitted)
}

/// Like [`open_with_request`], but panics if the connection gets no slot in the class.
async fn open_admitted(
    all: &Arc<Connections>,
    last: u8,
    class: ConnectionClass,
) -> (OpenSlot, RequestInFlight) {
    let (slot, in_flight, admitted) = open_with_request(all, last, class).await;
    assert!(admitted, "the connection is refused");
    (slot, in_flight)
}

fn is_evicted(slot: &OpenSlot) -> bool {
    slot.connection.evicted.is_cancelled()
}

/// Returns the positions of the evicted connections in `all`.
fn evicted(all: &[(OpenSlot, RequestInFlight)]) -> Vec<usize> {
    let evicted = all.iter().enumerate();
    let evicted = evicted.filter(|(_, (slot, _))| is_evicted(slot));
    evicted.map(|(number, _)| number).collect()
}

#[tokio::test]
async fn a_new_connection_evicts_a_newcomer_of_the_address_with_most_newcomers() {
    let all = Connections::new(SLOTS);
    let lone = connect(&all, 1).await;
    let mut crowd = Vec::new();
    for _ in 0..70 {
        crowd.push(connect(&all, 2).await);
    }
    // Newcomers use all slots except the two that are reserved for the front proxy. One of these
    // newcomers is `lone`. So 13 connections in `crowd` are open, and the 57 oldest are evicted.
    let open = crowd.iter().filter(|slot| !is_evicted(slot)).count();
    assert_eq!(open, SLOTS - 2 - 1);
    assert!(crowd[..57].iter().all(is_evicted) && !is_evicted(&lone));
    // The server evicts a newcomer whose probe it has answered before an older newcomer that has
    // sent no request.
    drop(RequestInFlight::of(&crowd[65].connection));
    let _next = connect(&all, 3).await;
    assert!(is_evicted(&crowd[65]) && !is_evicted(&crowd[57]));
}

#[tokio::test]
async fn users_cannot_use_the_slots_reserved_for_newcomers_and_the_front_proxy() {
    let all = Connections::new(SLOTS);
    let mut users = Vec::new();
    for number in 0..10 {
        users.push(open_admitted(&all, number, user(&number.to_string())).await);
    }
    // The load of a connection is the number of connections of its user or of its address. Here,
    // all connections have different users and addresses, so all loads are 1. A new connection may
    // evict a connection with the same load only if that connection is idle. No connection is idle.
    let (refused, _flight, admitted) = open_with_request(&all, 100, user("one more")).await;
    assert!(!admitted && refused.connection.refused.is_cancelled());
    drop(refused);
    let mut others = Vec::new();
    for number in 0..2 {
        others.push(
            open_admitted(&all, 100 + number, ConnectionClass::FrontProxy)
                .await
                .0,
        );
    }
    for number in 0..4 {
        others.push(connect(&all, 110 + number).await);
    }
    assert_eq!(evicted(&users), [] as [usize; 0]);
    assert!(!others.iter().any(is_evicted));
    // An administrator's connection may evict a connection of another user. All these connections
    // have the same load, so the administrator's connection evicts the oldest connection.
    drop(others.pop());
    let _administrator = open_admitted(&all, 100, administrator()).await;
    assert_eq!(evicted(&users), [0]);
}

#[tokio::test]
async fn the_front_proxy_may_exceed_its_reserved_slots_by_evicting_users() {
    let all = Connections::new(SLOTS);
    let mut users = Vec::new();
    for number in 0..9 {
        users.push(open_admitted(&all, number, user(&number.to_string())).await);
    }
    users.push(open_admitted(&all, 9, administrator()).await);
    let mut proxies = Vec::new();
    for _ in 0..12 {
        proxies.push(open_admitted(&all, 200, ConnectionClass::FrontProxy).await);
    }
    assert_eq!(evicted(&users), (0..10).collect::<Vec<_>>());
    assert_eq!(evicted(&proxies), [] as [usize; 0]);
    // The front proxy has all slots that are not reserved for newcomers. So its next connection may
    // only evict one of its own connections, if that connection is idle.
    let (_refused, _flight, admitted) =
        open_with_request(&all, 200, ConnectionClass::FrontProxy).await;
    assert!(!admitted);
    let (slot, flight) = proxies.remove(5);
    drop(flight);
    let _next = open_admitted(&all, 200, ConnectionClass::FrontProxy).await;
    assert!(is_evicted(&slot));
}

#[tokio::test]
async fn a_user_at_the_limit_of_its_address_evicts_its_own_idle_connections() {
    let all = Connections::new(SLOTS);
    let _other = open_admitted(&all, 2, user("eve")).await;
    let mut own = Vec::new();
    for _ in 0..5 {
        own.push(open_admitted(&all, 1, user("eve")).await);
    }
    let (refused, _flight, admitted) = open_with_request(&all, 1, user("eve")).await;
    assert!(!admitted && evicted(&own).is_empty());
    drop(refused);
    let (slot, flight) = own.remove(3);
    drop(flight);
    let _next = open_admitted(&all, 1, user("eve")).await;
    assert!(is_evicted(&slot));
    // Another user at the same address has a separate limit. Administrators have no such limit.
    let _bob = open_admitted(&all, 1, user("bob")).await;
    for _ in 0..6 {
        let _administrator = open_admitted(&all, 1, administrator()).await;
    }
}

#[tokio::test]
async fn the_user_with_the_most_connections_is_evicted_across_addresses() {
    // The attacker is one user at eight addresses, eight users at one address, or three users at
    // three addresses.
    let one_user: Vec<_> = (0..8).map(|it| (it, "eve".to_owned())).collect();
    let one_address: Vec<_> = (0..8).map(|it| (100, it.to_string())).collect();
    let both: Vec<_> = (0..8).map(|it| (it % 3, (it / 3).to_string())).collect();
    for attack in [one_user, one_address, both] {
        let all = Connections::new(SLOTS);
        let mut bob = Vec::new();
        let mut eve = Vec::new();
        for _ in 0..2 {
            bob.push(open_admitted(&all, 50, user("bob")).await);
        }
        for (last, name) in &attack {
            eve.push(open_admitted(&all, *last, user(name)).await);
        }
        // All slots for users are in use. The server refuses a further connection of the attacker,
        // or evicts another connection of the attacker for it.
        for (last, name) in &attack {
            open_with_request(&all, *last, user(name)).await;
        }
        assert_eq!(evicted(&bob), [] as [usize; 0], "{attack:?}");
        let before = evicted(&eve).len();
        let _jane = open_admitted(&all, 60, user("jane")).await;
        assert_eq!(evicted(&bob), [] as [usize; 0], "{attack:?}");
        assert!(evicted(&eve).len() <= before + 1);
    }
}

#[tokio::test]
async fn service_accounts_of_one_namespace_count_as_one_user() {
    let class = |name: &str| {
        let name = name.to_owned();
        ConnectionClass::of_user(&User {
            name,
            ..User::default()
        })
    };
    let all = Connections::new(SLOTS);
    let mut accounts = Vec::new();
    for number in 0..10 {
        let name = format!("system:serviceaccount:tenant:account-{number}");
        accounts.push(open_admitted(&all, number, class(&name)).await);
    }
    // All slots of users are in use. Each account has one connection, from an address of its own.
    for number in 0..3 {
        let name = format!("system:serviceaccount:other-{number}:a");
        let _other = open_admitted(&all, 100 + number, class(&name)).await;
    }
    assert_eq!(evicted(&accounts), [0]);
}

#[tokio::test]
async fn an_idle_connection_is_evicted_for_a_user_without_connections() {
    let all = Connections::new(SLOTS);
    let mut users = Vec::new();
    for number in 0..10 {
        users.push(open_admitted(&all, number, user(&number.to_string())).await);
    }
    let (idle, flight) = users.remove(4);
    drop(flight);
    // With a new connection, user `0` would have two connections, so the load of the new connection
    // is 2. The load of the idle connection is 1. A new connection must not evict a connection with
    // a lower load.
    let (_refused, _flight, admitted) = open_with_request(&all, 0, user("0")).await;
    assert!(!admitted && !is_evicted(&idle));
    let _next = open_admitted(&all, 100, user("next")).await;
    assert!(is_evicted(&idle) && evicted(&users).is_empty());
}

#[tokio::test]
async fn anonymous_connections_are_evicted_first_and_may_become_user_connections() {
    let all = Connections::new(SLOTS);
    let mut users = Vec::new();
    let stranger = open_admitted(&all, 90, ConnectionClass::anonymous()).await;
    for number in 0..9 {
        users.push(open_admitted(&all, number, user(&number.to_string())).await);
    }
    let second = open_admitted(&all, 91, user("bob")).await;
    assert!(is_evicted(&stranger.0) && evicted(&users).is_empty());
    let (_refused, _flight, admitted) =
        open_with_request(&all, 92, ConnectionClass::anonymous()).await;
    assert!(!admitted);
    drop(second);
    let third = open_admitted(&all, 93, ConnectionClass::anonymous()).await;
    assert_eq!(third.0.connection.admit(user("jane")), Ok(()));
    assert_eq!(
        third.0.connection.admit(ConnectionClass::anonymous()),
        Ok(())
    );
    let (_refused, _flight, admitted) = open_with_request(&all, 94, user("joe")).await;
    assert!(!admitted && !is_evicted(&third.0));
}

#[tokio::test]
async fn an_evicted_connection_is_not_admitted_and_frees_no_second_slot() {
    let all = Connections::new(SLOTS);
    let mut crowd = Vec::new();
    for _ in 0..15 {
        crowd.push(connect(&all, 1).await);
    }
    let first = crowd.remove(0);
    assert!(is_evicted(&first));
    assert_eq!(
        first.connection.admit(administrator()),
        Err(ConnectionRefused)
    );
    drop(first);
    assert_eq!(all.registry().open.len(), 14);
    drop(crowd);
    assert!(all.registry().open.is_empty());
}

#[tokio::test]
async fn accepting_waits_only_for_connections_that_are_closing() {
    let all = Connections::new(SLOTS);
    let mut open_slots = Vec::new();
    for _ in 0..SLOTS + MAX_CLOSING {
        open_slots.push(connect(&all, 1).await);
    }
    {
        let socket = all.wait_for_socket();
        tokio::pin!(socket);
        assert!(futures::poll!(&mut socket).is_pending());
        open_slots.remove(0);
        assert!(futures::poll!(&mut socket).is_ready());
    }
}

#[test]
fn addresses_are_grouped_by_host() {
    let parse = |text: &str| network(text.parse().unwrap());
    assert_eq!(parse("::ffff:10.0.0.1"), parse("10.0.0.1"));
    assert_ne!(parse("::ffff:10.0.0.1"), parse("::ffff:10.0.0.2"));
    assert_eq!(parse("2001:db8::1:1"), parse("2001:db8::2:2"));
    assert_ne!(parse("2001:db8::1"), parse("2001:db8:0:1::1"));
}

#[derive(Clone, Debug)]
enum Step {
    Open(u8),
    Admit(usize, ConnectionClass),
    Answer(usize),
    Close(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let class = prop_oneof![
        Just(ConnectionClass::anonymous()),
        Just(ConnectionClass::FrontProxy),
        Just(administrator()),
        "[a-c]".prop_map(|name| user(&name)),
    ];
    prop_oneof![
        3 => (0..4u8).prop_map(Step::Open),
        3 => (any::<usize>(), class).prop_map(|(at, class)| Step::Admit(at, class)),
        1 => any::<usize>().prop_map(Step::Answer),
        1 => any::<usize>().prop_map(Step::Close),
    ]
}

proptest! {
    #[test]
    fn reserved_slots_are_always_available(
        slots in 8..40usize,
        steps in prop::collection::vec(steps(), 1..200),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let all = Connections::new(slots);
            let mut connections: Vec<(OpenSlot, Option<RequestInFlight>)> = Vec::new();
            for step in steps {
                let count = connections.len();
                match step {
                    Step::Open(last) => connections.push((connect(&all, last).await, None)),
                    Step::Admit(at, class) if count > 0 => {
                        let (slot, in_flight) = &mut connections[at % count];
                        *in_flight = Some(RequestInFlight::of(&slot.connection));
                        let _ = slot.connection.admit(class);
                    }
                    Step::Answer(at) if count > 0 => connections[at % count].1 = None,
                    Step::Close(at) if count > 0 => drop(connections.remove(at % count)),
                    _ => {}
                }
                connections.retain(|(slot, _)| !is_evicted(slot));
                let registry = all.registry();
                assert_eq!(registry.open.len(), connections.len());
                let needed = |kind| {
                    let of_kind = registry.open.values().filter(|it| it.class.kind() == kind);
                    of_kind.count().max(kind.reserve(slots))
                };
                assert!(ClassKind::ALL.into_iter().map(needed).sum::<usize>() <= slots);
            }
        });
    }
}
