use std::sync::Mutex;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::LockError;
use crate::store::driver_error;
use crate::sync::lock;
use crate::timing::{SILENCE_LEAST, SILENCE_LIMIT, SLOW_ANSWER};

/// What is known of a lock when the time of a waiter is up.
#[derive(Debug, Clone)]
pub(crate) enum FrontStatus {
    /// The server has said so, or a caller in this process has it.
    Held,
    /// The last request failed. Boxed: every lock that is held has room for it, and hardly any needs it.
    Failed(Box<LockError>),
    /// The server has said nothing yet, or not for a while.
    NoReply,
}

/// What the fronts of one queue have heard from the server. Those behind know no more, and the next front goes on from
/// there.
pub(crate) struct Front {
    heard: Mutex<Heard>,
    /// Notified when the front has heard something.
    news: Notify,
}

struct Heard {
    last: FrontStatus,
    /// The first request that no usable answer has followed.
    silent_since: Option<Instant>,
}

impl Front {
    pub(super) fn new() -> Self {
        Self {
            heard: Mutex::new(Heard {
                last: FrontStatus::NoReply,
                silent_since: None,
            }),
            news: Notify::new(),
        }
    }

    /// A request is sent. What was heard last stays known for as long as a healthy server needs for its reply.
    pub(crate) fn asked(&self) {
        lock(&self.heard).silent_since.get_or_insert_with(Instant::now);
    }

    /// The server has replied, perhaps to a request whose caller has left.
    pub(crate) fn replied(&self) {
        lock(&self.heard).silent_since = None;
    }

    /// The server has said that the lock is held, or a caller in this process has got it.
    pub(crate) fn heard_held(&self) {
        *lock(&self.heard) = Heard {
            last: FrontStatus::Held,
            silent_since: None,
        };
        self.news.notify_waiters();
    }

    /// A request has failed. The server is silent all the same, unless it said what is wrong with the document.
    pub(crate) fn heard_failure(&self, error: LockError) {
        let mut heard = lock(&self.heard);
        if driver_error::is_blocked_document(&error) {
            heard.silent_since = None;
        }
        heard.last = FrontStatus::Failed(Box::new(error));
        drop(heard);
        self.news.notify_waiters();
    }

    /// The status as soon as something was heard, or after the time that a healthy server needs. Cancel safe.
    pub(crate) async fn first_news(&self) -> FrontStatus {
        let news = self.news.notified();
        if matches!(self.status(), FrontStatus::NoReply) && !self.is_silent() {
            // Without news the status says so.
            let _ = timeout(SLOW_ANSWER, news).await;
        }
        self.status()
    }

    pub(crate) fn status(&self) -> FrontStatus {
        let heard = lock(&self.heard);
        match (&heard.last, heard.silent_since) {
            (FrontStatus::Held, Some(since)) if since.elapsed() >= SLOW_ANSWER => FrontStatus::NoReply,
            (last, _) => last.clone(),
        }
    }

    /// Whether the server has had more time for a reply than it needs.
    pub(crate) fn is_silent(&self) -> bool {
        let since = lock(&self.heard).silent_since;
        since.is_some_and(|since| since.elapsed() >= SLOW_ANSWER)
    }

    /// Resolves when a wait without a limit that began then has to end, because the server is silent. The silence belongs
    /// to the name: those who come later or stand behind do not count it anew.
    pub(crate) async fn silence(&self, begun: Instant) {
        loop {
            let now = Instant::now();
            match self.silence_ends(begun) {
                Some(end) if end <= now => return,
                Some(end) => tokio::time::sleep_until(end).await,
                // A silence that begins from now on ends no earlier.
                None => tokio::time::sleep(SILENCE_LIMIT).await,
            }
        }
    }

    fn silence_ends(&self, begun: Instant) -> Option<Instant> {
        let since = lock(&self.heard).silent_since?;
        Some((since + SILENCE_LIMIT).max(begun + SILENCE_LEAST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_is_held_before_it_was_heard() {
        let front = Front::new();
        assert!(matches!(front.status(), FrontStatus::NoReply), "nothing is known");
        front.asked();
        assert!(matches!(front.status(), FrontStatus::NoReply));
        front.heard_failure(LockError::NoProvider);
        assert!(matches!(front.status(), FrontStatus::Failed(_)));
        front.heard_held();
        front.asked();
        assert!(
            matches!(front.status(), FrontStatus::Held),
            "an answer takes its time"
        );
        tokio::time::sleep(SLOW_ANSWER).await;
        front.asked();
        assert!(
            matches!(front.status(), FrontStatus::NoReply),
            "the next front does not begin anew"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_news_are_waited_for_as_long_as_a_healthy_server_needs() {
        let (front, begun) = (Front::new(), Instant::now());
        front.asked();
        assert!(matches!(front.first_news().await, FrontStatus::NoReply));
        assert_eq!(begun.elapsed(), SLOW_ANSWER);
        assert!(matches!(front.first_news().await, FrontStatus::NoReply));
        assert_eq!(begun.elapsed(), SLOW_ANSWER, "it is known to be silent");
        let front = Front::new();
        let hearing = async {
            tokio::task::yield_now().await;
            front.heard_held();
        };
        let (status, ()) = tokio::join!(front.first_news(), hearing);
        assert!(matches!(status, FrontStatus::Held));
        assert_eq!(begun.elapsed(), SLOW_ANSWER);
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_of_the_server_belongs_to_the_name() {
        let (front, begun) = (Front::new(), Instant::now());
        front.asked();
        tokio::join!(front.silence(begun), front.silence(begun));
        assert_eq!(begun.elapsed().as_secs(), 60);
        let late = Instant::now();
        front.silence(late).await;
        assert_eq!(
            late.elapsed().as_secs(),
            10,
            "one who comes later has a chance as well"
        );
        front.heard_failure(driver_error::blocked(
            "n",
            mongodb::error::Error::custom("blocked"),
        ));
        assert_eq!(front.silence_ends(late), None, "the server has answered");
    }
}
