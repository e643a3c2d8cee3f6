//! A batch in parts, halved around the items that the database refuses.

/// The parts of a batch that are still to be done, in its order.
#[derive(Debug)]
pub struct Bisection<T>(Vec<Vec<T>>);

impl<T> Bisection<T> {
    /// One part: the whole `batch`.
    pub fn of(batch: Vec<T>) -> Self {
        Self(vec![batch])
    }

    /// Takes the next part.
    pub fn take(&mut self) -> Option<Vec<T>> {
        self.0.pop()
    }

    /// Puts the halves of a refused `part` back; or returns its only item, the one that is refused.
    pub fn halve(&mut self, mut part: Vec<T>) -> Option<T> {
        if part.len() <= 1 {
            return part.pop();
        }
        let second = part.split_off(part.len().div_euclid(2));
        self.0.extend([second, part]);
        None
    }

    /// Puts `part` back, to be taken next.
    pub fn put_back(&mut self, part: Vec<T>) {
        self.0.push(part);
    }

    /// Takes all that is left: `part` and what follows it.
    pub fn drain(&mut self, part: Vec<T>) -> Vec<T> {
        self.0.push(part);
        self.0.drain(..).rev().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bisection_isolates_each_refused_item_in_order() {
        let mut parts = Bisection::of((0..20).collect());
        let (mut taken, mut refused) = (Vec::new(), Vec::new());
        while let Some(part) = parts.take() {
            if part.iter().any(|n| [3, 4, 19].contains(n)) {
                refused.extend(parts.halve(part));
            } else {
                taken.extend(part);
            }
        }
        assert_eq!(refused, [3, 4, 19]);
        assert_eq!(taken, (0..19).filter(|n| ![3, 4].contains(n)).collect::<Vec<_>>());
    }

    #[test]
    fn bisection_drains_in_the_order_of_the_batch() {
        let mut parts = Bisection::of((0..4).collect());
        let whole = parts.take().unwrap();
        assert_eq!(parts.halve(whole), None);
        let first = parts.take().unwrap();
        assert_eq!(parts.drain(first), [0, 1, 2, 3]);
        assert_eq!(parts.take(), None);
    }
}
