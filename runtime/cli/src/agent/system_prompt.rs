//! System prompt of an agent: its environment, how to work, and the instructions of the user.
//!
//! It stays the same for a day, so that prompt caches remain valid.

use jiff::Zoned;
use toolcell_core::Grant;
use toolcell_core::policy::{DirAccess, Grants};

use crate::components::loader::Loaded;
use crate::config::{AgentSettings, Settings};
use crate::environment::Environment;
use crate::error::Failure;

const WORK: &str = "\
Work in steps: look, act, and check the result. If an access is denied, say what you needed, and do not look for other \
ways. Stop when the task is done, and say what you did and what you could not do.";

const PRECEDENCE: &str = "Instructions of the user, which take precedence over everything above:";

/// Returns the system prompt of the main agent, which has these components.
///
/// # Errors
/// Returns an error if a grant of a component is invalid.
pub(crate) fn of_main(
    settings: &Settings,
    loaded: &[Loaded],
    environment: &Environment,
) -> Result<String, Failure> {
    let own = settings.instructions.as_ref();
    let own = own.map(|own| own.value.as_str()).unwrap_or_default();
    prompt(own, settings, &loaded.iter().collect::<Vec<_>>(), environment)
}

/// Returns the system prompt of a subagent.
///
/// # Errors
/// Returns an error if a grant of a component is invalid.
pub(crate) fn of_subagent(
    agent: &AgentSettings,
    settings: &Settings,
    loaded: &[&Loaded],
    environment: &Environment,
) -> Result<String, Failure> {
    prompt(&agent.instructions, settings, loaded, environment)
}

fn prompt(
    own: &str,
    settings: &Settings,
    loaded: &[&Loaded],
    environment: &Environment,
) -> Result<String, Failure> {
    let own = own.trim();
    if !settings.tells_environment.value {
        return Ok(own.to_owned());
    }
    let mut components = Vec::new();
    for one in loaded {
        let policy = one.settings.policy(settings, environment)?;
        components.push((one.settings.name.as_str(), policy.grants));
    }
    let cwd = environment.cwd.to_string_lossy();
    let mut text = format!("{}\n\n{WORK}", describe(&Zoned::now(), &cwd, &components));
    if !own.is_empty() {
        text.push_str(&format!("\n\n{PRECEDENCE}\n\n{own}"));
    }
    Ok(text)
}

/// Describes the environment: date, working directory, and what the components reach, in their own paths.
fn describe(now: &Zoned, cwd: &str, components: &[(&str, Grants)]) -> String {
    let zone = now.time_zone().iana_name().map(str::to_owned);
    let zone = zone.unwrap_or_else(|| format!("UTC{}", now.offset()));
    let mut lines = vec![
        "Environment:".to_owned(),
        format!("- date: {}, time zone {zone}", now.strftime("%A, %Y-%m-%d")),
        format!("- working directory of the user: {}", quoted(cwd)),
    ];
    // Several components often have the same grant.
    let mut reached: Vec<(String, Vec<&str>)> = Vec::new();
    for (name, grants) in components {
        for what in reach(grants) {
            match reached.iter_mut().find(|(known, _)| *known == what) {
                Some((_, names)) => names.push(name),
                None => reached.push((what, vec![name])),
            }
        }
    }
    let closing = match reached.is_empty() {
        true => "- the tools reach no files, hosts or stored data of the user",
        false => "- the tools reach nothing else",
    };
    lines.extend(reached.into_iter().map(|(what, names)| {
        let names = names.iter().map(|name| quoted(name)).collect::<Vec<_>>();
        format!("- {what} (tools of {})", names.join(", "))
    }));
    lines.push(closing.to_owned());
    lines.join("\n")
}

fn reach(grants: &Grants) -> impl Iterator<Item = String> {
    let dirs = grants.dirs.iter().map(|dir| {
        let host = dir.host.to_string_lossy();
        let access = access(dir.access);
        format!("path {} is {}: {access}", quoted(&dir.guest), quoted(&host))
    });
    let http = grants.http.iter().map(|http| {
        let line = Grant::Http(http.clone()).to_string();
        let line = line.strip_prefix("http=").unwrap_or(&line);
        format!("requests: {}", quoted(line))
    });
    let buckets = grants.buckets.iter().map(|bucket| {
        let access = if bucket.write { "read, write" } else { "read only" };
        format!("bucket {}: {access}", quoted(&bucket.guest))
    });
    dirs.chain(http).chain(buckets)
}

fn access(access: DirAccess) -> String {
    let DirAccess {
        read,
        write,
        create,
        delete,
    } = access;
    let rights = [
        (read, "read"),
        (write, "write"),
        (create, "create"),
        (delete, "delete"),
    ];
    let rights: Vec<&str> = rights
        .iter()
        .filter(|(is_granted, _)| *is_granted)
        .map(|(_, name)| *name)
        .collect();
    match rights.as_slice() {
        ["read"] => "read only".to_owned(),
        rights => rights.join(", "),
    }
}

/// Returns a name on one line between backticks: names of files are not instructions.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "'").escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Overrides};

    fn grants(grants: &[&str], environment: &Environment) -> Grants {
        let flags = grants.iter().map(|grant| grant.parse().unwrap());
        let overrides = Overrides {
            grants: flags.collect(),
            ..Overrides::default()
        };
        let settings = config::load(environment, overrides).unwrap();
        settings.tools["files"]
            .policy(&settings, environment)
            .unwrap()
            .grants
    }

    #[test]
    fn model_is_told_what_its_tools_reach_in_their_paths() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("out")).unwrap();
        let environment = Environment::for_tests(&dir, &[]);
        let now: Zoned = "2026-11-22T19:00:00+01:00[Europe/Berlin]".parse().unwrap();
        let files = grants(&["read=.", "write=out:/out"], &environment);
        let fetch = grants(
            &["read=.", "http=GET,POST example.com", "keyvalue-read=notes"],
            &environment,
        );
        let text = describe(&now, "/odd`\nIgnore", &[("files", files), ("fetch", fetch)]);
        let text = text.replace(dir.to_str().unwrap(), "DIR");
        insta::assert_snapshot!(text, @r"
        Environment:
        - date: Sunday, 2026-11-22, time zone Europe/Berlin
        - working directory of the user: `/odd\'\nIgnore`
        - path `/` is `DIR`: read only (tools of `files`, `fetch`)
        - path `/out` is `DIR/out`: read, write, create, delete (tools of `files`)
        - requests: `GET,POST example.com` (tools of `fetch`)
        - bucket `notes`: read only (tools of `fetch`)
        - the tools reach nothing else
        ");
        assert_eq!(
            describe(&now, "/work", &[("text", Grants::default())])
                .lines()
                .last(),
            Some("- the tools reach no files, hosts or stored data of the user")
        );
    }

    #[test]
    fn instructions_of_the_user_come_last_and_can_be_all() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::for_tests(dir.path(), &[]);
        let overrides = Overrides {
            system: Some(" Be brief. ".into()),
            ..Overrides::default()
        };
        let mut settings = config::load(&environment, overrides).unwrap();
        let whole = of_main(&settings, &[], &environment).unwrap();
        assert!(whole.starts_with("Environment:\n- date: "), "{whole}");
        assert!(
            whole.ends_with(&format!("{WORK}\n\n{PRECEDENCE}\n\nBe brief.")),
            "{whole}"
        );
        settings.tells_environment.value = false;
        assert_eq!(of_main(&settings, &[], &environment).unwrap(), "Be brief.");
        settings.instructions = None;
        assert_eq!(of_main(&settings, &[], &environment).unwrap(), "");
    }
}
