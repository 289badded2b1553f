//! What a connection counts as, and how many places are reserved for that.

use crate::auth::{ANONYMOUS, CertificateHolder, User};

/// What a connection counts as. A connection only changes to a class of a higher
/// [precedence](Class::precedence).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Class {
    /// It has asked for nothing but health, so its user is not known yet. Probes stay in
    /// this class.
    Newcomer,
    /// Its requests are those of one user.
    User(Owner),
    /// It has shown the certificate of the front proxy, as a kube-apiserver does.
    FrontProxy,
}

/// The user of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// Without credentials, or with bad ones.
    Anonymous,
    /// By name.
    Known(String),
    /// A member of `system:masters`, by name.
    Administrator(String),
}

/// A class without what is in it: what places are reserved for.
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
    /// All of them. For a new class, such as other replicas, add a variant here and to
    /// [`Class`], its reserve, and what recognizes it in `access`.
    pub const ALL: [Self; 3] = [Self::Newcomer, Self::User, Self::FrontProxy];

    /// How many of `places` are for this class only. Users have what is left.
    pub fn reserve(self, places: usize) -> usize {
        match self {
            // Of the default of 256, 64: a newcomer is evicted only if 64 others come, from
            // as many addresses, before its TLS handshake and its first request are done.
            Self::Newcomer => (places / 4).max(1),
            // Of the default of 256, 32: six for each of five kube-apiservers, which have
            // one or two each while nothing is wrong.
            Self::FrontProxy => (places / 8).max(1),
            Self::User => 0,
        }
    }
}

impl Class {
    /// The user of a request.
    pub fn of_user(user: &User) -> Self {
        let name = user.name.clone();
        Self::User(if name == ANONYMOUS {
            Owner::Anonymous
        } else if user.is_administrator() {
            Owner::Administrator(name)
        } else {
            Owner::Known(name)
        })
    }

    /// Whoever has no credentials, or bad ones.
    pub fn anonymous() -> Self {
        Self::User(Owner::Anonymous)
    }

    /// The holder of a certificate, if nothing else is known.
    pub fn of_holder(holder: &CertificateHolder) -> Self {
        match holder {
            CertificateHolder::FrontProxy => Self::FrontProxy,
            CertificateHolder::User(user) => Self::of_user(user),
            CertificateHolder::Unknown => Self::anonymous(),
        }
    }

    /// What places are reserved for.
    pub fn kind(&self) -> ClassKind {
        match self {
            Self::Newcomer => ClassKind::Newcomer,
            Self::User(_) => ClassKind::User,
            Self::FrontProxy => ClassKind::FrontProxy,
        }
    }

    /// If requests of one connection are of several classes, the highest counts. Of several
    /// users the first counts.
    pub fn precedence(&self) -> u8 {
        match self {
            Self::Newcomer => 0,
            Self::User(Owner::Anonymous) => 1,
            Self::User(_) => 2,
            Self::FrontProxy => 3,
        }
    }

    /// Its user, in the class of users.
    pub fn owner(&self) -> Option<&Owner> {
        match self {
            Self::User(owner) => Some(owner),
            Self::Newcomer | Self::FrontProxy => None,
        }
    }
}
