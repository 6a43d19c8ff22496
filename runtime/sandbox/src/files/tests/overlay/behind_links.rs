//! What lies behind a link of the granted directory is not in the place of what a tool made there.

use super::*;

#[tokio::test]
async fn directory_in_place_of_a_link_is_compared_with_nothing() {
    let scratch = scratch();
    symlink("a", scratch.host.join("m")).unwrap();
    let mut guest = scratch.guest("write");
    guest.unlink("m").await.unwrap();
    guest.mkdir("m").await.unwrap();
    // The same as the file behind the link, and another.
    guest.write("m/x", b"old a/x").await.unwrap();
    guest.write("m/y", b"new").await.unwrap();
    assert_eq!(scratch.changes(), ["~m", "+m/x", "+m/y"]);
    let path = Path::new("m/y");
    let new = Version::File {
        len: 3,
        bytes: Some(b"new".to_vec()),
    };
    let found = versions(&scratch.host, &scratch.overlay, path, 100).unwrap();
    assert_eq!(found, (Version::Nothing, new));
    // What lies behind the link is not replaced: its changes do not matter.
    fs::write(scratch.host.join("a/y"), "meanwhile").unwrap();
    commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options()).unwrap();
    assert_eq!(fs::read_to_string(scratch.host.join("m/x")).unwrap(), "old a/x");
    assert_eq!(fs::read_to_string(scratch.host.join("m/y")).unwrap(), "new");
    assert_eq!(fs::read_to_string(scratch.host.join("a/y")).unwrap(), "meanwhile");
}

#[tokio::test]
async fn link_in_place_of_a_directory_hides_what_it_held() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    guest.unlink("b/x").await.unwrap();
    guest.rmdir("b").await.unwrap();
    guest.symlink("a", "b").await.unwrap();
    guest.write("a/x", b"new").await.unwrap();
    assert_eq!(scratch.changes(), ["~a/x", "~b", "-b/x"]);
    commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options()).unwrap();
    assert_eq!(fs::read_link(scratch.host.join("b")).unwrap(), Path::new("a"));
    assert_eq!(fs::read_to_string(scratch.host.join("b/x")).unwrap(), "new");
}

#[tokio::test]
async fn directory_that_became_a_link_meanwhile_is_a_conflict() {
    let scratch = scratch();
    let mut guest = scratch.guest("write");
    guest.write("b/x", b"new").await.unwrap();
    fs::remove_dir_all(scratch.host.join("b")).unwrap();
    symlink("a", scratch.host.join("b")).unwrap();
    let found = conflicts(&scratch.host, &scratch.overlay, &options()).unwrap();
    assert_eq!(found, [Path::new("b"), Path::new("b/x")]);
}
