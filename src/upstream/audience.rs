//! Who is granted a server, and whose lists of it may be shown [TRN-4].
//!
//! Where one principal alone is granted a server, its lists may be read over that one's own process. Invariant: what was
//! read there is shown to that principal alone; whoever comes in its place, or beside it, is shown the last lists that were
//! nobody's own, until they are read again.

use std::sync::{Arc, MutexGuard, PoisonError};

use crate::catalog::Lists;
use crate::id::PrincipalId;
use crate::wire::mcp::{Capabilities, Kind};

use super::link::Link;
use super::server::{Phase, Server};

/// To whom a server is granted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Grants {
    /// To nobody.
    #[default]
    Nobody,
    /// To one principal alone.
    One(PrincipalId),
    /// To several, or to whoever is not known yet.
    Several,
}

/// Who is granted a server now, and what everybody may see of it.
#[derive(Debug, Default)]
pub(super) struct Audience {
    /// The only principal that is granted it.
    sole: Option<PrincipalId>,
    /// The last lists that were nobody's own.
    common: Option<(Lists, Capabilities)>,
}

/// Whose own the lists of each kind are.
#[derive(Clone, Debug, Default)]
pub(super) struct Owners([Option<PrincipalId>; Kind::ALL.len()]);

// === impl Grants ===

impl Grants {
    /// Adds a principal.
    pub fn add(&mut self, principal: &PrincipalId) {
        *self = match self {
            Self::Nobody => Self::One(principal.clone()),
            Self::One(one) if one == principal => return,
            Self::One(_) | Self::Several => Self::Several,
        };
    }

    pub(super) const fn sole(&self) -> Option<&PrincipalId> {
        match self {
            Self::One(principal) => Some(principal),
            Self::Nobody | Self::Several => None,
        }
    }
}

// === impl Owners ===

impl Owners {
    /// All lists are of this one.
    pub(super) fn all(of: Option<&PrincipalId>) -> Self {
        Self(std::array::from_fn(|_| of.cloned()))
    }

    /// Takes note of whose the list of a kind is.
    pub(super) fn set(&mut self, kind: Kind, of: Option<PrincipalId>) {
        if let Some(place) = self.0.get_mut(kind.index()) {
            *place = of;
        }
    }

    fn of(&self, kind: Kind) -> Option<&PrincipalId> {
        self.0.get(kind.index()).and_then(Option::as_ref)
    }
}

// === impl Server ===

impl Server {
    /// Returns who alone is granted the server.
    pub(super) fn sole(&self) -> Option<PrincipalId> {
        self.audience().sole.clone()
    }

    /// Says whether a connection is one principal's, and not of the one who alone is granted the server: then no list is read
    /// over it.
    pub(super) fn is_anothers(&self, link: &Arc<dyn Link>) -> bool {
        self.whose(link).is_some_and(|principal| self.sole() != Some(principal))
    }

    /// Says whose a connection is, where it is one principal's.
    pub(super) fn whose(&self, link: &Arc<dyn Link>) -> Option<PrincipalId> {
        self.pool.stock().whose(link)
    }

    /// Takes note of who alone is granted the server from here on, if it is one. What is another's own is not shown any more;
    /// the list moves to the one's own process where there is one, and away from another's.
    pub(super) fn grant(&self, sole: Option<&PrincipalId>) {
        let mut audience = self.audience();
        let same = audience.sole.as_ref() == sole;
        audience.sole = sole.cloned();
        let foreign = self.status.borrow().of.as_ref().is_some_and(|of| Some(of) != sole);
        if foreign {
            let common = audience.common.clone();
            self.change(|status| {
                // Whoever asks waits for the first list, as of a server that has never listed [TRN-8].
                if common.is_none() && status.phase == Phase::Ready {
                    status.phase = Phase::Starting;
                }
                let (lists, can) = common.unzip();
                (status.lists, status.can, status.of) = (lists, can.unwrap_or_default(), None);
            });
        }
        if same && !foreign {
            return;
        }
        self.elsewhere.forget();
        drop(audience);
        let anothers = self.listed().is_some_and(|link| self.is_anothers(&link));
        if anothers {
            self.apart.notify_one();
        }
        let mut stock = self.pool.stock();
        let moves = self.heir_in(&stock).is_some() && self.let_go(&mut stock);
        drop(stock);
        if moves || foreign {
            self.pool.wake();
        }
    }

    /// Shows lists: what is another's own is left out of them, and what was nobody's stands in its place.
    pub(super) fn show(&self, lists: &mut Lists, can: Capabilities, owners: &mut Owners) {
        let mut audience = self.audience();
        for kind in Kind::ALL {
            if owners.of(kind).is_some_and(|of| Some(of) != audience.sole.as_ref()) {
                let common = audience.common.as_ref().map(|(common, _)| Arc::clone(common.of(kind)));
                lists.set(kind, common.unwrap_or_default());
                owners.set(kind, None);
            }
        }
        let of = Kind::ALL.into_iter().find_map(|kind| owners.of(kind).cloned());
        if of.is_none() {
            audience.common = Some((lists.clone(), can));
        }
        let known = self.status();
        let same = known.phase == Phase::Ready
            && (known.can, &known.of) == (can, &of)
            && known.lists.is_some_and(|known| known.same(lists));
        if same {
            return;
        }
        self.change(|status| {
            (status.phase, status.lists, status.can, status.of) = (Phase::Ready, Some(lists.clone()), can, of);
        });
        self.kept.write(&self.settings, self.status.subscribe(), &self.tasks);
    }

    /// Shows the lists of the server that it replaces until it has its own, so that a restart takes no tool away.
    pub(super) fn inherit(&self, old: &Self) {
        self.audience().common.clone_from(&old.audience().common);
        let old = old.status();
        self.status.send_modify(|status| (status.lists, status.can, status.of) = (old.lists, old.can, old.of));
    }

    /// Reads lists over the connection of the one who alone is granted the server from here on, where `link` is that.
    pub(super) fn listen_to(&self, link: &Arc<dyn Link>) {
        let whose = self.whose(link);
        let audience = self.audience();
        if whose.is_some() && audience.sole == whose {
            self.elsewhere.put(link);
        }
    }

    fn audience(&self) -> MutexGuard<'_, Audience> {
        self.audience.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
