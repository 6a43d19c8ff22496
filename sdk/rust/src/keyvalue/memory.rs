//! In-memory buckets for tests without a host.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::Refused;
use crate::show;

type Pairs = BTreeMap<String, Vec<u8>>;

thread_local! {
    static BUCKETS: RefCell<BTreeMap<String, Pairs>> = const { RefCell::new(BTreeMap::new()) };
}

#[derive(Debug)]
pub(super) struct Bucket(String);

impl Bucket {
    #[expect(clippy::unnecessary_wraps, reason = "the one of a component fails")]
    pub(super) fn open(name: &str) -> Result<Self, Refused> {
        Ok(Self(name.to_owned()))
    }

    fn with<T>(&self, work: impl FnOnce(&mut Pairs) -> T) -> T {
        BUCKETS.with_borrow_mut(|buckets| work(buckets.entry(self.0.clone()).or_default()))
    }

    pub(super) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Refused> {
        Ok(self.with(|pairs| pairs.get(key).cloned()))
    }

    pub(super) fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, Refused> {
        Ok(self.with(|pairs| keys.iter().map(|key| pairs.get(key).cloned()).collect()))
    }

    pub(super) fn set(&self, key: &str, value: &[u8]) -> Result<(), Refused> {
        self.with(|pairs| pairs.insert(key.to_owned(), value.to_owned()));
        Ok(())
    }

    pub(super) fn set_many(&self, new: &[(String, Vec<u8>)]) -> Result<(), Refused> {
        self.with(|pairs| pairs.extend(new.iter().cloned()));
        Ok(())
    }

    pub(super) fn delete(&self, key: &str) -> Result<(), Refused> {
        self.with(|pairs| pairs.remove(key));
        Ok(())
    }

    pub(super) fn delete_many(&self, keys: &[String]) -> Result<(), Refused> {
        self.with(|pairs| pairs.retain(|key, _| !keys.contains(key)));
        Ok(())
    }

    pub(super) fn exists(&self, key: &str) -> Result<bool, Refused> {
        Ok(self.with(|pairs| pairs.contains_key(key)))
    }

    pub(super) fn list_keys(&self, _: Option<u64>) -> Result<(Vec<String>, Option<u64>), Refused> {
        Ok((self.with(|pairs| pairs.keys().cloned().collect()), None))
    }

    pub(super) fn increment(&self, key: &str, delta: u64) -> Result<u64, Refused> {
        self.with(|pairs| {
            let number = match pairs.get(key) {
                None => 0,
                Some(value) => std::str::from_utf8(value)
                    .ok()
                    .and_then(|digits| digits.parse::<u64>().ok())
                    .ok_or_else(|| {
                        Refused::Other(format!("the value of {} is not a number", show::quoted(key)))
                    })?,
            };
            let sum = number.saturating_add(delta);
            pairs.insert(key.to_owned(), sum.to_string().into_bytes());
            Ok(sum)
        })
    }
}
