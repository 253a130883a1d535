//! Measures two things in turn, again and again: a machine that has other things to do slows both down alike.

use crate::Result;

/// One round: what each side reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    pub ours: f64,
    pub limit: f64,
}

/// Runs a round to warm up, which does not count, and then as many as are asked for; answers the one whose ratio is in
/// the middle. Both figures are of the same round, a moment apart, so that their ratio means something.
pub async fn middle(
    rounds: usize,
    mut measure: impl AsyncFnMut() -> Result<Round>,
) -> Result<Round> {
    measure().await?;
    let mut measured = Vec::with_capacity(rounds);
    for number in 1..=rounds {
        let round = measure().await?;
        let Round { ours, limit } = round;
        eprintln!(
            "  round {number}: abide {ours:.0}, limit {limit:.0}, ratio {:.2}",
            ours / limit
        );
        measured.push(round);
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
        let round = |ours, limit| Round { ours, limit };
        let rounds = vec![round(90.0, 100.0), round(10.0, 100.0), round(70.0, 100.0)];
        assert_eq!(pick(rounds), Some(round(70.0, 100.0)));
        assert_eq!(pick(Vec::new()), None);
    }
}
