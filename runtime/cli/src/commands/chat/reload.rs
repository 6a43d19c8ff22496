//! Components whose files change during a chat: the next message is answered with what is in them then.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::command::Conversation;
use crate::agent::setup::{self, AgentSetup};
use crate::components::loader::ComponentLoader;
use crate::components::lock;
use crate::components::stamp::Stamp;
use crate::config::ComponentSource;
use crate::environment::Environment;
use crate::ui::terminal::text;

/// States of the files that were compared with what is loaded.
#[derive(Debug, Default)]
pub(super) struct Seen {
    files: BTreeMap<PathBuf, Stamp>,
    lock: Option<Stamp>,
}

impl Seen {
    /// Returns the names of the components whose files have another content than what is loaded, each state of a file once
    /// for each state of the lock. A file that is missing is about to be written.
    fn changed(&mut self, agent: &AgentSetup, environment: &Environment) -> Vec<String> {
        let lock = Stamp::of(&environment.cwd.join(lock::FILE));
        if lock != self.lock {
            // What was refused may fit this one.
            self.lock = lock;
            self.files.clear();
        }
        let mut changed = Vec::new();
        for loaded in &agent.loaded {
            let ComponentSource::File(path) = &loaded.settings.component else {
                continue;
            };
            let Some(now) = Stamp::of(&path.value) else {
                continue;
            };
            if self.files.insert(path.value.clone(), now) == Some(now) {
                continue;
            }
            let digest = ComponentLoader::digest(&loaded.settings, environment);
            if digest.is_ok_and(|digest| digest != loaded.component.digest()) {
                changed.push(loaded.settings.name.clone());
            }
        }
        changed
    }
}

impl Conversation<'_> {
    /// Sets the agent up anew if a component has changed. With the same checks as at the start: a component that is not in the
    /// lock, or that cannot be loaded, changes nothing.
    pub(super) async fn reload(&mut self) {
        let changed = self.seen.changed(self.turns.setup(), self.environment);
        if changed.is_empty() {
            return;
        }
        let set_up = setup::assemble(
            &self.flags,
            self.overrides.clone(),
            self.environment,
            self.console,
            self.store.clone(),
        );
        let agent = Box::pin(set_up).await;
        for name in changed {
            self.console.note(match &agent {
                Ok(_) => text!("the component `{}` changed, and was loaded again", name),
                Err(failure) => text!(
                    "warning: the component `{}` changed, and its tools stay as they were: {}",
                    name,
                    failure.to_string()
                ),
            });
        }
        if let Ok(agent) = agent {
            self.session.switch_to(&agent.agent);
            self.turns.replace(agent);
        }
    }
}
