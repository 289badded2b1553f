//! Classes of connections, and the number of places that are reserved for each class.

use crate::auth::{ANONYMOUS_USER, CertificateHolder, User};

/// The class of a connection. It only changes to a class with a higher
/// [precedence](Class::precedence).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionClass {
    /// All requests were for health, so the user is not known yet. Probes stay in this class.
    Newcomer,
    /// The requests are those of one user.
    User(Owner),
    /// The peer has the certificate of the front proxy, as a kube-apiserver has.
    FrontProxy,
}

/// The user of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A user without valid credentials.
    Anonymous,
    /// A user by name.
    Known(String),
    /// A member of `system:masters`, by name.
    Administrator(String),
}

/// A class without its data, for which places are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassKind {
    /// See [`Class::Newcomer`].
    Newcomer,
    /// See [`Class::User`].
    User,
    /// See [`Class::FrontProxy`].
    FrontProxy,
}

impl ClassKind {
    /// All classes. A new class needs a variant here and in [`ConnectionClass`], its reserved
    /// places, and its detection in `access`.
    pub const ALL: [Self; 3] = [Self::Newcomer, Self::User, Self::FrontProxy];

    /// Number of the `places` that only this class may use. Users have the rest.
    pub fn reserve(self, places: usize) -> usize {
        match self {
            // 64 of 256 by default. A newcomer is evicted only if 64 others arrive from as many
            // addresses before its TLS handshake and its first request are done.
            Self::Newcomer => (places / 4).max(1),
            // 32 of 256 by default: six for each of five kube-apiservers. A kube-apiserver normally
            // has one or two connections.
            Self::FrontProxy => (places / 8).max(1),
            Self::User => 0,
        }
    }
}

impl ConnectionClass {
    /// The user of a request.
    pub fn of_user(user: &User) -> Self {
        let name = user.name.clone();
        Self::User(if name == ANONYMOUS_USER {
            Owner::Anonymous
        } else if user.is_administrator() {
            Owner::Administrator(name)
        } else {
            Owner::Known(name)
        })
    }

    /// A user without valid credentials.
    pub fn anonymous() -> Self {
        Self::User(Owner::Anonymous)
    }

    /// The owner of a client certificate, if no other user is known.
    pub fn of_holder(holder: &CertificateHolder) -> Self {
        match holder {
            CertificateHolder::FrontProxy => Self::FrontProxy,
            CertificateHolder::User(user) => Self::of_user(user),
            CertificateHolder::Unknown => Self::anonymous(),
        }
    }

    /// The class for which places are reserved.
    pub fn kind(&self) -> ClassKind {
        match self {
            Self::Newcomer => ClassKind::Newcomer,
            Self::User(_) => ClassKind::User,
            Self::FrontProxy => ClassKind::FrontProxy,
        }
    }

    /// If the requests of one connection have several classes, the highest class counts. If they
    /// have several users, the first user counts.
    pub fn precedence(&self) -> u8 {
        match self {
            Self::Newcomer => 0,
            Self::User(Owner::Anonymous) => 1,
            Self::User(_) => 2,
            Self::FrontProxy => 3,
        }
    }

    /// The user of a connection in the class of users.
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Self::User(owner) => Some(owner),
            Self::Newcomer | Self::FrontProxy => None,
        }
    }
}
