//! A user that the server refuses.

use std::time::{Duration, Instant};

use mongolock_tests::{LentServer, must, test_db};

use crate::fixture::{at, output};

/// `run` waits for its lock without a limit, and the driver for a server for 30 s.
const AT_ONCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_wrong_password_is_said_at_once_by_each_command() {
    let db = test_db().await;
    let server = must(LentServer::with_users().await);
    let wrong = server.uri().replace("root:secret@", "root:wrong@");
    std::thread::scope(|scope| {
        for command in [
            &["run", "a", "--", "true"][..],
            &["run", "--permits", "2", "a", "--", "true"],
            &["doctor"],
            &["ls"],
            &["release", "a", "--yes"],
        ] {
            let (wrong, db) = (&wrong, &db);
            scope.spawn(move || {
                let begun = Instant::now();
                let (code, out, said) = output(at(wrong, db, command));
                let all = format!("{out}{said}");
                assert_ne!(code, Some(0), "{command:?}: {all}");
                assert!(all.contains("Authentication failed"), "{command:?}: {all}");
                assert!(!all.contains("primary"), "{command:?}: {all}");
                assert!(begun.elapsed() < AT_ONCE, "{command:?}: {:?}", begun.elapsed());
            });
        }
    });
}
