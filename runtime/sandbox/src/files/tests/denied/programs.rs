//! Files that start programs.

use super::*;

#[tokio::test]
async fn files_that_start_programs_are_read_and_not_changed() {
    let tree = tree();
    for dir in [".git/hooks", ".github/workflows", "sub/.vscode"] {
        fs::create_dir_all(tree.root.join(dir)).unwrap();
    }
    let files = [
        ".git/hooks/x",
        ".github/workflows/x",
        "sub/.vscode/x",
        "toolcell.toml",
        "sub/toolcell.lock",
    ];
    for file in files {
        fs::write(tree.root.join(file), "old").unwrap();
    }
    for (made, mut guest) in ["made", "again"].into_iter().zip(tree.guests(&[])) {
        for file in files {
            assert_eq!(guest.read(file).await.unwrap(), b"old", "{file}");
            assert!(guest.write(file, b"x").await.is_err(), "{file}");
            assert!(guest.unlink(file).await.is_err(), "{file}");
            assert!(guest.rename((0, file), (0, "y")).await.is_err(), "{file}");
            assert!(guest.rename((0, "data/file"), (0, file)).await.is_err(), "{file}");
            assert!(guest.link((0, file), (0, "y")).await.is_err(), "{file}");
            let fd = guest
                .open(file, OpenFlags::empty(), DescriptorFlags::READ)
                .await
                .unwrap();
            let times = guest
                .view()
                .set_times(borrow(&fd), NewTimestamp::Now, NewTimestamp::Now)
                .await;
            assert!(times.is_err(), "{file}");
            assert!(guest.view().set_size(borrow(&fd), 0).await.is_err(), "{file}");
            guest.close(fd);
        }
        for new in [
            ".git/config",
            "deep/.GIT",
            ".envrc",
            ".jj",
            "HEAD",
            "data/HEAD",
            "data/Toolcell.TOML",
            "Jenkinsfile",
        ] {
            assert!(guest.write(new, b"x").await.is_err(), "{new}");
            assert!(guest.mkdir(new).await.is_err(), "{new}");
            assert!(guest.symlink("data", new).await.is_err(), "{new}");
            assert!(guest.link((0, "data/file"), (0, new)).await.is_err(), "{new}");
        }
        // A directory created elsewhere does not become one that starts programs.
        guest.mkdir(made).await.unwrap();
        guest.write(&format!("{made}/hooks"), b"x").await.unwrap();
        for to in [".git", "sub/.git", "data/.github", ".github", ".github/workflows"] {
            assert!(guest.rename((0, made), (0, to)).await.is_err(), "{to}");
            assert!(guest.symlink(made, to).await.is_err(), "{to}");
        }
        assert!(guest.rename((0, ".github"), (0, "z")).await.is_err());
        guest.write(".github/CODEOWNERS", b"x").await.unwrap();
        guest.write(".gitignore", b"x").await.unwrap();
    }
}

#[tokio::test]
async fn programs_are_changed_if_allowed_and_configuration_never() {
    let tree = tree();
    fs::create_dir(tree.root.join(".git")).unwrap();
    let granted = |host: PathBuf, programs| {
        let dir = DirGrant {
            host,
            guest: "/w".into(),
            access: DirAccess::WRITE,
            overlay: None,
        };
        let denied = Denials {
            programs,
            ..Denials::default()
        };
        Guest::granted(vec![dir], &Limits::default(), denied)
    };
    let mut everywhere = granted(tree.root.clone(), true);
    everywhere.write(".git/config", b"x").await.unwrap();
    everywhere.write(".envrc", b"x").await.unwrap();
    let mut there = granted(tree.root.join(".git"), false);
    there.write("config", b"y").await.unwrap();
    for guest in [&mut everywhere, &mut there] {
        assert!(guest.write("toolcell.toml", b"x").await.is_err());
        assert!(guest.mkdir("toolcell.lock").await.is_err());
    }
}
