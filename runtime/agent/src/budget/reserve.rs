//! Reservations: concurrent operations never use more in total than the budget has.
//!
//! Every operation that uses the budget first requests the maximum that it can use. Requests are granted in order. One
//! that does not fit waits until a running operation has ended; if nothing is reserved of the resource it lacks, it is
//! granted the rest, or refused if nothing is left. Operations that hold a grant never wait for others, so that all of
//! them end.
//!
//! A reservation has three stages: waiting, held, and charged until the session's own account ([`super::Spent`])
//! includes its use.

use std::collections::{BTreeMap, VecDeque};

use toolcell_core::RemainingBudget;

/// Identifier of a reservation.
pub(crate) type Ticket = u64;

/// Names of the resources that are summed over all operations.
const UNITS: [&str; 6] = [
    "fuel",
    "tool time",
    "calls",
    "bytes of results",
    "tokens",
    "money",
];

/// Amount of each of [`UNITS`].
pub(crate) type Amounts = [u64; UNITS.len()];

/// Limit for each of [`UNITS`]; `None` means unlimited or unknown.
type Bounds = [Option<u64>; UNITS.len()];

/// A resource is used up and none of it is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exhausted(pub(crate) &'static str);

/// Decision on a reservation: the granted limits, or the reason for the refusal.
pub(crate) type Grant = Result<RemainingBudget, Exhausted>;

/// Reservations of one session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reservations {
    /// Remaining budget after the counted use, without regard to reservations.
    left: RemainingBudget,
    waiting: VecDeque<(Ticket, Bounds)>,
    held: BTreeMap<Ticket, Amounts>,
    charged: BTreeMap<Ticket, Amounts>,
    next: Ticket,
}

impl Reservations {
    pub(crate) fn new(left: RemainingBudget) -> Self {
        Self {
            left,
            ..Self::default()
        }
    }

    /// Requests up to `most`. [`Reservations::decide`] returns the decision.
    pub(crate) fn ask(&mut self, most: &RemainingBudget) -> Ticket {
        self.next += 1;
        self.waiting.push_back((self.next, bounds(most)));
        self.next
    }

    /// Decides on requests that need not wait any longer, in order.
    pub(crate) fn decide(&mut self) -> Vec<(Ticket, Grant)> {
        let mut decided = Vec::new();
        while let Some((ticket, most)) = self.waiting.front() {
            let ticket = *ticket;
            let Some(grant) = self.try_grant(most) else {
                break;
            };
            self.waiting.pop_front();
            let grant = grant.map(|bounds| {
                self.held
                    .insert(ticket, bounds.map(|bound| bound.unwrap_or_default()));
                self.as_left(bounds)
            });
            decided.push((ticket, grant));
        }
        decided
    }

    /// Grant for a request of at most `most`; `None` if it has to wait.
    fn try_grant(&self, most: &Bounds) -> Option<Result<Bounds, Exhausted>> {
        let free = self.free();
        let held = sum(self.held.values());
        let mut grant = Bounds::default();
        for (i, unit) in UNITS.into_iter().enumerate() {
            let Some(free) = free[i] else { continue };
            let wants = most[i].unwrap_or(u64::MAX);
            if wants > free && held[i] > 0 {
                return None;
            }
            if wants > 0 && free == 0 {
                return Some(Err(Exhausted(unit)));
            }
            grant[i] = Some(wants.min(free));
        }
        Some(Ok(grant))
    }

    /// Neither used nor reserved.
    fn free(&self) -> Bounds {
        let taken = sum(self.held.values().chain(self.charged.values()));
        let mut free = bounds(&self.left);
        for (free, taken) in free.iter_mut().zip(taken) {
            *free = free.map(|free| free.saturating_sub(taken));
        }
        free
    }

    fn as_left(&self, [fuel, call_ms, calls, bytes, tokens, cost_micros]: Bounds) -> RemainingBudget {
        RemainingBudget {
            fuel,
            wall_ms: self.left.wall_ms,
            call_ms,
            calls,
            bytes,
            tokens,
            cost_micros,
            prices: self.left.prices,
        }
    }

    /// Ends a reservation; `used` is charged until it is counted.
    pub(crate) fn end(&mut self, ticket: Ticket, used: Amounts) {
        if self.held.remove(&ticket).is_some() {
            self.charged.insert(ticket, used);
        }
    }

    /// Removes charges that the session's own account now includes; `left` remains after them.
    pub(crate) fn count(&mut self, left: RemainingBudget, tickets: impl IntoIterator<Item = Ticket>) {
        self.left = left;
        for ticket in tickets {
            self.forget(ticket);
        }
    }

    /// Withdraws a reservation that did not start, or used nothing.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.waiting.retain(|(waiting, _)| *waiting != ticket);
        self.held.remove(&ticket);
        self.charged.remove(&ticket);
    }

    /// True if no reservation waits, is held or charged.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty() && self.charged.is_empty()
    }
}

fn bounds(left: &RemainingBudget) -> Bounds {
    [
        left.fuel,
        left.call_ms,
        left.calls,
        left.bytes,
        left.tokens,
        left.cost_micros,
    ]
}

