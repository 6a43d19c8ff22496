//! Single declaration of each setting of a table, from which its configuration key, JSON Schema, environment variable,
//! flag and row of `config show` are derived.

use std::fmt::Display;
use std::ops::Range;
use std::str::FromStr;

use clap::{Arg, ArgMatches};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use toml::Spanned;

use super::provider::ProviderName;
use super::source::{Origin, Sourced};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::ui::terminal::{Text, text};

/// A value of a table, with its location in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct Written<T>(Spanned<T>);

impl<T: Clone> Written<T> {
    pub(in crate::config) fn value(&self) -> T {
        self.0.get_ref().clone()
    }

    pub(in crate::config) fn span(&self) -> Range<usize> {
        self.0.span()
    }
}

/// The schema is that of the value; the location is not part of it.
impl<T: JsonSchema> JsonSchema for Written<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> std::borrow::Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Sources of one setting besides the file, and the providers that use it.
#[derive(Debug)]
pub(crate) struct SettingSpec {
    /// Key in the table.
    pub(crate) key: &'static str,
    /// Description, for the help and the schema.
    description: &'static str,
    /// Environment variable, if it has one.
    pub(crate) variable: Option<&'static str>,
    /// Flag with its dashes, and the name of its value, if it has one.
    flag: Option<(&'static str, &'static str)>,
    /// Providers that use it; empty means all.
    pub(super) providers: &'static [ProviderName],
    check: fn(&str) -> Result<(), String>,
}

impl SettingSpec {
    pub(super) const fn new<T: FromStr<Err: Display>>(key: &'static str, description: &'static str) -> Self {
        Self {
            key,
            description,
            variable: None,
            flag: None,
            providers: &[],
            check: check::<T>,
        }
    }

    pub(super) const fn variable(mut self, name: &'static str) -> Self {
        self.variable = Some(name);
        self
    }

    pub(super) const fn flag(mut self, flag: &'static str, value: &'static str) -> Self {
        self.flag = Some((flag, value));
        self
    }

    pub(super) const fn only_for(mut self, providers: &'static [ProviderName]) -> Self {
        self.providers = providers;
        self
    }

    /// Returns the flag with its dashes.
    pub(super) fn flag_name(&self) -> Option<&'static str> {
        self.flag.map(|(flag, _)| flag)
    }

    /// Returns the command-line argument of the flag.
    pub(super) fn argument(&self) -> Option<Arg> {
        let (flag, value) = self.flag?;
        let check = self.check;
        let argument = Arg::new(flag)
            .long(flag.trim_start_matches('-'))
            .value_name(value)
            .help(help(self.description))
            .value_parser(move |text: &str| check(text).map(|()| text.to_owned()));
        Some(argument)
    }

    /// Sets the value from the environment variable, if there is one.
    ///
    /// # Errors
    /// Returns an error if its value is invalid.
    pub(super) fn read_variable(
        &self,
        setting: &mut dyn Setting,
        environment: &Environment,
    ) -> Result<(), Failure> {
        let Some(name) = self.variable else { return Ok(()) };
        let Some(text) = environment.var(name) else {
            return Ok(());
        };
        let failure = || Failure::new(Exit::Config, text!("`{}={}` cannot be used", name, text));
        setting
            .read(text, Origin::Variable(name))
            .map_err(|why| failure().why(Text::sentence(&why, [text])))
    }

    /// Sets the value from the flag, if it was given.
    ///
    /// # Errors
    /// Returns an error if its value is invalid.
    pub(super) fn read_flag(
        &self,
        setting: &mut dyn Setting,
        matches: &ArgMatches,
    ) -> Result<(), clap::Error> {
        if let Some(flag) = self.flag_name()
            && let Some(text) = matches.get_one::<String>(flag)
        {
            let invalid = |why| clap::Error::raw(clap::error::ErrorKind::ValueValidation, why);
            setting.read(text, Origin::Flag(flag)).map_err(invalid)?;
        }
        Ok(())
    }
}

/// Help of a flag: the description without what concerns files only.
fn help(description: &str) -> String {
    let text = description.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.replace("Not in a project's file.", "");
    text.trim().trim_end_matches('.').to_owned()
}

fn check<T: FromStr<Err: Display>>(text: &str) -> Result<(), String> {
    text.parse::<T>().map(drop).map_err(|error| error.to_string())
}

/// A setting of any type.
pub(crate) trait Setting {
    /// Returns its origin, or `None` if it is unset.
    fn origin(&self) -> Option<&Origin>;

    /// Returns its value as text.
    fn shown(&self) -> Option<String>;

