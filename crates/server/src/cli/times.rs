//! Times for people: `2 h ago`, `in 58 min`; and the durations that are given as `90s`, `1h30m`.

use std::time::Duration;

use abide::time::Timestamp;
use jiff::SpanRelativeTo;
use jiff::fmt::friendly::SpanParser;
use jiff::tz::{Offset, TimeZone};

/// Formats a duration in its two largest units at most: `2 h`, `1 d 4 h`, `58 min`, `3 s`, `40 ms`.
pub fn length(time: Duration) -> String {
    let seconds = time.as_secs();
    let two = |large: u64, unit: &str, small: u64, name: &str| match small {
        0 => format!("{large} {unit}"),
        small => format!("{large} {unit} {small} {name}"),
    };
    match seconds {
        0 => format!("{} ms", time.as_millis()),
        1..60 => format!("{seconds} s"),
        60..600 => two(seconds / 60, "min", seconds % 60, "s"),
        600..3_600 => format!("{} min", seconds / 60),
        3_600..36_000 => two(seconds / 3_600, "h", seconds / 60 % 60, "min"),
        36_000..86_400 => format!("{} h", seconds / 3_600),
        86_400..864_000 => two(seconds / 86_400, "d", seconds / 3_600 % 24, "h"),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// Formats a time relative to `now`: `2 h ago`, `in 3 min`, `now`.
pub fn relative(moment: Timestamp, now: Timestamp) -> String {
    const NOW: Duration = Duration::from_secs(1);
    let (past, ahead) = (now.since(moment), moment.since(now));
    if past < NOW && ahead < NOW {
        "now".to_owned()
    } else if past >= NOW {
        format!("{} ago", length(past))
    } else {
        format!("in {}", length(ahead))
    }
}

/// Formats a time as RFC 3339, to the millisecond: in the time zone of the computer (`TZ`), or in UTC.
pub fn exact(moment: Timestamp, utc: bool) -> String {
    // A zero offset is written as `Z`.
    let printer = jiff::fmt::temporal::DateTimePrinter::new().precision(Some(3));
    let Ok(moment) = jiff::Timestamp::from_microsecond(moment.as_micros()) else {
        return moment.to_string();
    };
    let zone = match utc {
        true => TimeZone::UTC,
        false => TimeZone::system(),
    };
    match zone.to_offset(moment) {
        Offset::UTC => printer.timestamp_to_string(&moment),
        offset => printer.timestamp_with_offset_to_string(&moment, offset),
    }
}

/// Parses a duration: `500ms`, `90s`, `1h30m`, `7d`, `2w`.
pub fn parse_length(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration: write 500ms, 90s, 15m, 1h30m, 7d or 2w");
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let span = SpanParser::new().parse_span(text.trim()).ok();
    let signed = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    signed
        .and_then(|signed| Duration::try_from(signed).ok())
        .ok_or_else(wrong)
}

/// Parses a time in RFC 3339.
pub fn parse_moment(text: &str) -> Result<Timestamp, String> {
    serde_json::from_value(serde_json::Value::from(text)).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_shown_in_two_units_at_most() {
        let shown = |seconds| length(Duration::from_secs(seconds));
        assert_eq!(length(Duration::from_millis(40)), "40 ms");
        assert_eq!(
            [shown(3), shown(61), shown(3_480)],
            ["3 s", "1 min 1 s", "58 min"]
        );
        assert_eq!([shown(7_200), shown(5_400)], ["2 h", "1 h 30 min"]);
        assert_eq!([shown(100_800), shown(8_640_000)], ["1 d 4 h", "100 d"]);
    }

    #[test]
    fn moments_are_shown_relative_to_now() {
        let now = Timestamp::from_micros(0);
        assert_eq!(relative(now - Duration::from_secs(7_200), now), "2 h ago");
        assert_eq!(relative(now + Duration::from_secs(180), now), "in 3 min");
        assert_eq!(relative(now + Duration::from_millis(300), now), "now");
    }

    #[test]
    fn moments_are_shown_with_milliseconds_always() {
        for (micros, shown) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_500_000, "1970-01-01T00:00:01.500Z"),
            (1_999_999, "1970-01-01T00:00:01.999Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            let moment = Timestamp::from_micros(micros);
            assert_eq!(exact(moment, true), shown);
        }
        // The last moment that there is.
        let last = exact(Timestamp::from_micros(i64::MAX), true);
        assert!(
            last.starts_with("9999-12-30T") && last.ends_with(".000Z"),
            "{last}"
        );
    }

    #[test]
    fn lengths_are_read_and_what_is_none_is_refused_with_examples() {
        assert_eq!(parse_length("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse_length("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_length("0"), Ok(Duration::ZERO));
        assert_eq!(parse_length("7d"), Ok(Duration::from_secs(604_800)));
        assert_eq!(parse_length(" 2 w "), Ok(Duration::from_secs(1_209_600)));
        let wrongs = [
            "",
            "1",
            "h",
            "1x",
            "-1s",
            "1h-",
            "1h ago",
            "1mo",
            "1y",
            "99999999999999999999s",
        ];
        for wrong in wrongs {
            assert!(
                parse_length(wrong).is_err_and(|error| error.contains("90s")),
                "{wrong}"
            );
        }
    }
}
