//! What is kept of answers for a while, each for one principal, within one bound for all [LIM-7].
//!
//! Not for: attachments in files (`uploads`). Invariants: the sum is within its bound after every call; an id is random,
//! and of no use to another principal.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::{Clock, Moment};
use crate::id::PrincipalId;
use crate::seal::random;

use super::{BlobSettings, Origin, Sheet};

/// How many answers are kept at most.
const ENTRIES_MAX: usize = 1024;

/// Answers that are kept.
#[derive(Debug)]
pub(super) struct Shelf {
    clock: Clock,
    state: Mutex<State>,
}

/// In the order they came.
#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<u64, Entry>,
    numbers: HashMap<String, u64>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    id: String,
    principal: PrincipalId,
    origin: Arc<Origin>,
    kept: Moment,
    bytes: usize,
    sheets: Arc<[Sheet]>,
}

/// The id of one kept thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SheetId {
    entry: String,
    index: usize,
}

/// One kept thing, found.
#[derive(Clone, Debug)]
pub struct Piece {
    sheets: Arc<[Sheet]>,
    origin: Arc<Origin>,
    index: usize,
}

// === impl SheetId ===

impl SheetId {
    fn read(text: &str) -> Option<Self> {
        let (entry, index) = match text.split_once('-') {
            Some((entry, index)) => (entry, index.parse().ok()?),
            None => (text, 0),
        };
        Some(Self { entry: entry.to_owned(), index })
    }
}

impl std::fmt::Display for SheetId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.index {
            0 => f.write_str(&self.entry),
            index => write!(f, "{}-{index}", self.entry),
        }
    }
}

// === impl Piece ===

impl Piece {
    /// Returns what it came from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns it.
    #[must_use]
    pub fn sheet(&self) -> Option<&Sheet> {
        self.sheets.get(self.index)
    }
}

// === impl Shelf ===

impl Shelf {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what was cut of one answer, which takes so many bytes beside the names of its origin; what is too old goes, and
    /// if there is no room the oldest of whoever has most. `None` if it is larger than the bound, or the machine gives no
    /// randomness.
    pub(super) fn keep(
        &self,
        principal: &PrincipalId,
        origin: &Origin,
        bytes: usize,
        sheets: Vec<Sheet>,
        settings: &BlobSettings,
    ) -> Option<Vec<SheetId>> {
        let bytes = bytes.saturating_add(origin.bytes());
        if bytes > settings.overflow_bytes_max {
            return None;
        }
        let id: String = random::<16>().ok()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let ids = (0..sheets.len()).map(|index| SheetId { entry: id.clone(), index }).collect();
        let now = self.clock.now();
        let mut state = self.state();
        state.expire(now, settings.overflow_age);
        while state.bytes + bytes > settings.overflow_bytes_max || state.entries.len() >= ENTRIES_MAX {
            if !state.evict(principal, bytes) {
                break;
            }
        }
        let number = state.next;
        state.next += 1;
        state.bytes += bytes;
        state.numbers.insert(id.clone(), number);
        let (principal, origin) = (principal.clone(), Arc::new(origin.clone()));
        let entry = Entry { id, principal, origin, kept: now, bytes, sheets: sheets.into() };
        state.entries.insert(number, entry);
        Some(ids)
    }

    /// Finds a kept thing of this principal.
    pub(super) fn find(&self, principal: &PrincipalId, id: &str, age: Duration) -> Option<Piece> {
        let id = SheetId::read(id)?;
        let now = self.clock.now();
        let state = self.state();
        let entry = state.entries.get(state.numbers.get(&id.entry)?)?;
        let lives = entry.principal == *principal && now.since(entry.kept) < age && id.index < entry.sheets.len();
        let piece = || Piece { sheets: Arc::clone(&entry.sheets), origin: Arc::clone(&entry.origin), index: id.index };
        lives.then(piece)
    }

    /// Lets go of what is too old.
    pub(super) fn sweep(&self, age: Duration) {
        let now = self.clock.now();
        self.state().expire(now, age);
    }

    /// Returns how much is kept, in bytes and in answers.
    pub(super) fn held(&self) -> (usize, usize) {
        let state = self.state();
        (state.bytes, state.entries.len())
    }
}

// === impl State ===

