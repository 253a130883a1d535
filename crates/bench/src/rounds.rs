//! Measures two things in turn, again and again: a machine that has other things to do slows both down alike.

use crate::args::Plan;
use crate::report::Figure;
use crate::{Result, computer};

/// One round: what each side reached, and how long a sync of the disk took meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    ours: f64,
    limit: f64,
    sync_ms: f64,
}

impl Round {
    pub fn figure(self, unit: &'static str) -> Figure {
        let figure = Figure::new(self.ours, self.limit, unit);
        Figure {
            sync_ms: Some(self.sync_ms),
            ..figure
        }
    }
}

/// Runs a round to warm up, which does not count, and then as many as are asked for; answers the one whose ratio is in
/// the middle. Both figures are of the same round, a moment apart, so that their ratio means something.
pub async fn middle(
    plan: &Plan,
    mut limit: impl AsyncFnMut() -> Result<f64>,
    mut ours: impl AsyncFnMut() -> Result<f64>,
) -> Result<Round> {
    let mut measured = Vec::with_capacity(plan.rounds);
    for number in 0..=plan.rounds {
        let sync_ms = computer::sync_ms()?;
        let round = Round {
            limit: limit().await?,
            ours: ours().await?,
            sync_ms,
        };
        if number > 0 {
            let (Round { ours, limit, .. }, ratio) = (round, round.ours / round.limit);
            eprintln!(
                "  round {number}: abide {ours:.0}, limit {limit:.0}, ratio {ratio:.2}, sync {sync_ms:.2} ms"
            );
            measured.push(round);
        }
    }
    pick(measured).ok_or_else(|| "no round was measured".into())
}

fn pick(mut rounds: Vec<Round>) -> Option<Round> {
    rounds.sort_by(|a, b| (a.ours / a.limit).total_cmp(&(b.ours / b.limit)));
    rounds.get(rounds.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_round_in_the_middle_is_taken_whole() {
        let round = |ours, limit| Round {
            ours,
            limit,
            sync_ms: 0.1,
        };
        let rounds = vec![round(90.0, 100.0), round(10.0, 100.0), round(70.0, 100.0)];
        assert_eq!(pick(rounds), Some(round(70.0, 100.0)));
        assert_eq!(pick(Vec::new()), None);
    }
}
