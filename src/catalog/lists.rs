//! What one server has listed: one list for each kind.

use std::sync::Arc;

use crate::wire::mcp::{Definition, Kind};

/// A server's lists. Clones share the definitions.
#[derive(Clone, Debug, Default)]
pub struct Lists([Arc<[Definition]>; Kind::ALL.len()]);

impl Lists {
    /// Returns the list of a kind, in the server's own order.
    #[must_use]
    pub fn of(&self, kind: Kind) -> &Arc<[Definition]> {
        let [tools, prompts, resources, templates] = &self.0;
        match kind {
            Kind::Tools => tools,
            Kind::Prompts => prompts,
            Kind::Resources => resources,
            Kind::Templates => templates,
        }
    }

    /// Puts a list in the place of the one before.
    pub fn set(&mut self, kind: Kind, list: Arc<[Definition]>) {
        if let Some(place) = self.0.get_mut(kind.index()) {
            *place = list;
        }
    }

    /// Says whether both list the same, byte for byte.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        Kind::ALL.into_iter().all(|kind| {
            let (one, two) = (self.of(kind), other.of(kind));
            Arc::ptr_eq(one, two)
                || (one.len() == two.len() && one.iter().zip(two.iter()).all(|(one, two)| one.raw == two.raw))
        })
    }
}
