//! A list that only grows, and that costs the same to clone and to add to however long it is.
//!
//! Sessions keep in it what grows with their history, so that a decision on a long session costs
//! no more than one on a short one.

use std::sync::Arc;

/// Things in the order they came.
#[derive(Debug)]
pub struct PersistentList<T> {
    newest: Option<Arc<Node<T>>>,
    length: usize,
}

#[derive(Debug)]
struct Node<T> {
    value: T,
    older: Option<Arc<Node<T>>>,
}

impl<T> PersistentList<T> {
    /// Adds `thing` as the newest.
    pub fn push(&mut self, thing: T) {
        let older = self.newest.take();
        self.newest = Some(Arc::new(Node { value: thing, older }));
        self.length += 1;
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// All of them, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &T> {
        std::iter::successors(self.newest.as_deref(), |link| link.older.as_deref())
            .map(|link| &link.value)
    }

    /// All of them, oldest first.
    pub fn oldest_first(&self) -> Vec<&T> {
        let mut things: Vec<_> = self.newest_first().collect();
        things.reverse();
        things
    }
}

impl<T> Clone for PersistentList<T> {
    fn clone(&self) -> Self {
        Self { newest: self.newest.clone(), length: self.length }
    }
}

impl<T> Default for PersistentList<T> {
    fn default() -> Self {
        Self { newest: None, length: 0 }
    }
}

impl<T: PartialEq> PartialEq for PersistentList<T> {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.newest_first().eq(other.newest_first())
    }
}

impl<T> Drop for Node<T> {
    /// Frees a long chain in a loop: recursion would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.older.take();
        while let Some(link) = next {
            match Arc::try_unwrap(link) {
                Ok(mut sole) => next = sole.older.take(),
                Err(_shared) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_does_not_see_what_is_added_later() {
        let mut chain = PersistentList::default();
        (0..3).for_each(|number| chain.push(number));
        let before = chain.clone();
        chain.push(3);
        assert_eq!(before.oldest_first(), [&0, &1, &2]);
        assert_eq!(chain.oldest_first(), [&0, &1, &2, &3]);
        assert_ne!(before, chain);
        assert_eq!((before.len(), chain.newest_first().next()), (3, Some(&3)));
    }

    #[test]
    fn a_long_chain_is_freed_without_recursion() {
        let mut chain = PersistentList::default();
        (0..1_000_000).for_each(|number| chain.push(number));
        drop(chain);
    }
}
