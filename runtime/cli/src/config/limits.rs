//! Limits of a tool by name: the configuration key, the unit, and the field of [`Limits`].

use std::collections::BTreeMap;

use toolcell_core::Limits;
use toolcell_core::suggest::nearest;

use super::file::LimitsTable;
use super::source::{Origin, Source};
use super::units::quantity::{Unit, millis};
use super::units::{Bytes, Count, Span};

/// Names of all limits.
pub(crate) const NAMES: [&str; 12] = [
    "memory",
    "wall",
    "fuel",
    "output",
    "log",
    "table_elements",
    "handles",
    "http_requests",
    "http_body",
    "file_bytes",
    "file_count",
    "keyvalue_bytes",
];

/// Limits without which no call can run, and the least that makes sense: one page of WebAssembly memory, in bytes; one tick
/// of the clock that ends calls, in ms; fewer instructions than any call uses.
const NEEDED: [(&str, u64); 3] = [("memory", 64 << 10), ("wall", 10), ("fuel", 100)];

/// Returns the reason for which a limit cannot have a value.
fn too_small(name: &str, value: u64) -> Option<String> {
    let (_, least) = NEEDED.into_iter().find(|(needed, _)| *needed == name)?;
    (value < least).then(|| {
        format!(
            "the limit `{name}` must be at least {}, because no call runs with less",
            exactly(name, least)
        )
    })
}

/// A limit and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedLimit {
    /// One of [`NAMES`].
    pub(crate) name: &'static str,
    /// Value in the unit of the field: bytes, milliseconds or a count.
    pub(crate) value: u64,
}

/// A limit flag: for one component, or for all in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlagLimit {
    /// Name of the component; `None` means all.
    pub(crate) component: Option<String>,
    /// The limit.
    pub(crate) limit: NamedLimit,
}

impl std::str::FromStr for FlagLimit {
    type Err = String;

    /// Parses `[COMPONENT:]NAME=VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (left, value) = text
            .split_once('=')
            .ok_or("a limit has the form NAME=VALUE, such as `wall=60s` or `memory=1 GiB`")?;
        let (component, name) = match left.rsplit_once(':') {
            Some((component, name)) => (Some(component.to_owned()), name),
            None => (None, left),
        };
        let Some(name) = NAMES.into_iter().find(|known| *known == name) else {
            return Err(match nearest(name, &NAMES).first() {
                Some(near) => format!(
                    "there is no limit `{}`; did you mean `{near}`?",
                    name.escape_debug()
                ),
                None => format!(
                    "there is no limit `{}`; the limits are {}",
                    name.escape_debug(),
                    NAMES.join(", ")
                ),
            });
        };
        let value = unit_of(name).read(value)?;
        if let Some(why) = too_small(name, value) {
            return Err(why);
        }
        Ok(Self {
            component,
            limit: NamedLimit { name, value },
        })
    }
}

fn unit_of(name: &str) -> Unit {
    match name {
        "wall" => Unit::Time,
        "fuel" | "table_elements" | "handles" | "http_requests" | "file_count" => Unit::Count,
        _ => Unit::Bytes,
    }
}

impl NamedLimit {
    /// Sets the field of `limits`.
    pub(crate) fn set(self, limits: &mut Limits) {
        let value = self.value;
        let small = u32::try_from(value).unwrap_or(u32::MAX);
        match self.name {
            "memory" => limits.memory = value,
            "wall" => limits.wall_ms = value,
            "fuel" => limits.fuel = value,
            "output" => limits.output = value,
            "log" => limits.log = value,
            "table_elements" => limits.table_elements = value,
            "handles" => limits.handles = small,
            "http_requests" => limits.http_requests = small,
            "http_body" => limits.http_body = value,
            "file_bytes" => limits.file_bytes = value,
            "file_count" => limits.file_count = value,
            "keyvalue_bytes" => limits.keyvalue_bytes = value,
            other => unreachable!("`{other}` is not the name of a limit"),
        }
    }
}

/// Returns the value of a limit by name, in the unit of the field; 0 for an unknown name.
pub(crate) fn get(limits: &Limits, name: &str) -> u64 {
    match name {
        "memory" => limits.memory,
        "wall" => limits.wall_ms,
        "fuel" => limits.fuel,
        "output" => limits.output,
        "log" => limits.log,
        "table_elements" => limits.table_elements,
        "handles" => limits.handles.into(),
        "http_requests" => limits.http_requests.into(),
        "http_body" => limits.http_body,
        "file_bytes" => limits.file_bytes,
        "file_count" => limits.file_count,
        "keyvalue_bytes" => limits.keyvalue_bytes,
        _ => 0,
    }
}

/// Formats a value for display.
pub(crate) fn shown(name: &str, value: u64) -> String {
    unit_of(name).shown(value)
}

/// Formats a value so that it parses back to exactly the same value, in the largest unit that divides it.
pub(crate) fn exactly(name: &str, value: u64) -> String {
    unit_of(name).exactly(value)
}

