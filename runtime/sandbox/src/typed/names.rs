//! Names of functions as tools.

/// Returns the name of an interface without its package and version: `ops` of `demo:math/ops@1.0.0`.
pub(super) fn interface(export: &str) -> &str {
    let name = export.split_once('@').map_or(export, |(name, _)| name);
    name.rsplit_once('/').map_or(name, |(_, name)| name)
}

/// Returns the name of the tool for a function: `function`, or `interface_function`.
pub(super) fn tool(export: Option<&str>, function: &str) -> String {
    match export {
        None => function.to_owned(),
        Some(export) => format!("{}_{function}", interface(export)),
    }
}

/// Returns the name of the tool for a function of one of several interfaces with the same name:
/// `demo_math_ops_1_0_0_function`.
pub(super) fn long_tool(export: &str, function: &str) -> String {
    let plain = |character: char| match character {
        '-' => '-',
        character if character.is_ascii_alphanumeric() => character,
        _ => '_',
    };
    let interface: String = export.chars().map(plain).collect();
    format!("{interface}_{function}")
}

/// Returns the name of a function with that of its interface, as in error messages.
pub(super) fn full(export: Option<&str>, function: &str) -> String {
    match export {
        None => function.to_owned(),
        Some(export) => format!("{export}#{function}"),
    }
}
