//! Places against a model: what is dropped when does not matter, and nobody is starved.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use proptest::prelude::*;

use super::{Entered, Permit, Place, Slots, Waiting};
use crate::id::{PrincipalId, UpstreamName};
use crate::limit::{Concurrency, Exceeded, LimitSettings, Own};

/// Principal, server and tool of a call.
type Spot = (usize, usize, usize);

fn place((principal, server, tool): Spot) -> Place {
    Place {
        principal: PrincipalId::new(&format!("p{principal}")),
        server: UpstreamName::new(&format!("s{server}")).unwrap(),
        tool: Arc::from(format!("s{server}__t{tool}")),
    }
}

fn bounded(concurrency: Concurrency) -> LimitSettings {
    LimitSettings { concurrency, ..LimitSettings::default() }
}

/// What is done to the places.
#[derive(Clone, Copy, Debug)]
enum Step {
    Enter(Spot),
    /// Ends the call at this place of those that run.
    End(usize),
    /// Gives up the call at this place of those that wait.
    GiveUp(usize),
    /// Takes other bounds.
    Bounds(Concurrency),
}

struct World {
    slots: Arc<Slots>,
    bounds: Concurrency,
    running: Vec<(Spot, Permit)>,
    waiting: Vec<(Spot, Waiting)>,
    /// How often each principal went at each server, while each other one waited there all the time.
    passed: HashMap<(usize, usize, usize), usize>,
}

impl World {
    fn new(bounds: Concurrency) -> Self {
        let slots = Arc::new(Slots::new(&bounded(bounds)));
        Self { slots, bounds, running: Vec::new(), waiting: Vec::new(), passed: HashMap::new() }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Enter(spot) => {
                let waits = self.waiting.iter().filter(|(other, _)| other.0 == spot.0).count();
                let room = self.has_room(spot);
                match self.slots.enter(place(spot)) {
                    Ok(Entered::Now(permit)) => {
                        assert!(room, "there was no room for {spot:?}");
                        self.running.push((spot, permit));
                    }
                    Ok(Entered::Later(waiting)) => {
                        assert!(!room, "{spot:?} could go");
                        assert!(waits < self.bounds.queued);
                        self.waiting.push((spot, waiting));
                    }
                    Err(exceeded) => {
                        assert!(!room && waits >= self.bounds.queued);
                        assert_eq!(exceeded, Exceeded::Queue(self.bounds.queued));
                    }
                }
            }
            Step::End(at) if !self.running.is_empty() => drop(self.running.swap_remove(at % self.running.len())),
            // Without a look at it before: it may have been granted in this very moment.
            Step::GiveUp(at) if !self.waiting.is_empty() => drop(self.waiting.remove(at % self.waiting.len())),
            Step::End(_) | Step::GiveUp(_) => {}
            Step::Bounds(bounds) => {
                self.bounds = bounds;
                self.slots.set(&bounded(bounds));
            }
        }
    }

    /// Takes what was granted; says who it was.
    fn collect(&mut self) -> Vec<Spot> {
        let mut granted = Vec::new();
        let context = Context::from_waker(Waker::noop());
        for (spot, mut waiting) in std::mem::take(&mut self.waiting) {
            match waiting.poll(&context) {
                Poll::Ready(permit) => {
                    granted.push(spot);
                    self.running.push((spot, permit));
                }
                Poll::Pending => self.waiting.push((spot, waiting)),
            }
        }
        granted
    }

    fn has_room(&self, (principal, server, tool): Spot) -> bool {
        let count = |which: &dyn Fn(&Spot) -> bool| self.running.iter().filter(|(spot, _)| which(spot)).count();
        let room = |bound: Option<usize>, used: usize| bound.is_none_or(|bound| used < bound);
        room(self.bounds.principal, count(&|spot| spot.0 == principal))
            && room(self.bounds.server, count(&|spot| spot.1 == server))
            && room(self.bounds.tool, count(&|spot| (spot.1, spot.2) == (server, tool)))
    }

    fn check(&self) {
        assert_eq!(self.slots.load(), (self.running.len(), self.waiting.len()));
        for (spot, _) in &self.waiting {
            assert!(!self.has_room(*spot), "{spot:?} waits, and could go");
        }
    }

    /// While one waits for a server, each other one goes there once at most before it.
    fn check_turns(&mut self, granted: &[Spot]) {
        for (went, server, _) in granted {
            self.passed.retain(|(waits, at, _), _| !(waits == went && at == server));
            for (waits, at, _) in self.waiting.iter().map(|(spot, _)| *spot).collect::<std::collections::BTreeSet<_>>()
            {
                if at == *server && waits != *went {
                    *self.passed.entry((waits, at, *went)).or_default() += 1;
                }
            }
        }
        let waits = |who: usize, at: usize| self.waiting.iter().any(|(spot, _)| (spot.0, spot.1) == (who, at));
        let gone: Vec<_> = self.passed.keys().filter(|(who, at, _)| !waits(*who, *at)).copied().collect();
        self.passed.retain(|key, _| !gone.contains(key));
        assert!(self.passed.values().all(|times| *times <= 1), "somebody was passed twice: {:?}", self.passed);
    }
}

fn spot() -> impl Strategy<Value = Spot> {
    (0_usize..4, 0_usize..2, 0_usize..2)
}

