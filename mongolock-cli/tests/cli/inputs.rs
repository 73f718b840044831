//! Connection strings and servers that cannot be used: what the program says, and what to do.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mongodb::bson::{DateTime, Document, RawDocumentBuf, doc};
use mongolock_tests::{FailPoint, LentServer, Server, ServerOptions, Set, TestDb, must, test_db};

use crate::fixture::{at, ends, output};

/// The longest time that a command takes which does not wait; it is less where the server answers.
const PROMPT: Duration = Duration::from_secs(6);

/// How late a process may be on a machine with other work.
const SLACK: Duration = Duration::from_secs(4);

/// A command that would wait for its lock.
const WAITING: [&str; 6] = ["run", "a", "--wait", "1m", "--", "true"];

/// A file of the tests for TLS.
fn file(name: &str) -> String {
    format!("{}/tests/cli/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Asserts what `ls` says for a connection string, and that the advice has these words.
fn assert_said(db: &TestDb, uri: &str, wanted: &str, help: &str) {
    let (code, out, said) = output(at(uri, db, &["ls"]));
    assert_eq!((code, out.as_str()), (Some(125), ""), "{uri}: {said}");
    let lines: Vec<&str> = said.lines().collect();
    let [first, second] = lines.as_slice() else {
        panic!("{uri}: {said}");
    };
    assert!(first.contains(wanted), "{uri}: {said}");
    assert!(second.starts_with("mongolock: help: "), "{uri}: {said}");
    assert!(second.contains(help), "{uri}: {said}");
}

/// The driver says what is wrong, and the advice how a string is written. The library has a test of what is left out as a secret.
#[tokio::test]
async fn a_string_that_cannot_be_used() {
    let db = test_db().await;
    let advice = "Write it on one line as `mongodb://user:password@host:port/database?option=value`";
    let no_file = "app?tls=true&tlsCertificateKeyFile=/none.pem";
    let two_lines = "app\nmongodb://127.0.0.1:1/b";
    for (rest, reason) in [
        ("app?compressors=zstd", "compressors is an invalid option"),
        ("app?maxPoolSize=0", "cannot specify maxPoolSize=0"),
        (no_file, "I/O error: No such file"),
        (two_lines, "illegal character in database name"),
    ] {
        let said = format!("the MongoDB connection string is invalid: {reason}");
        assert_said(&db, &format!("mongodb://127.0.0.1:1/{rest}"), &said, advice);
    }
    let key = file("encrypted.pem");
    let encrypted = format!("mongodb://127.0.0.1:1/app?tls=true&tlsCertificateKeyFile={key}");
    assert_said(&db, &encrypted, "encrypted.pem", "keys that are not encrypted");
}

/// A server that requires TLS and a client certificate. Until it has started, it takes connections without.
async fn with_tls(certificate: &str) -> Server {
    let (certificate, authority) = (file(certificate), file("authority.pem"));
    let mut options = ServerOptions::standalone();
    for (option, value) in [
        ("--tlsMode", "preferTLS"),
        ("--tlsCertificateKeyFile", &certificate),
        ("--tlsCAFile", &authority),
    ] {
        options = options.argument(option).argument(value);
    }
    let server = must(Server::start(options).await);
    let admin = must(server.client().await).database("admin");
    let required = doc! { "setParameter": 1, "tlsMode": "requireTLS" };
    must(admin.run_command(required).await);
    server
}

#[tokio::test]
async fn a_server_with_tls_and_one_without() {
    let db = test_db().await;
    let (server, elsewhere) = (with_tls("server.pem").await, with_tls("elsewhere.pem").await);
    let plain = must(LentServer::standalone().await);
    let uri = |address: &str, options: &str| {
        format!("mongodb://{address}/?serverSelectionTimeoutMS=1000&{options}")
    };
    let used = |address: &str, reason: &str| format!("MongoDB cannot be reached: {address} ({reason}");
    let own = format!("tls=true&tlsCertificateKeyFile={}", file("server.pem"));
    let trusted = format!("tls=true&tlsCAFile={}", file("authority.pem"));
    let both = format!("{trusted}&tlsCertificateKeyFile={}", file("server.pem"));
    let [address, bare, other] = [&server, &*plain, &elsewhere].map(|server| server.node().address());
    ends(at(&uri(address, &both), &db, &["ls"]), 0, "");
    let closed = "peer closed connection without sending TLS close_notify";
    let unknown = "invalid peer certificate: UnknownIssuer";
    let misnamed = "invalid peer certificate: certificate not valid for name";
    for (address, options, reason, help) in [
        (address, "appName=a", "unexpected end of file", "`tls=true`"),
        (bare, "tls=true", "tls handshake eof", "`net.tls.mode` at the"),
        (address, &trusted, closed, "`tlsCertificateKeyFile`"),
        (address, &own, unknown, "`tlsCAFile`"),
        (other, &both, misnamed, "host name"),
    ] {
        assert_said(&db, &uri(address, options), &used(address, reason), help);
    }
}

/// Answers each command on each connection with the reply of a member of a set to `hello`.
fn pretend(listener: TcpListener, hello: Document) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let hello = hello.clone();
            thread::spawn(move || answer(stream, &hello));
        }
    });
}

