//! The `mongosh` calls in the guide's pages, sent as commands: the pages and the tests cannot drift apart.

use mongodb::Database;
use mongodb::bson::{Bson, Document, doc};

/// What a user types at the prompt for a password.
pub(crate) const PASSWORD: &str = "typed at the prompt";

/// One call on a page, such as `db.distributed_locks.findOne({ "_id": "report:42" })`.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The database that `getSiblingDB` names; without it the call is for the current database.
    database: Option<String>,
    /// The collection, which is empty if the method is one of the database.
    collection: String,
    method: String,
    arguments: Vec<Bson>,
}

/// The calls in the `js` blocks of a page, with the comment above each of them.
pub(crate) fn calls(page: &str) -> Vec<(String, Call)> {
    let blocks = page.split("```js\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("```").next().unwrap_or_default());
    let statements = blocks.flat_map(|block| block.split("\n\n"));
    let described = |statement: &str| {
        let (comment, code): (Vec<&str>, Vec<&str>) =
            statement.lines().partition(|line| line.starts_with("//"));
        (comment.join("\n"), parse(&code.join("\n")))
    };
    statements.map(described).collect()
}

/// The only call of a page whose comment has this text in it.
pub(crate) fn call(page: &str, comment: &str) -> Call {
    let mut found = calls(page);
    found.retain(|(described, _)| described.contains(comment));
    assert_eq!(found.len(), 1, "calls with the comment {comment:?}");
    found.remove(0).1
}

/// The pages write the arguments as extended JSON.
fn parse(code: &str) -> Call {
    let code = code.trim().strip_prefix("db.").expect("a call begins with `db.`");
    let sibling = code.strip_prefix("getSiblingDB(\"");
    let (database, rest) = match sibling.and_then(|rest| rest.split_once("\").")) {
        Some((name, rest)) => (Some(name.to_owned()), rest),
        None => (None, code),
    };
    let (target, arguments) = rest.split_once('(').expect("the arguments of a call");
    let (collection, method) = target.split_once('.').unwrap_or(("", target));
    let arguments = arguments.strip_suffix(')').expect("the end of a call");
    let arguments = arguments.replace("passwordPrompt()", &format!("{PASSWORD:?}"));
    let json: Vec<serde_json::Value> = serde_json::from_str(&format!("[{arguments}]"))
        .unwrap_or_else(|error| panic!("{error}: {arguments}"));
    Call {
        database,
        collection: collection.to_owned(),
        method: method.to_owned(),
        arguments: json
            .into_iter()
            .map(|value| Bson::try_from(value).unwrap())
            .collect(),
    }
}

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
        let (collection, none) = (&*self.collection, || doc! {}.into());
        let argument = |index: usize| self.arguments.get(index).cloned().unwrap_or_else(none);
        let options = |mut command: Document, index: usize| {
            command.extend(argument(index).as_document().unwrap().clone());
            command
        };
        match &*self.method {
            "find" | "findOne" => {
                let limit = i32::from(self.method == "findOne");
                doc! { "find": collection, "filter": argument(0), "projection": argument(1), "limit": limit }
            }
            "aggregate" => doc! { "aggregate": collection, "pipeline": argument(0), "cursor": {} },
            "updateOne" | "updateMany" => {
                let multi = self.method == "updateMany";
                let update = doc! { "q": argument(0), "u": argument(1), "multi": multi };
                options(doc! { "update": collection, "updates": [update] }, 2)
            }
            "createIndex" => {
                let index = options(doc! { "key": argument(0) }, 1);
                doc! { "createIndexes": collection, "indexes": [index] }
            }
            "createRole" | "createUser" => {
                let mut created = options(doc! { &*self.method: "" }, 0);
                let name = created.remove(self.method["create".len()..].to_lowercase());
                created.insert(&*self.method, name.expect("a name"));
                created
            }
            other => panic!("this suite cannot send `{other}`"),
        }
    }
}

/// The documents in the reply to a query.
pub(crate) fn found(reply: &Document) -> Vec<Document> {
    let batch = reply.get_document("cursor").unwrap().get_array("firstBatch");
    let found = batch.unwrap().iter();
    let documents = found.map(|found| found.as_document().unwrap().clone());
    documents.collect()
}