fn bounds() -> impl Strategy<Value = Concurrency> {
    let bound = || prop::option::of(1_usize..4);
    (bound(), bound(), bound(), 0_usize..4).prop_map(|(principal, server, tool, queued)| Concurrency {
        principal,
        server,
        tool,
        queued,
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => spot().prop_map(Step::Enter),
        3 => any::<usize>().prop_map(Step::End),
        1 => any::<usize>().prop_map(Step::GiveUp),
        1 => bounds().prop_map(Step::Bounds),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    /// [LIM-5, LIM-6]: no bound is passed, nobody waits who could go, and whatever is dropped when, every place comes
    /// back: in the end nothing is left.
    #[test]
    fn places_come_back_whatever_is_dropped(first in bounds(), steps in steps(), keeps_order in any::<bool>()) {
        let mut world = World::new(first);
        for step in steps {
            world.step(step);
            world.collect();
            world.check();
        }
        let World { slots, mut running, waiting, .. } = world;
        if keeps_order {
            drop(waiting);
            drop(running);
        } else {
            // What waits is granted while it is dropped.
            running.clear();
            drop(waiting);
        }
        prop_assert_eq!(slots.load(), (0, 0));
        let state = slots.state();
        prop_assert!(state.principals.is_empty() && state.servers.is_empty() && state.tickets.is_empty());
    }

    /// [LIM-5]: at a full server the principals take turns, however many calls one of them has waiting.
    #[test]
    fn principals_take_turns(
        most in 1_usize..4,
        steps in prop::collection::vec(prop_oneof![
            3 => (0_usize..4, 0_usize..2).prop_map(|(who, at)| Step::Enter((who, at, 0))),
            // One asks far more than the others.
            3 => (0_usize..2).prop_map(|at| Step::Enter((0, at, 0))),
            3 => any::<usize>().prop_map(Step::End),
            1 => any::<usize>().prop_map(Step::GiveUp),
        ], 1..200),
    ) {
        let mut world = World::new(Concurrency { principal: None, server: Some(most), tool: None, queued: 8 });
        for step in steps {
            world.step(step);
            let granted = world.collect();
            world.check();
            world.check_turns(&granted);
        }
    }
}

/// [LIM-5]: one principal's hundred calls hold up another's one by one call.
#[test]
fn a_long_queue_starves_nobody() {
    let mut world = World::new(Concurrency { principal: None, server: Some(1), tool: None, queued: 100 });
    for _ in 0..100 {
        world.step(Step::Enter((0, 0, 0)));
    }
    world.step(Step::Enter((1, 0, 0)));
    let mut order = Vec::new();
    while order.len() < 3 {
        world.step(Step::End(0));
        order.extend(world.collect().iter().map(|spot| spot.0));
    }
    assert_eq!(order, [0, 1, 0]);
}

/// [LIM-5]: what a policy or a server states replaces what holds for all; a call to a free server is not held up by those
/// that its principal has waiting for a full one.
#[test]
fn own_bounds_replace_common_ones() {
    let mut settings = bounded(Concurrency { principal: Some(1), server: Some(1), tool: None, queued: 1 });
    let own = Own { concurrent: Some(3), queued: Some(2), rate: None };
    settings.principals.insert(place((0, 0, 0)).principal, own);
    settings.servers.insert(place((0, 1, 0)).server, Own { concurrent: Some(2), ..Own::default() });
    let slots = Arc::new(Slots::new(&settings));
    let kinds: Vec<_> =
        [(0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0), (0, 1, 0), (0, 1, 0), (1, 2, 0), (1, 2, 0), (1, 2, 0)]
            .map(|spot| slots.enter(place(spot)))
            .into_iter()
            .collect();
    let words: Vec<_> = kinds
        .iter()
        .map(|kind| match kind {
            Ok(Entered::Now(_)) => "now",
            Ok(Entered::Later(_)) => "later",
            Err(_) => "full",
        })
        .collect();
    assert_eq!(words, ["now", "later", "later", "full", "now", "now", "now", "later", "full"]);
}

struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// [LIM-5]: the call whose turn has come is woken, once, and no other; one that is gone passes its place on.
#[test]
fn the_next_is_woken_and_no_other() {
    let slots = Arc::new(Slots::new(&bounded(Concurrency { server: Some(1), ..Concurrency::default() })));
    let enter = |who| slots.enter(place((who, 0, 0)));
    let Ok(Entered::Now(running)) = enter(0) else { panic!() };
    let mut waiting: Vec<_> = (1..4)
        .map(|who| {
            let Ok(Entered::Later(mut waiting)) = enter(who) else { panic!() };
            let woken = Arc::new(Woken(AtomicUsize::new(0)));
            assert!(waiting.poll(&Context::from_waker(&Waker::from(Arc::clone(&woken)))).is_pending());
            (waiting, woken)
        })
        .collect();
    let woken = |waiting: &[(Waiting, Arc<Woken>)]| -> Vec<usize> {
        waiting.iter().map(|(_, woken)| woken.0.load(Ordering::Relaxed)).collect()
    };
    assert_eq!(woken(&waiting), [0, 0, 0]);
    drop(running);
    assert_eq!(woken(&waiting), [1, 0, 0]);
    drop(waiting.remove(0));
    assert_eq!(woken(&waiting), [1, 0], "granted and not taken: the place goes on");
    let Poll::Ready(permit) = waiting[0].0.poll(&Context::from_waker(Waker::noop())) else { panic!() };
    drop(waiting.remove(0));
    assert_eq!(woken(&waiting), [0], "a permit that was taken is not given back by its ticket");
    drop(permit);
    assert_eq!(woken(&waiting), [1]);
    drop(waiting);
    assert_eq!(slots.load(), (0, 0));
}
