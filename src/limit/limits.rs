//! Which limits hold for a request and for a call, and what was taken of them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
use crate::id::{PrincipalId, UpstreamName};

use super::rate::{Buckets, KEYS_MAX};
use super::slots::Slots;
use super::{Entered, LimitSettings, Own, Place, Rate};

/// A limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exceeded {
    /// A rate of requests of this principal.
    Requests(Rate, Duration),
    /// A rate of calls to the server.
    Server(Rate, Duration),
    /// A rate of calls to the tool.
    Tool(Rate, Duration),
    /// So many calls of this principal wait already.
    Queue(usize),
}

type PrincipalBuckets = Arc<Buckets<PrincipalId>>;
type ServerBuckets = Arc<Buckets<(PrincipalId, UpstreamName)>>;
type ToolBuckets = Arc<Buckets<(PrincipalId, Arc<str>)>>;

/// The limits in force. What has been used of one that a reload leaves as it is stays used.
#[derive(Debug)]
pub struct Limits {
    requests: Rated<PrincipalId, PrincipalBuckets>,
    servers: Rated<UpstreamName, ServerBuckets>,
    tools: Option<ToolBuckets>,
    /// What ends something, of whoever is over its rate of requests; where there is one.
    ends: Option<PrincipalBuckets>,
    /// Shared by all states of the configuration, for calls go on across them.
    slots: Arc<Slots>,
    /// Whether calls under way are counted.
    counts_calls: bool,
    clock: Clock,
}

/// Buckets of all, and those of names that have a rate of their own.
#[derive(Debug)]
struct Rated<N, B> {
    all: Option<B>,
    own: BTreeMap<N, B>,
}

// === impl Exceeded ===

impl Exceeded {
    /// Returns after how long it is worth to try again, if that is known.
    #[must_use]
    pub const fn after(self) -> Option<Duration> {
        match self {
            Self::Requests(_, after) | Self::Server(_, after) | Self::Tool(_, after) => Some(after),
            Self::Queue(_) => None,
        }
    }
}

// === impl Limits ===

impl Limits {
    /// Makes the limits; nothing has been used of them.
    #[must_use]
    pub fn new(settings: &LimitSettings, clock: Clock) -> Self {
        let none = Self {
            requests: Rated::default(),
            servers: Rated::default(),
            tools: None,
            ends: None,
            slots: Arc::new(Slots::new(settings)),
            counts_calls: false,
            clock,
        };
        none.follow(settings)
    }

    /// Makes the limits that follow these.
    #[must_use]
    pub fn follow(&self, settings: &LimitSettings) -> Self {
        let clock = &self.clock;
        self.slots.set(settings);
        let tools = settings.rates.tool.map(|rate| match &self.tools {
            Some(old) if old.rate() == rate => Arc::clone(old),
            Some(_) | None => Arc::new(Buckets::new(rate, clock, KEYS_MAX)),
        });
        let ends = settings.limits_requests().then(|| {
            let kept = self.ends.as_ref().map(Arc::clone);
            kept.unwrap_or_else(|| Arc::new(Buckets::new(Rate::ENDS, clock, KEYS_MAX)))
        });
        Self {
            ends,
            requests: self.requests.follow(settings.rates.principal, &settings.principals, clock),
            servers: self.servers.follow(settings.rates.server, &settings.servers, clock),
            tools,
            slots: Arc::clone(&self.slots),
            counts_calls: settings.limits_concurrency(),
            clock: clock.clone(),
        }
    }

    /// Says whether anything limits calls.
    #[must_use]
    pub fn limits_calls(&self) -> bool {
        self.counts_calls || self.tools.is_some() || !self.servers.is_none()
    }

    /// Counts a request.
    ///
    /// # Errors
    /// [`Exceeded::Requests`].
    pub fn request(&self, principal: &PrincipalId) -> Result<(), Exceeded> {
        let Some(buckets) = self.requests.of(principal) else { return Ok(()) };
        buckets.take(principal).map_err(|after| Exceeded::Requests(buckets.rate(), after))
    }

