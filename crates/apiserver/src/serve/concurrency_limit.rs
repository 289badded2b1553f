//! Limits the number of concurrent requests, both in total and for each client.
//!
//! Input: a [`RequestingClient`]. Output: a slot, or the limit that is reached. If a limit is
//! reached, the middleware answers the request with a 429 that names this limit. A slot becomes
//! free when its value is dropped.
//!
//! Three rules decide whether a client gets a slot:
//!
//! 1. A tenth of all slots is reserved. Administrators, other replicas and controllers in
//!    `kube-system` may use this reserve. Requests without a namespace may also use the reserve,
//!    because only users with rights in all namespaces may send them. If the server hides objects
//!    from users, other users may send these requests, too. On such a server, these requests may
//!    not use the reserve.
//! 2. Some limits also have a maximum number of slots for each client.
//! 3. A client gets a slot only if it uses fewer slots than are free. The reserve counts as free
//!    only for the clients that may use it. So one client can use at most half of the slots. The
//!    next client can use at most half of the rest. So a new client finds a free slot, unless very
//!    many other clients use slots.

use crate::auth::User;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The prefix of the name of a `ServiceAccount` as a user. The namespace and a colon follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// The namespace of the cluster's controllers. Tenants cannot create `ServiceAccounts` in it.
const CONTROLLERS_NAMESPACE: &str = "kube-system";

/// Returns the name of the client whose slots the requests of `user` take.
///
/// All `ServiceAccounts` of one namespace are one client, because a user who may create one
/// `ServiceAccount` there may create many. There is one exception: each `ServiceAccount` of
/// `kube-system` is a client, because these are the controllers of the cluster.
pub fn client_name(user: &User) -> String {
    match service_account_namespace(user) {
        Some(namespace) if namespace != CONTROLLERS_NAMESPACE => {
            format!("the ServiceAccounts of the namespace {namespace:?}")
        }
        _ => format!("the user {:?}", user.name),
    }
}

/// Returns the namespace of a `ServiceAccount`. None for other users.
fn service_account_namespace(user: &User) -> Option<&str> {
    let (namespace, _) = user.name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    Some(namespace)
}

/// The client whose slots a request takes, and its rights to slots.
#[derive(Clone, Debug)]
pub struct RequestingClient {
    /// None for a client to which only the total limit applies.
    name: Option<String>,
    may_use_reserve: bool,
}

impl RequestingClient {
    /// Returns the client of a request of `user`. `is_for_all_namespaces` is true if only users who
    /// may read all namespaces may send the request.
    ///
    /// The server authorizes the request after it has taken the slot. If the request is denied, the
    /// slot becomes free at once. So only users who may read all namespaces keep a slot of the
    /// reserve.
    pub fn of(user: &User, is_for_all_namespaces: bool) -> Self {
        if user.is_administrator() {
            return Self::trusted();
        }
        let is_controller = service_account_namespace(user) == Some(CONTROLLERS_NAMESPACE);
        Self {
            name: Some(client_name(user)),
            may_use_reserve: is_controller || is_for_all_namespaces,
        }
    }

    /// Returns a client to which only the total limit applies: an administrator, or a replica.
    pub fn trusted() -> Self {
        Self {
            name: None,
            may_use_reserve: true,
        }
    }
}

/// A limit for all clients together, combined with a limit for each client.
#[derive(Debug)]
pub struct ConcurrencyLimit {
    /// The purpose of the slots, and the flags that set the limit, for messages to clients.
    what: &'static str,
    total: usize,
    per_client: usize,
    /// The client of each used slot.
    used: Mutex<Vec<Option<String>>>,
}

/// A slot of a [`ConcurrencyLimit`].
#[derive(Debug)]
pub struct RequestSlot {
    limit: Arc<ConcurrencyLimit>,
    client: Option<String>,
}

impl ConcurrencyLimit {
    /// Creates a limit for all clients together. All slots are free.
    pub fn new(what: &'static str, total: usize) -> Arc<Self> {
        Self::with_clients(what, total, usize::MAX)
    }

    /// Creates a limit for all clients together, and for each client.
    pub fn with_clients(what: &'static str, total: usize, per_client: usize) -> Arc<Self> {
        Arc::new(Self {
            what,
            total,
            per_client,
            used: Mutex::default(),
        })
    }

    /// Takes a slot for `client`. Returns the message for the client if a limit is reached.
    pub fn acquire(self: &Arc<Self>, client: &RequestingClient) -> Result<RequestSlot, String> {
        let (what, total) = (self.what, self.total);
        let reserved = if client.may_use_reserve {
            0
        } else {
            total / 10
        };
        let mut used = self.used();
        let free = (total - reserved).saturating_sub(used.len());
        if let Some(name) = &client.name {
            let own = used.iter().filter(|it| **it == client.name).count();
            if own >= self.per_client || (free > 0 && own >= free) {
                return Err(format!(
                    "too many {what}: {own} of {total} belong to {name}, and {free} are free"
                ));
            }
        }
        if free == 0 {
            return Err(format!("too many {what}: the limit is {total}"));
        }
        used.push(client.name.clone());
        Ok(RequestSlot {
            limit: Arc::clone(self),
            client: client.name.clone(),
        })
    }

