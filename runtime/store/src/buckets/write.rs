//! Write operations on the tables.

use rusqlite::{Connection, OptionalExtension as _};
use toolcell_core::KeyValueError;
use toolcell_core::keyvalue::Quota;

use super::{BucketLimits, failed};
use crate::threads::Operation;

/// Write operation on a bucket.
pub(super) struct Write {
    pub(super) bucket: String,
    pub(super) limits: BucketLimits,
    pub(super) op: Op,
}

pub(super) enum Op {
    Set(Vec<(String, Vec<u8>)>),
    Delete(Vec<String>),
    Increment {
        key: String,
        delta: u64,
    },
    /// Removes the bucket itself.
    Clear,
}

impl Operation for Write {
    type Error = KeyValueError;

    const MAX_GROUP: usize = 256;

    /// Returns the sum of an increment, or the number of removed pairs of a bucket; 0 for other operations.
    fn perform(&self, transaction: &Connection) -> Result<u64, KeyValueError> {
        perform(transaction, self.limits, &self.bucket, &self.op)
    }

    fn removes(&self) -> bool {
        matches!(self.op, Op::Delete(_) | Op::Clear)
    }
}

fn perform(connection: &Connection, limits: BucketLimits, name: &str, op: &Op) -> Result<u64, KeyValueError> {
    let mut bucket = Filling::of(connection, name).map_err(failed)?;
    let before = (bucket.keys, bucket.bytes);
    let mut sum = 0;
    match op {
        Op::Set(pairs) => {
            for (key, value) in pairs {
                bucket.put(connection, key, value).map_err(failed)?;
            }
        }
        Op::Delete(keys) => {
            for key in keys {
                bucket.remove(connection, key).map_err(failed)?;
            }
        }
        Op::Increment { key, delta } => {
            sum = number(bucket.value(connection, key).map_err(failed)?, key)?
                .checked_add(*delta)
                .ok_or_else(|| KeyValueError::Overflow { key: key.clone() })?;
            let digits = sum.to_string();
            bucket.put(connection, key, digits.as_bytes()).map_err(failed)?;
        }
        Op::Clear => {
            bucket.clear(connection).map_err(failed)?;
            return Ok(u64::try_from(before.0).unwrap_or(0));
        }
    }
    // A bucket that exceeds a lowered limit may still shrink.
    for (now, before, limit, of) in [
        (bucket.keys, before.0, limits.keys, Quota::Keys),
        (bucket.bytes, before.1, limits.bytes, Quota::Bytes),
    ] {
        if u64::try_from(now).is_ok_and(|now| now > limit) && now > before {
            return Err(KeyValueError::Full { limit, of });
        }
    }
    bucket.keep(connection).map_err(failed)?;
    Ok(sum)
}

fn number(value: Option<Vec<u8>>, key: &str) -> Result<u64, KeyValueError> {
    let Some(value) = value else { return Ok(0) };
    let digits = std::str::from_utf8(&value).ok();
    let digits = digits.filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| KeyValueError::NotANumber { key: key.to_owned() })
}

fn signed(len: usize) -> i64 {
    i64::try_from(len).unwrap_or(i64::MAX)
}

/// Size of a bucket, in the integers of SQLite.
struct Filling {
    id: i64,
    keys: i64,
    bytes: i64,
}

impl Filling {
    fn of(connection: &Connection, name: &str) -> rusqlite::Result<Self> {
        connection
            .prepare_cached("INSERT INTO buckets (name) VALUES (?1) ON CONFLICT (name) DO NOTHING")?
            .execute([name])?;
        connection
            .prepare_cached("SELECT id, keys, bytes FROM buckets WHERE name = ?1")?
            .query_row([name], |row| {
                Ok(Self {
                    id: row.get(0)?,
                    keys: row.get(1)?,
                    bytes: row.get(2)?,
                })
            })
    }

    fn value(&self, connection: &Connection, key: &str) -> rusqlite::Result<Option<Vec<u8>>> {
        connection
            .prepare_cached("SELECT value FROM pairs WHERE bucket = ?1 AND key = ?2")?
            .query_row((self.id, key), |row| row.get(0))
            .optional()
    }

    /// Size of the value of a key in bytes, if the key exists.
    fn size(&self, connection: &Connection, key: &str) -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached("SELECT length(value) FROM pairs WHERE bucket = ?1 AND key = ?2")?
            .query_row((self.id, key), |row| row.get(0))
            .optional()
    }

    fn put(&mut self, connection: &Connection, key: &str, value: &[u8]) -> rusqlite::Result<()> {
        match self.size(connection, key)? {
            Some(old) => self.bytes -= old,
            None => {
                self.keys += 1;
                self.bytes += signed(key.len());
            }
        }
        self.bytes += signed(value.len());
        let sql = "INSERT INTO pairs (bucket, key, value) VALUES (?1, ?2, ?3)
                   ON CONFLICT (bucket, key) DO UPDATE SET value = excluded.value";
        connection.prepare_cached(sql)?.execute((self.id, key, value))?;
        Ok(())
    }

    fn remove(&mut self, connection: &Connection, key: &str) -> rusqlite::Result<()> {
        if let Some(old) = self.size(connection, key)? {
            self.keys -= 1;
            self.bytes -= old + signed(key.len());
            connection
                .prepare_cached("DELETE FROM pairs WHERE bucket = ?1 AND key = ?2")?
                .execute((self.id, key))?;
        }
        Ok(())
    }

    fn clear(&self, connection: &Connection) -> rusqlite::Result<()> {
        for sql in [
            "DELETE FROM pairs WHERE bucket = ?1",
            "DELETE FROM buckets WHERE id = ?1",
        ] {
            connection.prepare_cached(sql)?.execute([self.id])?;
        }
        Ok(())
    }

    fn keep(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection
            .prepare_cached("UPDATE buckets SET keys = ?2, bytes = ?3 WHERE id = ?1")?
            .execute((self.id, self.keys, self.bytes))?;
        Ok(())
    }
}
