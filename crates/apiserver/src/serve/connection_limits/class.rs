//! The classes of connections (newcomer, user, front proxy), and the number of connection slots
//! that are reserved for each class.

use crate::auth::{ANONYMOUS_USER, CertificateHolder, User};
use crate::serve::concurrency_limit::SlotOwner;

/// The class of a connection. The class can change, but only to a class with a higher
/// [precedence](ConnectionClass::precedence).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionClass {
    /// A connection without requests so far, or only with requests for `/livez`, `/readyz` or
    /// `/healthz`. Its user is not known yet. Connections of probes stay in this class.
    Newcomer,
    /// A connection with requests of this user.
    User(Owner),
    /// A connection of the front proxy: a client, such as a kube-apiserver, that forwards the
    /// requests of users and proves its identity with a certificate. Connections of other replicas
    /// of this server are also in this class.
    FrontProxy,
}

/// The user to whom a connection belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A user without valid credentials.
    Anonymous,
    /// An authenticated user, or all `ServiceAccounts` of one namespace.
    Known(SlotOwner),
    /// The name of a member of `system:masters`.
    Administrator(String),
}

/// The kind of a class: the class without the name of the user. Slots are reserved for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassKind {
    /// The kind of [`ConnectionClass::Newcomer`].
    Newcomer,
    /// The kind of [`ConnectionClass::User`].
    User,
    /// The kind of [`ConnectionClass::FrontProxy`].
    FrontProxy,
}

impl ClassKind {
    /// All kinds of classes. To add a class, add a variant here and in [`ConnectionClass`], extend
    /// [`ClassKind::reserve`], and detect the class in `middleware/admit_request.rs`.
    pub const ALL: [Self; 3] = [Self::Newcomer, Self::User, Self::FrontProxy];

    /// Returns how many of the `slots` are reserved for this kind. Users have no reserved slots.
    /// They share the slots that are not reserved.
    pub fn reserve(self, slots: usize) -> usize {
        match self {
            // 64 of 256 by default. If all slots are taken, the server evicts a newcomer of the
            // address with most newcomers. So an attacker with fewer than 63 addresses cannot evict
            // the only newcomer of another address.
            Self::Newcomer => (slots / 4).max(1),
            // 32 of 256 by default. This is enough for five kube-apiservers with six connections
            // each. A kube-apiserver normally has one or two connections.
            Self::FrontProxy => (slots / 8).max(1),
            Self::User => 0,
        }
    }
}

impl ConnectionClass {
    /// Returns the class for requests of `user`.
    pub fn of_user(user: &User) -> Self {
        Self::User(if user.name == ANONYMOUS_USER {
            Owner::Anonymous
        } else if user.is_administrator() {
            Owner::Administrator(user.name.clone())
        } else {
            Owner::Known(SlotOwner::of(user))
        })
    }

    /// Returns the class for requests without valid credentials.
    pub fn anonymous() -> Self {
        Self::User(Owner::Anonymous)
    }

    /// Returns the class of a connection whose client certificate belongs to `holder`.
    pub fn of_holder(holder: &CertificateHolder) -> Self {
        match holder {
            CertificateHolder::FrontProxy => Self::FrontProxy,
            CertificateHolder::User(user) => Self::of_user(user),
            CertificateHolder::Unknown => Self::anonymous(),
        }
    }

    /// Returns the kind of the class, without the user.
    pub fn kind(&self) -> ClassKind {
        match self {
            Self::Newcomer => ClassKind::Newcomer,
            Self::User(_) => ClassKind::User,
            Self::FrontProxy => ClassKind::FrontProxy,
        }
    }

    /// Returns the precedence of the class. If the requests of one connection belong to several
    /// classes, the connection gets the class with the highest precedence. If several authenticated
    /// users send requests on one connection, the connection belongs to the first of these users.
    pub fn precedence(&self) -> u8 {
        match self {
            Self::Newcomer => 0,
            Self::User(Owner::Anonymous) => 1,
            Self::User(_) => 2,
            Self::FrontProxy => 3,
        }
    }

    /// Returns the user of the connection. None for newcomers and for the front proxy.
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Self::User(owner) => Some(owner),
            Self::Newcomer | Self::FrontProxy => None,
        }
    }
}
