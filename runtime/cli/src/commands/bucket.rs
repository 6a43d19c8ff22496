//! `toolcell bucket`: the buckets in which tools keep values between calls.

use std::sync::Arc;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use toolcell_core::suggest::nearest;
use toolcell_core::{Blob, Content, KeyValueStore as _};
use toolcell_store::{BucketInfo, SqliteBuckets};

use crate::components::buckets;
use crate::config::units::{Bytes, Count};
use crate::databases::Database;
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::render::json::print_line;
use crate::ui::render::{Console, content};
use crate::ui::terminal::{FAINT, Name, Own, STRONG, Text, inert_line, text};

/// Number of values read at a time: 16 MiB if all have the maximum size.
const AT_ONCE: usize = 16;

/// Maximum number of characters shown of a key or a value in a list.
const MAX_SHOWN: usize = 100;

/// List, show, export and clear buckets, or begin a new file of them.
#[derive(Debug, Subcommand)]
pub(crate) enum Bucket {
    List(List),
    Show(Show),
    Export(Export),
    Clear(Clear),
    #[command(name = "set-aside")]
    SetAside(SetAside),
}

/// List all buckets with their sizes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell bucket list
  toolcell bucket list --json")]
pub(crate) struct List {
    /// Print one JSON array.
    #[arg(long)]
    json: bool,
}

/// Show the keys of a bucket and the beginnings of their values, or the whole value of one key.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell bucket show memory
  toolcell bucket show memory next")]
pub(crate) struct Show {
    /// Name of the bucket.
    bucket: String,
    /// Key whose value to print.
    key: Option<String>,
}

/// Print all pairs of a bucket as JSON lines: `key`, and `text`, or `data` in Base64.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell bucket export memory > memory.jsonl")]
pub(crate) struct Export {
    /// Name of the bucket.
    bucket: String,
}

/// Delete a bucket with everything in it.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell bucket clear memory")]
pub(crate) struct Clear {
    /// Name of the bucket.
    bucket: String,
}

/// Rename the file of all buckets, so that the next write begins a new one.
///
/// For a file that is damaged or was made by a newer version. Nothing is deleted: the old file stays beside the new one. End
/// other processes of Toolcell first: what they write until then goes into the old file.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  toolcell bucket set-aside")]
pub(crate) struct SetAside {}

impl Bucket {
    pub(crate) async fn run(self, environment: &Environment, console: &Console) -> Result<Exit, Failure> {
        if let Self::SetAside(_) = self {
            Database::Buckets.set_aside(environment, console)?;
            return Ok(Exit::Ok);
        }
        let store = buckets::existing(environment)?;
        let of_store = |error| buckets::unusable(environment, error);
        let all = match &store {
            Some(store) => store.buckets().await.map_err(of_store)?,
            None => Vec::new(),
        };
        match self {
            Self::List(List { json }) => list(&all, json, console)?,
            Self::Show(Show { bucket, key }) => {
                let store = find(store, &all, &bucket)?;
                match key {
                    Some(key) => value(&store, &bucket, key, environment, console).await?,
                    None => {
                        let shown = |key: &str, value: Vec<u8>| line(console, key, &value);
                        each(&store, &bucket, environment, shown).await?;
                    }
                }
            }
            Self::Export(Export { bucket }) => {
                let store = find(store, &all, &bucket)?;
                let print = |key: &str, value| print_line(console, &pair(key, value)).map_err(Failure::from);
                each(&store, &bucket, environment, print).await?;
            }
            Self::Clear(Clear { bucket }) => {
                let store = find(store, &all, &bucket)?;
                let keys = store.clear(&bucket).await.map_err(of_store)?;
                console.note(text!("cleared `{}`: {} deleted", bucket, count(keys)));
            }
            Self::SetAside(_) => {}
        }
        Ok(Exit::Ok)
    }
}

