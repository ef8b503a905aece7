//! Two sessions side by side.

use std::fmt;

use rath_record::lineage::{self, Diff};
use rath_record::{Step, Usage, draw};

use crate::session::Session;

/// What two sessions have in common, and what each did by itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Comparison<'a> {
    /// The nearest step that both descend from.
    pub base: Option<&'a Step>,
    /// What only the first did, oldest first, with what it keeps aside.
    pub ours: Vec<&'a Step>,
    /// What only the second did.
    pub theirs: Vec<&'a Step>,
    /// The last words of each.
    pub words: (Option<&'a str>, Option<&'a str>),
}

impl Session {
    /// Compares two sessions that have something in common: what each did after that, what it cost and what it came to.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// # fn example() -> Result<()> {
    /// let mut session = Session::user("Which river runs through Paris?");
    /// let asked = session.head().expect("a step").id();
    /// session.push(Chunk::assistant("The Seine."));
    /// let mut other = session.at(asked)?; // what if?
    /// other.push(Chunk::assistant("The Seine, since Roman times."));
    /// println!("{}", session.compare(&other));
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    pub fn compare<'a>(&'a self, theirs: &'a Session) -> Comparison<'a> {
        let diff = match (self.head(), theirs.head()) {
            (Some(ours), Some(theirs)) => lineage::diff(ours, theirs),
            _ => Diff { base: None, ours: self.as_record().steps(), theirs: theirs.as_record().steps() },
        };
        Comparison { base: diff.base, ours: diff.ours, theirs: diff.theirs, words: (self.text(), theirs.text()) }
    }
}

impl Comparison<'_> {
    /// Whether both are the same.
    pub fn is_same(&self) -> bool {
        self.ours.is_empty() && self.theirs.is_empty()
    }

    /// What each cost that the other did not.
    pub fn usage(&self) -> (Usage, Usage) {
        let sum = |steps: &[&Step]| {
            steps.iter().filter_map(|step| step.stamp().usage).fold(Usage::default(), |sum, usage| sum + usage)
        };
        (sum(&self.ours), sum(&self.theirs))
    }
}

/// What is shared, then what ours did with `-` before it and what theirs did with `+`, then cost and last words.
impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.base {
            Some(base) => write!(f, "shared up to {}  {}", base.id().short(), draw::headline(base))?,
            None => f.write_str("nothing is shared")?,
        }
        if self.is_same() {
            return f.write_str("\nboth are the same");
        }
        for (mark, steps) in [('-', &self.ours), ('+', &self.theirs)] {
            for step in steps {
                write!(f, "\n{mark} {}  {}", step.id().short(), draw::headline(step))?;
            }
        }
        let (ours, theirs) = self.usage();
        if ours != theirs {
            write!(f, "\nusage\n- {ours}\n+ {theirs}")?;
        }
        let (ours, theirs) = self.words;
        if ours != theirs {
            let say = |words: Option<&str>| words.map_or("nothing".to_owned(), draw::preview);
            write!(f, "\nlast words\n- {}\n+ {}", say(ours), say(theirs))?;
        }
        Ok(())
    }
}
