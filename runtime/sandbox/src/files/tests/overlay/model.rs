//! An overlay behaves like a directory, whatever the operations.

use super::*;

/// One operation of a program.
#[derive(Debug, Clone)]
enum Step {
    Write(usize),
    /// Writes what `a/x` contains at first.
    WriteOld(usize),
    Unlink(usize),
    Mkdir(usize),
    Rmdir(usize),
    Rename(usize, usize),
    Link(usize, usize),
    Symlink(usize, usize),
    Read(usize),
    List(usize),
}

/// The link `m` leads to the directory `a`, until something takes its place.
const PATHS: [&str; 13] = [
    "a", "b", "c", "a/x", "a/y", "b/x", "l", "a/b", "b/a/x", "m", "m/x", "m/b", "m/b/x",
];

fn step() -> impl Strategy<Value = Step> {
    let path = || 0..PATHS.len();
    prop_oneof![
        3 => path().prop_map(Step::Write),
        2 => path().prop_map(Step::WriteOld),
        3 => path().prop_map(Step::Unlink),
        2 => path().prop_map(Step::Mkdir),
        2 => path().prop_map(Step::Rmdir),
        3 => (path(), path()).prop_map(|(a, b)| Step::Rename(a, b)),
        1 => (path(), path()).prop_map(|(a, b)| Step::Link(a, b)),
        1 => (path(), path()).prop_map(|(a, b)| Step::Symlink(a, b)),
        1 => path().prop_map(Step::Read),
        1 => path().prop_map(Step::List),
    ]
}

/// Performs a step, and returns the part of its result that must be the same.
async fn run(guest: &mut Guest, step: &Step, number: usize) -> Result<String, ErrorCode> {
    let done = |result: Result<(), ErrorCode>| result.map(|()| String::new());
    match *step {
        Step::Write(path) => done(
            guest
                .write(PATHS[path], format!("step {number}").as_bytes())
                .await,
        ),
        Step::WriteOld(path) => done(guest.write(PATHS[path], b"old a/x").await),
        Step::Unlink(path) => done(guest.unlink(PATHS[path]).await),
        Step::Mkdir(path) => done(guest.mkdir(PATHS[path]).await),
        Step::Rmdir(path) => done(guest.rmdir(PATHS[path]).await),
        Step::Rename(from, to) => done(guest.rename((0, PATHS[from]), (0, PATHS[to])).await),
        Step::Link(from, to) => done(guest.link((0, PATHS[from]), (0, PATHS[to])).await),
        Step::Symlink(target, path) => {
            let name = PATHS[target].rsplit('/').next().unwrap();
            done(guest.symlink(name, PATHS[path]).await)
        }
        Step::Read(path) => guest
            .read(PATHS[path])
            .await
            .map(|b| String::from_utf8(b).unwrap()),
        Step::List(path) => guest.list(PATHS[path]).await.map(|names| names.join(",")),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn overlay_behaves_like_the_directory_itself(
        steps in prop::collection::vec(step(), 0..25)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let scratch = scratch();
            symlink("a", scratch.host.join("m")).unwrap();
            let before = tree(&scratch.host);
            let plain = tempfile::tempdir().unwrap();
            plant(plain.path());
            symlink("a", plain.path().join("m")).unwrap();
            let mut expected = Guest::new(&[(plain.path(), "/w", "write")]);
            let mut guest = scratch.guest("write");
            for (number, step) in steps.iter().enumerate() {
                if let Step::Rename(from, _) = step
                    && fs::symlink_metadata(plain.path().join(PATHS[*from])).is_ok_and(|m| m.is_dir())
                {
                    // The one difference: the program would copy.
                    continue;
                }
                let (theirs, ours) = (run(&mut expected, step, number).await, run(&mut guest, step, number).await);
                prop_assert_eq!(theirs.is_ok(), ours.is_ok(), "{:?}: {:?} {:?}", step, theirs, ours);
                if let (Ok(theirs), Ok(ours)) = (theirs, ours) {
                    prop_assert_eq!(theirs, ours, "{:?}", step);
                }
            }
            let mut visible = BTreeMap::new();
            seen(&mut guest, "", &mut visible).await;
            prop_assert_eq!(&visible, &tree(plain.path()));
            prop_assert_eq!(&tree(&scratch.host), &before);
            let listed = changes(&scratch.host, &scratch.overlay, &options()).unwrap().found;
            prop_assert_eq!(listed.is_empty(), visible == before, "{:?}", listed);
            commit(&scratch.host, &scratch.overlay, OnConflict::Refuse, &options()).unwrap();
            prop_assert_eq!(tree(&scratch.host), visible);
            prop_assert!(changes(&scratch.host, &scratch.overlay, &options()).unwrap().found.is_empty());
            Ok(())
        })?;
    }
}
