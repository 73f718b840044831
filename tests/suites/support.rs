//! Does the test support itself do what the suites rely on?

use mongodb::bson::{Document, doc};
use mongolock_tests::{Server, ServerOptions, must, test_db};
use std::time::Instant;

#[tokio::test]
async fn starts() {
    for options in [
        ServerOptions::standalone(),
        ServerOptions::single(),
        ServerOptions::three_members(),
        ServerOptions::single().auth(),
        ServerOptions::standalone().auth(),
        ServerOptions::three_members().auth(),
    ] {
        let t = Instant::now();
        let s = must(Server::start(options).await);
        println!("{} {:?}", s.uri(), t.elapsed());
        let c = must(s.client().await);
        must(
            c.database("a")
                .collection::<Document>("b")
                .insert_one(doc! {"a": 1})
                .await,
        );
        let t = Instant::now();
        drop(c);
        drop(s);
        println!("drop {:?}", t.elapsed());
    }
    let t = Instant::now();
    let db = test_db().await;
    must(
        db.database()
            .collection::<Document>("b")
            .insert_one(doc! {"a": 1})
            .await,
    );
    println!("test_db {:?}", t.elapsed());
}
