// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Semantics as people write them: `posix,persistency=storage`.

use std::fmt;
use std::str::FromStr;

use super::Semantics;
use crate::{Error, Result};

const OPERATION: &str = "read semantics";

/// The axes by name, in the order in which they are written.
const AXES: [&str; 5] = ["atomicity", "concurrency", "consistency", "ordering", "persistency"];

impl Semantics {
    fn set(&mut self, axis: &str, value: &str) -> Result<()> {
        match axis {
            "atomicity" => self.atomicity = value.parse()?,
            "concurrency" => self.concurrency = value.parse()?,
            "consistency" => self.consistency = value.parse()?,
            "ordering" => self.ordering = value.parse()?,
            "persistency" => self.persistency = value.parse()?,
            _ => {
                let reason = format!("there is no such axis; there are {}", AXES.join(", "));
                return Err(Error::invalid(OPERATION, reason).with("axis", axis));
            }
        }
        Ok(())
    }

    fn word_of(&self, axis: &str) -> &'static str {
        match axis {
            "atomicity" => self.atomicity.word(),
            "concurrency" => self.concurrency.word(),
            "consistency" => self.consistency.word(),
            "ordering" => self.ordering.word(),
            _ => self.persistency.word(),
        }
    }
}

/// `TEMPLATE[,AXIS=VALUE]...`, or the axes alone, which are then those of `default` otherwise.
impl FromStr for Semantics {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut semantics = Semantics::DEFAULT;
        let mut set = Vec::new();
        for (index, part) in text.split(',').enumerate() {
            let Some((axis, value)) = part.split_once('=') else {
                semantics = template(part, index)?;
                continue;
            };
            if set.contains(&axis) {
                return Err(Error::invalid(OPERATION, "an axis is given twice").with("axis", axis));
            }
            set.push(axis);
            semantics.set(axis, value)?;
        }
        Ok(semantics)
    }
}

fn template(name: &str, index: usize) -> Result<Semantics> {
    let known = Semantics::TEMPLATES.into_iter().find(|(known, _)| *known == name);
    match known {
        Some((_, semantics)) if index == 0 => Ok(semantics),
        Some(_) => Err(Error::invalid(OPERATION, "a template comes first, and there is one")
            .with("template", name)),
        None => {
            let reason = format!(
                "one of {} is expected, or AXIS=VALUE with an axis of {}",
                Semantics::TEMPLATES.map(|(name, _)| name).join(", "),
                AXES.join(", ")
            );
            Err(Error::invalid(OPERATION, reason).with("value", name))
        }
    }
}

/// The template where it is one, else `default` and the axes that differ from it.
impl fmt::Display for Semantics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Semantics::TEMPLATES.iter().find(|(_, one)| one == self) {
            return f.write_str(name);
        }
        f.write_str("default")?;
        for axis in AXES {
            if self.word_of(axis) != Semantics::DEFAULT.word_of(axis) {
                write!(f, ",{axis}={}", self.word_of(axis))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Atomicity, BatchOrdering, Concurrency, Consistency, Persistency};
    use super::*;

    fn read(text: &str) -> Semantics {
        text.parse().expect("legal")
    }

    #[test]
    fn a_template_is_changed_axis_by_axis() {
        assert_eq!(read("default"), Semantics::DEFAULT);
        assert_eq!(read("posix"), Semantics::POSIX);
        let durable = Semantics { persistency: Persistency::Storage, ..Semantics::POSIX };
        assert_eq!(read("posix,persistency=storage"), durable);
        let calm = Semantics { concurrency: Concurrency::NonOverlapping, ..Semantics::DEFAULT };
        assert_eq!(read("concurrency=non-overlapping"), calm);
    }

    #[test]
    fn what_is_not_legal_is_told_what_is() {
        for (text, expected) in [
            ("", "one of default, posix, temporary is expected"),
            ("unix", "one of default, posix, temporary is expected"),
            ("posix,temporary", "a template comes first"),
            ("ordering=strict,posix", "a template comes first"),
            ("durability=storage", "there are atomicity, concurrency, consistency, ordering, "),
            ("posix,atomicity=file", "one of none, operation, batch is expected"),
            ("ordering=strict,ordering=relaxed", "an axis is given twice"),
            ("posix,", "one of default, posix, temporary is expected"),
        ] {
            let error = text.parse::<Semantics>().expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_eq!(Semantics::TEMPORARY.to_string(), "temporary");
        assert_eq!(read("posix,ordering=relaxed").to_string(), "default,atomicity=operation");
        for atomicity in Atomicity::ALL.iter().copied() {
            for concurrency in Concurrency::ALL.iter().copied() {
                for consistency in Consistency::ALL.iter().copied() {
                    for ordering in BatchOrdering::ALL.iter().copied() {
                        for persistency in Persistency::ALL.iter().copied() {
                            let semantics = Semantics {
                                atomicity,
                                concurrency,
                                consistency,
                                ordering,
                                persistency,
                            };
                            assert_eq!(read(&semantics.to_string()), semantics);
                        }
                    }
                }
            }
        }
    }
}
