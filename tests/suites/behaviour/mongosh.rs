//! The `mongosh` calls in the guide's pages, sent as commands: the pages and the tests cannot drift apart.

use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};

/// One call on a page, such as `db.distributed_locks.findOne({ "_id": "report:42" })`.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The database that `getSiblingDB` names; without it the call is for the current database.
    database: Option<String>,
    /// The collection, unless the method is one of the database.
    collection: Option<String>,
    method: String,
    arguments: Vec<Document>,
}

/// The calls in the `js` blocks of a page, with the comment above each of them.
pub(crate) fn calls(page: &str) -> Vec<(String, Call)> {
    let blocks = page.split("```js\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or_default());
    let statements = blocks.flat_map(|block| block.split("\n\n"));
    statements.map(described).collect()
}

/// The only call of a page whose comment has this text in it.
pub(crate) fn call(page: &str, comment: &str) -> Call {
    let mut found = calls(page);
    found.retain(|(described, _)| described.contains(comment));
    assert_eq!(found.len(), 1, "calls with the comment {comment:?}");
    found.remove(0).1
}

fn described(statement: &str) -> (String, Call) {
    let is_comment = |line: &&str| line.starts_with("//");
    let comment: Vec<&str> = statement.lines().filter(is_comment).collect();
    let code: Vec<&str> = statement.lines().filter(|line| !is_comment(line)).collect();
    (comment.join("\n"), parse(&code.join("\n")))
}

fn parse(code: &str) -> Call {
    let code = code.trim();
    let rest = code.strip_prefix("db.").expect("a call begins with `db.`");
    let (database, rest) = match rest.strip_prefix("getSiblingDB(\"") {
        Some(rest) => {
            let (name, rest) = rest.split_once("\").").expect("the name of a database");
            (Some(name.to_owned()), rest)
        }
        None => (None, rest),
    };
    let (target, arguments) = rest.split_once('(').expect("the arguments of a call");
    let (collection, method) = match target.split_once('.') {
        Some((collection, method)) => (Some(collection.to_owned()), method),
        None => (None, target),
    };
    Call {
        database,
        collection,
        method: method.to_owned(),
        arguments: documents(arguments.strip_suffix(')').expect("the end of a call")),
    }
}

/// The arguments, which the pages write as extended JSON. A pipeline becomes a document with the pipeline as its only
/// field.
fn documents(arguments: &str) -> Vec<Document> {
    let arguments = arguments.replace("passwordPrompt()", &format!("{PASSWORD:?}"));
    let json: Vec<serde_json::Value> = serde_json::from_str(&format!("[{arguments}]"))
        .unwrap_or_else(|error| panic!("{error}: {arguments}"));
    let document = |value| match Bson::try_from(value).unwrap() {
        Bson::Document(document) => document,
        pipeline => doc! { PIPELINE: pipeline },
    };
    json.into_iter().map(document).collect()
}

/// What a user types at the prompt for a password.
pub(crate) const PASSWORD: &str = "typed at the prompt";

const PIPELINE: &str = "pipeline";

impl Call {
    /// Sends the call as `mongosh` does, and returns the server's reply.
    pub(crate) async fn run(&self, current: &Database) -> Document {
        let database = match &self.database {
            Some(name) => current.client().database(name),
            None => current.clone(),
        };
        database.run_command(self.command()).await.unwrap()
    }

    fn command(&self) -> Document {
        let collection = self.collection.as_deref().unwrap_or_default();
        let argument = |index: usize| self.arguments.get(index).cloned().unwrap_or_default();
        let pipeline = |index| argument(index).remove(PIPELINE).expect("a pipeline");
        match &*self.method {
            "find" => doc! { "find": collection, "filter": argument(0), "projection": argument(1) },
            "findOne" => {
                doc! { "find": collection, "filter": argument(0), "projection": argument(1), "limit": 1 }
            }
            "aggregate" => doc! { "aggregate": collection, "pipeline": pipeline(0), "cursor": {} },
            "updateOne" | "updateMany" => {
                let multi = self.method == "updateMany";
                let update = doc! { "q": argument(0), "u": pipeline(1), "multi": multi };
                let mut command = doc! { "update": collection, "updates": [update] };
                command.extend(argument(2));
                command
            }
            "createIndex" => {
                let mut index = doc! { "key": argument(0) };
                index.extend(argument(1));
                doc! { "createIndexes": collection, "indexes": [index] }
            }
            "createRole" => renamed(argument(0), "role", "createRole"),
            "createUser" => renamed(argument(0), "user", "createUser"),
            other => panic!("this suite cannot send `{other}`"),
        }
    }
}

/// A command whose first field is this field of the document, and that has the other fields as well.
fn renamed(mut document: Document, field: &str, command: &str) -> Document {
    let name = document.remove(field).expect("a name");
    let mut renamed = doc! { command: name };
    renamed.extend(document);
    renamed
}

/// The documents in the reply to a query.
pub(crate) fn found(reply: &Document) -> Vec<Document> {
    let batch = reply
        .get_document("cursor")
        .unwrap()
        .get_array("firstBatch")
        .unwrap();
    batch
        .iter()
        .map(|found| found.as_document().unwrap().clone())
        .collect()
}
