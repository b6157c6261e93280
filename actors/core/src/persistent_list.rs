//! An append-only list with constant-time clone and push.
//!
//! Sessions keep state that grows with their history in such lists, so that a decision on a long
//! session costs no more than a decision on a short one.

use std::sync::Arc;

/// Values in insertion order. Clones share their nodes.
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
    /// Adds `value` as the newest.
    pub fn push(&mut self, value: T) {
        let older = self.newest.take();
        self.newest = Some(Arc::new(Node { value, older }));
        self.length += 1;
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.length
    }

    /// True if the list has no values.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Iterates over all values, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &T> {
        std::iter::successors(self.newest.as_deref(), |node| node.older.as_deref())
            .map(|node| &node.value)
    }

    /// Returns all values, oldest first.
    pub fn oldest_first(&self) -> Vec<&T> {
        let mut values: Vec<_> = self.newest_first().collect();
        values.reverse();
        values
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
    /// Frees the older nodes in a loop: recursion would overflow the stack.
    fn drop(&mut self) {
        let mut next = self.older.take();
        while let Some(node) = next {
            match Arc::try_unwrap(node) {
                Ok(mut unshared) => next = unshared.older.take(),
                Err(_shared) => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clone_does_not_contain_later_values() {
        let mut list = PersistentList::default();
        (0..3).for_each(|number| list.push(number));
        let before = list.clone();
        list.push(3);
        assert_eq!(before.oldest_first(), [&0, &1, &2]);
        assert_eq!(list.oldest_first(), [&0, &1, &2, &3]);
        assert_ne!(before, list);
        assert_eq!((before.len(), list.newest_first().next()), (3, Some(&3)));
    }

    #[test]
    fn long_list_is_dropped_without_recursion() {
        let mut list = PersistentList::default();
        (0..1_000_000).for_each(|number| list.push(number));
        drop(list);
    }
}
