use super::*;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

async fn enter(all: &Arc<Connections>, last: u8) -> ConnectionSlot {
    all.enter(address(last)).await.expect("there is room")
}

/// Which of these is asked to go when one from this address comes.
async fn gone(all: &Arc<Connections>, last: u8, here: &[ConnectionSlot]) -> Option<usize> {
    let entering = all.enter(address(last));
    tokio::pin!(entering);
    assert!(futures::poll!(&mut entering).is_pending());
    let gone = |slot: &ConnectionSlot| slot.connection.dismissed.is_cancelled();
    here.iter().position(gone)
}

#[tokio::test]
async fn the_oldest_of_those_least_worth_keeping_goes() {
    use Shown::{Certificate, Nothing, User};
    // What each has shown, whether it ever asked, how much is in flight; the first to go,
    // and which go after it.
    let known = [
        (Certificate, true, 0),
        (User, true, 1),
        (Nothing, true, 1),
        (User, true, 0),
        (Nothing, true, 0),
        (Nothing, false, 0),
        (Nothing, false, 0),
    ];
    let all = Connections::new(known.len(), known.len() + 1);
    let mut here = Vec::new();
    let mut flights = Vec::new();
    for (shown, asked, requests) in known {
        let slot = enter(&all, 1).await;
        slot.connection.show(shown);
        if asked {
            drop(Flight::of(&slot.connection));
        }
        flights.extend((0..requests).map(|_| Flight::of(&slot.connection)));
        here.push(slot);
    }
    for expected in [5, 5, 3, 3, 2] {
        let index = gone(&all, 2, &here).await.expect("one may go");
        assert_eq!(index, expected);
        here.remove(index);
        // Its place goes to one that is kept.
        let next = enter(&all, 2).await;
        next.connection.show(Certificate);
        here.push(next);
    }
    assert_eq!(gone(&all, 2, &here).await, None);
    // Once the request is over its connection may go.
    flights.clear();
    assert_eq!(gone(&all, 2, &here).await, Some(1));
}

#[tokio::test]
async fn whoever_connects_most_pays_for_it() {
    let all = Connections::new(6, 6);
    let mut here = Vec::new();
    for last in [1, 2, 3, 3, 3, 2] {
        here.push(enter(&all, last).await);
    }
    // The first one is older, and the second address has only two.
    assert_eq!(gone(&all, 4, &here).await, Some(2));
}

#[tokio::test]
async fn an_address_that_has_all_it_may_makes_room_itself_or_is_refused() {
    let all = Connections::new(4, 2);
    let other = enter(&all, 1).await;
    let mut here = vec![enter(&all, 2).await, enter(&all, 2).await];
    assert_eq!(gone(&all, 2, &here).await, Some(0));
    here[1].connection.show(Shown::Certificate);
    here.remove(0);
    let third = enter(&all, 2).await;
    third.connection.show(Shown::Certificate);
    assert!(all.enter(address(2)).await.is_none());
    assert!(!other.connection.dismissed.is_cancelled());
}

#[tokio::test]
async fn a_place_is_waited_for_and_only_one_goes_for_each_that_comes() {
    let all = Connections::new(2, 2);
    let first = enter(&all, 1).await;
    let second = enter(&all, 1).await;
    let entering = all.enter(address(2));
    tokio::pin!(entering);
    for _ in 0..3 {
        assert!(futures::poll!(&mut entering).is_pending());
        tokio::time::sleep(LOOK_AGAIN * 2).await;
    }
    first.connection.dismissed().await;
    assert!(!second.connection.dismissed.is_cancelled());
    drop(first);
    assert!(entering.await.is_some());
}
