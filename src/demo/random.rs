//! Randomness that is the same for the same seed: names, identifiers and waiting
//! times of the demo. Never for secrets.

/// A xorshift64* generator (Vigna 2016): small, fast, and good enough for a demo.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that always fall the same way for one seed.
    pub fn new(seed: u64) -> Self {
        // splitmix64, so that neighbouring seeds give unlike sequences; xorshift must
        // not start at 0.
        let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((z ^ (z >> 31)).max(1))
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number from `low` to `high`, both included; `low` if the two are swapped.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        match high.checked_sub(low) {
            None | Some(0) => low,
            Some(width) => low + self.roll() % width.saturating_add(1),
        }
    }

    /// `count` characters as Kubernetes appends them to a generateName: without
    /// vowels, and without digits that look like letters.
    pub fn suffix(&mut self, count: usize) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..count)
            .map(|_| {
                let at = self.between(0, ALPHABET.len() as u64 - 1);
                char::from(ALPHABET[usize::try_from(at).unwrap_or(0)])
            })
            .collect()
    }

    /// A version 4 UUID.
    pub fn uuid(&mut self) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.roll().to_be_bytes());
        bytes[8..].copy_from_slice(&self.roll().to_be_bytes());
        uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_sequence_and_another_seed_another() {
        let roll = |seed| {
            let mut dice = Dice::new(seed);
            (dice.uuid(), dice.suffix(5), dice.between(1, 1_000_000))
        };
        assert_eq!(roll(1), roll(1));
        assert_ne!(roll(1), roll(2));
        assert_ne!(roll(0), roll(1));
    }

    #[test]
    fn between_stays_inside_its_limits() {
        let mut dice = Dice::new(7);
        for _ in 0..1_000 {
            assert!((3..=5).contains(&dice.between(3, 5)));
        }
        assert_eq!(dice.between(9, 9), 9);
        assert_eq!(dice.between(9, 3), 9);
        assert!(dice.between(1, u64::MAX) >= 1);
    }
}
