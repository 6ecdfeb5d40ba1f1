//! One key of a table: reads its value, or refuses it with what is allowed.

use crate::address::{self, Address, Listen};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;
use tollgate::bounds::ID_BYTES_MAX;
use tollgate::{ConfigError, OnFull};
use tollgate_tower::address::Networks;
use toml::Spanned;
use toml::de::{DeString, DeValue};

pub(super) type Value<'t> = Spanned<DeValue<'t>>;

/// What a valid token looks like, for errors.
pub(super) const TOKEN: &str = "a token of 16 to 256 letters, digits and signs, without white space";

/// Checks that a text can be a token: too long to be guessed, and of characters
/// that a header can carry.
///
/// # Errors
///
/// With what a valid token looks like.
pub(crate) fn check_token(text: &str) -> Result<(), String> {
    if (16..=256).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(format!("a token of {} bytes; give {TOKEN}", text.len()))
}

/// Where a table is: the file's text and its directory.
pub(super) struct Section<'a> {
    pub(super) text: &'a str,
    pub(super) name: &'a str,
    pub(super) directory: &'a Path,
}

impl Section<'_> {
    /// The keys of the table with their values, in the order of the file.
    pub(super) fn entries<'v, 't>(
        &self,
        value: &'v Value<'t>,
        keys: &[&str],
    ) -> Result<Vec<(&'v str, &'v Value<'t>)>, ConfigError> {
        let Section { text, name: table, .. } = *self;
        let Some(found) = value.get_ref().as_table() else {
            return Err(ConfigError::new(text, value.span(), format!("{table} is not a table; write [{table}]")));
        };
        let mut entries: Vec<_> = found.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let entry = |(key, value): (&'v toml::Spanned<DeString<'t>>, &'v Value<'t>)| {
            let name = key.get_ref().as_ref();
            if keys.contains(&name) {
                return Ok((name, value));
            }
            let seen: String = name.chars().take(40).collect();
            let message = format!("{table} has no key {seen:?}; allowed: {}", keys.join(", "));
            Err(ConfigError::new(text, key.span(), message))
        };
        entries.into_iter().map(entry).collect()
    }
}

/// One key of a table with its value.
pub(super) struct Entry<'a, 't> {
    pub(super) section: &'a Section<'a>,
    pub(super) name: &'a str,
    pub(super) value: &'a Value<'t>,
}

impl Entry<'_, '_> {
    pub(super) fn error(&self, problem: String) -> ConfigError {
        let Section { text, name: table, .. } = self.section;
        ConfigError::new(text, self.value.span(), format!("{table}.{}: {problem}", self.name))
    }

    /// The same for a value that may be secret: the location is shown, and not the value.
    pub(super) fn error_about_secret(&self, problem: &str) -> ConfigError {
        let Section { text, name: table, .. } = self.section;
        let at = self.value.span();
        let (before, rest) = text.split_at_checked(at.start).unwrap_or((text, ""));
        let (value, after) = rest.split_at_checked(at.len()).unwrap_or((rest, ""));
        let hidden: String = value.chars().map(|c| if c == '\n' { c } else { '*' }).collect();
        let text = format!("{before}{hidden}{after}");
        ConfigError::new(&text, before.len()..before.len() + hidden.len(), format!("{table}.{}: {problem}", self.name))
    }

    pub(super) fn wrong(&self, wanted: &str) -> ConfigError {
        let kind = self.value.get_ref().type_str();
        self.error(format!("this is of type {kind}; give {wanted}"))
    }

    pub(super) fn string(&self, wanted: &str) -> Result<&str, ConfigError> {
        self.value.get_ref().as_str().ok_or_else(|| self.wrong(wanted))
    }

