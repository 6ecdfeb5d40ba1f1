//! What is sealed: a decision as bytes.
//!
//! ```text
//! version 1 │ id │ flags: 1 exempt, 2 has a plan │ plan │ overrides: count, then lane and limit of each
//! version 1 │ policy as TOML
//! ```
//!
//! A text is its length in two bytes, and its bytes. Plans, lanes and limits stand there as an operator writes them,
//! so each machine reads them under its own policy.

use tollgate::Assignment;

/// The version of the layout. A machine that does not know it leaves the decision alone.
const VERSION: u8 = 1;

const EXEMPT: u8 = 1;
const HAS_PLAN: u8 = 2;

/// An agent's id and its assignment, read back.
pub(super) type OfAgent = (Box<[u8]>, Assignment);

/// An agent and its assignment. `None` if a text is longer than 65,535 bytes.
pub(super) fn of_agent(id: &[u8], assignment: &Assignment) -> Option<Vec<u8>> {
    let mut bytes = vec![VERSION];
    put(&mut bytes, id)?;
    let plan = assignment.plan();
    bytes.push(u8::from(assignment.is_exempt()) * EXEMPT + u8::from(plan.is_some()) * HAS_PLAN);
    if let Some(plan) = plan {
        put(&mut bytes, plan.as_bytes())?;
    }
    bytes.extend(u16::try_from(assignment.overrides().len()).ok()?.to_le_bytes());
    for (lane, limit) in assignment.overrides() {
        put(&mut bytes, lane.as_bytes())?;
        put(&mut bytes, limit.to_string().as_bytes())?;
    }
    Some(bytes)
}

/// A policy's text.
pub(super) fn of_policy(text: &str) -> Vec<u8> {
    [&[VERSION], text.as_bytes()].concat()
}

fn put(bytes: &mut Vec<u8>, text: &[u8]) -> Option<()> {
    bytes.extend(u16::try_from(text.len()).ok()?.to_le_bytes());
    bytes.extend(text);
    Some(())
}

/// Reads what [`of_agent`] has written. The error says what is wrong.
pub(super) fn read_agent(bytes: &[u8]) -> Result<OfAgent, String> {
    let mut rest = Rest(versioned(bytes)?);
    let mut problem = None;
    let mut read = |rest: &mut Rest<'_>| -> Option<OfAgent> {
        let id = rest.text()?.into();
        let mut assignment = Assignment::default();
        let flags = *rest.take(1)?.first()?;
        assignment.set_exempt(flags & EXEMPT != 0);
        if flags & HAS_PLAN != 0 {
            assignment.set_plan(Some(str::from_utf8(rest.text()?).ok()?.to_owned()));
        }
        for _ in 0..rest.number()? {
            let lane = str::from_utf8(rest.text()?).ok()?;
            match str::from_utf8(rest.text()?).ok()?.parse() {
                Ok(limit) => drop(assignment.set_override(lane, limit)),
                Err(error) => problem = Some(format!("lane {lane:?}: {error}")),
            }
        }
        Some((id, assignment))
    };
    let read = read(&mut rest).filter(|_| rest.0.is_empty());
    match (read, problem) {
        (Some(of_agent), None) => Ok(of_agent),
        (Some(_), Some(problem)) => Err(problem),
        (None, _) => Err("it is cut short, or goes on".to_owned()),
    }
}

/// Reads what [`of_policy`] has written.
pub(super) fn read_policy(bytes: &[u8]) -> Result<&str, String> {
    str::from_utf8(versioned(bytes)?).map_err(|_| "the policy is not UTF-8".to_owned())
}

fn versioned(bytes: &[u8]) -> Result<&[u8], String> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Ok(rest),
        Some((other, _)) => Err(format!("its layout has version {other}, and this build reads {VERSION}; upgrade it")),
        None => Err("it is empty".to_owned()),
    }
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let count = self.number()?;
        self.take(usize::from(count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assignments() -> Vec<Assignment> {
        let mut all = vec![Assignment::default(); 4];
        all[1].set_exempt(true);
        all[2].set_plan(Some("für alle".to_owned()));
        all[3].set_plan(Some(String::new()));
        all[3].set_exempt(true);
        for (lane, limit) in
            [("ws/heavy", "100/min burst 7"), ("llm", "5000/day"), ("ws/conn", "held 3"), ("a", "deny")]
        {
            all[3].set_override(lane, limit.parse().unwrap());
        }
        all
    }

    #[test]
    fn assignments_read_back() {
        for assignment in assignments() {
            for id in [b"agent-7".as_slice(), &[0xff; 256], b""] {
                let bytes = of_agent(id, &assignment).unwrap();
                assert_eq!(read_agent(&bytes), Ok((id.into(), assignment.clone())));
            }
        }
    }

    #[test]
    fn what_is_cut_short_or_altered_is_an_error_and_no_panic() {
        for assignment in assignments() {
            let bytes = of_agent(b"agent-7", &assignment).unwrap();
            for end in 0..bytes.len() {
                assert!(read_agent(&bytes[..end]).is_err(), "{end} bytes");
            }
            assert!(read_agent(&[&bytes[..], &[0]].concat()).is_err());
            for place in 0..bytes.len() {
                let mut altered = bytes.clone();
                altered[place] ^= 0x41;
                let _ = read_agent(&altered);
            }
        }
        let error = read_agent(&[9, 0, 0]).unwrap_err();
        assert_eq!(error, "its layout has version 9, and this build reads 1; upgrade it");
        assert_eq!(read_policy(&of_policy("[lanes]")), Ok("[lanes]"));
        assert!(read_policy(&[VERSION, 0xff]).is_err() && read_policy(&[]).is_err());
    }
}
