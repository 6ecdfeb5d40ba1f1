//! Named tokens: `[server.tokens.gateway]`.

use super::entry::{Entry, Section, Value, check_token};
use std::fmt;
use tollgate::ConfigError;

/// How many named tokens there may be, and how many secrets one may have.
const TOKENS_MAX: usize = 256;
const SECRETS_MAX: usize = 8;

/// What the client of a token may do, from less to more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum May {
    /// Read `/metrics`.
    Metrics,
    /// Read the state of agents too, and charge nothing.
    Read,
    /// Check too.
    #[default]
    Check,
}

/// A token with a name.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedToken {
    /// Its name, for metrics and the log.
    pub name: String,
    /// What clients send. All of them are valid: a new one is added before the old one is taken away.
    pub secrets: Vec<String>,
    /// What its clients may do.
    pub may: May,
    /// The lanes that it is for: names, or patterns with one `*`; `None` for all.
    pub lanes: Option<Vec<String>>,
}

impl NamedToken {
    /// A token that may check, in every lane.
    #[must_use]
    pub fn new(name: impl Into<String>, secrets: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let secrets = secrets.into_iter().map(Into::into).collect();
        Self { name: name.into(), secrets, may: May::default(), lanes: None }
    }

    /// What its clients may do.
    #[must_use]
    pub fn may(mut self, may: May) -> Self {
        self.may = may;
        self
    }

    /// The only lanes that it is for.
    #[must_use]
    pub fn lanes(mut self, lanes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.lanes = Some(lanes.into_iter().map(Into::into).collect());
        self
    }
}

impl fmt::Debug for NamedToken {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, may, lanes, .. } = self;
        f.debug_struct("NamedToken").field("name", name).field("may", may).field("lanes", lanes).finish_non_exhaustive()
    }
}

const TOKEN_KEYS: &[&str] = &["token", "token_file", "may", "lanes"];

/// The tables `[server.tokens.NAME]`.
pub(super) fn tables(entry: &Entry<'_, '_>) -> Result<Vec<NamedToken>, ConfigError> {
    let wanted = "a table for each token: [server.tokens.gateway]";
    let tables = entry.value.get_ref().as_table().ok_or_else(|| entry.wrong(wanted))?;
    if tables.len() > TOKENS_MAX {
        return Err(entry.error(format!("there are {} tokens; give up to {TOKENS_MAX}", tables.len())));
    }
    let mut all = Vec::new();
    for (name, value) in tables {
        let is_name = |name: &str| {
            (1..=64).contains(&name.len())
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        let name: &str = name.get_ref();
        let problem = "a token's name has 1 to 64 letters, digits and -_.";
        let token =
            NamedToken::new(if is_name(name) { name } else { return Err(entry.error(problem.to_owned())) }, [""; 0]);
        let of = format!("server.tokens.{name}");
        let section = Section { name: &of, ..*entry.section };
        all.push(read(token, &section, value)?);
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

fn read(mut token: NamedToken, section: &Section<'_>, value: &Value<'_>) -> Result<NamedToken, ConfigError> {
    for (name, value) in section.entries(value, TOKEN_KEYS)? {
        let entry = Entry { section, name, value };
        match name {
            "token" => token.secrets.extend(secrets(&entry)?),
            "token_file" => {
                // One a line, so that the new one can be added before the old one is taken away.
                let text = entry.text_of_file()?;
                let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
                for line in &lines {
                    check_token(line).map_err(|problem| entry.error(problem))?;
                }
                token.secrets.extend(lines.into_iter().map(str::to_owned));
            }
            "may" => {
                let wanted = "\"check\", \"read\" or \"metrics\"";
                token.may = match entry.string(wanted)? {
                    "check" => May::Check,
                    "read" => May::Read,
                    "metrics" => May::Metrics,
                    other => return Err(entry.error(format!("{other:?}; give {wanted}"))),
                };
            }
            _ => token.lanes = Some(patterns(&entry)?),
        }
    }
    let count = token.secrets.len();
    if !(1..=SECRETS_MAX).contains(&count) {
        let problem = format!("{} has {count} secrets; give 1 to {SECRETS_MAX} as token or token_file", section.name);
        return Err(ConfigError::new(section.text, value.span(), problem));
    }
    Ok(token)
}

/// One secret or a list of them.
fn secrets(entry: &Entry<'_, '_>) -> Result<Vec<String>, ConfigError> {
    let wanted = "a token of 16 to 256 letters, digits and signs, or a list of such";
    let one = |value: &Value<'_>| {
        let secret = value.get_ref().as_str().ok_or_else(|| entry.error_about_secret(&format!("give {wanted}")))?;
        check_token(secret).map_err(|problem| entry.error_about_secret(&problem))?;
        Ok(secret.to_owned())
    };
    match entry.value.get_ref().as_array() {
        Some(list) => list.iter().map(one).collect(),
        None => one(entry.value).map(|secret| vec![secret]),
    }
}

fn patterns(entry: &Entry<'_, '_>) -> Result<Vec<String>, ConfigError> {
    let wanted = "a list of lanes, such as [\"http/*\", \"ws/normal\"]";
    let patterns = entry.value.get_ref().as_array().ok_or_else(|| entry.wrong(wanted))?;
    let pattern = |value: &Value<'_>| match value.get_ref().as_str() {
        Some(text) if !text.is_empty() && text.matches('*').count() <= 1 => Ok(text.to_owned()),
        _ => Err(entry.error(format!("each is a lane's name, with one * at most for any text; give {wanted}"))),
    };
    patterns.iter().map(pattern).collect()
}
