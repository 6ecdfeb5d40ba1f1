//! YAML as a tree in which everything knows its place in the text.
//!
//! The parser reports events; this builds the tree that a configuration file is, with bounds: a file of a few bytes
//! must not become a tree of gigabytes through aliases.

use granit_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::HashMap;
use std::ops::Range;
use tollgate::ConfigError;

/// How many nodes a file may have, those of aliases included.
const NODES_MAX: usize = 200_000;

/// A node of the tree, and where it is.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Range<usize>,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// A text, and whether it stands without quotes: then it may be a number, a truth value or null.
    Scalar(String, bool),
    List(Vec<Node>),
    /// Keys with their values, in the order of the file.
    Map(Vec<(Node, Node)>),
}

impl Value {
    /// What it is, for errors.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Scalar(..) => "a single value",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    /// Whether nothing stands here.
    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Scalar(text, true) if matches!(&**text, "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// A list or a map whose end has not been seen.
struct Open {
    node: Node,
    anchor: usize,
    /// A key that waits for its value.
    key: Option<Node>,
}

/// Builds the tree.
struct Builder<'t> {
    text: &'t str,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    root: Option<Node>,
}

/// Reads the one document of a text. An empty text is a null.
pub(super) fn parse(text: &str) -> Result<Node, ConfigError> {
    let mut builder = Builder { text, open: Vec::new(), anchors: HashMap::new(), nodes: 0, root: None };
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = error.marker().byte_offset().unwrap_or(text.len());
            let whole = error.to_string();
            // The place is reported as everywhere else.
            let message = whole.split(" at char ").next().unwrap_or(&whole);
            ConfigError::new(text, at..at + 1, format!("this is not YAML: {message}"))
        })?;
        builder.take(event, bytes_of(&span, text))?;
    }
    Ok(builder.root.unwrap_or(Node { at: 0..0, value: Value::Scalar(String::new(), true) }))
}

fn bytes_of(span: &Span, text: &str) -> Range<usize> {
    let start = span.start.byte_offset().unwrap_or(text.len());
    start..span.end.byte_offset().unwrap_or(start).max(start)
}

impl Builder<'_> {
    fn error(&self, at: Range<usize>, message: &str) -> ConfigError {
        ConfigError::new(self.text, at, message.to_owned())
    }

    fn take(&mut self, event: Event<'_>, at: Range<usize>) -> Result<(), ConfigError> {
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_plain = style == ScalarStyle::Plain;
                self.put(Node { at, value: Value::Scalar(text.into_owned(), is_plain) }, anchor, 1)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(Node { at, value: Value::List(Vec::new()) }, anchor),
            Event::MappingStart(_, anchor, _) => self.begin(Node { at, value: Value::Map(Vec::new()) }, anchor),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { node, anchor, .. }) => self.put(node, anchor, 1),
                None => Ok(()),
            },
            Event::Alias(anchor) => match self.anchors.get(&anchor).cloned() {
                Some((node, nodes)) => self.put(Node { at, ..node }, 0, nodes),
                None => Err(self.error(at, "this alias stands inside of what it names")),
            },
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(self.error(at, "a second document begins here; put it into a file of its own"))
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, node: Node, anchor: usize) -> Result<(), ConfigError> {
        self.open.push(Open { node, anchor, key: None });
        Ok(())
    }

    /// Puts a whole node where it belongs. With what it contains it has this many nodes, of which `new` were not
    /// counted before.
    fn put(&mut self, node: Node, anchor: usize, new: usize) -> Result<(), ConfigError> {
        self.nodes = self.nodes.saturating_add(new);
        if self.nodes > NODES_MAX {
            return Err(self.error(node.at, "the file is too large: with its aliases it has more than 200,000 values"));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), size(&node)));
        }
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut parent.node.value, parent.key.take()) {
            (Value::List(list), _) => list.push(node),
            (Value::Map(map), Some(key)) => map.push((key, node)),
            _ => parent.key = Some(node),
        }
        Ok(())
    }
}

/// How many nodes a node has. The parser bounds how deep they are.
fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::Scalar(..) => 0,
        Value::List(list) => list.iter().map(size).sum(),
        Value::Map(map) => map.iter().map(|(key, value)| size(key) + size(value)).sum(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn values_know_their_place() {
        let text = "a: 1\nb:\n  - \"c\"\n  - {d: é}\n";
        let Value::Map(map) = parse(text).unwrap().value else { panic!("a map") };
        assert_eq!((&text[map[0].1.at.clone()], map[0].1.value.kind()), ("1", "a single value"));
        let Value::List(list) = &map[1].1.value else { panic!("a list") };
        assert!(matches!(&list[0].value, Value::Scalar(text, false) if text == "c"));
        let Value::Map(inner) = &list[1].value else { panic!("a map") };
        assert_eq!(&text[inner[0].1.at.clone()], "é");
    }

    #[test]
    fn aliases_are_resolved_and_bounded() {
        let Value::Map(map) = parse("a: &x [1, 2]\nb: *x\n").unwrap().value else { panic!("a map") };
        assert!(matches!(&map[1].1.value, Value::List(list) if list.len() == 2));
        let mut text = String::from("a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n");
        for level in 1..12 {
            let last = level - 1;
            let names = vec![format!("*a{last}"); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{names}]\n"));
        }
        assert!(error(&text).contains("more than 200,000 values"));
        assert!(error("a: &a [*a]").contains("line 1, column 8: this alias stands inside of what it names"));
    }

    #[test]
    fn what_is_not_yaml_is_refused_with_its_place() {
        assert!(error("'''").starts_with("line 1, column "), "{}", error("'''"));
        assert!(error("a: [1\nb: 2").contains("this is not YAML"), "{}", error("a: [1\nb: 2"));
        assert!(error("a: 1\n---\nb: 2").starts_with("line 2, column 1: a second document begins here"));
        assert!(parse("").unwrap().value.is_null());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z:\\-\\[\\]{}&*'\"|>#%!~ \n\té]{0,80}") {
            _ = parse(&text);
        }
    }
}