impl State {
    fn expire(&mut self, now: Moment, age: Duration) {
        while let Some((&number, _)) = self.entries.iter().next().filter(|(_, entry)| now.since(entry.kept) >= age) {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number) {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
            self.numbers.remove(&entry.id);
        }
    }

    /// Lets go of the oldest of whoever has most, counting what the newcomer brings; `false` if nothing is there.
    fn evict(&mut self, newcomer: &PrincipalId, brings: usize) -> bool {
        let mut sums: HashMap<&PrincipalId, usize> = HashMap::new();
        for entry in self.entries.values() {
            *sums.entry(&entry.principal).or_default() += entry.bytes;
        }
        let weight = |principal: &PrincipalId, sum: usize| sum + if principal == newcomer { brings } else { 0 };
        let most = sums.iter().max_by_key(|(principal, sum)| weight(principal, **sum)).map(|(principal, _)| *principal);
        let oldest = self.entries.iter().find(|(_, entry)| Some(&entry.principal) == most).map(|(number, _)| *number);
        match oldest {
            Some(number) => {
                self.remove(number);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::{ENTRIES_MAX, Shelf};
    use crate::blob::origin::tests::{nameless, origin};
    use crate::blob::{BlobSettings, Sheet};
    use crate::clock::Clock;
    use crate::id::PrincipalId;

    const SETTINGS: BlobSettings = BlobSettings {
        item_bytes_max: 0,
        upload_bytes_max: 0,
        upload_age: Duration::ZERO,
        overflow_bytes_max: 100,
        overflow_age: Duration::from_secs(900),
        overflow_disk: false,
    };

    fn keep(shelf: &Shelf, who: &str, bytes: usize) -> Option<String> {
        let sheets = vec![Sheet::texts(vec![Bytes::from_static(b"text")]), Sheet::json(Bytes::from_static(b"{}"))];
        Some(shelf.keep(&PrincipalId::new(who), &nameless(), bytes, sheets, &SETTINGS)?.first()?.to_string())
    }

    fn is_kept(shelf: &Shelf, who: &str, id: &str) -> bool {
        shelf.find(&PrincipalId::new(who), id, SETTINGS.overflow_age).is_some()
    }

    /// [LIM-7]: the same principal, for 15 minutes.
    #[test]
    fn it_is_kept_for_one_principal_and_a_while() {
        let clock = Clock::manual();
        let shelf = Shelf::new(clock.clone());
        let id = keep(&shelf, "alice", 10).unwrap();
        assert!(is_kept(&shelf, "alice", &id) && is_kept(&shelf, "alice", &format!("{id}-1")));
        for odd in [format!("{id}-2"), format!("{id}-x"), String::new(), "0".repeat(32)] {
            assert!(!is_kept(&shelf, "alice", &odd), "{odd}");
        }
        assert!(!is_kept(&shelf, "bob", &id));
        clock.advance(Duration::from_secs(899));
        assert!(is_kept(&shelf, "alice", &id));
        clock.advance(Duration::from_secs(1));
        assert!(!is_kept(&shelf, "alice", &id));
        assert_eq!(shelf.held(), (10, 1));
        shelf.sweep(SETTINGS.overflow_age);
        assert_eq!(shelf.held(), (0, 0));
    }

    /// [LIM-6, LIM-7]: one bound for all; whoever has most makes room.
    #[test]
    fn whoever_has_most_makes_room() {
        let shelf = Shelf::new(Clock::manual());
        let small = keep(&shelf, "bob", 30).unwrap();
        let first = keep(&shelf, "alice", 40).unwrap();
        let second = keep(&shelf, "alice", 30).unwrap();
        let third = keep(&shelf, "alice", 20).unwrap();
        assert!(is_kept(&shelf, "bob", &small) && !is_kept(&shelf, "alice", &first));
        assert!(is_kept(&shelf, "alice", &second) && is_kept(&shelf, "alice", &third));
        assert_eq!(shelf.held(), (80, 3));
        assert_eq!(keep(&shelf, "alice", 101), None);
        assert_eq!(shelf.held(), (80, 3));
        // What it came from has a name, and that is kept too.
        let long = origin(&"x".repeat(100));
        assert!(shelf.keep(&PrincipalId::new("alice"), &long, 1, Vec::new(), &SETTINGS).is_none());
        for _ in 0..2 * ENTRIES_MAX {
            keep(&shelf, "alice", 0).unwrap();
        }
        assert_eq!(shelf.held().1, ENTRIES_MAX);
    }
}
