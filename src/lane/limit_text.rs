//! The text of a limit. Each kind reads and writes what follows its keyword.

use super::bucket::BucketTerms;
use super::budget::BudgetTerms;
use super::dynamic::DynamicTerms;
use super::exact::ExactTerms;
use super::held::HeldTerms;
use super::limit::{Limit, Written};
use super::limit_error::LimitError;
use super::text::Parts;
use super::window::WindowTerms;
use std::fmt;
use std::str::FromStr;

const DENY: &str = "deny";
const UNLIMITED: &str = "unlimited";

impl fmt::Display for Limit {
    /// Writes the text form, which parses back to the same limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.terms() {
            Some(terms) => terms.fmt(f),
            None => f.write_str(if self.is_unlimited() { UNLIMITED } else { DENY }),
        }
    }
}

impl FromStr for Limit {
    type Err = LimitError;

    /// Reads `"10/second burst 20"`, `"60/min"`, `"5 per 5 minutes"`,
    /// `"window 100/min"`, `"exact 5/5min"`, `"budget 10_000/day"`,
    /// `"budget 10_000/day zone +02:00"`, `"held 3"`, `"dynamic"`,
    /// `"dynamic 60/min"`, `"deny"` or `"unlimited"`. A bucket may end in `"oversize debt"` or `"oversize
    /// reject"`, the default. Numbers may have underscores; the numbers are
    /// checked too.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let syntax = || LimitError::Syntax { text: text.chars().take(80).collect() };
        let mut parts = Parts(text.trim());
        let written = match parts.word() {
            BucketTerms::KEYWORD => BucketTerms::read(&mut parts)?.map(Written::Bucket),
            WindowTerms::KEYWORD => WindowTerms::read(&mut parts)?.map(Written::Window),
            ExactTerms::KEYWORD => ExactTerms::read(&mut parts)?.map(Written::Exact),
            BudgetTerms::KEYWORD => BudgetTerms::read(&mut parts)?.map(Written::Budget),
            DynamicTerms::KEYWORD => DynamicTerms::read(&mut parts)?.map(Written::Dynamic),
            HeldTerms::KEYWORD => HeldTerms::read(&mut parts)?.map(Written::Held),
            DENY => Some(Written::DenyAll),
            UNLIMITED => Some(Written::Unlimited),
            _ => None,
        };
        let limit = Self(written.ok_or_else(syntax)?);
        if !matches!(limit.0, Written::Bucket(_)) && parts.take("oversize") {
            return Err(LimitError::Oversize { limit: limit.to_string() });
        }
        if !parts.0.is_empty() {
            return Err(syntax());
        }
        limit.validate()?;
        Ok(limit)
    }
}

impl TryFrom<&str> for Limit {
    type Error = LimitError;

    fn try_from(text: &str) -> Result<Self, LimitError> {
        text.parse()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::lane::Calendar;
    use std::time::Duration;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn reads_what_people_write() {
        for (text, limit) in [
            ("60/min", Limit::per_minute(60)),
            (" 60 / minute ", Limit::per_minute(60)),
            ("1_000/s burst 2_000", Limit::per_second(1_000).burst(2_000)),
            ("5 per 5 minutes", Limit::new(5, Duration::from_secs(300))),
            ("3/300s", Limit::new(3, Duration::from_secs(300))),
            ("1/day", Limit::per_day(1)),
            ("5/s oversize debt", Limit::per_second(5).oversize_debt()),
            ("5 per 5 s burst 7 oversize  debt", Limit::new(5, Duration::from_secs(5)).burst(7).oversize_debt()),
            ("5/s burst 5 oversize reject", Limit::per_second(5)),
            ("7/250ms burst 1", Limit::new(7, Duration::from_millis(250)).burst(1)),
            ("deny", Limit::deny_all()),
            ("window 100/min", Limit::window(100, MINUTE)),
            (" window 3 per 300 s ", Limit::window(3, Duration::from_secs(300))),
            ("exact 5/5min", Limit::exact(5, Duration::from_secs(300))),
            ("budget 10_000/day", Limit::budget(10_000, Calendar::Day)),
            ("budget 1 per hour", Limit::budget(1, Calendar::Hour)),
            ("budget 5/week zone +05:30", Limit::budget(5, Calendar::Week).zone_minutes(330)),
            ("budget 5/month zone -8:00", Limit::budget(5, Calendar::Month).zone_minutes(-480)),
            ("held 3", Limit::held(3)),
            ("dynamic", Limit::dynamic()),
            (" dynamic 60 / min burst  5 ", Limit::per_minute(60).burst(5).unless_given()),
            ("unlimited", Limit::unlimited()),
        ] {
            assert_eq!(text.parse(), Ok(limit), "{text}");
            assert_eq!(limit.to_string().parse(), Ok(limit), "{limit}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_limit() {
        for text in [
            "",
            "60",
            "60/",
            "/min",
            "60/fortnight",
            "60/min burst",
            "60/min burst 5 x",
            "60/min oversize",
            "60/min oversize debts",
            "60/min oversize debt burst 5",
            "60/min oversize debt oversize debt",
            "60/min debt",
            "-1/s",
            "1.5/s",
            "_/s",
            "window",
            "window 5",
            "window 5/s burst 3",
            "deny all",
            "windows 1/s",
            "dynamic 5",
            "dynamic budget 5/day",
            "dynamic deny",
        ] {
            assert!(matches!(text.parse::<Limit>(), Err(LimitError::Syntax { .. })), "{text:?}");
        }
    }

    #[test]
    fn only_a_bucket_goes_into_debt() {
        for text in ["window 5/second", "exact 5/minute", "budget 5/day", "held 5", "dynamic 5/second", "deny"] {
            let error = format!("{text} oversize debt").parse::<Limit>().expect_err("only a bucket");
            assert!(error.to_string().starts_with(&format!("{text:?} can't have \"oversize\"")), "{error}");
            let limit: Limit = text.parse().unwrap();
            assert_eq!((limit.oversize_debt(), limit.takes_oversize()), (limit, false));
        }
    }

    #[test]
    fn a_number_past_every_range_is_named() {
        for (text, expected) in [
            ("99999999999999999999/s", "99999999999999999999"),
            ("1/99999999999999999999s", "99999999999999999999"),
            ("1/s burst 99_999_999_999_999_999_999", "99_999_999_999_999_999_999"),
            ("1/300000days", "300000d"),
        ] {
            assert_eq!(text.parse::<Limit>(), Err(LimitError::TooLarge { number: expected.into() }), "{text}");
        }
    }
}
