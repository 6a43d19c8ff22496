//! Long files are copied and compared off the worker.

use super::*;

/// Longer than any test waits for reading it, and sparse on disk.
const ENDLESS: u64 = 1 << 40;

fn endless(path: &Path) {
    fs::File::create(path).unwrap().set_len(ENDLESS).unwrap();
}

/// Operation of a guest on a file.
type Doing = for<'a> fn(&'a mut Guest, &'a str) -> std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;

const CHANGES: &[(&str, Doing)] = &[
    ("unlink", |guest, path| {
        Box::pin(async move { guest.unlink(path).await.unwrap() })
    }),
    ("rename", |guest, path| {
        Box::pin(async move { guest.rename((0, path), (0, "elsewhere")).await.unwrap() })
    }),
    ("truncate", |guest, path| {
        Box::pin(async move {
            let flags = DescriptorFlags::WRITE;
            guest.open(path, OpenFlags::TRUNCATE, flags).await.unwrap();
        })
    }),
    ("write", |guest, path| {
        Box::pin(async move {
            guest
                .open(path, OpenFlags::empty(), DescriptorFlags::WRITE)
                .await
                .unwrap();
        })
    }),
    ("link", |guest, path| {
        Box::pin(async move { guest.link((0, path), (0, "second")).await.unwrap() })
    }),
    ("set times", |guest, path| {
        Box::pin(async move {
            let root = guest.root(0);
            let (now, flags) = (NewTimestamp::Now, PathFlags::empty());
            code(
                guest
                    .view()
                    .set_times_at(root, flags, path.into(), now, now)
                    .await,
            )
            .unwrap();
        })
    }),
];

/// A guest whose call may write an unlimited amount.
fn changing(host: &Path, overlay: &Path) -> Guest {
    let limits = Limits {
        file_bytes: u64::MAX,
        ..Limits::default()
    };
    Guest::layered(host, overlay, "write", &limits)
}

#[test]
fn long_file_is_read_off_the_worker_and_only_during_the_call() {
    for (name, change) in CHANGES {
        let (host, overlay) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        endless(&host.path().join("endless"));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut guest = changing(host.path(), overlay.path());
            let mut work = change(&mut guest, "endless");
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(work.as_mut().poll(&mut context).is_pending(), "{name}");
        });
        // This waits for the reading thread, which would take an hour.
        drop(runtime);
        assert_eq!(
            fs::read_dir(overlay.path().join("work")).unwrap().count(),
            0,
            "{name}"
        );
    }
}

#[tokio::test]
async fn file_is_read_once_however_often_it_is_replaced() {
    let (host, overlay) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::write(host.path().join("a"), "old").unwrap();
    let mut guest = changing(host.path(), overlay.path());
    guest.write("new", b"1").await.unwrap();
    guest.rename((0, "new"), (0, "a")).await.unwrap();
    endless(&host.path().join("a"));
    guest.write("new", b"2").await.unwrap();
    guest.rename((0, "new"), (0, "a")).await.unwrap();
    assert_eq!(guest.read("a").await.unwrap(), b"2");
}
