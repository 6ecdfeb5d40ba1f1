//! Calendar windows: hours, days, weeks and months of a zone.

use std::fmt;

/// The calendar window of a budget. Days begin at midnight, weeks on Monday.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Calendar {
    /// From one full hour to the next.
    Hour,
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first of a month to the first of the next.
    Month,
}

impl Calendar {
    pub(super) const ALL: [(Self, &'static str); 4] =
        [(Self::Hour, "hour"), (Self::Day, "day"), (Self::Week, "week"), (Self::Month, "month")];

    pub(super) fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(calendar, _)| *calendar == self).map_or("", |(_, name)| name)
    }
}

/// A calendar in a zone: it numbers the windows of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Era {
    pub(crate) calendar: Calendar,
    /// How far the zone is ahead of UTC.
    pub(crate) zone_minutes: i16,
}

/// Bits of a window's number: enough for hours until 2089, and for longer in the other calendars.
pub(super) const INDEX_BITS: u32 = 20;
const INDEX_MAX: u64 = (1 << INDEX_BITS) - 1;

const SECOND: i64 = 1_000_000_000;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

impl Era {
    /// The length of a window as reported; for months, that of the longest.
    pub(crate) const fn length_ns(self) -> u64 {
        let days = match self.calendar {
            Calendar::Hour => return (HOUR * SECOND) as u64,
            Calendar::Day => 1,
            Calendar::Week => 7,
            Calendar::Month => 31,
        };
        (days * DAY * SECOND) as u64
    }

    /// The number of the window at this time, in nanoseconds since 1970 UTC.
    /// Windows before 1970 are taken for the first, and those past the range
    /// for the last.
    pub(crate) fn index(self, unix_ns: i64) -> u64 {
        let seconds = unix_ns.div_euclid(SECOND).saturating_add(i64::from(self.zone_minutes) * 60);
        let days = seconds.div_euclid(DAY);
        let index = match self.calendar {
            Calendar::Hour => seconds.div_euclid(HOUR),
            Calendar::Day => days,
            // 1970 began on a Thursday.
            Calendar::Week => (days + 3).div_euclid(7),
            Calendar::Month => month_of(days),
        };
        u64::try_from(index).unwrap_or(0).min(INDEX_MAX)
    }

    /// When the window of this number ends.
    pub(crate) fn end(self, index: u64) -> i64 {
        let next = index as i64 + 1;
        let seconds = match self.calendar {
            Calendar::Hour => next * HOUR,
            Calendar::Day => next * DAY,
            Calendar::Week => (next * 7 - 3) * DAY,
            Calendar::Month => first_day_of(next) * DAY,
        };
        // A month of the year 89,000 is out of range.
        (seconds - i64::from(self.zone_minutes) * 60).saturating_mul(SECOND)
    }
}

/// Days since 1 March of the year 0: leap days then come at the end of a year.
const MARCH_OF_0: i64 = 719_468;
const DAYS_OF_400_YEARS: i64 = 146_097;

/// The number of the month of a day; both count from January 1970.
fn month_of(days: i64) -> i64 {
    let days = days + MARCH_OF_0;
    let (era, day) = (days.div_euclid(DAYS_OF_400_YEARS), days.rem_euclid(DAYS_OF_400_YEARS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    (era * 400 + year) * 12 + month_from_march + 2 - 1_970 * 12
}

/// The first day of a month; both count from January 1970.
fn first_day_of(month: i64) -> i64 {
    let from_march = month + 1_970 * 12 - 2;
    let (year, month) = (from_march.div_euclid(12), from_march.rem_euclid(12));
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5;
    era * DAYS_OF_400_YEARS + 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year - MARCH_OF_0
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.calendar.name())?;
        if self.zone_minutes == 0 {
            return Ok(());
        }
        let (sign, minutes) = (if self.zone_minutes < 0 { '-' } else { '+' }, self.zone_minutes.unsigned_abs());
        write!(f, " zone {sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn era(calendar: Calendar, zone_minutes: i16) -> Era {
        Era { calendar, zone_minutes }
    }

    /// Walks 130 years of days beside a second calendar.
    #[test]
    fn months_are_those_of_the_calendar() {
        let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let (mut year, mut month, mut day) = (1970, 0, 0);
        for days in 0..130 * 366 {
            let expected = (year - 1970) * 12 + month;
            assert_eq!(month_of(days), expected, "day {days}");
            if day == 0 {
                assert_eq!(first_day_of(expected), days);
            }
            let length = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            day += 1;
            if day == length[month as usize] {
                (month, day) = (month + 1, 0);
            }
            if month == 12 {
                (year, month) = (year + 1, 0);
            }
        }
    }

    #[test]
    fn a_window_ends_where_the_next_begins() {
        for (calendar, _) in Calendar::ALL {
            for zone in [0, 330, -480, 840, -720] {
                let era = era(calendar, zone);
                for index in [1, 2, 600, 1_000] {
                    let end = era.end(index);
                    assert_eq!((era.index(end - 1), era.index(end)), (index, index + 1), "{era:?}");
                }
                assert_eq!(era.index(i64::MAX), era.index(i64::MAX - 1));
            }
        }
    }

    #[test]
    fn days_are_those_of_the_zone_and_weeks_begin_on_monday() {
        // Sunday, 15 November 2026, 23:30 UTC.
        let sunday = 1_794_785_400 * SECOND;
        let day = |zone| era(Calendar::Day, zone).index(sunday);
        assert_eq!((day(60), day(-60), day(29), day(30)), (day(0) + 1, day(0), day(0), day(0) + 1));
        let week = |time| era(Calendar::Week, 0).index(time);
        assert_eq!((week(sunday + 1_800 * SECOND), week(sunday - 6 * DAY * SECOND)), (week(sunday) + 1, week(sunday)));
    }
}
