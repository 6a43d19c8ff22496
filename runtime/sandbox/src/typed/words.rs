//! Descriptions of functions whose authors left none: their parameters and results, in words that a model understands.

use super::wit_type::WitType;

/// End of such a description.
pub const NO_DESCRIPTION: &str = "Its author left no description.";

/// Maximum number of names in a list: of parameters, fields, cases.
const MAX_LISTED: usize = 16;

/// Levels of a type that are described. The schema has all of them.
const MAX_LEVELS: usize = 4;

/// Maximum length of a description, in bytes, without its end. Names are as long as their author likes.
const MAX_WORDS: usize = 2 << 10;

/// Number of what is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    One,
    Many,
}

/// Returns the description of a function.
pub(super) fn describe(
    interface: Option<&str>,
    function: &str,
    parameters: &[(String, WitType)],
    result: Option<&WitType>,
) -> String {
    let of = interface.map_or(String::new(), |name| format!(" of the interface `{name}`"));
    let takes = match parameters {
        [] => "No parameters.".to_owned(),
        _ => {
            let each = |(name, ty): &(String, WitType)| format!("`{name}` ({})", words(ty, Number::One, 1));
            format!("Parameters: {}.", listed(parameters.iter().map(each)))
        }
    };
    let returns = match result {
        None => "No result.".to_owned(),
        Some(WitType::Result(ok, err)) => {
            let ok = ok
                .as_deref()
                .map_or("nothing".to_owned(), |ty| words(ty, Number::One, 1));
            let err = err
                .as_deref()
                .map_or(String::new(), |ty| format!(" ({})", words(ty, Number::One, 1)));
            format!("Result: {ok}, or an error{err}.")
        }
        Some(ty) => format!("Result: {}.", words(ty, Number::One, 1)),
    };
    let text = format!("Function `{function}`{of}. {takes} {returns}");
    format!("{} {NO_DESCRIPTION}", crate::cell::failure::cut(text, MAX_WORDS))
}

/// Returns the name of a type at this level.
fn words(ty: &WitType, number: Number, level: usize) -> String {
    let s = if number == Number::One { "" } else { "s" };
    if level > MAX_LEVELS {
        return format!("value{s}");
    }
    let one = |ty: &WitType| words(ty, Number::One, level + 1);
    let many = |ty: &WitType| words(ty, Number::Many, level + 1);
    match ty {
        WitType::Bool => format!("boolean{s}"),
        WitType::S8 => format!("8-bit integer{s}"),
        WitType::S16 => format!("16-bit integer{s}"),
        WitType::S32 => format!("32-bit integer{s}"),
        WitType::S64 => format!("64-bit integer{s}"),
        WitType::U8 => format!("unsigned 8-bit integer{s}"),
        WitType::U16 => format!("unsigned 16-bit integer{s}"),
        WitType::U32 => format!("unsigned 32-bit integer{s}"),
        WitType::U64 => format!("unsigned 64-bit integer{s}"),
        WitType::F32 | WitType::F64 => format!("number{s}"),
        WitType::Char => format!("character{s}"),
        WitType::String => format!("string{s}"),
        WitType::Bytes => "bytes in base64".to_owned(),
        WitType::List(item) => format!("list{s} of {}", many(item)),
        WitType::FixedList(item, length) => format!("list{s} of {length} {}", many(item)),
        WitType::Map(key, item) => format!("map{s} from {} to {}", many(key), many(item)),
        WitType::Record(fields) => format!("record{s} with {}", names(fields.iter().map(|(name, _)| name))),
        WitType::Tuple(types) => format!("tuple{s} of {}", listed(types.iter().map(one))),
        WitType::Variant(cases) => format!("variant{s} with one of {}", names(cases.keys())),
        WitType::Enum(cases) => format!("one of {}", names(cases.iter())),
        WitType::Flags(flags) => format!("any of {}", names(flags.iter())),
        WitType::Option(ty) => format!("optional {}", words(ty, number, level + 1)),
        WitType::Result(_, _) => format!("variant{s} with one of `ok`, `err`"),
    }
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    listed(names.map(|name| format!("`{name}`")))
}

