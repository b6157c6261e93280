//! The contract on PostgreSQL.

use crate::support::Postgres;
use greenroom::store::{Durability, Store, StoreOptions};
use greenroom_actors::ports::Journal;
use std::sync::Arc;

pub(crate) async fn open(address: &str) -> Store {
    open_with(address, StoreOptions::default()).await
}

pub(crate) async fn open_with(address: &str, options: StoreOptions) -> Store {
    let database: greenroom::store::DatabaseLocation = address.parse().unwrap();
    Store::open(database, options).await.unwrap()
}

async fn open_empty_with(durability: Durability) -> (Arc<dyn Journal>, ()) {
    let address = Postgres::shared().create_database().await;
    let options = StoreOptions { durability, ..StoreOptions::default() };
    (Arc::new(open_with(&address, options).await), ())
}

mod durability_fsync {
    async fn open_empty() -> (std::sync::Arc<dyn super::Journal>, ()) {
        super::open_empty_with(super::Durability::Fsync).await
    }
    crate::cases::contract_tests! { open_empty }
}

mod durability_process {
    async fn open_empty() -> (std::sync::Arc<dyn super::Journal>, ()) {
        super::open_empty_with(super::Durability::Process).await
    }
    crate::cases::contract_tests! { open_empty }
}
