//! The commands on the documents of waiters. They are hints, so that each of them may fail in any way.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mongodb::bson::DateTime;
use tokio::time::sleep;

use super::{chance, errors};
use crate::LockError;
use crate::simulation::link::Link;
use crate::store::{MemoryStore, ProviderMark, Waiter, WaiterEntry, WaitersByName};

/// What happens to one command.
enum Fault {
    None,
    /// It takes effect late, and its reply is lost.
    Late,
    /// It has no effect.
    Lost,
    /// The server refuses it.
    Refused,
    /// It reads something else than what was written, or what it writes is damaged at once.
    Wrong,
}

impl Link {
    pub(crate) async fn move_to_end(&self, entries: &[WaiterEntry]) -> Result<(), LockError> {
        self.line_command(|memory, is_wrong| {
            memory.move_to_end(entries);
            if is_wrong {
                for entry in entries {
                    memory.leave_lines(&entry.provider, std::slice::from_ref(&entry.name));
                }
            }
        })
        .await
    }

    pub(crate) async fn prolong_waits(
        &self,
        provider: &ProviderMark,
        names: &[Arc<str>],
    ) -> Result<(), LockError> {
        self.line_command(|memory, _| memory.prolong_waits(provider, names))
            .await
    }

    pub(crate) async fn leave_lines(
        &self,
        provider: &ProviderMark,
        names: &[Arc<str>],
    ) -> Result<(), LockError> {
        self.line_command(|memory, is_wrong| {
            // A document may stay for good.
            if !is_wrong {
                memory.leave_lines(provider, names);
            }
        })
        .await
    }

    pub(crate) async fn lines(&self, names: &[Arc<str>]) -> Result<WaitersByName, LockError> {
        let lines = self
            .line_command(|memory, is_wrong| (memory.lines(names), is_wrong))
            .await;
        let (mut lines, is_wrong) = lines?;
        if is_wrong {
            for name in names {
                self.forge(lines.entry(Arc::clone(name)).or_default());
            }
        }
        for (name, _) in lines.iter().filter(|(_, line)| !line.is_empty()) {
            self.process.contacts.note_others_in_line(name);
        }
        Ok(lines)
    }

    /// Puts waiters that do not exist into a line, and all of it in a random order.
    fn forge(&self, line: &mut Vec<Waiter>) {
        let rng = &mut *self.rng();
        for number in 0..rng.u8(0..4) {
            line.push(Waiter {
                provider: Arc::from(format!("forged-{number}")),
                owner: String::new(),
                at: DateTime::from_millis(rng.i64(..)),
                since: None,
                time_slot: Duration::from_millis(rng.u64(..)),
            });
        }
        rng.shuffle(line);
        line.truncate(rng.usize(0..=line.len()));
    }

    async fn line_command<T>(&self, run: impl FnOnce(&MemoryStore, bool) -> T) -> Result<T, LockError> {
        let mut connection = Some(self.connection().await);
        self.admitted(&mut connection).await?;
        sleep(self.between(0, 4)).await;
        let is_wrong = match self.line_fault() {
            Fault::None => false,
            Fault::Wrong => true,
            Fault::Late => {
                sleep(self.between(0, 3000)).await;
                run(self.memory(), false);
                return Err(errors::broken_connection().into());
            }
            Fault::Lost => {
                sleep(self.between(0, 3000)).await;
                return Err(errors::broken_connection().into());
            }
            Fault::Refused => return Err(errors::refusal().error.into()),
        };
        let output = run(self.memory(), is_wrong);
        sleep(self.between(0, 4)).await;
        Ok(output)
    }

    fn line_fault(&self) -> Fault {
        if self.server.silent.load(Relaxed) {
            return Fault::Lost;
        }
        let rng = &mut *self.rng();
        if self.server.calm.load(Relaxed) || !chance(rng, self.knobs.line_faults) {
            return Fault::None;
        }
        match rng.u8(0..10) {
            0..3 => Fault::Late,
            3..6 => Fault::Lost,
            6 => Fault::Refused,
            _ => Fault::Wrong,
        }
    }
}
