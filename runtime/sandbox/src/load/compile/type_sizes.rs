//! Sizes of the values of a component's types. The engine adds them up in 32 bits, without looking for an overflow, and a few bytes
//! of nested lists of fixed length declare any size.

use std::collections::{HashMap, HashSet};

use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentDefinedTypeId, ComponentEntityType,
    ComponentFuncTypeId, ComponentItem, ComponentValType,
};
use wasmparser::types::TypesRef;
use wasmparser::{Parser, Payload, PrimitiveValType, Validator, WasmFeatures};

use crate::error::LoadError;
use crate::load::complexity::ComplexityLimit;
use crate::load::preflight::malformed;

use super::passed_values::PassedValues;

/// Checks the sizes of all types of a component that is valid.
///
/// # Errors
/// A value of one of them, or the parameters of a function together, would be too large.
pub(super) fn check(bytes: &[u8], features: WasmFeatures) -> Result<(), LoadError> {
    let mut validator = Validator::new_with_features(features);
    let mut sizes = Sizes::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(malformed)?;
        if matches!(payload, Payload::End(_))
            && let Some(types) = validator.types(0)
        {
            for index in 0..types.component_type_count() {
                sizes.any(types, types.component_any_type_at(index))?;
            }
        }
        validator.payload(&payload).map_err(malformed)?;
    }
    Ok(())
}

/// Size and alignment of a value in a memory of 64 bits, which are those in one of 32 bits at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    size: u64,
    align: u64,
}

/// Sizes of the types that were looked at.
#[derive(Default)]
struct Sizes {
    values: HashMap<ComponentDefinedTypeId, Layout>,
    passed: PassedValues,
    others: HashSet<ComponentAnyTypeId>,
}

const HANDLE: Layout = Layout { size: 4, align: 4 };
/// A list or a text lies elsewhere.
const ELSEWHERE: Layout = Layout { size: 16, align: 8 };

impl Layout {
    const EMPTY: Self = Self { size: 0, align: 1 };

    fn of_primitive(ty: PrimitiveValType) -> Self {
        use PrimitiveValType as P;
        let size = match ty {
            P::Bool | P::S8 | P::U8 => 1,
            P::S16 | P::U16 => 2,
            P::S64 | P::U64 | P::F64 => 8,
            P::String => return ELSEWHERE,
            _ => 4,
        };
        Self { size, align: size }
    }

    fn followed_by(self, next: Self) -> Self {
        Self {
            size: (self.size.next_multiple_of(next.align)).saturating_add(next.size),
            align: self.align.max(next.align),
        }
    }

    /// Returns the size of a choice between a number of cases, of which this is the largest.
    fn chosen_from(self, cases: usize) -> Self {
        let size = match cases {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        Self { size, align: size }.followed_by(self)
    }

    /// Adds the space behind a value, so that another one can follow.
    fn checked(self) -> Result<Self, LoadError> {
        let excess = ComplexityLimit::ValueBytes;
        let size = self.size.next_multiple_of(self.align);
        if size > excess.limit() {
            return Err(LoadError::TooComplex { excess });
        }
        Ok(Self { size, ..self })
    }
}

impl Sizes {
    fn any(&mut self, types: TypesRef<'_>, id: ComponentAnyTypeId) -> Result<(), LoadError> {
        if let ComponentAnyTypeId::Defined(id) = id {
            return self.defined(types, id).map(drop);
        }
        if !self.others.insert(id) {
            return Ok(());
        }
        match id {
            ComponentAnyTypeId::Func(id) => self.function(types, id),
            ComponentAnyTypeId::Instance(id) => self.items(types, types[id].exports.values()),
            ComponentAnyTypeId::Component(id) => {
                self.items(types, types[id].imports.values())?;
                self.items(types, types[id].exports.values())
            }
            ComponentAnyTypeId::Resource(_) | ComponentAnyTypeId::Defined(_) => Ok(()),
        }
    }

    fn items<'a>(
        &mut self,
        types: TypesRef<'_>,
        items: impl Iterator<Item = &'a ComponentItem>,
    ) -> Result<(), LoadError> {
        for item in items {
            match item.ty {
                ComponentEntityType::Func(id) => self.any(types, ComponentAnyTypeId::Func(id))?,
                ComponentEntityType::Instance(id) => self.any(types, ComponentAnyTypeId::Instance(id))?,
                ComponentEntityType::Component(id) => self.any(types, ComponentAnyTypeId::Component(id))?,
                ComponentEntityType::Type { created, .. } => self.any(types, created)?,
                ComponentEntityType::Value(ty) => _ = self.value(types, ty)?,
                ComponentEntityType::Module(_) => {}
            }
        }
        Ok(())
    }