    fn used(&self) -> MutexGuard<'_, Vec<Option<String>>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestSlot {
    fn drop(&mut self) {
        let mut used = self.limit.used();
        if let Some(own) = used.iter().position(|it| *it == self.client) {
            used.swap_remove(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> User {
        User {
            name: name.to_owned(),
            ..User::default()
        }
    }

    /// A client that requests one namespace.
    fn client(name: &str) -> RequestingClient {
        RequestingClient::of(&user(name), false)
    }

    fn account(namespace: &str, number: usize) -> RequestingClient {
        client(&format!(
            "system:serviceaccount:{namespace}:account-{number}"
        ))
    }

    fn watches(total: usize, per_client: usize) -> Arc<ConcurrencyLimit> {
        ConcurrencyLimit::with_clients("watches (--max)", total, per_client)
    }

    /// Takes slots until the limit refuses one. Returns the slots and the refusal.
    fn take_all(
        limit: &Arc<ConcurrencyLimit>,
        client: &RequestingClient,
    ) -> (Vec<RequestSlot>, String) {
        let mut slots = Vec::new();
        loop {
            match limit.acquire(client) {
                Ok(slot) => slots.push(slot),
                Err(reached) => return (slots, reached),
            }
        }
    }

    #[test]
    fn service_accounts_share_the_slots_of_their_namespace() {
        let limit = watches(500, 125);
        let mut taken = Vec::new();
        for number in 0..4 {
            let (slots, reached) = take_all(&limit, &account("tenant", number));
            taken.extend(slots);
            assert_eq!(
                reached,
                "too many watches (--max): 125 of 500 belong to the ServiceAccounts of the \
                 namespace \"tenant\", and 325 are free"
            );
        }
        assert_eq!(taken.len(), 125);
        assert_eq!(take_all(&limit, &account("other", 0)).0.len(), 125);
        // A user whose name looks similar is no ServiceAccount.
        assert_eq!(take_all(&limit, &client("tenant")).0.len(), 125);
    }

    #[test]
    fn many_greedy_clients_leave_slots_for_a_new_client_and_the_whole_reserve() {
        let limit = watches(500, 125);
        let greedy: Vec<_> = (0..5)
            .map(|number| take_all(&limit, &account(&format!("tenant-{number}"), 0)))
            .collect();
        let counts: Vec<usize> = greedy.iter().map(|(slots, _)| slots.len()).collect();
        assert_eq!(counts, [125, 125, 100, 50, 25]);
        assert_eq!(
            greedy[3].1,
            "too many watches (--max): 50 of 500 belong to the ServiceAccounts of the namespace \
             \"tenant-3\", and 50 are free"
        );
        assert!(limit.acquire(&client("newcomer")).is_ok());
        // Clients that request only one namespace take all other slots. The reserve is still free.
        let rest: Vec<_> = (0..100)
            .filter_map(|number| limit.acquire(&client(&format!("user-{number}"))).ok())
            .collect();
        assert_eq!(rest.len(), 500 - 50 - 425);
        let refused = limit.acquire(&client("newcomer")).unwrap_err();
        assert_eq!(refused, "too many watches (--max): the limit is 500");
        let controller = account(CONTROLLERS_NAMESPACE, 0);
        let reader = RequestingClient::of(&user("reader"), true);
        let administrator = RequestingClient::trusted();
        let reserved = [&controller, &reader, &administrator].map(|it| limit.acquire(it));
        assert!(reserved.iter().all(Result::is_ok), "{reserved:?}");
        // An administrator may use all slots that are left. The total limit still applies.
        let (slots, reached) = take_all(&limit, &administrator);
        assert_eq!(slots.len(), 47);
        assert_eq!(reached, refused);
    }

    #[test]
    fn each_controller_of_kube_system_has_its_own_slots() {
        let limit = watches(500, 10);
        for number in 0..4 {
            let (slots, _) = take_all(&limit, &account(CONTROLLERS_NAMESPACE, number));
            assert_eq!(slots.len(), 10);
        }
    }

    #[test]
    fn a_dropped_slot_is_free_again_and_a_refused_client_uses_none() {
        let limit = watches(3, 2);
        let first = limit.acquire(&client("a")).unwrap();
        let second = limit.acquire(&client("a")).unwrap();
        assert!(limit.acquire(&client("a")).is_err());
        drop(first);
        let again = limit.acquire(&client("a")).unwrap();
        drop((second, again));
        assert!(limit.used().is_empty());
        assert!(watches(0, 5).acquire(&client("a")).is_err());
        assert!(watches(5, 0).acquire(&client("a")).is_err());
    }
}
