//! Host memory of values that the engine passes through streams and futures from one part of a component to another. It counts 40 bytes
//! for a value and the length of each name, but makes a text of each name.

use std::collections::HashMap;

use wasmparser::component_types::{ComponentDefinedType, ComponentDefinedTypeId, ComponentValType};
use wasmparser::types::TypesRef;

use crate::error::LoadError;
use crate::load::complexity::ComplexityLimit;
use crate::typed::weight_of_names;

/// Weights of the types that were looked at: bytes of host memory for each byte that the engine counts.
#[derive(Default)]
pub(super) struct PassedValues(HashMap<ComponentDefinedTypeId, u64>);

impl PassedValues {
    /// Checks the values of a stream or future.
    ///
    /// # Errors
    /// They would take too much memory.
    pub(super) fn check(
        &mut self,
        types: TypesRef<'_>,
        ty: Option<ComponentValType>,
    ) -> Result<(), LoadError> {
        let excess = ComplexityLimit::PassedWeight;
        match self.heaviest(types, ty) > excess.limit() {
            true => Err(LoadError::TooComplex { excess }),
            false => Ok(()),
        }
    }

    fn heaviest(&mut self, types: TypesRef<'_>, parts: impl IntoIterator<Item = ComponentValType>) -> u64 {
        let mut heaviest = 1;
        for part in parts {
            if let ComponentValType::Type(id) = part {
                heaviest = heaviest.max(self.weight(types, id));
            }
        }
        heaviest
    }

    /// Returns the weight of a type. Types are nested in a limited number of levels, or else invalid.
    fn weight(&mut self, types: TypesRef<'_>, id: ComponentDefinedTypeId) -> u64 {
        use ComponentDefinedType as T;
        if let Some(known) = self.0.get(&id) {
            return *known;
        }
        let weight = match &types[id] {
            T::Flags(names) => weight_of_names(1, names.iter().map(|name| name.as_str())),
            T::Record(record) => {
                let own = weight_of_names(
                    1 + record.fields.len(),
                    record.fields.keys().map(|name| name.as_str()),
                );
                own.max(self.heaviest(types, record.fields.values().copied()))
            }
            T::Tuple(tuple) => self.heaviest(types, tuple.types.iter().copied()),
            T::Variant(variant) => self.heaviest(types, variant.cases.values().filter_map(|case| case.ty)),
            T::Option { ty, .. } => self.heaviest(types, [*ty]),
            T::Result { ok, err, .. } => self.heaviest(types, ok.iter().chain(err).copied()),
            T::List { element, .. } | T::FixedLengthList { element, .. } => self.heaviest(types, [*element]),
            T::Map { key, value, .. } => self.heaviest(types, [*key, *value]),
            T::Primitive(_) | T::Enum(_) | T::Own(_) | T::Borrow(_) | T::Future { .. } | T::Stream { .. } => {
                1
            }
        };
        self.0.insert(id, weight);
        weight
    }
}

#[cfg(test)]
mod tests {
    use wasmparser::WasmFeatures;

    use super::*;

    fn checked(text: &str) -> Result<(), LoadError> {
        let bytes = wat::parse_str(format!("(component {text})")).unwrap_or_else(|error| panic!("{error}"));
        super::super::type_sizes::check(&bytes, WasmFeatures::all())
    }

    #[test]
    fn names_in_streams_take_a_limited_share_of_memory() {
        let flags = |count: usize, length: usize| {
            let names = (0..count).map(|n| format!(" \"f{}{n:02}\"", "x".repeat(length - 3)));
            format!("(type $f (flags{}))", names.collect::<String>())
        };
        let (light, heavy) = (flags(32, 8), flags(32, 3));
        for (ty, is_ok) in [
            ("(type (list $f))", true),
            ("(type (stream $f))", false),
            ("(type (future $f))", false),
            ("(type $o (option $f)) (type (stream $o))", false),
            ("(type $o (result (error $f))) (type (future $o))", false),
            ("(type $o (result $f)) (type (future $o))", false),
            ("(type $o (tuple u8 $f)) (type (stream $o))", false),
            ("(type $o (list $f)) (type (stream $o))", false),
            ("(type $o (list $f 2)) (type (stream $o))", false),
            ("(type $o (map string $f)) (type (stream $o))", false),
            (
                "(type $o (variant (case \"a\") (case \"b\" $f))) (type (stream $o))",
                false,
            ),
            (
                "(type $o (record (field \"long-name\" $f))) (type (stream $o))",
                false,
            ),
            ("(type $o (stream u8)) (type (stream $o))", true),
            ("(type (record (field \"a\" $f))) (type (stream string))", true),
        ] {
            assert!(checked(&format!("{light} {ty}")).is_ok(), "{ty}");
            let refused = checked(&format!("{heavy} {ty}"));
            let excess = ComplexityLimit::PassedWeight;
            let expected = if is_ok {
                Ok(())
            } else {
                Err(LoadError::TooComplex { excess })
            };
            assert_eq!(refused, expected, "{ty}");
        }
        let within =
            format!("(type (instance {heavy} (type $s (stream $f)) (export \"f\" (func (result $s)))))");
        assert!(checked(&within).is_err());
    }
}
