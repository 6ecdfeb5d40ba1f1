//! Sends steps to the servers that have their keys, and reads what they answer.
//!
//! Each step is sent once. Whatever is not an answer to it, a redirection to another server as well, is none: then the
//! connections end, and nobody sends the step again.

use super::connection::{Masters, Ready};
use super::problem::Problem;
use crate::lane_key::LaneKeys;
use crate::steps::{KeyStep, Step, StepReply};
use crate::{ReplyError, SETTLEMENTS_MAX, Settled, Settlement};
use redis::{Pipeline, Value};

/// A command, and the numbers of the steps in it.
enum Command {
    /// One key in one command: a server of a cluster takes no other.
    Settle(String, Settlement, usize),
    /// Many keys in one.
    SettleMany(Vec<(String, Settlement)>, Vec<usize>),
    Forget(String, usize),
}

/// Sends steps in one pipeline to each server, and returns what each came to.
pub(super) fn exchange(masters: &mut Masters, lanes: &LaneKeys, steps: &[&KeyStep]) -> Result<Vec<StepReply>, Problem> {
    let mut of_masters: Vec<Vec<Command>> = (0..masters.count()).map(|_| Vec::new()).collect();
    for (number, step) in steps.iter().enumerate() {
        let key = step.agent.bucket(lanes.of_lane(step.lane));
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
        (Step::Forget, _) => commands.push(Command::Forget(key, number)),
        (Step::Settle(settlement), Some(Command::SettleMany(many, numbers))) if many.len() < SETTLEMENTS_MAX => {
            many.push((key, settlement));
            numbers.push(number);
        }
        (Step::Settle(settlement), _) if has_many => {
            commands.push(Command::SettleMany(vec![(key, settlement)], vec![number]));
        }
        (Step::Settle(settlement), _) => commands.push(Command::Settle(key, settlement, number)),
    }
}

fn send(Ready { connection, scripts }: &mut Ready, commands: &[Command]) -> Result<(), Problem> {
    let mut pipeline = Pipeline::with_capacity(commands.len());
    for command in commands {
        let command = match command {
            Command::Settle(key, settlement, _) => scripts.settle(key, settlement),
            Command::SettleMany(settlements, _) => scripts.settle_many(settlements),
            Command::Forget(key, _) => {
                pipeline.del(key);
                continue;
            }
        };
        // Checked when the limiter was built: a limit that is out of range is nobody's.
        pipeline.add_command(command.map_err(|error| ReplyError::Refused { why: error.to_string() })?);
    }
    Ok(connection.send_packed_command(&pipeline.get_packed_pipeline())?)
}

/// Reads the reply to one command. If it is none, the rest of the connection means nothing.
fn receive(ready: &mut Ready, command: &Command, replies: &mut [Option<StepReply>]) -> Result<(), Problem> {
    let reply = ready.connection.recv_response()?;
    let mut put = |number: usize, reply| {
        if let Some(place) = replies.get_mut(number) {
            *place = Some(reply);
        }
    };
    match command {
        Command::Settle(_, settlement, number) => match reply {
            Value::ServerError(error) if error.code() == "TOLLGATE" => put(*number, StepReply::Refused),
            reply => {
                let settled = ready.scripts.settled(settlement, &reply.extract_error()?)?;
                put(*number, StepReply::Done(settled));
            }
        },
        Command::SettleMany(settlements, numbers) => {
            let settled = ready.scripts.settled_many(settlements, &reply.extract_error()?)?;
            for (number, one) in numbers.iter().zip(settled) {
                put(*number, one.map_or(StepReply::Refused, StepReply::Done));
            }
        }
        Command::Forget(_, number) => {
            reply.extract_error()?;
            put(*number, StepReply::Done(Settled { granted: 0, debt_ns: 0 }));
        }
    }
    Ok(())
}