    /// Checks the result of a function and its parameters, which lie in memory together.
    fn function(&mut self, types: TypesRef<'_>, id: ComponentFuncTypeId) -> Result<(), LoadError> {
        let function = &types[id];
        self.sequence(types, function.params.iter().map(|(_, ty)| *ty))?;
        self.sequence(types, function.result.into_iter()).map(drop)
    }

    fn sequence(
        &mut self,
        types: TypesRef<'_>,
        parts: impl Iterator<Item = ComponentValType>,
    ) -> Result<Layout, LoadError> {
        let mut all = Layout::EMPTY;
        for part in parts {
            all = all.followed_by(self.value(types, part)?);
        }
        all.checked()
    }

    fn choice(
        &mut self,
        types: TypesRef<'_>,
        count: usize,
        payloads: impl Iterator<Item = ComponentValType>,
    ) -> Result<Layout, LoadError> {
        let mut largest = Layout::EMPTY;
        for payload in payloads {
            let payload = self.value(types, payload)?;
            largest.size = largest.size.max(payload.size);
            largest.align = largest.align.max(payload.align);
        }
        largest.chosen_from(count).checked()
    }

    fn value(&mut self, types: TypesRef<'_>, ty: ComponentValType) -> Result<Layout, LoadError> {
        match ty {
            ComponentValType::Primitive(ty) => Ok(Layout::of_primitive(ty)),
            ComponentValType::Type(id) => self.defined(types, id),
        }
    }

