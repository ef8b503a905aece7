//! A comparison of two sessions.

use std::fmt;

use rath_record::lineage::{self, Diff};
use rath_record::{Step, Usage, draw};

use crate::session::Session;

/// The steps that two sessions share, and the steps that only one of them has.
///
/// ```
/// use rath::prelude::*;
///
/// let session = Session::user("hello");
/// let (mut ours, mut theirs) = (session.fork(), session.fork());
/// ours.push(Chunk::assistant("hi"));
/// theirs.push(Chunk::assistant("good morning"));
/// let compared = ours.compare(&theirs);
/// assert_eq!(compared.base, session.head());
/// assert_eq!(compared.last_texts, (Some("hi"), Some("good morning")));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SessionComparison<'a> {
    /// The nearest step that both sessions descend from.
    pub base: Option<&'a Step>,
    /// The steps that only the first session has, oldest first, with those of its asides.
    pub ours: Vec<&'a Step>,
    /// The steps that only the second session has.
    pub theirs: Vec<&'a Step>,
    /// The last text of each session.
    pub last_texts: (Option<&'a str>, Option<&'a str>),
}

impl Session {
    /// Compares two sessions: the steps that only one of them has, their cost, and the last text of each.
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
    pub fn compare<'a>(&'a self, theirs: &'a Session) -> SessionComparison<'a> {
        let diff = match (self.head(), theirs.head()) {
            (Some(ours), Some(theirs)) => lineage::diff(ours, theirs),
            _ => Diff { base: None, ours: self.as_record().steps(), theirs: theirs.as_record().steps() },
        };
        SessionComparison {
            base: diff.base,
            ours: diff.ours,
            theirs: diff.theirs,
            last_texts: (self.text(), theirs.text()),
        }
    }
}

impl SessionComparison<'_> {
    /// Returns whether both sessions have the same steps.
    pub fn is_same(&self) -> bool {
        self.ours.is_empty() && self.theirs.is_empty()
    }

    /// Returns the usage of the steps that only one session has.
    pub fn usage(&self) -> (Usage, Usage) {
        let sum = |steps: &[&Step]| {
            steps.iter().filter_map(|step| step.stamp().usage).fold(Usage::default(), |sum, usage| sum + usage)
        };
        (sum(&self.ours), sum(&self.theirs))
    }
}

/// Writes the shared step, then the steps of the first session with `-` and of the second with `+`, then usage and last texts.
impl fmt::Display for SessionComparison<'_> {
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
        let (ours, theirs) = self.last_texts;
        if ours != theirs {
            let preview = |text: Option<&str>| text.map_or("nothing".to_owned(), draw::preview);
            write!(f, "\nlast words\n- {}\n+ {}", preview(ours), preview(theirs))?;
        }
        Ok(())
    }
}
