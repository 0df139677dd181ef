//! Order of turns: deficit round robin with a list of new members (RFC 8290, 4.2), for sources, for
//! the flows of one source, and for the flows of a line in the pacer.

use std::mem;

/// No member.
const NIL: u32 = u32::MAX;

/// A member of a round.
pub(crate) trait TakesTurns {
    fn turn(&self) -> &Turn;
    fn turn_mut(&mut self) -> &mut Turn;
}

/// State of a member in the order of turns.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Bytes that the member may still send in this turn.
    pub(crate) deficit: i64,
    /// The next member in its list.
    pub(crate) next: u32,
    /// True if the member is in a list.
    pub(crate) active: bool,
}

impl Turn {
    pub(crate) const NONE: Self = Self {
        deficit: 0,
        next: NIL,
        active: false,
    };
}

#[derive(Debug)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const EMPTY: Self = Self {
        head: NIL,
        tail: NIL,
    };

    fn push(&mut self, all: &mut [impl TakesTurns], index: u32) {
        all[index as usize].turn_mut().next = NIL;
        if self.head == NIL {
            self.head = index;
        } else {
            all[self.tail as usize].turn_mut().next = index;
        }
        self.tail = index;
    }
}

/// Members with frames to send, in the order of their turns.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Members that had no frames before: they go first, once.
    new: List,
    old: List,
}

impl Turns {
    pub(crate) const NONE: Self = Self {
        new: List::EMPTY,
        old: List::EMPTY,
    };

    /// Adds a member that was idle, for its first turn.
    #[inline(never)]
    pub(crate) fn begin(&mut self, all: &mut [impl TakesTurns], index: u32, quantum: i64) {
        let turn = all[index as usize].turn_mut();
        turn.active = true;
        turn.deficit = quantum;
        self.new.push(all, index);
    }

    /// Adds a member that has had turns before the others came: it goes behind them.
    pub(crate) fn resume(&mut self, all: &mut [impl TakesTurns], index: u32, quantum: i64) {
        let turn = all[index as usize].turn_mut();
        turn.active = true;
        turn.deficit = quantum;
        self.old.push(all, index);
    }

    /// Returns the member whose turn it is; `None` if no member has frames.
    #[inline(always)]
    pub(crate) fn pick(&mut self, all: &mut [impl TakesTurns], quantum: i64) -> Option<u32> {
        while self.new.head != NIL {
            let index = self.new.head;
            let turn = all.get_mut(index as usize)?.turn_mut();
            if turn.deficit > 0 {
                return Some(index);
            }
            turn.deficit += quantum;
            self.new.head = turn.next;
            self.old.push(all, index);
        }
        loop {
            let index = self.old.head;
            let turn = all.get_mut(index as usize)?.turn_mut();
            if turn.deficit > 0 {
                return Some(index);
            }
            turn.deficit += quantum;
            if turn.next != NIL {
                self.old.head = mem::replace(&mut turn.next, NIL);
                all[self.old.tail as usize].turn_mut().next = index;
                self.old.tail = index;
            }
        }
    }

    /// Ends the turn of the only member that has one, and returns it; `None` if none or several have
    /// one. The result is that of [`Turns::pick`] and [`Turns::end`] for a member without frames.
    #[inline]
    pub(crate) fn end_only(&mut self, all: &mut [impl TakesTurns]) -> Option<u32> {
        let index = self.only(all)?;
        all[index as usize].turn_mut().active = false;
        (self.new.head, self.old.head) = (NIL, NIL);
        Some(index)
    }

    /// Checks whether exactly one member has a turn, and returns it.
    #[inline]
    pub(crate) fn only(&self, all: &[impl TakesTurns]) -> Option<u32> {
        let ((index, NIL) | (NIL, index)) = (self.new.head, self.old.head) else {
            return None;
        };
        let turn = all.get(index as usize)?.turn();
        (turn.next == NIL).then_some(index)
    }

    /// Ends the turn of the picked member, which has no frames left. A new member moves behind the
    /// old ones, if there are any, so that it cannot become new again immediately and starve them.
    #[inline(never)]
    pub(crate) fn end(&mut self, all: &mut [impl TakesTurns], index: u32) {
        let is_new = self.new.head == index;
        let turn = all[index as usize].turn_mut();
        self.first().head = turn.next;
        if is_new && self.old.head != NIL {
            self.old.push(all, index);
        } else {
            turn.active = false;
        }
    }

    fn first(&mut self) -> &mut List {
        if self.new.head == NIL {
            &mut self.old
        } else {
            &mut self.new
        }
    }

    /// Returns the members that have frames to send, or had until their turn comes.
    pub(crate) fn iter<'a, T: TakesTurns>(&self, all: &'a [T]) -> impl Iterator<Item = u32> + 'a {
        let of = |list: &List| {
            std::iter::successors(Some(list.head), |&index| {
                all.get(index as usize).map(|one| one.turn().next)
            })
        };
        let there = |index: &u32| *index != NIL;
        of(&self.new)
            .take_while(there)
            .chain(of(&self.old).take_while(there))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug)]
    struct Member(Turn);

    impl TakesTurns for Member {
        fn turn(&self) -> &Turn {
            &self.0
        }
        fn turn_mut(&mut self) -> &mut Turn {
            &mut self.0
        }
    }

    #[test]
    fn a_member_that_resumes_has_its_turn_behind_the_others() {
        let (mut turns, mut all) = (Turns::NONE, vec![Member(Turn::NONE), Member(Turn::NONE)]);
        turns.resume(&mut all, 0, 100);
        turns.begin(&mut all, 1, 100);
        for index in [1, 0] {
            assert!(all[index as usize].0.active);
            assert_eq!(turns.pick(&mut all, 100), Some(index));
            all[index as usize].turn_mut().deficit -= 100;
        }
    }

    proptest! {
        #[test]
        fn the_only_turn_ends_as_all_turns_do(
            begun in prop::collection::vec(any::<bool>(), 3),
            deficit in -400_i64..100,
            picks in 0_usize..3,
        ) {
            let members = || (0..3).map(|_| Member(Turn::NONE)).collect::<Vec<_>>();
            let (mut turns, mut all) = (Turns::NONE, members());
            for (index, _) in begun.iter().enumerate().filter(|(_, begins)| **begins) {
                turns.begin(&mut all, index as u32, 100);
            }
            // Some have used up their turns, and are in the second list.
            for _ in 0..picks {
                if let Some(index) = turns.pick(&mut all, 100) {
                    all[index as usize].turn_mut().deficit = deficit;
                }
            }
            let count = begun.iter().filter(|begins| **begins).count();
            let only = turns.only(&all);
            prop_assert_eq!(only.is_some(), count == 1);
            let ended = turns.end_only(&mut all);
            prop_assert_eq!(ended, only);
            if count == 1 {
                prop_assert!(all.iter().all(|member| !member.0.active));
                prop_assert_eq!(turns.pick(&mut all, 100), None);
                turns.begin(&mut all, 2, 100);
                prop_assert_eq!(turns.pick(&mut all, 100), Some(2));
            }
        }
    }
}
