//! What happens, with the time since the beginning of the scene.

use std::time::Instant;

use mongolock_examples::duration::show;
use mongolock_examples::output::println;

#[derive(Debug)]
pub(crate) struct Timeline {
    /// `None` if nothing is to be shown.
    begun: Option<Instant>,
}

impl Timeline {
    pub(crate) fn shown() -> Self {
        Self {
            begun: Some(Instant::now()),
        }
    }

    pub(crate) fn hidden() -> Self {
        Self { begun: None }
    }

    pub(crate) fn say(&self, what: &str) -> anyhow::Result<()> {
        match self.begun {
            Some(begun) => println(&format!("{:>9}  {what}", show(begun.elapsed()))),
            None => Ok(()),
        }
    }

    /// More about what was said last.
    pub(crate) fn add(&self, more: &str) -> anyhow::Result<()> {
        match self.begun {
            Some(_) => println(&format!("{:>9}  \"{more}\"", "")),
            None => Ok(()),
        }
    }
}
