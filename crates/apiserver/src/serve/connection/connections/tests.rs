use super::ConnectionClass::{FrontProxy, Newcomer, User as Known};
use super::*;
use futures::poll;
use std::pin::pin;

/// The shares are 4 slots for newcomers, 6 for users, and 6 for front proxies.
const SLOTS: usize = 16;

/// The open connections, with a request that is in flight.
#[derive(Default)]
struct Open(Vec<(OpenSlot, Option<RequestInFlight>)>);

impl Open {
    /// Opens a connection from 10.0.0.`last`. Drops the slots of evicted connections, as their
    /// tasks do.
    async fn connect(&mut self, all: &Arc<Connections>, last: u8) -> Arc<ClientConnection> {
        let address = IpAddr::from([10, 0, 0, last]);
        let mut entering = pin!(all.add_newcomer(address, CancellationToken::new()));
        let entered = poll!(&mut entering);
        self.0
            .retain(|(it, _)| !it.connection.evicted.is_cancelled());
        let slot = match entered {
            std::task::Poll::Ready(slot) => slot,
            std::task::Poll::Pending => entering.await,
        };
        let connection = Arc::clone(&slot.connection);
        self.0.push((slot, None));
        assert!(self.0.len() <= SLOTS);
        connection
    }

    /// Opens a connection that has a request in flight and moves to `class`.
    async fn connect_as(
        &mut self,
        all: &Arc<Connections>,
        class: ConnectionClass,
        name: &str,
    ) -> Arc<ClientConnection> {
        let connection = self.connect(all, 1).await;
        let last = self.0.last_mut().expect("the connection is open");
        last.1 = Some(RequestInFlight::of(&connection));
        let (mut request, ()) = http::Request::new(()).into_parts();
        request.extensions.insert(Arc::clone(&connection));
        let user = User {
            name: name.to_owned(),
            ..User::default()
        };
        classify(&request, class, Some(&user));
        connection
    }

    fn count(&self, class: ConnectionClass) -> usize {
        let classes = self.0.iter().map(|(it, _)| it.connection.state().class);
        classes.filter(|it| *it == class).count()
    }
}

fn is_evicted(connection: &Arc<ClientConnection>) -> bool {
    connection.evicted.is_cancelled()
}

#[tokio::test]
async fn a_newcomer_evicts_the_oldest_newcomer_of_the_largest_network() {
    let (all, mut open) = (Connections::new(SLOTS), Open::default());
    let lone = open.connect(&all, 1).await;
    let mut crowd = Vec::new();
    for _ in 0..60 {
        crowd.push(open.connect(&all, 2).await);
    }
    assert!(!is_evicted(&lone));
    assert!(crowd[..45].iter().all(is_evicted) && !crowd[45..].iter().any(is_evicted));
    // An idle newcomer is evicted before an older one that has had no request.
    drop(RequestInFlight::of(&crowd[58]));
    open.connect(&all, 3).await;
    assert!(is_evicted(&crowd[58]) && !is_evicted(&crowd[45]));
}

#[tokio::test]
async fn a_user_with_many_connections_loses_them_to_others() {
    let (all, mut open) = (Connections::new(SLOTS), Open::default());
    let early = open.connect_as(&all, Known, "early").await;
    let mut eve = Vec::new();
    for _ in 0..20 {
        eve.push(open.connect_as(&all, Known, "eve").await);
    }
    assert_eq!(open.0.len(), SLOTS);
    let mut others = Vec::new();
    for name in ["a", "b", "c", "a", "b", "c"] {
        others.push(open.connect_as(&all, Known, name).await);
    }
    assert!(eve[..11].iter().all(is_evicted) && !eve[11..].iter().any(is_evicted));
    assert!(!is_evicted(&early) && !others.iter().any(is_evicted));
}

#[tokio::test]
async fn each_class_keeps_its_share_while_the_others_use_more() {
    let (all, mut open) = (Connections::new(SLOTS), Open::default());
    for number in 0..SLOTS {
        open.connect_as(&all, Known, &number.to_string()).await;
    }
    let mut proxies = Vec::new();
    for _ in 0..6 {
        proxies.push(open.connect_as(&all, FrontProxy, "proxy").await);
    }
    for number in 0..30 {
        open.connect(&all, number).await;
    }
    assert_eq!(
        [Newcomer, Known, FrontProxy].map(|it| open.count(it)),
        [4, 6, 6]
    );
    for number in 0..30 {
        open.connect_as(&all, Known, &number.to_string()).await;
    }
    assert!(open.count(Newcomer) >= 3);
    assert!(!proxies.iter().any(is_evicted));
    // A proxy above the share of its class evicts an older one.
    for number in 0..20 {
        open.connect_as(&all, FrontProxy, "proxy").await;
        assert!(open.count(Known) >= 6, "{number}");
    }
    assert!(proxies.iter().all(is_evicted));
}

#[test]
fn an_ipv6_network_counts_as_one_address() {
    let network = |address: &str| network(address.parse().unwrap());
    assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:2"));
    assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
    assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
}

#[tokio::test]
async fn a_new_connection_is_not_evicted_for_its_place() {
    let (all, mut open) = (Connections::new(SLOTS), Open::default());
    for _ in 0..=SLOTS {
        let newest = open.connect_as(&all, Newcomer, "").await;
        assert!(!is_evicted(&newest), "the others have requests in flight");
    }
}