fn sum<'a>(amounts: impl Iterator<Item = &'a Amounts>) -> Amounts {
    let mut sum = Amounts::default();
    for amounts in amounts {
        for (sum, amount) in sum.iter_mut().zip(amounts) {
            *sum = sum.saturating_add(*amount);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fuel(fuel: u64) -> RemainingBudget {
        RemainingBudget {
            fuel: Some(fuel),
            ..RemainingBudget::default()
        }
    }

    fn need(fuel: u64) -> RemainingBudget {
        RemainingBudget {
            fuel: Some(fuel),
            ..RemainingBudget::NOTHING
        }
    }

    fn used(fuel: u64) -> Amounts {
        [fuel, 0, 0, 0, 0, 0]
    }

    fn granted(decided: &[(Ticket, Grant)]) -> Vec<Option<u64>> {
        decided
            .iter()
            .map(|(_, grant)| grant.ok().and_then(|grant| grant.fuel))
            .collect()
    }

    #[test]
    fn request_that_does_not_fit_waits() {
        let mut all = Reservations::new(fuel(100));
        let first = all.ask(&need(60));
        all.ask(&need(40));
        all.ask(&need(1));
        assert_eq!(granted(&all.decide()), [Some(60), Some(40)]);
        all.end(first, used(59));
        assert_eq!(granted(&all.decide()), [Some(1)]);
    }

    #[test]
    fn last_request_gets_the_rest_or_is_refused() {
        let mut all = Reservations::new(fuel(100));
        let first = all.ask(&need(1_000));
        let second = all.ask(&need(1_000));
        all.ask(&need(1_000));
        assert_eq!(granted(&all.decide()), [Some(100)]);
        all.end(first, used(30));
        assert_eq!(granted(&all.decide()), [Some(70)]);
        all.end(second, used(70));
        assert_eq!(all.decide(), [(3, Err(Exhausted("fuel")))]);
    }

    #[test]
    fn request_without_need_does_not_wait() {
        let mut all = Reservations::new(fuel(100));
        all.ask(&RemainingBudget::default());
        all.ask(&need(0));
        assert_eq!(granted(&all.decide()), [Some(100), Some(0)]);
    }

    #[test]
    fn everything_runs_without_a_budget() {
        let mut all = Reservations::new(RemainingBudget::default());
        for _ in 0..9 {
            all.ask(&RemainingBudget::default());
        }
        assert_eq!(granted(&all.decide()), [None; 9]);
    }

    #[test]
    fn use_is_charged_until_it_is_counted() {
        let mut all = Reservations::new(fuel(100));
        let first = all.ask(&need(50));
        all.decide();
        all.end(first, used(20));
        all.ask(&need(90));
        assert_eq!(granted(&all.decide()), [Some(80)]);
        all.count(fuel(80), [first]);
        assert_eq!(all.free()[0], Some(0));
    }

    #[derive(Debug, Clone)]
    enum Move {
        Ask(Option<u64>),
        /// A running one ends and has used this share, in percent.
        End(usize, u64),
        Count,
        Cancel(usize),
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            4 => proptest::option::of(0..60_u64).prop_map(Move::Ask),
            3 => (any::<usize>(), 0..=100_u64).prop_map(|(which, share)| Move::End(which, share)),
            2 => Just(Move::Count),
            1 => any::<usize>().prop_map(Move::Cancel),
        ];
        proptest::collection::vec(one, 0..80)
    }

    proptest! {
        /// Starts, ends, failures, cancellations and kills in any order.
        #[test]
        fn no_interleaving_exceeds_the_budget(budget in 0..200_u64, moves in moves()) {
            let mut all = Reservations::new(fuel(budget));
            let (mut spent, mut waiting, mut running, mut ended) = (0, Vec::new(), Vec::new(), Vec::new());
            let mut uncounted = 0;
            let end = moves.len();
            // Finally everything that runs ends, until nothing waits any more.
            let rest = std::iter::repeat_n([Move::End(0, 100), Move::Count], 2 * end).flatten();
            for step in moves.into_iter().chain(rest) {
                match step {
                    Move::Ask(most) => {
                        waiting.push(all.ask(&RemainingBudget { fuel: most, ..RemainingBudget::default() }));
                    }
                    Move::End(which, share) if !running.is_empty() => {
                        let (ticket, grant): (Ticket, u64) = running.remove(which % running.len());
                        let fuel = grant * share / 100;
                        all.end(ticket, used(fuel));
                        uncounted += fuel;
                        ended.push(ticket);
                    }
                    Move::Count => {
                        spent += std::mem::take(&mut uncounted);
                        all.count(fuel(budget.saturating_sub(spent)), ended.drain(..));
                    }
                    Move::Cancel(which) if !waiting.is_empty() => {
                        all.forget(waiting.remove(which % waiting.len()));
                    }
                    _ => {}
                }
                for (ticket, grant) in all.decide() {
                    prop_assert_eq!(waiting.remove(0), ticket, "in their order");
                    match grant {
                        Ok(grant) => running.push((ticket, grant.fuel.unwrap())),
                        Err(Exhausted(unit)) => prop_assert_eq!(unit, "fuel"),
                    }
                }
                let reserved: u64 = running.iter().map(|(_, fuel)| fuel).sum();
                prop_assert!(spent + uncounted + reserved <= budget);
                prop_assert!(waiting.is_empty() || !running.is_empty(), "no request waits without cause");
            }
            prop_assert!(waiting.is_empty() && running.is_empty());
            prop_assert!(all.is_empty(), "nothing leaks");
        }
    }
}
