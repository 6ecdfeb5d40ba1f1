//! Sends steps to the servers that have their keys, and reads what they answer.
//!
//! Each step is sent once. Whatever is not an answer to it, a redirection to another server as well, is none: then the
//! connections end, and nobody sends the step again.

use super::connection::{Masters, Ready};
use super::problem::Problem;
use crate::lane_key::LaneKeys;
use crate::steps::{KeyStep, Step, StepReply};
use crate::{BudgetSettlement, RangeError, ReplyError, SETTLEMENTS_MAX, Scripts, Settle, Settlement};
use redis::{Cmd, Pipeline, Value};

/// A command, and the numbers of the steps in it.
enum Command {
    Buckets(Settlements<Settlement>),
    Budgets(Settlements<BudgetSettlement>),
    Forget(String, usize),
}

/// Settlements in one command, and the numbers of their steps.
struct Settlements<S> {
    settlements: Vec<(String, S)>,
    numbers: Vec<usize>,
    /// Whether the command takes many keys: one for a server of a cluster takes no more than one.
    has_many: bool,
}

impl<S: Settle> Settlements<S> {
    fn new(key: String, settlement: S, number: usize, has_many: bool) -> Self {
        Self { settlements: vec![(key, settlement)], numbers: vec![number], has_many }
    }

    fn takes_more(&self) -> bool {
        self.has_many && self.settlements.len() < SETTLEMENTS_MAX
    }

    fn push(&mut self, key: String, settlement: S, number: usize) {
        self.settlements.push((key, settlement));
        self.numbers.push(number);
    }

    fn command(&self, scripts: &Scripts) -> Result<Cmd, RangeError> {
        match self.settlements.as_slice() {
            [(key, settlement)] if !self.has_many => scripts.settle(key, settlement),
            many => scripts.settle_many(many),
        }
    }

    /// What each step came to.
    fn read(
        &self,
        scripts: &Scripts,
        reply: Value,
        done: impl Fn(S::Settled) -> StepReply,
    ) -> Result<Vec<(usize, StepReply)>, Problem> {
        match (self.settlements.as_slice(), reply) {
            ([_], Value::ServerError(error)) if !self.has_many && error.code() == "TOLLGATE" => {
                Ok(vec![(self.numbers[0], StepReply::Refused)])
            }
            ([(_, settlement)], reply) if !self.has_many => {
                let settled = scripts.settled(settlement, &reply.extract_error()?)?;
                Ok(vec![(self.numbers[0], done(settled))])
            }
            (many, reply) => {
                let settled = scripts.settled_many(many, &reply.extract_error()?)?;
                let read = |one: Result<S::Settled, ReplyError>| one.map_or(StepReply::Refused, &done);
                Ok(self.numbers.iter().copied().zip(settled.into_iter().map(read)).collect())
            }
        }
    }
}

/// Sends steps in one pipeline to each server, and returns what each came to.
pub(super) fn exchange(masters: &mut Masters, lanes: &LaneKeys, steps: &[&KeyStep]) -> Result<Vec<StepReply>, Problem> {
    let mut of_masters: Vec<Vec<Command>> = (0..masters.count()).map(|_| Vec::new()).collect();
    for (number, step) in steps.iter().enumerate() {
        let key = step.key(lanes.of_lane(step.lane));
        let place = masters.of(&key);
        add(&mut of_masters[place], masters.is_one(), key, step.step, number);
    }
    // All are sent before any is read: the servers work at the same time.
    for (place, commands) in of_masters.iter().enumerate().filter(|(_, commands)| !commands.is_empty()) {
        send(masters.at(place), commands)?;
    }
    let mut replies: Vec<Option<StepReply>> = vec![None; steps.len()];
    for (place, commands) in of_masters.iter().enumerate() {
        for command in commands {
            receive(masters.at(place), command, &mut replies)?;
        }
    }
    let replies: Option<Vec<_>> = replies.into_iter().collect();
    replies.ok_or_else(|| ReplyError::Refused { why: "fewer replies than steps".to_owned() }.into())
}

/// Adds a step to the commands for a server, in its order.
fn add(commands: &mut Vec<Command>, has_many: bool, key: String, step: Step, number: usize) {
    match (step, commands.last_mut()) {
        (Step::Forget(_), _) => commands.push(Command::Forget(key, number)),
        (Step::Settle(settlement), Some(Command::Buckets(last))) if last.takes_more() => {
            last.push(key, settlement, number);
        }
        (Step::Settle(settlement), _) => {
            commands.push(Command::Buckets(Settlements::new(key, settlement, number, has_many)));
        }
        (Step::SettleBudget(_, settlement), Some(Command::Budgets(last))) if last.takes_more() => {
            last.push(key, settlement, number);
        }
        (Step::SettleBudget(_, settlement), _) => {
            commands.push(Command::Budgets(Settlements::new(key, settlement, number, has_many)));
        }
    }
}

fn send(Ready { connection, scripts }: &mut Ready, commands: &[Command]) -> Result<(), Problem> {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        let command = match command {
            Command::Buckets(settlements) => settlements.command(scripts),
            Command::Budgets(settlements) => settlements.command(scripts),
            Command::Forget(key, _) => {
                pipeline.del(key);
                continue;
            }
        };
        // Checked by the settler: a limit that is out of range is nobody's.
        pipeline.add_command(command.map_err(|error| ReplyError::Refused { why: error.to_string() })?);
    }
    Ok(connection.send_packed_command(&pipeline.get_packed_pipeline())?)
}

/// Reads the reply to one command. If it is none, the rest of the connection means nothing.
fn receive(ready: &mut Ready, command: &Command, replies: &mut [Option<StepReply>]) -> Result<(), Problem> {
    let reply = ready.connection.recv_response()?;
    let read = match command {
        Command::Buckets(settlements) => settlements.read(&ready.scripts, reply, StepReply::Done)?,
        Command::Budgets(settlements) => settlements.read(&ready.scripts, reply, StepReply::DoneBudget)?,
        Command::Forget(_, number) => {
            reply.extract_error()?;
            vec![(*number, StepReply::Forgotten)]
        }
    };
    for (number, reply) in read {
        if let Some(place) = replies.get_mut(number) {
            *place = Some(reply);
        }
    }
    Ok(())
}