/// Returns the limits that a table sets, each with its origin.
pub(crate) fn of_table(table: &LimitsTable, source: &std::sync::Arc<Source>) -> Vec<(NamedLimit, Origin)> {
    let bytes =
        |name, field: &Option<toml::Spanned<Bytes>>| field.as_ref().map(|f| (name, f.get_ref().0, f.span()));
    let count =
        |name, field: &Option<toml::Spanned<Count>>| field.as_ref().map(|f| (name, f.get_ref().0, f.span()));
    let time = |name, field: &Option<toml::Spanned<Span>>| {
        field.as_ref().map(|f| (name, millis(*f.get_ref()), f.span()))
    };
    let LimitsTable {
        memory,
        wall,
        fuel,
        output,
        log,
        table_elements,
        handles,
        http_requests,
        http_body,
        file_bytes,
        file_count,
        keyvalue_bytes,
    } = table;
    [
        bytes("memory", memory),
        time("wall", wall),
        count("fuel", fuel),
        bytes("output", output),
        bytes("log", log),
        count("table_elements", table_elements),
        count("handles", handles),
        count("http_requests", http_requests),
        bytes("http_body", http_body),
        bytes("file_bytes", file_bytes),
        count("file_count", file_count),
        bytes("keyvalue_bytes", keyvalue_bytes),
    ]
    .into_iter()
    .flatten()
    .map(|(name, value, span)| (NamedLimit { name, value }, Origin::File(source.clone(), span)))
    .collect()
}

/// Returns the place of the first limit that is too small, and the reason.
pub(crate) fn too_small_in(table: &LimitsTable) -> Option<(std::ops::Range<usize>, String)> {
    let memory = table
        .memory
        .as_ref()
        .map(|limit| (limit.span(), "memory", limit.get_ref().0));
    let wall = table
        .wall
        .as_ref()
        .map(|limit| (limit.span(), "wall", millis(*limit.get_ref())));
    let fuel = table
        .fuel
        .as_ref()
        .map(|limit| (limit.span(), "fuel", limit.get_ref().0));
    let mut all = [memory, wall, fuel].into_iter().flatten();
    all.find_map(|(span, name, value)| Some((span, too_small(name, value)?)))
}

/// Limits, and the origin of each that is not a default.
#[derive(Debug, Clone, Default)]
pub(crate) struct SourcedLimits {
    /// The limits.
    pub(crate) limits: Limits,
    /// Origins by name; a missing name has its default value.
    pub(crate) origins: BTreeMap<&'static str, Origin>,
}

impl SourcedLimits {
    /// Sets one limit.
    pub(crate) fn set(&mut self, limit: NamedLimit, origin: Origin) {
        limit.set(&mut self.limits);
        self.origins.insert(limit.name, origin);
    }

    /// Returns the origin of a limit.
    pub(crate) fn origin(&self, name: &str) -> Origin {
        self.origins.get(name).cloned().unwrap_or(Origin::Default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_name_sets_and_gets_its_limit() {
        for name in NAMES {
            let mut limits = Limits::default();
            NamedLimit { name, value: 7 }.set(&mut limits);
            assert_eq!(get(&limits, name), 7, "{name}");
        }
        let fields = serde_json::to_value(Limits::default()).unwrap();
        assert_eq!(fields.as_object().unwrap().len(), NAMES.len());
    }

    #[test]
    fn exactly_written_value_reads_back_unchanged() {
        for (name, value, written) in [
            ("memory", 12_800 << 10, "12800 KiB"),
            ("memory", 1 << 30, "1 GiB"),
            ("file_bytes", 1_001, "1001"),
            ("wall", 6_100, "6100 ms"),
            ("wall", 60_000, "60 s"),
            ("fuel", 500_000_000, "500 M"),
        ] {
            assert_eq!(exactly(name, value), written);
            let read: FlagLimit = format!("{name}={written}").parse().unwrap();
            assert_eq!(read.limit.value, value);
        }
    }

    #[test]
    fn limit_of_command_line_may_name_its_component() {
        let parse = |text: &str| {
            text.parse::<FlagLimit>()
                .map(|flag| (flag.component, flag.limit.name, flag.limit.value))
        };
        assert_eq!(parse("wall=60s"), Ok((None, "wall", 60_000)));
        assert_eq!(
            parse("files:memory=1 GiB"),
            Ok((Some("files".into()), "memory", 1 << 30))
        );
        assert_eq!(parse("fuel=20 G"), Ok((None, "fuel", 20_000_000_000)));
        assert_eq!(
            parse("memroy=1").unwrap_err(),
            "there is no limit `memroy`; did you mean `memory`?"
        );
        for name in NAMES {
            let least = NEEDED.into_iter().find(|(needed, _)| *needed == name);
            let least = least.map_or(0, |(_, least)| least);
            assert!(
                parse(&format!("{name}={}", exactly(name, least))).is_ok(),
                "{name}"
            );
            if let Some(less) = least.checked_sub(1) {
                let error = parse(&format!("{name}={}", exactly(name, less))).unwrap_err();
                assert!(error.contains("must be at least"), "{error}");
            }
        }
        assert!(parse("wall=9 ms").unwrap_err().contains("at least 10 ms"));
        assert!(parse("wall=60").unwrap_err().contains("not a duration"));
        assert!(parse("wall").unwrap_err().contains("NAME=VALUE"));
    }
}
