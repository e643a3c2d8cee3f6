//! Room between a refusal and the store, shared so that nobody can have all of it.
//!
//! A sender may hold as much as is still free: one alone half of the room, two a third each, and so on. However
//! many flood it, the next one finds a place.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How much there is; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Room {
    whole: Held,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    items: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Taken {
    all: Held,
    senders: HashMap<String, Held>,
}

/// A place in the room, free again when dropped.
#[derive(Debug)]
pub(super) struct Place {
    room: Room,
    sender: String,
    bytes: usize,
}

impl Room {
    /// Room for so many items and bytes.
    pub(super) fn new(items: usize, bytes: usize) -> Self {
        Self {
            whole: Held { items, bytes },
            taken: Arc::default(),
        }
    }

    /// A place for an item of `bytes`; `None`: there is none, or `sender` holds as much as is left.
    pub(super) fn take(&self, sender: &str, bytes: usize) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let held = taken.senders.get(sender).copied().unwrap_or_default();
        let free = Held {
            items: self.whole.items.saturating_sub(taken.all.items),
            bytes: self.whole.bytes.saturating_sub(taken.all.bytes),
        };
        let fits = held.items < free.items && held.bytes.saturating_add(bytes) <= free.bytes;
        if !fits {
            return None;
        }
        taken.all.add(bytes);
        taken.senders.entry(sender.to_owned()).or_default().add(bytes);
        drop(taken);
        Some(Place {
            room: self.clone(),
            sender: sender.to_owned(),
            bytes,
        })
    }
}

impl Held {
    fn add(&mut self, bytes: usize) {
        self.items = self.items.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn remove(&mut self, bytes: usize) {
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all.remove(self.bytes);
        if let Some(held) = taken.senders.get_mut(&self.sender) {
            held.remove(self.bytes);
            if held.items == 0 {
                taken.senders.remove(&self.sender);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_floods_leaves_room_for_the_next() {
        let room = Room::new(12, 1000);
        let flood = |sender: &str| std::iter::from_fn(|| room.take(sender, 1)).collect::<Vec<_>>();
        let first = flood("a");
        assert_eq!(first.len(), 6, "half of it");
        let second = flood("b");
        assert_eq!(second.len(), 3);
        assert_eq!(flood("c").len(), 2, "given back at once");
        assert!(room.take("a", 1).is_none());
        drop(first);
        assert_eq!(flood("a").len(), 5, "three of nine are held by b");
    }

    #[test]
    fn bytes_are_shared_as_items_are() {
        let room = Room::new(100, 1000);
        let places = std::iter::from_fn(|| room.take("a", 100)).collect::<Vec<_>>();
        assert_eq!(places.len(), 5);
        assert!(room.take("b", 501).is_none());
        assert!(room.take("b", 250).is_some());
        drop(places);
        assert!(room.take("a", 1000).is_some(), "an empty room takes what fits it");
    }
}
