//! Doc comments of types where functions use them.
//!
//! A function of a component names no types: it has their structure. So a type has the comments of the exported one of the same
//! structure, if there is no other with other comments.

use wasmtime::component::Component;
use wasmtime::component::types::{ComponentItem, Type};

use crate::typed::docs::{Docs, TypeDocs};
use crate::typed::wit_type::{MAX_NAME_BYTES, MAX_TYPE_PARTS, Room, WitType};

/// Maximum number of exported types of a component that are compared with those of its functions. Further ones have no comments.
pub(crate) const MAX_TYPES: usize = 500;

/// Comments of exported types.
#[derive(Default)]
pub(crate) struct Comments<'a>(Vec<(WitType, Option<&'a TypeDocs>)>);

impl<'a> Comments<'a> {
    /// Finds the exported types of a component that have names of their own in WIT.
    pub(crate) fn of(component: &Component, docs: &'a Docs) -> Self {
        let mut found = Self::default();
        if docs.is_empty() {
            return found;
        }
        let mut room = Room {
            parts: MAX_TYPE_PARTS,
            name_bytes: MAX_NAME_BYTES,
        };
        let engine = component.engine();
        for (name, item) in component.component_type().exports(engine) {
            match item.ty {
                ComponentItem::Type(ty) => found.add(&ty, docs.of_type(None, name), &mut room),
                ComponentItem::ComponentInstance(instance) => {
                    for (inner, item) in instance.exports(engine) {
                        if let ComponentItem::Type(ty) = item.ty {
                            found.add(&ty, docs.of_type(Some(name), inner), &mut room);
                        }
                    }
                }
                _ => {}
            }
        }
        found
    }

    fn add(&mut self, ty: &Type, docs: Option<&'a TypeDocs>, room: &mut Room) {
        // Other types are the same wherever they stand.
        let has_names = matches!(
            ty,
            Type::Record(_) | Type::Variant(_) | Type::Enum(_) | Type::Flags(_)
        );
        if has_names
            && self.0.len() < MAX_TYPES
            && let Ok(ty) = WitType::of(ty, room)
        {
            self.0.push((ty, docs));
        }
    }

    /// Returns the comments of a type.
    pub(crate) fn of_type(&self, ty: &WitType) -> Option<&'a TypeDocs> {
        let mut same = self.0.iter().filter(|(known, _)| known == ty);
        let (_, docs) = same.next()?;
        same.all(|(_, other)| other == docs).then_some(*docs).flatten()
    }
}
