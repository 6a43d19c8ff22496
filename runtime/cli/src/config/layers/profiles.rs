//! `[profiles.NAME]`: named settings of the provider.

use std::collections::BTreeMap;
use std::sync::Arc;

use toml::Spanned;
use toolcell_core::suggest::nearest;

use crate::config::Settings;
use crate::config::provider::{ProviderSettings, ProviderTable};
use crate::config::source::{Source, Sourced};
use crate::error::{Exit, Failure};
use crate::ui::terminal::text;

/// Reads the profiles of a file.
///
/// # Errors
/// Returns an error if a profile names another one.
pub(super) fn of_tables(
    tables: &BTreeMap<Spanned<String>, ProviderTable>,
    source: &Arc<Source>,
) -> Result<BTreeMap<String, ProviderSettings>, Failure> {
    let profile = |(name, table): (&Spanned<String>, &ProviderTable)| {
        let settings = ProviderSettings::of_table(table, source);
        if let Some(other) = &settings.profile {
            let nested = text!("the profile `{}` has a profile of its own", name.get_ref());
            return Err(Failure::new(Exit::Config, nested)
                .why(other.origin.point_at())
                .hint("write its settings here"));
        }
        Ok((name.get_ref().clone(), settings))
    };
    tables.iter().map(profile).collect()
}

/// Replaces settings of the provider by those of its profile. The command line takes precedence over a profile, and a profile
/// over variables and `[provider]`.
///
/// # Errors
/// Returns an error if there is no such profile.
pub(super) fn apply(settings: &mut Settings) -> Result<(), Failure> {
    let named = settings.overrides.provider.profile.as_ref();
    let Some(profile) = named.or(settings.provider.profile.as_ref()).cloned() else {
        return Ok(());
    };
    let own = find(&settings.profiles, &profile.value, &profile)?;
    let mut provider = settings.provider.with(own);
    provider.profile = Some(profile);
    settings.provider = provider;
    Ok(())
}

/// Returns the profile of this name, for a setting that names it.
///
/// # Errors
/// Returns an error if there is none.
pub(crate) fn find<'a, T>(
    profiles: &'a BTreeMap<String, ProviderSettings>,
    name: &str,
    by: &Sourced<T>,
) -> Result<&'a ProviderSettings, Failure> {
    profiles.get(name).ok_or_else(|| {
        let failure =
            Failure::new(Exit::Config, text!("there is no profile `{}`", name)).why(by.origin.point_at());
        let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
        match nearest(name, &names).first() {
            Some(near) => failure.hint(text!("did you mean `{}`?", near)),
            None if names.is_empty() => failure.hint(text!(
                "define it in your configuration: [profiles.{}] model = \"…\"",
                name
            )),
            None => failure.hint(text!("the profiles are {}", names.join(", "))),
        }
    })
}
