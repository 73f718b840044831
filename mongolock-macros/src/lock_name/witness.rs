//! A name that two templates have in common, checked by reading it with each template and rendering it again. The check
//! does not use the automaton, so a witness that is shown to a user is a name that two values really share.

use std::collections::HashMap;

use super::language::escaped;
use super::pattern::Segment;

/// The longest name that the runtime accepts, in bytes.
const MAX_NAME_BYTES: usize = 1024;

/// Whether values of the template's fields give exactly this name.
pub(crate) fn is_rendered_by(template: &[Segment], name: &str) -> bool {
    let is_name = name.len() <= MAX_NAME_BYTES && name.trim() == name && !name.chars().any(char::is_control);
    is_name && read(template, name).is_some_and(|values| render(template, &values).as_deref() == Some(name))
}

/// The values of the placeholders in a name, in their order. There is at most one such list, because the separators are
/// escaped in all values but the last.
fn read(template: &[Segment], name: &str) -> Option<Vec<String>> {
    let (mut rest, mut values) = (name, Vec::new());
    for (at, segment) in template.iter().enumerate() {
        match segment {
            Segment::Text(text) => rest = rest.strip_prefix(text.as_str())?,
            Segment::Hole(hole) => {
                let value = match (hole.separator, template.get(at + 1)) {
                    (Some(separator), _) => &rest[..rest.find_unescaped(separator)?],
                    (None, Some(Segment::Text(text))) => rest.strip_suffix(text.as_str())?,
                    (None, _) => rest,
                };
                rest = &rest[value.len()..];
                values.push(unescaped(value, hole.separator)?);
            }
        }
    }
    rest.is_empty().then_some(values)
}

/// The name that these values give; `None` if a field cannot have its value.
fn render(template: &[Segment], values: &[String]) -> Option<String> {
    let (mut name, mut values) = (String::new(), values.iter());
    let mut known: HashMap<&str, &str> = HashMap::new();
    for segment in template {
        match segment {
            Segment::Text(text) => name.push_str(text),
            Segment::Hole(hole) => {
                let value = values.next()?;
                let is_same = *known.entry(&hole.written).or_insert(value) == value;
                if !is_same || !hole.values.contains(value) {
                    return None;
                }
                name.extend(value.chars().map(|character| escaped(character, hole.separator)));
            }
        }
    }
    Some(name)
}

/// Finds separators in a text with escapes.
trait FindUnescaped {
    /// The position of the first separator that is not part of an escape.
    fn find_unescaped(&self, separator: char) -> Option<usize>;
}

impl FindUnescaped for str {
    fn find_unescaped(&self, separator: char) -> Option<usize> {
        let mut characters = self.char_indices();
        while let Some((at, character)) = characters.next() {
            match character {
                '%' => drop(characters.by_ref().nth(1)),
                _ if character == separator => return Some(at),
                _ => {}
            }
        }
        None
    }
}

/// The value behind an escaped text; `None` if an escape is not complete.
fn unescaped(text: &str, separator: Option<char>) -> Option<String> {
    if separator.is_none() {
        return Some(text.to_owned());
    }
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, later)) = rest.split_first() {
        if *first == b'%' {
            let (digits, after) = later.split_at_checked(2)?;
            let digits = str::from_utf8(digits).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after;
        } else {
            bytes.push(*first);
            rest = later;
        }
    }
    String::from_utf8(bytes).ok()
}
