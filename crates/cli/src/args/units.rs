//! Values with units.

/// Bytes with an optional suffix: `512M`, `4GiB`, `1.5G`. Suffixes are powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let wanted = || format!("{text:?} is not a size such as 800M, 4G or 4GiB");
    let number: f64 = number.parse().map_err(|_| wanted())?;
    let suffix = suffix.trim().to_ascii_lowercase();
    let power = match suffix.trim_end_matches("ib").trim_end_matches('b') {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(wanted()),
    };
    let bytes = number * 1024f64.powi(power);
    if bytes >= 1.0 && bytes < 2f64.powi(63) { Ok(bytes as u64) } else { Err(wanted()) }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_read() {
        let good = [
            ("1", 1),
            ("2k", 2048),
            ("800M", 800 << 20),
            ("1.5G", 3 << 29),
            ("4GiB", 4 << 30),
            ("4 gb", 4 << 30),
        ];
        for (text, value) in good {
            assert_eq!(bytes(text), Ok(value), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "G", "0", "-1", "4X", "1e3", "1.2.3M", "99999999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
