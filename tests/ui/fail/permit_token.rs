use mongodb::bson::{Document, doc};
use mongolock::{FencedExt, LockError, Permit};

async fn write(permit: Permit, exports: mongodb::Collection<Document>) -> Result<(), LockError> {
    exports.fenced(permit.fencing_token()).insert_one(doc! { "_id": 1 }).await?;
    Ok(())
}

fn main() {}
