//! Whole numbers as text, without memory of their own.

/// The decimal digits of a number.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; 20],
    /// Where they begin.
    start: usize,
}

impl Decimal {
    /// Spells a number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        let (mut digits, mut left) = ([b'0'; 20], number);
        let mut start = digits.len();
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + u8::try_from(left % 10).unwrap_or_default();
            (left, start) = (left / 10, at);
            if left == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        self.digits.get(self.start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Decimal;

    #[test]
    fn numbers_are_spelled_as_usual() {
        for number in [0, 7, 10, 99, 100, 4711, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(Decimal::new(number).as_slice(), number.to_string().as_bytes());
        }
    }
}