fn listed(items: impl Iterator<Item = String>) -> String {
    let mut items = items.peekable();
    let first: Vec<String> = items.by_ref().take(MAX_LISTED).collect();
    match items.count() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(parameters: &[(&str, WitType)], result: Option<WitType>) -> String {
        let parameters: Vec<_> = parameters
            .iter()
            .map(|(name, ty)| ((*name).to_owned(), ty.clone()))
            .collect();
        let text = describe(None, "f", &parameters, result.as_ref());
        let words = text.strip_prefix("Function `f`. ").unwrap();
        words.strip_suffix(NO_DESCRIPTION).unwrap().trim_end().to_owned()
    }

    fn list(of: WitType) -> WitType {
        WitType::List(Box::new(of))
    }

    #[test]
    fn parameters_and_result_are_named_with_their_types() {
        let text = || WitType::String;
        let boxed = |ty| Some(Box::new(ty));
        let record = WitType::Record(vec![("x".into(), WitType::F64), ("y".into(), WitType::F64)]);
        let names = |names: [&str; 2]| names.map(str::to_owned).into_iter().collect();
        for (parameters, result, words) in [
            (vec![], None, "No parameters. No result."),
            (
                vec![("a", WitType::U32), ("b", WitType::Option(Box::new(text())))],
                Some(list(list(WitType::S64))),
                "Parameters: `a` (unsigned 32-bit integer), `b` (optional string). Result: list of lists of 64-bit integers.",
            ),
            (
                vec![
                    ("points", list(record)),
                    ("mode", WitType::Enum(names(["fast", "slow"]))),
                ],
                Some(WitType::Result(None, boxed(text()))),
                "Parameters: `points` (list of records with `x`, `y`), `mode` (one of `fast`, `slow`). \
                 Result: nothing, or an error (string).",
            ),
            (
                vec![("data", WitType::Bytes)],
                Some(WitType::Result(
                    boxed(WitType::Tuple(vec![WitType::Bool, WitType::Char])),
                    None,
                )),
                "Parameters: `data` (bytes in base64). Result: tuple of boolean, character, or an error.",
            ),
            (
                vec![("m", WitType::Map(Box::new(text()), Box::new(WitType::U8)))],
                Some(WitType::Flags(names(["r", "w"]))),
                "Parameters: `m` (map from strings to unsigned 8-bit integers). Result: any of `r`, `w`.",
            ),
        ] {
            assert_eq!(described(&parameters, result), words);
        }
        let of = describe(Some("demo:math/ops@1.0.0"), "f", &[], None);
        assert!(
            of.starts_with("Function `f` of the interface `demo:math/ops@1.0.0`. No"),
            "{of}"
        );
    }

    #[test]
    fn description_is_bounded_in_levels_names_and_bytes() {
        let nested = |levels: usize| (1..levels).fold(WitType::Bool, |ty, _| list(ty));
        assert!(described(&[("a", nested(MAX_LEVELS))], None).contains("of booleans)"));
        assert!(described(&[("a", nested(MAX_LEVELS + 1))], None).contains("of values)"));
        let record = |count: usize| {
            let fields = (0..count).map(|i| (format!("f{i}"), WitType::Bool));
            described(&[("a", WitType::Record(fields.collect()))], None)
        };
        assert!(record(MAX_LISTED).contains("`f14`, `f15`)"));
        assert!(record(MAX_LISTED + 1).contains("`f15` and 1 more)"));
        let long = "x".repeat(MAX_WORDS);
        let text = describe(None, "f", &[(long, WitType::Bool)], None);
        assert!(
            text.contains(" bytes cut]") && text.len() < MAX_WORDS + 100,
            "{}",
            text.len()
        );
    }
}
