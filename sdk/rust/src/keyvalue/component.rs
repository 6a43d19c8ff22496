//! Buckets of the host.

use super::Refused;
use crate::generated::keyvalue::wasi::keyvalue::{atomics, batch, store};

pub(super) struct Bucket(store::Bucket);

impl From<store::Error> for Refused {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::NoSuchStore => Self::NoSuchStore,
            store::Error::AccessDenied => Self::Denied,
            store::Error::Other(why) => Self::Other(why),
        }
    }
}

impl Bucket {
    pub(super) fn open(name: &str) -> Result<Self, Refused> {
        Ok(Self(store::open(name)?))
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Refused> {
        Ok(self.0.get(key)?)
    }

    pub(super) fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, Refused> {
        let pairs = batch::get_many(&self.0, keys)?;
        Ok(pairs.into_iter().map(|pair| Some(pair?.1)).collect())
    }

    pub(super) fn set(&self, key: &str, value: &[u8]) -> Result<(), Refused> {
        Ok(self.0.set(key, value)?)
    }

    pub(super) fn set_many(&self, pairs: &[(String, Vec<u8>)]) -> Result<(), Refused> {
        Ok(batch::set_many(&self.0, pairs)?)
    }

    pub(super) fn delete(&self, key: &str) -> Result<(), Refused> {
        Ok(self.0.delete(key)?)
    }

    pub(super) fn delete_many(&self, keys: &[String]) -> Result<(), Refused> {
        Ok(batch::delete_many(&self.0, keys)?)
    }

    pub(super) fn exists(&self, key: &str) -> Result<bool, Refused> {
        Ok(self.0.exists(key)?)
    }

    pub(super) fn list_keys(&self, cursor: Option<u64>) -> Result<(Vec<String>, Option<u64>), Refused> {
        let page = self.0.list_keys(cursor)?;
        Ok((page.keys, page.cursor))
    }

    pub(super) fn increment(&self, key: &str, delta: u64) -> Result<u64, Refused> {
        Ok(atomics::increment(&self.0, key, delta)?)
    }
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bucket")
    }
}
