//! Names without a directory. Alone in its binary, because it changes the working directory of its process.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::fs;
use std::path::Path;

use toolcell_fs::{PRIVATE, Rules};

#[test]
fn name_without_a_directory_is_in_the_working_directory() {
    let [here, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    std::env::set_current_dir(&here).unwrap();
    let here = here.path().canonicalize().unwrap();
    let name = Path::new("file");
    toolcell_fs::replace(name, b"x", PRIVATE).unwrap();
    assert_eq!(fs::read(here.join(name)).unwrap(), b"x");
    assert_eq!(toolcell_fs::read(name, &Rules::own(9)).unwrap(), b"x");
    let database = toolcell_fs::database(Path::new("db.sqlite")).unwrap();
    assert_eq!(database, here.join("db.sqlite"));

    // A file is written in its own directory, and nothing of it elsewhere.
    fs::remove_dir_all(&here).unwrap();
    let path = other.path().join(name);
    toolcell_fs::replace(&path, b"y", PRIVATE).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"y");
}