    /// Parses it from a variable or a flag.
    ///
    /// # Errors
    /// Returns the reason if the text is invalid.
    fn read(&mut self, text: &str, origin: Origin) -> Result<(), String>;
}

impl<T: FromStr<Err: Display> + Display> Setting for Option<Sourced<T>> {
    fn origin(&self) -> Option<&Origin> {
        self.as_ref().map(|setting| &setting.origin)
    }

    fn shown(&self) -> Option<String> {
        self.as_ref().map(|setting| setting.value.to_string())
    }

    fn read(&mut self, text: &str, origin: Origin) -> Result<(), String> {
        let value = text.parse().map_err(|error: T::Err| error.to_string())?;
        *self = Some(Sourced { value, origin });
        Ok(())
    }
}

/// A table of settings in a file.
pub(in crate::config) trait SettingTable {
    /// Returns the location of its first key, or `None` if nothing is set.
    fn first_key(&self) -> Option<Range<usize>>;
}

/// Declares the settings of a table: a struct for the file, and one for the values with their origins. The type of a
/// value is followed by methods of [`SettingSpec`].
macro_rules! declare_settings {
    (
        $(#[doc = $table_doc:literal])+
        table $table:ident;
        $(#[doc = $values_doc:literal])+
        values $values:ident;
        $(#[doc = $flags_doc:literal])+
        flags $flags:ident;
        $(
            $(#[doc = $doc:literal])+
            $key:ident: $type:ty $(, $method:ident($($argument:expr),*))*;
        )+
    ) => {
        $(#[doc = $table_doc])+
        #[derive(Debug, Default, Deserialize, JsonSchema)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct $table {
            $(
                $(#[doc = $doc])+
                pub(in crate::config) $key: Option<Written<$type>>,
            )+
        }

        impl SettingTable for $table {
            fn first_key(&self) -> Option<Range<usize>> {
                [$(self.$key.as_ref().map(Written::span)),+]
                    .into_iter()
                    .flatten()
                    .min_by_key(|span| span.start)
            }
        }

        $(#[doc = $values_doc])+
        #[derive(Debug, Clone, Default)]
        pub(crate) struct $values {
            $(
                $(#[doc = $doc])+
                pub(crate) $key: Option<Sourced<$type>>,
            )+
        }

        impl $values {
            /// Specification of each setting, in order of declaration.
            pub(crate) const SPECS: &[SettingSpec] = &[$(
                SettingSpec::new::<$type>(stringify!($key), concat!($($doc),+)) $(.$method($($argument),*))*
            ),+];

            /// Returns the values that a table sets.
            pub(in crate::config) fn of_table(table: &$table, source: &Arc<Source>) -> Self {
                Self {
                    $($key: table.$key.as_ref().map(|written| Sourced {
                        value: written.value(),
                        origin: Origin::File(source.clone(), written.span()),
                    }),)+
                }
            }

            /// Overrides values with those of a later layer.
            pub(in crate::config) fn overlay(&mut self, later: &Self) {
                $(
                    if later.$key.is_some() {
                        self.$key.clone_from(&later.$key);
                    }
                )+
            }

            fn all(&self) -> impl Iterator<Item = (&'static SettingSpec, &dyn Setting)> {
                Self::SPECS.iter().zip([$(&self.$key as &dyn Setting),+])
            }

            fn all_mut(&mut self) -> impl Iterator<Item = (&'static SettingSpec, &mut dyn Setting)> {
                Self::SPECS.iter().zip([$(&mut self.$key as &mut dyn Setting),+])
            }

            /// Sets values from environment variables.
            ///
            /// # Errors
            /// Returns an error if a variable has an invalid value.
            pub(in crate::config) fn read_variables(&mut self, environment: &Environment) -> Result<(), Failure> {
                self.all_mut().try_for_each(|(spec, setting)| spec.read_variable(setting, environment))
            }
        }

        $(#[doc = $flags_doc])+
        #[derive(Debug, Default)]
        pub(crate) struct $flags(pub(crate) $values);

        impl clap::Args for $flags {
            fn augment_args(command: clap::Command) -> clap::Command {
                command.args($values::SPECS.iter().filter_map(SettingSpec::argument))
            }

            fn augment_args_for_update(command: clap::Command) -> clap::Command {
                Self::augment_args(command)
            }
        }

        impl clap::FromArgMatches for $flags {
            fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
                let mut flags = Self::default();
                flags.update_from_arg_matches(matches)?;
                Ok(flags)
            }

            fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
                self.0.all_mut().try_for_each(|(spec, setting)| spec.read_flag(setting, matches))
            }
        }
    };
}
pub(super) use declare_settings;
