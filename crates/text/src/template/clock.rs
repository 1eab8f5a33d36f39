//! `strftime` for templates that print the date, in UTC and English.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Writes `time`, in UTC, as the format of C's `strftime` says, in English.
/// `None` if the format has an unsupported directive.
pub(super) fn strftime(time: SystemTime, format: &str) -> Option<String> {
    let seconds = time.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let moment = Moment::new(seconds);
    let mut text = String::new();
    let mut characters = format.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next()? {
            '-' => {
                let mut padded = String::new();
                moment.write(characters.next()?, &mut padded)?;
                let number = padded.trim_start_matches('0');
                text.push_str(if number.is_empty() { "0" } else { number });
            }
            directive => moment.write(directive, &mut text)?,
        }
    }
    Some(text)
}

/// A point in time in the Gregorian calendar.
struct Moment {
    year: u64,
    /// From 1.
    month: usize,
    /// From 1.
    day: u64,
    /// From 1.
    day_of_year: u64,
    /// From 0, Sunday.
    weekday: usize,
    second_of_day: u64,
}

impl Moment {
    fn new(seconds: u64) -> Self {
        let days = seconds / 86_400;
        let (mut year, mut day) = (1970, days);
        while day >= days_of_year(year) {
            day -= days_of_year(year);
            year += 1;
        }
        let day_of_year = day + 1;
        let mut month = 0;
        while day >= days_of_month(year, month) {
            day -= days_of_month(year, month);
            month += 1;
        }
        Self {
            year,
            month: month + 1,
            day: day + 1,
            day_of_year,
            // 1 January 1970 was a Thursday.
            weekday: ((days + 4) % 7) as usize,
            second_of_day: seconds % 86_400,
        }
    }

    fn write(&self, directive: char, text: &mut String) -> Option<()> {
        let (hour, minute) = (self.second_of_day / 3600, self.second_of_day / 60 % 60);
        let (weekday, month) = (DAYS[self.weekday], MONTHS[self.month - 1]);
        match directive {
            'Y' => write!(text, "{}", self.year),
            'y' => write!(text, "{:02}", self.year % 100),
            'm' => write!(text, "{:02}", self.month),
            'B' => write!(text, "{month}"),
            'b' | 'h' => write!(text, "{}", &month[..3]),
            'd' => write!(text, "{:02}", self.day),
            'e' => write!(text, "{:2}", self.day),
            'j' => write!(text, "{:03}", self.day_of_year),
            'A' => write!(text, "{weekday}"),
            'a' => write!(text, "{}", &weekday[..3]),
            'H' => write!(text, "{hour:02}"),
            'I' => write!(text, "{:02}", (hour + 11) % 12 + 1),
            'p' => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
            'M' => write!(text, "{minute:02}"),
            'S' => write!(text, "{:02}", self.second_of_day % 60),
            'F' => return self.write_all("Y-m-d", text),
            'D' => return self.write_all("m/d/y", text),
            'T' => return self.write_all("H:M:S", text),
            'Z' => write!(text, "UTC"),
            'z' => write!(text, "+0000"),
            '%' => write!(text, "%"),
            _ => return None,
        }
        .ok()
    }

    /// Writes the directives named by letters, with what stands between them.
    fn write_all(&self, letters: &str, text: &mut String) -> Option<()> {
        for letter in letters.chars() {
            if letter.is_ascii_alphabetic() {
                self.write(letter, text)?;
            } else {
                text.push(letter);
            }
        }
        Some(())
    }
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: usize) -> u64 {
    match month {
        1 if is_leap(year) => 29,
        1 => 28,
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64, format: &str) -> Option<String> {
        strftime(UNIX_EPOCH + Duration::from_secs(seconds), format)
    }

    #[test]
    fn writes_dates_and_times() {
        let all = "%A %a %d %e %-d %B %b %m %-m %Y %y %j %H:%M:%S %I %p %F %D %T %Z %z %%";
        assert_eq!(at(0, "%A %d %B %Y %T").unwrap(), "Thursday 01 January 1970 00:00:00");
        assert_eq!(
            at(951_827_696, all).unwrap(),
            "Tuesday Tue 29 29 29 February Feb 02 2 2000 00 060 12:34:56 12 PM \
             2000-02-29 02/29/00 12:34:56 UTC +0000 %"
        );
        assert_eq!(at(4_107_542_399, "%d %b %Y %I%p").unwrap(), "28 Feb 2100 11PM");
        assert_eq!(at(4_107_542_400, "%d %b %Y %-H").unwrap(), "01 Mar 2100 0");
    }

    #[test]
    fn unknown_directives_are_refused() {
        assert_eq!(at(0, "%Q"), None);
        assert_eq!(at(0, "%"), None);
    }
}
