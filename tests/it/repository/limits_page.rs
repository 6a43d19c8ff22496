//! The guide's page about limits names every limit of a call, with the default of the program.

use std::collections::BTreeMap;

use crate::repository::workspace::root;
use crate::support::cli_user::User;

#[test]
fn limits_page_has_every_limit_with_its_default() {
    let page = std::fs::read_to_string(root().join("runtime/guide/src/limits.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let written: BTreeMap<String, String> = rows
        .map(|row| {
            let mut cells = row.split('|').map(str::trim);
            let name = cells.next().unwrap().trim_end_matches('`').to_owned();
            (name, cells.next().unwrap().to_owned())
        })
        .collect();
    let help = User::new().run(&["help", "limits"]).ended(0).stdout;
    let rows = help.lines().filter_map(|line| line.strip_prefix("  "));
    let known: BTreeMap<String, String> = rows
        .map(|row| {
            let (name, rest) = row.split_once(' ').unwrap();
            let (default, _) = rest.trim_start().split_once("  ").unwrap();
            (name.to_owned(), default.to_owned())
        })
        .collect();
    assert!(known.len() > 10, "{help}");
    assert_eq!(written, known);
}

#[test]
fn smallest_limit_of_the_page_is_accepted() {
    let page = std::fs::read_to_string(root().join("runtime/guide/src/limits.md")).unwrap();
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let mut cells = row.split('|').map(str::trim);
        let name = cells.next().unwrap().trim_end_matches('`');
        let smallest = cells.nth(1).unwrap();
        let user = User::new();
        let check = |value: &str| {
            let limits = format!("[tools.text.limits]\n{name} = \"{value}\"\n");
            user.configure(&limits).run(&["config", "check"])
        };
        let zero = if name == "wall" { "0s" } else { "0" };
        check(smallest).ended(0);
        if smallest != "0" {
            let refused = check(zero).ended(3);
            let least = format!("must be at least {smallest}");
            assert!(refused.stderr.contains(&least), "{}", refused.stderr);
        }
    }
}