fn list(all: &[BucketInfo], json: bool, console: &Console) -> Result<(), Failure> {
    if json {
        let array: Vec<Value> = all
            .iter()
            .map(|info| json!({ "bucket": info.name, "keys": info.keys, "bytes": info.bytes }))
            .collect();
        print_line(console, &array)?;
        return Ok(());
    }
    if all.is_empty() {
        console.note("there are no buckets");
        return Ok(());
    }
    let width = all.iter().map(|info| info.name.len()).max().unwrap_or(0);
    console.write(|s| {
        for info in all {
            s.out.cell(STRONG, text!("{}", Name(&info.name)), width)?;
            s.out
                .styled(FAINT, text!("  {}  {}", count(info.keys), Bytes(info.bytes)))?;
            s.out.end_line()?;
        }
        s.out.flush()
    })?;
    Ok(())
}

fn count(keys: u64) -> Text {
    text!("{} {}", Count(keys), Own(if keys == 1 { "key" } else { "keys" }))
}

/// Returns the store, if it has the bucket.
fn find(
    store: Option<Arc<SqliteBuckets>>,
    all: &[BucketInfo],
    bucket: &str,
) -> Result<Arc<SqliteBuckets>, Failure> {
    let names: Vec<&str> = all.iter().map(|info| info.name.as_str()).collect();
    match store {
        Some(store) if names.contains(&bucket) => Ok(store),
        _ => {
            let failure = Failure::new(Exit::Usage, text!("there is no bucket `{}`", bucket));
            Err(match nearest(bucket, &names).first() {
                Some(near) => failure.hint(text!("did you mean `{}`?", near)),
                None => failure.hint("`toolcell bucket list` lists all"),
            })
        }
    }
}

/// Passes each pair of a bucket to `take`.
async fn each(
    store: &SqliteBuckets,
    bucket: &str,
    environment: &Environment,
    mut take: impl FnMut(&str, Vec<u8>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let of_store = |error| buckets::unusable(environment, error);
    let bucket = store.open(bucket).await.map_err(of_store)?;
    let mut cursor = None;
    loop {
        let page = bucket.list(cursor).await.map_err(of_store)?;
        for keys in page.keys.chunks(AT_ONCE) {
            let values = bucket.get(keys.to_vec(), u64::MAX).await.map_err(of_store)?;
            for (key, value) in keys.iter().zip(values) {
                // A key that was deleted meanwhile has none.
                if let Some(value) = value {
                    take(key, value)?;
                }
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Prints a key, the size of its value, and the beginning of the value if it is text.
fn line(console: &Console, key: &str, value: &[u8]) -> Result<(), Failure> {
    let begins = std::str::from_utf8(value).map_or_else(|_| String::new(), shown);
    console.write(|s| {
        s.out.styled(STRONG, text!("{}", shown(key)))?;
        s.out.styled(FAINT, text!("  {}", Bytes(value.len() as u64)))?;
        s.out.text(text!("  {}", begins))?;
        s.out.end_line()?;
        s.out.flush()
    })?;
    Ok(())
}

fn shown(text: &str) -> String {
    let text = inert_line(text);
    match text.char_indices().nth(MAX_SHOWN) {
        None => text,
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// Prints the whole value of one key: text, or a JSON object with the bytes.
async fn value(
    store: &SqliteBuckets,
    bucket: &str,
    key: String,
    environment: &Environment,
    console: &Console,
) -> Result<(), Failure> {
    let of_store = |error| buckets::unusable(environment, error);
    let open = store.open(bucket).await.map_err(of_store)?;
    let found = open.get(vec![key.clone()], u64::MAX).await.map_err(of_store)?;
    let Some(value) = found.into_iter().next().flatten() else {
        return Err(
            Failure::new(Exit::Usage, text!("the bucket `{}` has no key `{}`", bucket, key))
                .hint(text!("`toolcell bucket show {}` shows all keys", bucket)),
        );
    };
    match String::from_utf8(value) {
        Ok(text) => {
            console.write(|s| content::write(&mut s.out, &[Content::text(text)]))?;
        }
        Err(error) => print_line(console, &pair(&key, error.into_bytes()))?,
    }
    Ok(())
}

/// A pair as JSON.
fn pair(key: &str, value: Vec<u8>) -> Value {
    match String::from_utf8(value) {
        Ok(text) => json!({ "key": key, "text": text }),
        Err(error) => {
            let blob = Blob {
                media_type: String::new(),
                data: error.into_bytes(),
            };
            let data = serde_json::to_value(blob).unwrap_or_default();
            json!({ "key": key, "data": data["data"] })
        }
    }
}