/// The messages are those of the wire protocol: `OP_QUERY` (2004), which begins a connection, and `OP_MSG` (2013).
fn answer(mut stream: TcpStream, hello: &Document) -> std::io::Result<()> {
    let reply = must(RawDocumentBuf::try_from(hello)).into_bytes();
    loop {
        let mut header = [0; 16];
        stream.read_exact(&mut header)?;
        let number =
            |at: usize| i32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (length, id, code) = (number(0), number(4), number(12));
        let mut body = vec![0; usize::try_from(length - 16).unwrap_or(0)];
        stream.read_exact(&mut body)?;
        let (code, before): (i32, &[u8]) = if code == 2004 {
            (1, &[8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0])
        } else {
            (2013, &[0; 5])
        };
        let length = i32::try_from(16 + before.len() + reply.len()).unwrap_or(0);
        let head = [length, 0, id, code].map(i32::to_le_bytes).concat();
        stream.write_all(&[&head, before, &reply].concat())?;
    }
}

/// A member of a set that answers with this version of the protocol, and names itself so.
fn member(wire: i32, name: Option<&str>) -> String {
    let listener = must(TcpListener::bind("127.0.0.1:0"));
    let address = must(listener.local_addr()).to_string();
    let name = name.unwrap_or(&address);
    pretend(
        listener,
        doc! {
            "ok": 1.0, "helloOk": true, "isWritablePrimary": true, "ismaster": true, "setName": "rs", "setVersion": 1, "hosts": [name],
            "me": name, "primary": name, "minWireVersion": 0, "maxWireVersion": wire, "maxBsonObjectSize": 16_777_216,
            "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000, "localTime": DateTime::now(),
        },
    );
    address
}

#[tokio::test]
async fn an_old_server_and_a_member_whose_name_does_not_resolve() {
    let db = test_db().await;
    let old = member(8, None);
    let said = format!("Server at {old} reports wire version 8");
    let uri = format!("mongodb://{old}/");
    assert_said(&db, &uri, &said, "MongoDB 4.4.2 or newer");
    // It is final: nothing is waited for.
    let begun = Instant::now();
    ends(at(&uri, &db, &WAITING), 125, &said);
    assert!(begun.elapsed() < SLACK, "{:?}", begun.elapsed());

    let member = member(17, Some("db-1.locks.invalid:27017"));
    let uri = format!("mongodb://{member}/?replicaSet=rs&serverSelectionTimeoutMS=1000");
    let said = "MongoDB cannot be reached: db-1.locks.invalid:27017 (";
    assert_said(&db, &uri, said, "`rs.conf()`");
}

#[tokio::test]
async fn a_server_that_wants_a_user_or_an_api_version() {
    let db = test_db().await;
    let users = must(LentServer::with_users().await);
    let uri = format!("mongodb://{}/", users.node().address());
    assert_said(&db, &uri, "requires authentication", "a user and a password");

    let server = must(Server::start(ServerOptions::standalone()).await);
    let admin = must(server.client().await).database("admin");
    let required = doc! { "setParameter": 1, "requireApiVersion": true };
    must(admin.run_command(required).await);
    let address = server.node().address();
    let uri = format!("mongodb://{address}/?serverSelectionTimeoutMS=1000");
    let said = format!("MongoDB cannot be reached: {address} (Command failed: Error code 498870");
    assert_said(&db, &uri, &said, "`requireApiVersion`");
}

/// One attempt ends soon, also where the members answer and none is primary.
#[tokio::test]
async fn without_a_primary_no_wait_ends_soon() {
    let db = test_db().await;
    let set = Set::uninitiated("none", 1).await;
    let directory = must(tempfile::tempdir());
    let handle = directory.path().join("lease");
    let handle = must(handle.to_str().ok_or("a path"));
    let acquire = ["acquire", "a", "--no-wait", "--ttl", "1m", "--handle", handle];
    let one = set.address(0);
    for place in [one, &format!("{one}/?directConnection=true"), "127.0.0.1:1"] {
        let uri = format!("mongodb://{place}");
        thread::scope(|scope| {
            for command in [
                &["run", "a", "--no-wait", "--", "true"][..],
                &["hold", "a", "b", "--no-wait", "--for", "1m"],
                &acquire,
            ] {
                let (uri, db) = (&uri, &db);
                scope.spawn(move || {
                    let begun = Instant::now();
                    let (code, _, said) = output(at(uri, db, command));
                    assert_eq!(code, Some(125), "{said}");
                    let took = begun.elapsed();
                    assert!(took < PROMPT + SLACK, "{command:?}: {took:?}");
                    let names_rust = said.contains("LockProvider") || said.contains("acquire_timeout");
                    assert!(!names_rust, "{said}");
                });
            }
        });
        assert!(!Path::new(handle).exists());
    }
}

/// Servers of other makers refuse what they do not know in one of these ways.
#[tokio::test]
async fn a_server_that_does_not_know_the_commands() {
    let server = must(LentServer::single().await);
    let db = test_db().await;
    for code in [9, 59, 115, 40324] {
        let point = FailPoint::on(&["findAndModify", "update"])
            .always()
            .error_code(code);
        let point = must(point.enable(&server.uri()).await);
        let command = at(&server.uri(), &db, &WAITING);
        let said = ends(command, 125, "needs MongoDB 4.4.2 or newer");
        assert!(said.contains("Amazon DocumentDB"), "{code}: {said}");
        let refused = "WRONG    majority write  a write is refused: ";
        ends(at(&server.uri(), &db, &["doctor"]), 1, refused);
        must(point.clear().await);
    }
}
