//! Storage on disk: sessions and buckets in SQLite, log files of sessions.
//!
//! | concept | module |
//! |---|---|
//! | sessions, [`toolcell_core::SessionStore`] | [`sessions`] |
//! | buckets, [`toolcell_core::KeyValueStore`] | [`buckets`] |
//! | log files, [`toolcell_core::EventSink`] | [`log_files`] |
//! | SQLite files: ownership, mode, version, durability | `sqlite` |
//! | group commit and concurrent reads of a SQLite file | `threads` |
//!
//! Every file is opened through `toolcell-fs`: links are not followed, files of other users are refused, new files are
//! private to their owner. The crate reads no environment and prints nothing.

pub mod buckets;
mod error;
pub mod log_files;
pub mod sessions;
mod sqlite;
mod threads;

pub use buckets::{BucketInfo, BucketLimits, SqliteBuckets};
pub use error::{SqliteError, is_damaged, is_full};
pub use log_files::{LogFiles, Tee};
pub use sessions::{DailyUse, Search, SqliteSessions, TurnUse, without_case};