    /// Counts a message of a principal over its rate that ends something: what is under way is not to last longer for it.
    ///
    /// # Errors
    /// [`Exceeded::Requests`]: those are too many too.
    pub fn end(&self, principal: &PrincipalId) -> Result<(), Exceeded> {
        let Some(ends) = &self.ends else { return Ok(()) };
        ends.take(principal).map_err(|after| Exceeded::Requests(ends.rate(), after))
    }

    /// Counts a call by the rates; `tool` is its full name, if it is one of a tool: what else is named may be of the
    /// caller's own making, and is no key [LIM-6]. One that is refused uses up nothing.
    ///
    /// # Errors
    /// [`Exceeded::Server`] or [`Exceeded::Tool`].
    pub fn call(
        &self,
        principal: &PrincipalId,
        server: &UpstreamName,
        tool: Option<&Arc<str>>,
    ) -> Result<(), Exceeded> {
        let of_server = self.servers.of(server).map(|buckets| (buckets, (principal.clone(), server.clone())));
        if let Some((buckets, key)) = &of_server {
            buckets.take(key).map_err(|after| Exceeded::Server(buckets.rate(), after))?;
        }
        let (Some(tools), Some(tool)) = (&self.tools, tool) else { return Ok(()) };
        tools.take(&(principal.clone(), Arc::clone(tool))).map_err(|after| {
            if let Some((buckets, key)) = &of_server {
                buckets.put_back(key);
            }
            Exceeded::Tool(tools.rate(), after)
        })
    }

    /// Asks for a place among the calls under way; `None` where they are not counted.
    ///
    /// # Errors
    /// [`Exceeded::Queue`].
    pub fn enter(&self, place: impl FnOnce() -> Place) -> Result<Option<Entered>, Exceeded> {
        if self.counts_calls { self.slots.enter(place()).map(Some) } else { Ok(None) }
    }

    /// Forgets what need not be known any more; for a timer.
    pub fn forget(&self) {
        self.requests.each(|buckets| buckets.forget());
        self.servers.each(|buckets| buckets.forget());
        if let Some(tools) = &self.tools {
            tools.forget();
        }
        if let Some(ends) = &self.ends {
            ends.forget();
        }
    }

    /// Counts the keys of all rates, and the calls under way and waiting.
    #[must_use]
    pub fn load(&self) -> (usize, usize, usize) {
        let mut keys = self.tools.as_ref().map_or(0, |tools| tools.len());
        keys += self.ends.as_ref().map_or(0, |ends| ends.len());
        self.requests.each(|buckets| keys += buckets.len());
        self.servers.each(|buckets| keys += buckets.len());
        let (running, waiting) = self.slots.load();
        (keys, running, waiting)
    }
}

// === impl Rated ===

impl<N, B> Default for Rated<N, B> {
    fn default() -> Self {
        Self { all: None, own: BTreeMap::new() }
    }
}

impl<N, B> Rated<N, B> {
    fn is_none(&self) -> bool {
        self.all.is_none() && self.own.is_empty()
    }

    fn each(&self, mut with: impl FnMut(&B)) {
        self.all.iter().chain(self.own.values()).for_each(&mut with);
    }
}

impl<N: Ord + Clone, K: std::fmt::Debug + Eq + std::hash::Hash + Clone> Rated<N, Arc<Buckets<K>>> {
    /// Returns the buckets that hold for a name.
    fn of(&self, name: &N) -> Option<&Arc<Buckets<K>>> {
        if self.own.is_empty() { self.all.as_ref() } else { self.own.get(name).or(self.all.as_ref()) }
    }

    /// Equal rates share their buckets, for the keys are different: what is used stays used wherever the rate is stated.
    fn follow(&self, all: Option<Rate>, own: &BTreeMap<N, Own>, clock: &Clock) -> Self {
        let before = self.all.iter().chain(self.own.values());
        let mut known: HashMap<Rate, _> = before.map(|buckets| (buckets.rate(), Arc::clone(buckets))).collect();
        let mut of =
            |rate| Arc::clone(known.entry(rate).or_insert_with(|| Arc::new(Buckets::new(rate, clock, KEYS_MAX))));
        let all = all.map(&mut of);
        Self { all, own: own.iter().filter_map(|(name, own)| Some((name.clone(), of(own.rate?)))).collect() }
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
