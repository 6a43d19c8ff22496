//! Queries. A bucket that was never written to is empty.

use rusqlite::{Connection, OptionalExtension as _};
use toolcell_core::KeyValueError;
use toolcell_core::keyvalue::KeyPage;

use super::{BucketInfo, failed};

/// Keys per page: 2 MiB if all have the maximum length.
pub(super) const PAGE: usize = 4_096;

/// Query of a page; its index has all that it returns.
pub(super) const LISTING: &str =
    "SELECT number, key FROM pairs WHERE bucket = ?1 AND number > ?2 ORDER BY number LIMIT ?3";

/// All buckets by name.
pub(super) fn buckets(connection: &Connection) -> Result<Vec<BucketInfo>, KeyValueError> {
    let sql = "SELECT name, keys, bytes FROM buckets ORDER BY name";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let size = |n: i64| u64::try_from(n).unwrap_or(0);
    let rows = statement.query_map([], |row| {
        Ok(BucketInfo {
            name: row.get(0)?,
            keys: size(row.get(1)?),
            bytes: size(row.get(2)?),
        })
    });
    rows.map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
}

/// The values of some keys in one snapshot.
pub(super) fn values(
    connection: &mut Connection,
    bucket: &str,
    keys: &[String],
    max_bytes: u64,
) -> Result<Vec<Option<Vec<u8>>>, KeyValueError> {
    let moment = connection.transaction().map_err(failed)?;
    let Some(bucket) = find(&moment, bucket)? else {
        return Ok(vec![None; keys.len()]);
    };
    let sql = "SELECT value FROM pairs WHERE bucket = ?1 AND key = ?2";
    let mut statement = moment.prepare_cached(sql).map_err(failed)?;
    let mut values = Vec::with_capacity(keys.len());
    let mut bytes = 0;
    for key in keys {
        let value: Option<Vec<u8>> = statement
            .query_row((bucket, key), |row| row.get(0))
            .optional()
            .map_err(failed)?;
        bytes += value.as_ref().map_or(0, |value| value.len() as u64);
        if bytes > max_bytes {
            return Err(KeyValueError::TooMuch { limit: max_bytes });
        }
        values.push(value);
    }
    Ok(values)
}

pub(super) fn exists(connection: &Connection, bucket: &str, key: &str) -> Result<bool, KeyValueError> {
    let sql = "SELECT 1 FROM pairs WHERE bucket = (SELECT id FROM buckets WHERE name = ?1) AND key = ?2";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    statement.exists((bucket, key)).map_err(failed)
}

/// The keys after the pair with the number `cursor`.
pub(super) fn page(
    connection: &Connection,
    bucket: &str,
    cursor: Option<u64>,
) -> Result<KeyPage, KeyValueError> {
    let after = cursor.map_or(0, |cursor| i64::try_from(cursor).unwrap_or(i64::MAX));
    let Some(bucket) = find(connection, bucket)? else {
        return Ok(KeyPage::default());
    };
    let mut statement = connection.prepare_cached(LISTING).map_err(failed)?;
    // One more row shows whether there is another page.
    let wanted = i64::try_from(PAGE + 1).unwrap_or(i64::MAX);
    let rows = statement
        .query_map((bucket, after, wanted), |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(failed)?;
    let mut rows: Vec<(i64, String)> = rows.collect::<Result<_, _>>().map_err(failed)?;
    let has_more = rows.len() > PAGE;
    rows.truncate(PAGE);
    let last = rows.last().and_then(|(number, _)| u64::try_from(*number).ok());
    Ok(KeyPage {
        cursor: last.filter(|_| has_more),
        keys: rows.into_iter().map(|(_, key)| key).collect(),
    })
}

fn find(connection: &Connection, bucket: &str) -> Result<Option<i64>, KeyValueError> {
    let sql = "SELECT id FROM buckets WHERE name = ?1";
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    statement
        .query_row([bucket], |row| row.get(0))
        .optional()
        .map_err(failed)
}