    /// Returns the layout of a type. Types are nested in a limited number of levels, or else invalid.
    fn defined(&mut self, types: TypesRef<'_>, id: ComponentDefinedTypeId) -> Result<Layout, LoadError> {
        if let Some(known) = self.values.get(&id) {
            return Ok(*known);
        }
        use ComponentDefinedType as T;
        let layout = match &types[id] {
            T::Primitive(ty) => Layout::of_primitive(*ty),
            T::Record(record) => self.sequence(types, record.fields.values().copied())?,
            T::Tuple(tuple) => self.sequence(types, tuple.types.iter().copied())?,
            T::Variant(variant) => {
                let payloads = variant.cases.values().filter_map(|case| case.ty);
                self.choice(types, variant.cases.len(), payloads)?
            }
            T::Enum(names) => Layout::EMPTY.chosen_from(names.len()),
            T::Option { ty, .. } => self.choice(types, 2, std::iter::once(*ty))?,
            T::Result { ok, err, .. } => self.choice(types, 2, ok.iter().chain(err).copied())?,
            T::Flags(names) => Layout {
                size: 4 * names.len().div_ceil(32) as u64,
                align: 4,
            },
            T::FixedLengthList { element, length, .. } => {
                let element = self.value(types, *element)?;
                let size = element.size.saturating_mul(u64::from(*length));
                Layout { size, ..element }.checked()?
            }
            T::List { element, .. } => {
                self.value(types, *element)?;
                ELSEWHERE
            }
            T::Map { key, value, .. } => {
                self.sequence(types, [*key, *value].into_iter())?;
                ELSEWHERE
            }
            T::Future { ty, .. } | T::Stream { ty, .. } => {
                self.sequence(types, ty.iter().copied())?;
                self.passed.check(types, *ty)?;
                HANDLE
            }
            T::Own(_) | T::Borrow(_) => HANDLE,
        };
        self.values.insert(id, layout);
        Ok(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<(), LoadError> {
        let text = format!("(component {text})");
        let bytes = wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let features = WasmFeatures::all();
        Validator::new_with_features(features)
            .validate_all(&bytes)
            .unwrap();
        check(&bytes, features)
    }

    /// A list of this many bytes, by its length and that of its elements.
    const HALF: &str = "(type $half (list (list u8 1024) 131072))";

    #[test]
    fn sizes_of_values_are_limited_wherever_they_are_declared() {
        let inner = HALF.replace("(list u8 1024)", "$part");
        let half = format!("(type $part (list u8 1024)) {inner}");
        for (more, is_ok) in [
            ("(type (tuple $half $half))", true),
            ("(type (tuple $half $half bool))", false),
            (
                "(type (record (field \"a\" $half) (field \"b\" $half) (field \"c\" u8)))",
                false,
            ),
            ("(type (list $half 2))", true),
            ("(type (list $half 3))", false),
            ("(type (list $half 4294967))", false),
            // Elsewhere they take no room.
            ("(type $l (list $half)) (type (tuple $l $l $l))", true),
            ("(type $l (list $half 2)) (type (option $l))", false),
            ("(type $l (list $half 2)) (type (result $l))", false),
            ("(type (variant (case \"a\" $half) (case \"b\" $half)))", true),
            (
                "(type $l (list $half 2)) (type (variant (case \"a\") (case \"b\" $l)))",
                false,
            ),
            ("(type (func (param \"a\" $half) (param \"b\" $half)))", true),
            (
                "(type (func (param \"a\" $half) (param \"b\" $half) (param \"c\" u8)))",
                false,
            ),
            ("(type $m (list $half)) (type (list $m 16777216))", true),
            ("(type $m (list $half)) (type (list $m 16777217))", false),
            ("(type (stream $half))", true),
            ("(type $f (flags \"a\" \"b\")) (type (list $f 67108864))", true),
            ("(type $f (flags \"a\" \"b\")) (type (list $f 67108865))", false),
            ("(type $o (option u64)) (type (list $o 16777216))", true),
            ("(type $o (option u64)) (type (list $o 16777217))", false),
            (
                "(type $r (resource (rep i32))) (type $o (own $r)) (type (list $o 67108864))",
                true,
            ),
            (
                "(type $r (resource (rep i32))) (type $o (own $r)) (type (list $o 67108865))",
                false,
            ),
            // The largest case counts, wherever it stands.
            (
                "(type $l (list $half 2)) (type (variant (case \"a\" $l) (case \"b\" bool)))",
                false,
            ),
            ("(type $l (list $half 2)) (type (result (error $l)))", false),
            ("(type (func (result $half)))", true),
        ] {
            let result = checked(&format!("{half} {more}"));
            assert_eq!(result.is_ok(), is_ok, "{more}: {result:?}");
        }
        let names = |count| (0..count).map(|n| format!(" \"a{n}\"")).collect::<String>();
        for (count, is_ok) in [(0x100, true), (0x101, false)] {
            let names = names(count);
            let result = checked(&format!("(type $e (enum{names})) (type (list $e 268435456))"));
            assert_eq!(result.is_ok(), is_ok, "{count}");
        }
        let types = r#"(type $a (list u8 1073741824)) (type $b (list $a 4))"#;
        let function = r#"(export "f" (func (param "v" $b)))"#;
        let within = |items: &str| format!("(type (instance {types} {items}))");
        for place in [
            types.to_string(),
            format!("(component {types})"),
            format!("(type (instance {types} {function}))"),
            format!("(type (component {types} {function}))"),
            format!(r#"(import "i" (instance {types} {function}))"#),
            format!(r#"(type (component {types} (import "f" (func (param "v" $b)))))"#),
            within(r#"(export "f" (func (result $b)))"#),
            within(r#"(export "t" (type (eq $b)))"#),
            within(
                r#"(type $i (instance (export "f" (func (param "v" $b))))) (export "i" (instance (type $i)))"#,
            ),
            within(
                r#"(type $c (component (export "f" (func (param "v" $b))))) (export "c" (component (type $c)))"#,
            ),
            within(r#"(type $l (list $b)) (export "f" (func (param "v" $l)))"#),
            within(r#"(type $m (map string $b)) (export "f" (func (param "v" $m)))"#),
            within(r#"(type $s (stream $b)) (export "f" (func (param "v" $s)))"#),
        ] {
            let refused = checked(&place).unwrap_err();
            let excess = ComplexityLimit::ValueBytes;
            assert_eq!(refused, LoadError::TooComplex { excess }, "{place}");
        }
    }

    #[test]
    fn layout_is_that_of_the_component_model() {
        let of = |parts: &[Layout]| {
            let all = parts
                .iter()
                .fold(Layout::EMPTY, |all, part| all.followed_by(*part));
            let all = all.checked().unwrap();
            (all.size, all.align)
        };
        use PrimitiveValType as P;
        let [byte, short, word, long, text] =
            [P::U8, P::S16, P::Char, P::F64, P::String].map(Layout::of_primitive);
        assert_eq!(of(&[byte, short, byte]), (6, 2));
        assert_eq!(of(&[byte, word, byte, long]), (24, 8));
        assert_eq!(of(&[text, byte]), (24, 8));
        assert_eq!(of(&[Layout::EMPTY.chosen_from(0x100)]), (1, 1));
        assert_eq!(of(&[Layout::EMPTY.chosen_from(0x101)]), (2, 2));
        assert_eq!(of(&[word.chosen_from(0x10_001)]), (8, 4));
    }
}
