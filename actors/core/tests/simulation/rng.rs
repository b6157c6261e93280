//! A reproducible random number generator: SplitMix64 with a seed.

pub(crate) struct SeededRng(u64);

impl SeededRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn next_below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("usize fits into u64");
        usize::try_from(self.next() % end).expect("less than a usize")
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.next_below(count) == 0
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.next_below(from.len())]
    }

    pub(crate) fn take_random<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        if from.is_empty() {
            return None;
        }
        let index = self.next_below(from.len());
        Some(from.swap_remove(index))
    }

    pub(crate) fn tricky_text(&mut self) -> String {
        (*self.pick(&TRICKY_TEXTS)).to_owned()
    }
}

/// Texts that reveal careless text handling.
pub(crate) const TRICKY_TEXTS: [&str; 10] = [
    "plain",
    "",
    "\u{0}\u{1b}[31m",
    "line\r\nline\u{2028}line",
    "\u{feff}é€😀\u{1F468}\u{200D}\u{1F469}",
    "\u{202e}evil\u{202c}",
    "\"quoted\" \\ back\\u0041slash",
    "{\"type\":\"run_completed\",\"payload\":{}}",
    "\u{ffff}\u{10ffff}\u{d7ff}",
    "e\u{301}\u{301}\u{301}",
];
