//! Policies from a preset, text, a file or a dict.

use crate::arguments::wrong_type;
use crate::errors::{Class, raise};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::fmt::Display;
use std::fmt::Write as _;
use std::path::PathBuf;
use tollgate::Policy;

/// How deep a dict may be nested. A policy file has three levels.
const DEPTH_MAX: usize = 8;

fn invalid(problem: impl Display) -> PyErr {
    raise(Class::Policy, "bad_policy", problem)
}

/// The policy that a caller means: the name of a preset or TOML text, the path of a file, or a dict.
pub(crate) fn policy(source: &Bound<'_, PyAny>) -> PyResult<Policy> {
    if let Ok(text) = source.cast::<PyString>() {
        let text = text.to_str()?;
        // Every policy has a key with a value; a preset's name has not.
        return match text.contains('=') {
            true => Policy::from_toml(text).map_err(invalid),
            false => Policy::preset(text).map_err(|unknown| {
                let hint = if text.contains(['.', '/']) { "; a file is given as a pathlib.Path" } else { "" };
                invalid(format!("{unknown}{hint}"))
            }),
        };
    }
    if let Ok(table) = source.cast::<PyDict>() {
        let mut text = String::new();
        write_table(&mut text, table, &mut Vec::new())?;
        return Policy::from_toml(&text).map_err(invalid);
    }
    if source.hasattr("__fspath__")? {
        let path: PathBuf = source.extract()?;
        let shown = path.display().to_string();
        return source.py().detach(|| {
            let text = std::fs::read_to_string(&path);
            let text = text.map_err(|error| raise(Class::File, "file", format!("cannot read {shown}: {error}")))?;
            Policy::from_toml(&text).map_err(|problem| invalid(format!("{shown}: {problem}")))
        });
    }
    Err(wrong_type("a policy is a preset's name, TOML text, a pathlib.Path or a dict", source.as_borrowed()))
}

/// A table of TOML: its values first, since whatever follows a heading belongs to that table.
fn write_table(text: &mut String, table: &Bound<'_, PyDict>, path: &mut Vec<String>) -> PyResult<()> {
    if path.len() > DEPTH_MAX {
        return Err(invalid(format!("the dict is nested more than {DEPTH_MAX} levels deep")));
    }
    if !path.is_empty() {
        let _ = writeln!(text, "[{}]", path.join("."));
    }
    let mut tables = Vec::new();
    for (key, value) in table {
        let key = quoted(&key)?;
        match value.cast_into::<PyDict>() {
            Ok(table) => tables.push((key, table)),
            Err(value) => {
                let _ = write!(text, "{key} = ");
                write_value(text, &value.into_inner(), 0)?;
                text.push('\n');
            }
        }
    }
    for (key, table) in tables {
        path.push(key);
        write_table(text, &table, path)?;
        path.pop();
    }
    Ok(())
}

fn write_value(text: &mut String, value: &Bound<'_, PyAny>, depth: usize) -> PyResult<()> {
    if depth > DEPTH_MAX {
        return Err(invalid(format!("a list is nested more than {DEPTH_MAX} levels deep")));
    }
    if value.is_instance_of::<PyBool>() {
        text.push_str(if value.extract()? { "true" } else { "false" });
    } else if value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>() {
        text.push_str(value.str()?.to_str()?);
    } else if value.is_instance_of::<PyString>() {
        text.push_str(&quoted(value)?);
    } else if let Ok(table) = value.cast::<PyDict>() {
        text.push_str("{ ");
        for (at, (key, value)) in table.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            let _ = write!(text, "{comma}{} = ", quoted(&key)?);
            write_value(text, &value, depth + 1)?;
        }
        text.push_str(" }");
    } else if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        text.push('[');
        for item in value.try_iter()? {
            write_value(text, &item?, depth + 1)?;
            text.push_str(", ");
        }
        text.push(']');
    } else {
        return Err(wrong_type("a policy has str, int, float, bool, list and dict", value.as_borrowed()));
    }
    Ok(())
}

/// A string of TOML, in which every character that it cannot have as it is is escaped.
fn quoted(text: &Bound<'_, PyAny>) -> PyResult<String> {
    let Ok(text) = text.cast::<PyString>() else {
        return Err(PyTypeError::new_err(format!("a key of a policy is a str, not {}", text.get_type().name()?)));
    };
    let mut quoted = String::from('"');
    for c in text.to_str()?.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    Ok(quoted)
}
