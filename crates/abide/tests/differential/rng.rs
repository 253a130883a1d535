//! Random numbers that are the same for the same seed.

/// A splitmix generator: small, and the same everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        (self.next_u64() % u64::from(end.max(1))) as u32
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: u32, to: u32) -> u32 {
        from + self.below(to - from + 1)
    }

    /// `true` with that probability, in percent.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }
}
