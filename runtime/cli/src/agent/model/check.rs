//! Check of the provider's settings without its keys: they may be set only where the agent runs.

use std::collections::{BTreeMap, BTreeSet};

use toolcell_core::provider::Prices;

use super::service::Service;
use super::{Chosen, choose, name, one};
use crate::config::layers::profiles::find;
use crate::config::provider::HeaderValue;
use crate::config::{ProviderSettings, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Variable with the key of a keyring account, which is not opened.
const OF_KEYRING: &str = "key in the keyring";

/// A provider that could be set up if the variables that are not set were.
pub(crate) struct Checked {
    pub(crate) chosen: Chosen,
    /// Variables without which it cannot be set up.
    pub(crate) unset: BTreeSet<String>,
}

/// Sets up the provider and those of its fallback profiles, as [`choose`] does, with any value for the variables with keys
/// and headers that are not set, and for keys in the keyring.
///
/// # Errors
/// Returns the error of [`choose`] about anything else.
pub(crate) fn check(
    settings: &ProviderSettings,
    profiles: &BTreeMap<String, ProviderSettings>,
    prices: &BTreeMap<String, Sourced<Prices>>,
    environment: &Environment,
) -> Result<Checked, Failure> {
    let mut environment = environment.with_variable(OF_KEYRING);
    let mut unset = BTreeSet::new();
    let (settings, mut profiles) = (without_keyring(settings), profiles.clone());
    for profile in profiles.values_mut() {
        *profile = without_keyring(profile);
    }
    set_variables(&settings, &mut environment, &mut unset)?;
    let fallback = settings.fallback.iter();
    for (named, by) in fallback.flat_map(|by| by.value.0.iter().map(move |name| (name, by))) {
        let profile = settings.with(find(&profiles, named, by)?);
        set_variables(&profile, &mut environment, &mut unset)
            .map_err(|failure| failure.why(text!("it is the profile `{}`, a fallback", named)))?;
    }
    let chosen = choose(&settings, &profiles, prices, &environment)?;
    Ok(Checked { chosen, unset })
}

/// Returns settings that take the key from a variable instead of the keyring, unless both are set, which is an error.
fn without_keyring(settings: &ProviderSettings) -> ProviderSettings {
    let mut settings = settings.clone();
    if settings.api_key_env.is_none()
        && let Some(account) = settings.api_key_keyring.take()
    {
        settings.api_key_env = Some(Sourced {
            value: OF_KEYRING.to_owned(),
            origin: account.origin,
        });
    }
    settings
}

/// Sets the variables that one provider lacks.
fn set_variables(
    settings: &ProviderSettings,
    environment: &mut Environment,
    unset: &mut BTreeSet<String>,
) -> Result<(), Failure> {
    let mut set = |variable: &str, environment: &mut Environment| {
        if environment.var(variable).is_none() {
            *environment = environment.with_variable(variable);
            unset.insert(variable.to_owned());
        }
    };
    for (_, value) in settings.headers.iter().flat_map(|headers| &headers.value.0) {
        if let HeaderValue::Variable { env } = value {
            set(env, environment);
        }
    }
    if let Some(variable) = &settings.api_key_env {
        set(&variable.value, environment);
    }
    match (
        one(settings, environment),
        Service::of(name(settings, environment).0),
    ) {
        (Err(failure), Some(service)) if failure.exit == Exit::Provider => set(service.key, environment),
        (Err(failure), _) => return Err(failure),
        (Ok(_), _) => {}
    }
    Ok(())
}