    pub(super) fn boolean(&self) -> Result<bool, ConfigError> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong("true or false"))
    }

    pub(super) fn integer(&self, allowed: RangeInclusive<u64>) -> Result<u64, ConfigError> {
        let range = format!("a whole number, {} to {}", allowed.start(), allowed.end());
        let DeValue::Integer(integer) = self.value.get_ref() else { return Err(self.wrong(&range)) };
        let number = u64::from_str_radix(integer.as_str(), integer.radix()).ok();
        number
            .filter(|number| allowed.contains(number))
            .ok_or_else(|| self.error(format!("out of range; give {range}")))
    }

    /// One address or a list of them; relative paths of sockets start from the file's directory.
    pub(super) fn listen(&self) -> Result<Listen, ConfigError> {
        let wanted = || self.wrong(&format!("{}; or a list of such", address::WANTED));
        let read = |value: &Value<'_>| self.address_of(value.get_ref().as_str().ok_or_else(wanted)?);
        let Some(list) = self.value.get_ref().as_array() else {
            return read(self.value).map(|address| Listen::new(address, []));
        };
        let mut all = list.iter().map(read).collect::<Result<Vec<_>, _>>()?.into_iter();
        all.next().map(|first| Listen::new(first, all)).ok_or_else(wanted)
    }

    /// One address.
    pub(super) fn one_address(&self) -> Result<Address, ConfigError> {
        self.address_of(self.string(address::WANTED)?)
    }

    fn address_of(&self, text: &str) -> Result<Address, ConfigError> {
        let address: Address = text.parse().map_err(|problem| self.error(problem))?;
        Ok(address.within(self.section.directory))
    }

    /// A name; its error lists the known ones.
    pub(super) fn named<T: FromStr<Err: std::fmt::Display>>(&self) -> Result<T, ConfigError> {
        self.string("a name")?.parse().map_err(|error: T::Err| self.error(error.to_string()))
    }

    pub(super) fn on_full(&self) -> Result<OnFull, ConfigError> {
        match self.string("\"evict\" or \"deny\"")? {
            "evict" => Ok(OnFull::Evict),
            "deny" => Ok(OnFull::Deny),
            other => Err(self.error(format!("{other:?}; allowed: \"evict\" and \"deny\""))),
        }
    }

    pub(super) fn hosts(&self) -> Result<Vec<String>, ConfigError> {
        let wanted = "a list of host names, such as [\"tollgate.example.com\"]";
        let hosts = self.value.get_ref().as_array().ok_or_else(|| self.wrong(wanted))?;
        let host = |value: &Value<'_>| match value.get_ref().as_str() {
            Some(host) if is_host_name(host) => Ok(host.to_ascii_lowercase()),
            _ => Err(self.error(format!("each is a name without scheme and port; give {wanted}"))),
        };
        hosts.iter().map(host).collect()
    }

    /// Trusted networks; a network that includes every address is refused.
    pub(super) fn networks(&self) -> Result<Networks, ConfigError> {
        let wanted = "a list of networks, such as [\"10.0.0.0/8\", \"192.0.2.7\"]";
        let texts = self.value.get_ref().as_array().ok_or_else(|| self.wrong(wanted))?;
        let texts: Option<Vec<_>> = texts.iter().map(|text| text.get_ref().as_str()).collect();
        let texts = texts.ok_or_else(|| self.error(format!("each is a text; give {wanted}")))?;
        let networks = Networks::parse(texts).map_err(|error| self.error(error.to_string()))?;
        match networks.catch_all() {
            None => Ok(networks),
            Some(network) => {
                let advice = "lets every client choose its address; list the networks of your proxies";
                Err(self.error(format!("to trust {network} {advice}")))
            }
        }
    }

    pub(super) fn agents(&self) -> Result<Vec<String>, ConfigError> {
        let wanted = "a list of up to 100 agents' ids";
        let agents = self.value.get_ref().as_array().filter(|agents| agents.len() <= 100);
        let agents = agents.ok_or_else(|| self.wrong(wanted))?;
        let agent = |value: &Value<'_>| match value.get_ref().as_str() {
            Some(agent) if (1..=ID_BYTES_MAX).contains(&agent.len()) => Ok(agent.to_owned()),
            _ => Err(self.error(format!("an id has 1 to {ID_BYTES_MAX} bytes; give {wanted}"))),
        };
        agents.iter().map(agent).collect()
    }

    pub(super) fn path(&self) -> Result<PathBuf, ConfigError> {
        let path = self.string("a path")?;
        if path.is_empty() {
            Err(self.error("the path is empty".to_owned()))
        } else {
            Ok(self.section.directory.join(path))
        }
    }

    /// The mode of a file that all of its users write.
    pub(super) fn mode(&self) -> Result<u32, ConfigError> {
        let wanted = "a mode in octal and in quotes: \"0600\" for one user, \"0660\" for the users of one group";
        let text = self.string(wanted)?;
        let digits = text.strip_prefix('0').filter(|digits| digits.len() == 3).unwrap_or(text);
        // A user who can only read the file cannot use it, and nobody runs it.
        let is_mode =
            digits.len() == 3 && digits.starts_with('6') && digits.bytes().all(|digit| b"06".contains(&digit));
        let mode = u32::from_str_radix(digits, 8).ok().filter(|_| is_mode);
        mode.ok_or_else(|| self.error(format!("{text:?}; give {wanted}")))
    }

    pub(super) fn token(&self, text: &str) -> Result<String, ConfigError> {
        check_token(text).map(|()| text.to_owned()).map_err(|problem| self.error(problem))
    }

    pub(super) fn token_in_file(&self) -> Result<String, ConfigError> {
        self.token(self.text_of_file()?.trim())
    }

    pub(super) fn text_of_file(&self) -> Result<String, ConfigError> {
        let path = self.path()?;
        crate::source::read_text(&path).map_err(|error| self.error(format!("cannot read {}: {error}", path.display())))
    }

    /// Origins of pages, or `*` for every one.
    pub(super) fn origins(&self) -> Result<Vec<String>, ConfigError> {
        let wanted = "a list of origins, such as [\"https://app.example.com\"], or [\"*\"]";
        let origins = self.value.get_ref().as_array().ok_or_else(|| self.wrong(wanted))?;
        let origin = |value: &Value<'_>| match value.get_ref().as_str() {
            Some("*") => Ok("*".to_owned()),
            Some(text) if is_origin(text) => Ok(text.to_ascii_lowercase()),
            _ => Err(self.error(format!("each is a scheme and a host, without a path; give {wanted}"))),
        };
        origins.iter().map(origin).collect()
    }

    pub(super) fn duration(&self) -> Result<Duration, ConfigError> {
        self.duration_from(1)
    }

    /// A duration of this many milliseconds.
    pub(super) fn milliseconds(&self, least: u64, most: u64) -> Result<Duration, ConfigError> {
        let wanted = format!("a duration from \"{least}ms\" to \"{most}ms\", such as \"200ms\"");
        let text = self.string(&wanted)?;
        let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
        let unit = match unit.trim() {
            "ms" => Some(1),
            "s" => Some(1_000),
            _ => None,
        };
        let ms = unit.zip(digits.parse::<u32>().ok()).map(|(unit, count)| u64::from(count) * unit);
        let ms = ms.filter(|ms| (least..=most).contains(ms));
        ms.map(Duration::from_millis).ok_or_else(|| self.error(format!("{text:?}; give {wanted}")))
    }

    /// A duration that may be zero.
    pub(super) fn duration_or_zero(&self) -> Result<Duration, ConfigError> {
        self.duration_from(0)
    }

    fn duration_from(&self, least: u64) -> Result<Duration, ConfigError> {
        let wanted = format!("a duration from \"{least}s\" to \"1h\", such as \"10s\" or \"2min\"");
        let text = self.string(&wanted)?;
        let duration = duration(text).filter(|duration| (least..=3_600).contains(&duration.as_secs()));
        duration.ok_or_else(|| self.error(format!("{text:?}; give {wanted}")))
    }
}

/// A scheme, a host and possibly a port, as browsers write it.
fn is_origin(text: &str) -> bool {
    let uri: Option<http::Uri> = text.parse().ok();
    uri.is_some_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.authority().is_some_and(|host| !host.as_str().contains('@'))
            && !text.ends_with('/')
            && uri.path() == "/"
            && uri.query().is_none()
    })
}

fn is_host_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

/// A whole number of seconds, minutes or hours.
fn duration(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let seconds = match unit.trim() {
        "s" => 1,
        "min" => 60,
        "h" => 3_600,
        _ => return None,
    };
    digits.parse::<u32>().ok().map(|count| Duration::from_secs(u64::from(count) * seconds))
}
