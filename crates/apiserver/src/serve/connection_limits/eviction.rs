//! Chooses the connection to evict (close) when a new connection needs a slot. The server has a
//! limited number of slots for connections. Input: a record of each open connection, and the record
//! of the connection that needs a slot. Output: an [`AdmissionResult`].
//!
//! A connection belongs to one of three classes: newcomers (connections whose user is not known
//! yet), users, and the front proxy (a kube-apiserver that forwards the requests of users). Some
//! slots are reserved for one class, and other classes cannot use them. For example, of 256 slots,
//! 64 are reserved for newcomers and 32 for the front proxy, so users can use at most 160.
//!
//! To keep the reserved slots free, the module takes one number for each class: its used slots or
//! its reserved slots, whichever is larger. It admits a connection only if the sum of these numbers
//! does not exceed the number of all slots.

use super::class::{ClassKind, ConnectionClass, Owner};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

/// The properties of a connection that decide whether it is evicted.
#[derive(Clone, Debug)]
pub struct ConnectionRecord {
    /// The number of the connection, in the order of arrival.
    pub number: u64,
    /// The class of the connection.
    pub class: ConnectionClass,
    /// The IPv4 address of the client. For an IPv6 client, the network of its address.
    pub network: IpAddr,
    /// True if the connection has had a request, and no request is in flight.
    pub idle: bool,
}

/// The result of [`find_slot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionResult {
    /// A slot is free.
    Free,
    /// The connection with this number must be evicted first.
    AfterEvicting(u64),
    /// No slot is free, and no connection may be evicted.
    Full,
}

/// Returns the largest number of connections of one user from one address: half of the slots that
/// are not reserved, rounded up. At this limit, a new connection can only replace an idle
/// connection of the same user from the same address. If no such connection is idle, the new
/// connection is refused.
fn max_per_user_and_address(slots: usize) -> usize {
    let reserved: usize = ClassKind::ALL.iter().map(|kind| kind.reserve(slots)).sum();
    slots.saturating_sub(reserved).div_ceil(2).max(1)
}

/// Checks if a slot is available for the connection `entering`. `slots` is the number of all slots.
/// `others` are all other open connections, sorted by their numbers.
pub fn find_slot(
    slots: usize,
    others: &[ConnectionRecord],
    entering: &ConnectionRecord,
) -> AdmissionResult {
    if exceeds_user_limit(slots, others, entering) {
        let same = |it: &&ConnectionRecord| has_same_user_and_address(it, entering);
        return after(others.iter().filter(same).find(|it| it.idle));
    }
    let all = || others.iter().chain([entering]);
    let used = |kind: ClassKind| all().filter(|it| it.class.kind() == kind).count();
    let needed = |kind: ClassKind| used(kind).max(kind.reserve(slots));
    if ClassKind::ALL.into_iter().map(needed).sum::<usize>() <= slots {
        return AdmissionResult::Free;
    }
    after(match &entering.class {
        ConnectionClass::Newcomer => choose_newcomer(others),
        ConnectionClass::User(owner) => choose_for_user(others, entering, owner),
        ConnectionClass::FrontProxy => {
            let proxies = || {
                others
                    .iter()
                    .filter(|it| it.class == ConnectionClass::FrontProxy)
            };
            let of_user = choose_user_connection(others, &Loads::of(others), |_, _, _| true);
            of_user.or_else(|| proxies().find(|it| it.idle))
        }
    })
}

fn after(evicted: Option<&ConnectionRecord>) -> AdmissionResult {
    evicted.map_or(AdmissionResult::Full, |it| {
        AdmissionResult::AfterEvicting(it.number)
    })
}

/// Returns true if the user of `entering` would have too many connections from one address.
/// Administrators have no such limit.
fn exceeds_user_limit(
    slots: usize,
    others: &[ConnectionRecord],
    entering: &ConnectionRecord,
) -> bool {
    let limited = matches!(
        entering.class,
        ConnectionClass::User(Owner::Anonymous | Owner::Known(_))
    );
    let same = others
        .iter()
        .filter(|it| has_same_user_and_address(it, entering));
    limited && same.count() >= max_per_user_and_address(slots)
}

fn has_same_user_and_address(one: &ConnectionRecord, other: &ConnectionRecord) -> bool {
    one.network == other.network && one.class == other.class
}

/// Returns the newcomer to evict for another newcomer. The function considers only the newcomers of
/// the address that has most newcomers. Of these, it returns the oldest idle newcomer. If none of
/// these is idle, it returns the oldest of these. A newcomer is idle if it has sent requests for
/// `/livez`, `/readyz` or `/healthz`, and all of them are answered.
fn choose_newcomer(others: &[ConnectionRecord]) -> Option<&ConnectionRecord> {
    let newcomers = || {
        others
            .iter()
            .filter(|it| it.class == ConnectionClass::Newcomer)
    };
    let networks = counts(newcomers().map(|it| it.network));
    newcomers().min_by_key(|it| (Reverse(networks[&it.network]), !it.idle))
}

/// Returns the connection to evict for `entering`, which is a connection of the user `owner`. Each
/// connection in `others` belongs to a user with a [rank]. This rank decides if the connection may
/// be evicted:
///
/// - lower than the rank of `owner`: yes
/// - higher than the rank of `owner`: no
/// - the same rank: yes, if the [`Load`] of the connection is greater than the load that `entering`
///   would have. If the loads are equal: yes, if the connection is idle.
fn choose_for_user<'a>(
    others: &'a [ConnectionRecord],
    entering: &ConnectionRecord,
    owner: &Owner,
) -> Option<&'a ConnectionRecord> {
    let loads = Loads::of(others.iter().chain([entering]));
    let own = loads.load(owner, entering.network);
    choose_user_connection(others, &loads, |it, other_owner, load| {
        match rank(other_owner).cmp(&rank(owner)) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Equal => load > own || (load == own && it.idle),
            std::cmp::Ordering::Greater => false,
        }
    })
}

/// Returns a user's connection to evict. The function considers only the connections for which
/// `may_evict` returns true. It returns None if there is no such connection. The function prefers,
/// in this order: a low rank of the user, a high load, an idle connection, an old connection.
fn choose_user_connection<'a>(
    others: &'a [ConnectionRecord],
    loads: &Loads<'_>,
    may_evict: impl Fn(&ConnectionRecord, &Owner, Load) -> bool,
) -> Option<&'a ConnectionRecord> {
    others
        .iter()
        .filter_map(|it| {
            let owner = it.class.owner()?;
            let load = loads.load(owner, it.network);
            may_evict(it, owner, load).then_some((it, rank(owner), load))
        })
        .min_by_key(|(it, rank, load)| (*rank, Reverse(*load), !it.idle))
        .map(|(it, _, _)| it)
}

/// Returns the rank of a user. Connections of users with a lower rank are evicted first.
fn rank(owner: &Owner) -> u8 {
    match owner {
        Owner::Anonymous => 0,
        Owner::Known(_) => 1,
        Owner::Administrator(_) => 2,
    }
}

/// The load of a connection consists of three numbers, which are compared in this order:
///
/// 1. the larger one of the two numbers below
/// 2. the number of connections of the same user
/// 3. the number of users' connections from the same address
///
/// So the load is high if one user connects from many addresses, and also if many users connect
/// from one address.
type Load = (usize, usize, usize);

/// The number of connections of each user, and the number of users' connections from each address.
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
