//! Which acks to send: what is outstanding on one channel, and what "all up to here" may cover. Pure.
//!
//! An ack with `multiple` settles every delivery up to its tag. It is used only where all of them are in fact
//! done; whatever is done beyond a gap is acked alone, since a message that waits for its next attempt must not
//! hold its neighbours back.

use std::collections::BTreeSet;

/// One ack to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ack {
    /// Everything outstanding up to this tag.
    UpTo(u64),
    /// This one.
    One(u64),
}

/// The deliveries of one channel that are not settled.
#[derive(Debug, Default)]
pub(super) struct Outstanding(BTreeSet<u64>);

impl Outstanding {
    /// A delivery has come.
    pub(super) fn add(&mut self, tag: u64) {
        self.0.insert(tag);
    }

    /// How many are not settled.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// `done` are settled; gives the acks that say so, and forgets them. A tag that is not outstanding is left
    /// out: it was settled before, and a second ack would close the channel.
    pub(super) fn settle(&mut self, done: impl IntoIterator<Item = u64>) -> Vec<Ack> {
        let mut settled: BTreeSet<u64> = done.into_iter().filter(|tag| self.0.remove(tag)).collect();
        let mut acks = Vec::new();
        let gap = self.0.first().copied().unwrap_or(u64::MAX);
        let beyond = settled.split_off(&gap);
        match (settled.len(), settled.last()) {
            (1, Some(&tag)) => acks.push(Ack::One(tag)),
            (_, Some(&tag)) => acks.push(Ack::UpTo(tag)),
            (_, None) => {}
        }
        acks.extend(beyond.into_iter().map(Ack::One));
        acks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outstanding(tags: impl IntoIterator<Item = u64>) -> Outstanding {
        let mut all = Outstanding::default();
        tags.into_iter().for_each(|tag| all.add(tag));
        all
    }

    #[test]
    fn one_ack_covers_what_is_done_without_a_gap() {
        let mut all = outstanding(1..=5);
        assert_eq!(all.settle([3, 1, 2]), [Ack::UpTo(3)]);
        assert_eq!(all.settle([5]), [Ack::One(5)]);
        assert_eq!(all.settle([4]), [Ack::One(4)]);
        assert_eq!(all.len(), 0);
    }

    #[test]
    fn a_gap_is_never_covered() {
        let mut all = outstanding(1..=5);
        assert_eq!(all.settle([2, 3, 5]), [Ack::One(2), Ack::One(3), Ack::One(5)]);
        assert_eq!(all.settle([1, 4]), [Ack::UpTo(4)]);
    }

    #[test]
    fn nothing_is_settled_twice() {
        let mut all = outstanding([7]);
        assert_eq!(all.settle([7, 7, 9]), [Ack::One(7)]);
        assert_eq!(all.settle([7]), []);
    }
}
