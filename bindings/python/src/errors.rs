//! The core's errors as Python's exceptions, with the core's message and a code.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::fmt::Display;
use tollgate::keep::PersistError;
use tollgate::{BuildError, ControlError, Error};

/// Which class of `_errors.py` it is.
#[derive(Clone, Copy)]
pub(crate) enum Class {
    Request,
    Policy,
    Full,
    Busy,
    File,
}

/// The exception of this class.
#[cold]
pub(crate) fn raise(class: Class, code: &str, message: impl Display) -> PyErr {
    Python::attach(|py| {
        static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let name = match class {
            Class::Request => "RequestError",
            Class::Policy => "PolicyError",
            Class::Full => "FullError",
            Class::Busy => "BusyError",
            Class::File => "FileError",
        };
        let module = MODULE.get_or_try_init(py, || Ok::<_, PyErr>(py.import("tollgate_limiter._errors")?.unbind()));
        let made = module.and_then(|module| module.bind(py).getattr(name)?.call1((message.to_string(), code)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

fn class_of(error: &Error) -> (Class, &'static str) {
    match error {
        Error::EmptyId => (Class::Request, "empty_id"),
        Error::IdTooLong { .. } => (Class::Request, "id_too_long"),
        Error::UnknownLane { .. } => (Class::Request, "unknown_lane"),
        Error::UnknownPlan { .. } => (Class::Request, "unknown_plan"),
        Error::ZeroCost => (Class::Request, "zero_cost"),
        Error::CostAboveCapacity { .. } => (Class::Request, "cost_above_capacity"),
        Error::NotHeld { .. } => (Class::Request, "not_held"),
        Error::WrongKind { .. } => (Class::Request, "wrong_kind"),
        Error::NoLimit { .. } => (Class::Request, "no_limit"),
        Error::LimitGiven { .. } => (Class::Request, "limit_given"),
        Error::LimitsDiffer { .. } => (Class::Request, "limits_differ"),
        Error::Parts { .. } => (Class::Request, "parts"),
        Error::UnknownReservation => (Class::Request, "unknown_reservation"),
        Error::UsedTooLarge { .. } => (Class::Request, "used_too_large"),
        Error::BatchSize { .. } => (Class::Request, "batch_size"),
        Error::Full => (Class::Full, "full"),
        Error::ReservationsFull => (Class::Full, "reservations_full"),
        Error::TooManyReservations { .. } => (Class::Full, "too_many_reservations"),
        Error::HoldsFull => (Class::Full, "holds_full"),
        Error::Busy => (Class::Busy, "busy"),
        Error::NoSeat { .. } => (Class::Busy, "no_seat"),
        _ => (Class::Request, "other"),
    }
}

/// A call that could not be answered.
#[cold]
pub(crate) fn of_call(error: Error) -> PyErr {
    let (class, code) = class_of(&error);
    raise(class, code, error)
}

#[cold]
pub(crate) fn of_build(error: BuildError) -> PyErr {
    match &error {
        BuildError::Agents { .. } => raise(Class::Request, "agents", error),
        BuildError::Reservations { .. } => raise(Class::Request, "reservations", error),
        BuildError::Memory { .. } => raise(Class::Full, "memory", error),
        BuildError::Cluster(_) => raise(Class::Request, "cluster", error),
        BuildError::Shared(_) => raise(Class::File, "shared", error),
        _ => PyRuntimeError::new_err(error.to_string()),
    }
}
#[cold]
pub(crate) fn of_control(error: ControlError) -> PyErr {
    let (class, code) = match &error {
        ControlError::Agent(error) => class_of(error),
        ControlError::Limit(_) => (Class::Policy, "bad_limit"),
        ControlError::UnknownLane { .. } => (Class::Request, "unknown_lane"),
        ControlError::UnknownPlan { .. } => (Class::Request, "unknown_plan"),
        ControlError::Of { .. } => (Class::Request, "bad_assignment"),
        ControlError::OfLane { .. } | ControlError::PolicyTooLong { .. } => (Class::Policy, "bad_policy"),
        ControlError::OtherLanes { .. } => (Class::Policy, "other_lanes"),
        ControlError::PlanMissing { .. } => (Class::Policy, "plan_missing"),
        ControlError::Fixed { .. } => (Class::Policy, "fixed"),
        ControlError::TooManyOverrides => (Class::Full, "too_many_overrides"),
        ControlError::TooManyAssignments { .. } => (Class::Full, "too_many_assignments"),
        ControlError::NoMemory => (Class::Full, "no_memory"),
        ControlError::Busy { .. } | ControlError::Forked => (Class::Busy, "busy"),
        ControlError::File(_) => (Class::File, "file"),
        ControlError::NoFile => (Class::File, "no_file"),
        _ => (Class::Request, "other"),
    };
    raise(class, code, error)
}

#[cold]
pub(crate) fn of_file(error: PersistError) -> PyErr {
    let code = if matches!(error, PersistError::NotKept) { "no_file" } else { "file" };
    raise(Class::File, code, error)
}
