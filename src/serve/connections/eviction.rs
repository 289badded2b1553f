//! The choice of a connection to evict. Input: a record of each connection, and the record of the
//! connection that needs a place. Output: whether there is a place, and which connection is evicted
//! for it.
//!
//! A class needs the places that it uses or those that are reserved for it, whichever is more. The
//! sum over all classes never exceeds the number of places. So other classes cannot take a reserved
//! place.

use super::class::{ClassKind, ConnectionClass, Owner};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// The record of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionRecord {
    /// The number of the connection, in the order of arrival.
    pub number: u64,
    /// The class.
    pub class: ConnectionClass,
    /// The address of the peer.
    pub network: IpAddr,
    /// True if the connection has had an answer and has no request in flight.
    pub idle: bool,
}

/// The result of [`room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionResult {
    /// There is a free place.
    Free,
    /// The connection with this number must be evicted first.
    After(u64),
    /// There is no place, and no other connection may be evicted.
    Full,
}

/// Number of connections of one user from one address: half of the users' places.
fn share(places: usize) -> usize {
    let reserved: usize = ClassKind::ALL.iter().map(|kind| kind.reserve(places)).sum();
    places.saturating_sub(reserved).div_ceil(2).max(1)
}

/// Returns whether there is a place for `entering` among `others`, which are sorted by their
/// numbers.
pub fn room(
    places: usize,
    others: &[ConnectionRecord],
    entering: &ConnectionRecord,
) -> AdmissionResult {
    if exceeds_share(places, others, entering) {
        let of_pair = |it: &&ConnectionRecord| same_pair(it, entering);
        return after(others.iter().filter(of_pair).find(|it| it.idle));
    }
    let all = || others.iter().chain([entering]);
    let taken = |kind: ClassKind| all().filter(|it| it.class.kind() == kind).count();
    let needed = |kind: ClassKind| taken(kind).max(kind.reserve(places));
    if ClassKind::ALL.into_iter().map(needed).sum::<usize>() <= places {
        return AdmissionResult::Free;
    }
    after(match &entering.class {
        ConnectionClass::Newcomer => newcomer(others),
        ConnectionClass::User(owner) => user(others, entering, owner),
        ConnectionClass::FrontProxy => {
            let proxies = || {
                others
                    .iter()
                    .filter(|it| it.class == ConnectionClass::FrontProxy)
            };
            let first = least(others, &Loads::of(others), |_, _, _| true);
            first.or_else(|| proxies().find(|it| it.idle))
        }
    })
}

fn after(evicted: Option<&ConnectionRecord>) -> AdmissionResult {
    evicted.map_or(AdmissionResult::Full, |it| {
        AdmissionResult::After(it.number)
    })
}

/// Returns true if the user would exceed its number of connections from its address. Administrators
/// have no limit.
fn exceeds_share(places: usize, others: &[ConnectionRecord], entering: &ConnectionRecord) -> bool {
    let limited = matches!(
        entering.class,
        ConnectionClass::User(Owner::Anonymous | Owner::Known(_))
    );
    let pair = others.iter().filter(|it| same_pair(it, entering));
    limited && pair.count() >= share(places)
}

/// Returns true if two connections have the same user and address.
fn same_pair(one: &ConnectionRecord, other: &ConnectionRecord) -> bool {
    one.network == other.network && one.class == other.class
}

/// The newcomer to evict for another newcomer. It comes from the address with most newcomers. The
/// oldest newcomer with an answer is evicted, otherwise the oldest newcomer.
fn newcomer(others: &[ConnectionRecord]) -> Option<&ConnectionRecord> {
    let newcomers = || {
        others
            .iter()
            .filter(|it| it.class == ConnectionClass::Newcomer)
    };
    let networks = counts(newcomers().map(|it| it.network));
    newcomers().min_by_key(|it| (Reverse(networks[&it.network]), !it.idle))
}

/// The user's connection to evict for `entering`. Any connection of a lower rank may be evicted. A
/// connection of the same rank may be evicted if its load is greater than the load that `entering`
/// would have, or if both are equal and the connection is idle.
fn user<'a>(
    others: &'a [ConnectionRecord],
    entering: &ConnectionRecord,
    owner: &Owner,
) -> Option<&'a ConnectionRecord> {
    let loads = Loads::of(others.iter().chain([entering]));
    let own = loads.load(owner, entering.network);
    least(others, &loads, |it, theirs, load| {
        match rank(theirs).cmp(&rank(owner)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => load > own || (load == own && it.idle),
            std::cmp::Ordering::Greater => false,
        }
    })
}

/// The connection to evict among the users' connections: the lowest rank, then the greatest load,
/// then idle connections first, then the oldest.
fn least<'a>(
    others: &'a [ConnectionRecord],
    loads: &Loads<'_>,
    may: impl Fn(&ConnectionRecord, &Owner, Load) -> bool,
) -> Option<&'a ConnectionRecord> {
    others
        .iter()
        .filter_map(|it| {
            let owner = it.class.owner()?;
            let load = loads.load(owner, it.network);
            may(it, owner, load).then_some((it, rank(owner), load))
        })
        .min_by_key(|(it, rank, load)| (*rank, Reverse(*load), !it.idle))
        .map(|(it, _, _)| it)
}

/// The rank of an owner. Connections of a lower rank are evicted for connections of a higher rank.
fn rank(owner: &Owner) -> u8 {
    match owner {
        Owner::Anonymous => 0,
        Owner::Known(_) => 1,
        Owner::Administrator(_) => 2,
    }
}

/// The load of a connection: the number of connections of its user or of its address, whichever is
/// more. Further fields compare the user first and then the address. So a user with many addresses
/// has a high load, and so have many users at one address.
type Load = (usize, usize, usize);

/// The numbers of the users' connections.
struct Loads<'a> {
    owners: HashMap<&'a Owner, usize>,
    networks: HashMap<IpAddr, usize>,
}

impl<'a> Loads<'a> {
    fn of(all: impl IntoIterator<Item = &'a ConnectionRecord>) -> Self {
        let all = all.into_iter();
        let users = all.filter_map(|it| Some((it.class.owner()?, it.network)));
        let (owners, networks): (Vec<_>, Vec<_>) = users.unzip();
        Self {
            owners: counts(owners),
            networks: counts(networks),
        }
    }

    fn load(&self, owner: &Owner, network: IpAddr) -> Load {
        let of_owner = self.owners.get(owner).copied().unwrap_or_default();
        let of_network = self.networks.get(&network).copied().unwrap_or_default();
        (of_owner.max(of_network), of_owner, of_network)
    }
}

fn counts<T: Hash + Eq>(all: impl IntoIterator<Item = T>) -> HashMap<T, usize> {
    let mut counts = HashMap::new();
    for one in all {
        *counts.entry(one).or_default() += 1;
    }
    counts
}
