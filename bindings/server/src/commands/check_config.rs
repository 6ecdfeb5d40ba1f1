//! `tollgate check-config`.

use super::print_line;
use super::serve::read_token_variables;
use crate::dry_run;
use crate::error::StartError;
use crate::settings::ClusterSettings;
use crate::source::Source;
use std::path::PathBuf;
use tollgate::Policy;

#[derive(Clone, Debug, clap::Args)]
pub(super) struct Arguments {
    /// The policy file
    #[arg(value_name = "FILE", default_value = "tollgate.toml")]
    file: PathBuf,
}

impl Arguments {
    pub(super) fn run(self) -> Result<(), StartError> {
        let (policy, mut settings) = Source::File(self.file.clone()).read()?;
        read_token_variables(&mut settings)?;
        let wrong = |error: StartError| StartError::new(format!("{}: {error}", self.file.display()));
        for warning in dry_run::start(&policy, &settings).map_err(wrong)? {
            print_line(&format!("warning: {warning}"));
        }
        let sharing = settings.cluster.as_ref().map_or(String::new(), |cluster| format!("\n\n{}", sharing(cluster)));
        print_line(&format!("{} is valid, and can be served.\n\n{}{sharing}", self.file.display(), table(&policy)));
        Ok(())
    }
}

/// Which lanes machines share, and how.
fn sharing(cluster: &ClusterSettings) -> String {
    let mut rows = vec![["shared by machines", "exact", "slack", "when lost"].map(str::to_owned).to_vec()];
    rows.extend(cluster.lanes.iter().map(|lane| {
        let exact = if lane.is_exact { format!("yes, waits up to {:?}", lane.wait) } else { "no".to_owned() };
        vec![lane.name.clone(), exact, format!("{} %", lane.slack_percent), lane.when_lost.name().to_owned()]
    }));
    let mut text = format!("{}\n\nThe store is {}.", columns(&rows), cluster.store);
    for lane in &cluster.own {
        let why = lane.why.as_deref().map_or(String::new(), |why| format!(": {why}"));
        text.push_str(&format!("\nEach machine has its own {}{why}.", lane.name));
    }
    text
}

/// The limits by lane and plan.
fn table(policy: &Policy) -> String {
    let plans: Vec<_> = policy.plans().collect();
    let mut rows =
        vec![std::iter::once("lane").chain(plans.iter().map(|(_, name)| *name)).map(str::to_owned).collect()];
    for (lane, name) in policy.lanes() {
        let limits = plans.iter().map(|(plan, _)| match policy.plan_limit(*plan, lane) {
            Some(limit) => limit.to_string(),
            None => String::new(),
        });
        rows.push(std::iter::once(name.to_owned()).chain(limits).collect::<Vec<_>>());
    }
    columns(&rows)
}

/// Rows as aligned text.
pub(super) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |cell| cell.chars().count());
    let width = |column: usize| rows.iter().map(|row| cell(row, column)).max().unwrap_or(0);
    let widths: Vec<_> = (0..count).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
