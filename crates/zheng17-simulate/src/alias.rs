//! Walker's alias method: a draw out of any number of weights takes one random number and one look into a table.

/// A table to draw positions from, each as often as its weight says.
#[derive(Debug, Clone)]
pub(crate) struct AliasTable {
    /// For each position how much of it is its own, out of 2^32, and which position has the rest.
    places: Vec<(u32, u32)>,
}

impl AliasTable {
    /// A table for weights that are positive and finite; at least one and fewer than 2^32.
    pub(crate) fn new(weights: &[f64]) -> Self {
        let n = weights.len();
        let total: f64 = weights.iter().sum();
        let mut share: Vec<f64> = weights.iter().map(|weight| weight / total * n as f64).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..n as u32).partition(|&at| share[at as usize] < 1.0);
        let mut places: Vec<(u32, u32)> = (0..n as u32).map(|at| (u32::MAX, at)).collect();
        while let (Some(&below), Some(&above)) = (small.last(), large.last()) {
            small.pop();
            places[below as usize] = ((share[below as usize] * 4_294_967_296.0) as u32, above);
            share[above as usize] -= 1.0 - share[below as usize];
            if share[above as usize] < 1.0 {
                large.pop();
                small.push(above);
            }
        }
        Self { places }
    }

    /// The position that a uniform random number stands for.
    pub(crate) fn draw(&self, random: u64) -> u32 {
        let at = ((random >> 32) * self.places.len() as u64) >> 32;
        let (own, other) = self.places[at as usize];
        if (random as u32) < own { at as u32 } else { other }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_come_as_often_as_their_weight() {
        let weights = [1.0, 0.001, 3.0, 0.5, 0.5, 7.0];
        let table = AliasTable::new(&weights);
        // Evenly spread numbers instead of random ones: the shares must then be right to the spacing.
        let n = 6 << 16;
        let mut counts = [0_u32; 6];
        for at in 0..6_u64 {
            for low in 0..(n / 6) as u64 {
                let high = at * (1 << 32) / 6 + 1;
                counts[table.draw(high << 32 | low << 16) as usize] += 1;
            }
        }
        let total: f64 = weights.iter().sum();
        for (count, weight) in counts.iter().zip(weights) {
            let expected = weight / total * f64::from(n);
            assert!((f64::from(*count) - expected).abs() <= 8.0, "{count} instead of {expected}");
        }
    }

    #[test]
    fn one_weight_is_always_drawn() {
        let table = AliasTable::new(&[0.25]);
        assert_eq!(table.draw(0), 0);
        assert_eq!(table.draw(u64::MAX), 0);
    }
}
