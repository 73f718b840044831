//! The ordinary client of the tests: it declares the Stable API, so that the server refuses any command that it does not
//! promise to keep in later versions.

use std::env;

use mongodb::Client;
use mongodb::options::{ClientOptions, ServerApi, ServerApiVersion, WriteConcern};

use crate::error::SupportError;

/// The environment variable that `tests/servers.sh` sets for servers before 5.0. They have no Stable API, and a write that does
/// not say it is confirmed by the primary alone.
const BEFORE_5_0: &str = "MONGOLOCK_TESTS_BEFORE_5_0";

/// The options of a client with which the server refuses every command outside the Stable API V1, and every command in it
/// that is to be removed. A connection string cannot say this.
///
/// What the API does not have needs a client of its own: see
/// [`TestDb::without_stable_api`](crate::TestDb::without_stable_api) and [`Server::client`](crate::Server::client).
pub async fn stable_options(uri: impl AsRef<str>) -> Result<ClientOptions, SupportError> {
    let parsed = ClientOptions::parse(uri.as_ref()).await;
    let mut options = parsed.map_err(SupportError::at("connection string"))?;
    let api = ServerApi::builder()
        .version(ServerApiVersion::V1)
        .strict(true)
        .deprecation_errors(true)
        .build();
    if env::var_os(BEFORE_5_0).is_none() {
        options.server_api = Some(api);
    } else {
        options.write_concern.get_or_insert_with(WriteConcern::majority);
    }
    Ok(options)
}

/// A client with the [`stable_options`].
pub async fn stable_client(uri: impl AsRef<str>) -> Result<Client, SupportError> {
    let options = stable_options(uri).await?;
    Client::with_options(options).map_err(SupportError::at("connection string"))
}
