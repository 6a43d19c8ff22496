//! Preflight check of a component, which scans its sections without validating or compiling anything.
//!
//! It determines, before a compiler sees the bytes, whether they are a component, what it imports and exports, and
//! whether it is absurdly large once all instantiations are counted. A component of one kilobyte can instantiate itself
//! 2^20 times, and the compiler would follow.

use serde::{Deserialize, Serialize};
use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentAlias, ComponentExternalKind, ComponentInstance,
    ComponentOuterAliasKind, ComponentTypeRef, ElementItems, ElementKind, Encoding, Instance, Parser,
    Payload,
};

use crate::engine::EngineKind;
use crate::error::LoadError;
use crate::load::complexity::ComplexityLimit;
use crate::load::{header, imports};

/// Host memory of one core instance for each of its parts, in bytes; upper bounds of the engine's use (48.0.8).
mod bytes {
    /// An empty instance.
    pub(super) const INSTANCE: u64 = 1 << 10;
    /// An import, with its reference if it is a function.
    pub(super) const IMPORT: u64 = 64;
    /// A function reference.
    pub(super) const FUNCTION: u64 = 32;
    pub(super) const GLOBAL: u64 = 16;
    pub(super) const MEMORY_OR_TABLE: u64 = 256;
    pub(super) const SEGMENT: u64 = 64;
    /// An element of a passive segment, which is copied for each instance.
    pub(super) const ELEMENT: u64 = 16;
    /// A canonical function of a component.
    pub(super) const CANONICAL: u64 = 64;
}

/// Imports, exports and size of a component.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Names of all imports that contain something to link, in order.
    pub(crate) imports: Vec<String>,
    /// Names of all exports, in order.
    pub(crate) exports: Vec<String>,
    /// Maximum host memory of the instances of one cell in bytes, excluding memories and tables.
    pub(crate) instance_bytes: u64,
    /// Number of component instances with functions, in which a task can wait.
    pub(crate) entered: u32,
    /// Engine that it needs, as far as it is known without its types.
    pub(crate) engine: EngineKind,
}

impl Shape {
    /// Returns the number of stacks that one cell takes at most in the concurrent engine: one for each instance in which a task
    /// waits, one for the function that runs, and one that is kept for the next.
    pub(crate) fn max_stacks(&self) -> u32 {
        self.entered.saturating_add(2)
    }
}

/// Scans `bytes`.
pub(crate) fn scan(bytes: &[u8]) -> Result<Shape, LoadError> {
    header::check(bytes)?;
    let mut scan = Scan::default();
    for payload in Parser::new(0).parse_all(bytes) {
        scan.payload(payload.map_err(malformed)?)?;
    }
    Ok(scan.shape)
}

/// Scans a core module, of which a component is to be made, and passes each part to `note`.
pub(crate) fn scan_module<'a>(
    bytes: &'a [u8],
    mut note: impl FnMut(&Payload<'a>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let mut scan = Scan::default();
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload.map_err(malformed)?;
        if let Payload::Version {
            encoding: Encoding::Component,
            ..
        } = payload
        {
            return Err(LoadError::Malformed {
                reason: "a component in place of a core module".into(),
            });
        }
        note(&payload)?;
        scan.payload(payload)?;
    }
    Ok(())
}

pub(crate) fn malformed(error: wasmparser::BinaryReaderError) -> LoadError {
    LoadError::Malformed {
        reason: format!("{} (at byte {})", error.message(), error.offset()),
    }
}

/// Instances and memory created by one instantiation.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    core: u64,
    components: u64,
    items: u64,
    bytes: u64,
    /// Component instances with functions.
    entered: u64,
}

impl Cost {
    fn add(&mut self, other: Self) {
        // All fields by name, so that a new one cannot be forgotten here.
        let Self {
            core,
            components,
            items,
            bytes,
            entered,
        } = other;
        self.core = self.core.saturating_add(core);
        self.components = self.components.saturating_add(components);
        self.items = self.items.saturating_add(items);
        self.bytes = self.bytes.saturating_add(bytes);
        self.entered = self.entered.saturating_add(entered);
    }
}

/// A component whose end has not been reached.
#[derive(Debug, Default)]
struct Open {
    cost: Cost,
    /// The component index space: cost of instantiating each one, `None` if unknown.
    components: Vec<Option<Cost>>,
    /// The module index space: bytes of one instance of each, `None` if unknown.
    modules: Vec<Option<u64>>,
    /// True if its callers can enter one of its modules.
    has_functions: bool,
}

/// Parser position: a component on the stack, or a core module.
#[derive(Debug, Default)]
struct Scan {
    open: Vec<Open>,
    in_module: bool,
    /// Bytes of one instance of the current module, and of the largest so far.
    module_bytes: u64,
    largest_module: u64,
    functions: u64,
    parts: u64,
    memories: u64,
    tables: u64,
    shape: Shape,
}

fn has_async_option(options: &[CanonicalOption]) -> bool {
    (options.iter()).any(|option| matches!(option, CanonicalOption::Async | CanonicalOption::Callback(_)))
}

fn at_most(count: u64, excess: ComplexityLimit) -> Result<(), LoadError> {
    if count > excess.limit() {
        Err(LoadError::TooComplex { excess })
    } else {
        Ok(())
    }
}

impl Scan {
    fn payload(&mut self, payload: Payload<'_>) -> Result<(), LoadError> {
        match payload {
            Payload::Version { encoding, .. } => match encoding {
                Encoding::Module => {
                    self.in_module = true;
                    self.module_bytes = bytes::INSTANCE;
                }
                Encoding::Component => {
                    self.open.push(Open::default());
                    at_most(self.open.len() as u64, ComplexityLimit::Nesting)?;
                }
            },
            Payload::End(_) => self.end()?,
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                self.parts += 1;
                at_most(self.parts, ComplexityLimit::Parts)?;
            }
            // In a core module.
            Payload::CodeSectionStart { count, .. } => {
                self.functions += u64::from(count);
                at_most(self.functions, ComplexityLimit::Functions)?;
            }
            Payload::ImportSection(section) => {
                // One entry of a section can be a group of imports.
                for import in section.into_imports() {
                    import.map_err(malformed)?;
                    self.holds(1, bytes::IMPORT);
                }
            }
            Payload::FunctionSection(section) => self.holds(section.count(), bytes::FUNCTION),
            Payload::GlobalSection(section) => self.holds(section.count(), bytes::GLOBAL),
            Payload::ElementSection(section) => {
                self.holds(section.count(), bytes::SEGMENT);
                for element in section {
                    let element = element.map_err(malformed)?;
                    if let ElementKind::Passive = element.kind {
                        let count = match element.items {
                            ElementItems::Functions(items) => items.count(),
                            ElementItems::Expressions(_, items) => items.count(),
                        };
                        self.holds(count, bytes::ELEMENT);
                    }
                }
            }
            Payload::DataSection(section) => self.holds(section.count(), bytes::SEGMENT),
            Payload::MemorySection(section) => {
                self.holds(section.count(), bytes::MEMORY_OR_TABLE);
                self.memories += u64::from(section.count());
                at_most(self.memories, ComplexityLimit::Memories)?;
            }
            Payload::TableSection(section) => {
                self.holds(section.count(), bytes::MEMORY_OR_TABLE);
                self.tables += u64::from(section.count());
                at_most(self.tables, ComplexityLimit::Tables)?;
                for table in section {
                    at_most(
                        table.map_err(malformed)?.ty.initial,
                        ComplexityLimit::TableElements,
                    )?;
                }
            }
            // In a component.
            Payload::InstanceSection(section) => {
                self.items(section.count())?;
                for instance in section {
                    if let Instance::Instantiate { module_index, .. } = instance.map_err(malformed)? {
                        let bytes = self.bytes_of(module_index);
                        self.add(Cost {
                            core: 1,
                            bytes,
                            ..Cost::default()
                        })?;
                    }
                }
            }
            Payload::ComponentInstanceSection(section) => {
                self.items(section.count())?;
                for instance in section {
                    if let ComponentInstance::Instantiate { component_index, .. } =
                        instance.map_err(malformed)?
                    {
                        let cost = self.cost_of(component_index)?;
                        self.add(cost)?;
                        self.add(Cost {
                            components: 1,
                            ..Cost::default()
                        })?;
                    }
                }
            }
            Payload::ComponentAliasSection(section) => {
                self.items(section.count())?;
                for alias in section {
                    self.alias(&alias.map_err(malformed)?);
                }
            }
            Payload::ComponentImportSection(section) => {
                self.items(section.count())?;
                for import in section {
                    let import = import.map_err(malformed)?;
                    match import.ty {
                        ComponentTypeRef::Component(_) => self.define(None),
                        ComponentTypeRef::Module(_) => self.define_module(None),
                        _ => {}
                    }
                    if self.open.len() == 1 {
                        if imports::is_of_async_wasi(import.name.name) {
                            self.shape.engine = EngineKind::Concurrent;
                        }
                        self.shape.imports.push(import.name.name.to_owned());
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                self.items(section.count())?;
                for export in section {
                    let export = export.map_err(malformed)?;
                    // An export is a new item in the index space of its kind.
                    if export.kind == ComponentExternalKind::Component {
                        let cost = self
                            .open
                            .last()
                            .and_then(|open| open.components.get(export.index as usize).copied())
                            .flatten();
                        self.define(cost);
                    } else if export.kind == ComponentExternalKind::Module {
                        let bytes = self.bytes_of(export.index);
                        self.define_module(Some(bytes));
                    }
                    if self.open.len() == 1 {
                        self.shape.exports.push(export.name.name.to_owned());
                    }
                }
            }
            Payload::ComponentTypeSection(section) => self.items(section.count())?,
            Payload::CoreTypeSection(section) => self.items(section.count())?,
            Payload::ComponentCanonicalSection(section) => {
                self.items(section.count())?;
                self.add(Cost {
                    bytes: u64::from(section.count()) * bytes::CANONICAL,
                    ..Cost::default()
                })?;
                for function in section {
                    self.canonical(&function.map_err(malformed)?);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends a module or a component; a component becomes an item of the enclosing one.
    fn end(&mut self) -> Result<(), LoadError> {
        if std::mem::take(&mut self.in_module) {
            self.largest_module = self.largest_module.max(self.module_bytes);
            self.define_module(Some(self.module_bytes));
            return Ok(());
        }
        let mut closed = self.open.pop().unwrap_or_default();
        closed.cost.entered += u64::from(closed.has_functions);
        if self.open.is_empty() {
            at_most(closed.cost.core, ComplexityLimit::CoreInstances)?;
            at_most(closed.cost.components, ComplexityLimit::ComponentInstances)?;
            at_most(closed.cost.items, ComplexityLimit::Items)?;
            self.shape.instance_bytes = closed.cost.bytes;
            // At most the component instances, which were counted above, and the outermost one.
            self.shape.entered = u32::try_from(closed.cost.entered).unwrap_or(u32::MAX);
        } else {
            self.define(Some(closed.cost));
        }
        Ok(())
    }

    fn items(&mut self, count: u32) -> Result<(), LoadError> {
        self.add(Cost {
            items: u64::from(count),
            ..Cost::default()
        })
    }

    fn add(&mut self, cost: Cost) -> Result<(), LoadError> {
        if let Some(open) = self.open.last_mut() {
            open.cost.add(cost);
        }
        Ok(())
    }

    /// Notes a function that a component gives to its callers or to its modules.
    fn canonical(&mut self, function: &CanonicalFunction) {
        let is_async = match function {
            CanonicalFunction::Lift { options, .. } => {
                if let Some(open) = self.open.last_mut() {
                    open.has_functions = true;
                }
                has_async_option(options)
            }
            CanonicalFunction::Lower { options, .. } => has_async_option(options),
            CanonicalFunction::ResourceNew { .. }
            | CanonicalFunction::ResourceDrop { .. }
            | CanonicalFunction::ResourceRep { .. } => false,
            // All others belong to the asynchronous ABI, or are refused when the component is validated.
            _ => true,
        };
        if is_async {
            self.shape.engine = EngineKind::Concurrent;
        }
    }

    /// Adds parts to an instance of the current module.
    fn holds(&mut self, count: u32, bytes: u64) {
        self.module_bytes = self.module_bytes.saturating_add(u64::from(count) * bytes);
    }

    fn define_module(&mut self, bytes: Option<u64>) {
        if let Some(open) = self.open.last_mut() {
            open.modules.push(bytes);
        }
    }

    /// Returns the bytes of one instance of a module; if unknown, those of the largest.
    fn bytes_of(&self, index: u32) -> u64 {
        let open = self.open.last();
        let known = open.and_then(|open| open.modules.get(index as usize).copied());
        known.flatten().unwrap_or(self.largest_module)
    }

    fn define(&mut self, cost: Option<Cost>) {
        if let Some(open) = self.open.last_mut() {
            open.components.push(cost);
        }
    }

    fn cost_of(&self, index: u32) -> Result<Cost, LoadError> {
        let open = self.open.last();
        match open.and_then(|open| open.components.get(index as usize)) {
            Some(Some(cost)) => Ok(*cost),
            Some(None) => Err(LoadError::UnsupportedFeature {
                feature: "instantiating an imported component".into(),
            }),
            None => Err(LoadError::Malformed {
                reason: format!("component {index} is instantiated but does not exist"),
            }),
        }
    }

    fn alias(&mut self, alias: &ComponentAlias<'_>) {
        match *alias {
            ComponentAlias::InstanceExport {
                kind: ComponentExternalKind::Component,
                ..
            } => self.define(None),
            ComponentAlias::InstanceExport {
                kind: ComponentExternalKind::Module,
                ..
            } => self.define_module(None),
            ComponentAlias::Outer {
                kind: ComponentOuterAliasKind::CoreModule,
                count,
                index,
            } => {
                let bytes = (self.open.len())
                    .checked_sub(1 + count as usize)
                    .and_then(|at| self.open[at].modules.get(index as usize).copied())
                    .flatten();
                self.define_module(bytes);
            }
            ComponentAlias::Outer {
                kind: ComponentOuterAliasKind::Component,
                count,
                index,
            } => {
                let cost = (self.open.len())
                    .checked_sub(1 + count as usize)
                    .and_then(|at| self.open[at].components.get(index as usize).copied())
                    .flatten();
                self.define(cost);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::complexity::{
        MAX_FUNCTIONS, MAX_MEMORIES, MAX_NESTING, MAX_PARTS, MAX_TABLE_START, MAX_TABLES,
    };

    fn of(text: &str) -> Result<Shape, LoadError> {
        scan(&wat::parse_str(text).unwrap())
    }

    /// Returns a component that instantiates 2^`doublings` core instances.
    fn doubling(doublings: usize) -> String {
        let first = "(component $c0 (core module $m (func (export \"f\"))) (core instance (instantiate $m)))"
            .to_owned();
        let nested = (1..=doublings).fold(first, |inner, n| {
            let m = n - 1;
            format!("(component $c{n} {inner} (instance (instantiate $c{m})) (instance (instantiate $c{m})))")
        });
        format!("(component {nested} (instance (instantiate $c{doublings})))")
    }

    #[test]
    fn files_mistaken_for_a_component_are_distinguished() {
        let core = wat::parse_str("(module)").unwrap();
        for (bytes, error) in [
            (&b""[..], LoadError::NotWasm),
            (b"#!/bin/sh", LoadError::NotWasm),
            (b"\0as", LoadError::Truncated),
            (b"\0asm\x0d\0", LoadError::Truncated),
            (&core, LoadError::CoreModule),
            (b" (component)", LoadError::Text),
            (b"(; hello ;)", LoadError::Text),
        ] {
            assert_eq!(scan(bytes), Err(error), "{:?}", bytes.escape_ascii().to_string());
        }
    }

    #[test]
    fn every_truncation_is_reported_or_a_component_without_its_end() {
        let whole = wat::parse_str("(component (core module (func)) (import \"a\" (func)))").unwrap();
        for end in 0..whole.len() {
            if let Err(error) = scan(&whole[..end]) {
                let expected = if end == 0 {
                    LoadError::NotWasm
                } else {
                    LoadError::Truncated
                };
                assert_eq!(error, expected, "{end}");
            }
        }
    }

    #[test]
    fn imports_and_exports_of_the_outermost_component_are_listed() {
        let shape = of(
            r#"(component (import "a:b/c@0.1.0" (instance)) (import "f" (func $f)) (export "g" (func $f))
            (component (import "inner" (func))))"#,
        )
        .unwrap();
        assert_eq!(shape.imports, ["a:b/c@0.1.0", "f"]);
        assert_eq!(shape.exports, ["g"]);
    }

    #[test]
    fn core_instances_are_counted_with_repetition_up_to_the_limit() {
        assert!(of(&doubling(6)).is_ok());
        for n in [7, 10] {
            assert_eq!(
                of(&doubling(n)),
                Err(LoadError::TooComplex {
                    excess: ComplexityLimit::CoreInstances
                }),
                "{n}"
            );
        }
    }

    #[test]
    fn asynchronous_abi_and_wasi_0_3_need_the_concurrent_engine() {
        let module = r#"(core module $m (func (export "f")) (func (export "g") (param i32 i32 i32) (result i32) unreachable))
            (core instance $i (instantiate $m))"#;
        for (text, engine) in [
            (
                r#"(func (canon lift (core func $i "f")))"#,
                EngineKind::Sequential,
            ),
            (
                r#"(func async (canon lift (core func $i "f") async (callback (func $i "g"))))"#,
                EngineKind::Concurrent,
            ),
            ("(core func (canon waitable-set.new))", EngineKind::Concurrent),
            (
                "(type $r (resource (rep i32))) (core func (canon resource.new $r))",
                EngineKind::Sequential,
            ),
            (
                "(component (core func (canon task.cancel)))",
                EngineKind::Concurrent,
            ),
        ] {
            let shape = of(&format!("(component {module} {text})")).unwrap();
            assert_eq!(shape.engine, engine, "{text}");
        }
        let import = |name: &str| {
            let shape = of(&format!(r#"(component (import "{name}" (instance)))"#));
            shape.unwrap().engine
        };
        assert_eq!(import("wasi:random/random@0.3.0"), EngineKind::Concurrent);
        assert_eq!(import("wasi:random/random@0.2.3"), EngineKind::Sequential);
        assert_eq!(import("other:random/random@0.3.0"), EngineKind::Sequential);
    }

    #[test]
    fn instances_with_functions_are_counted_with_repetition() {
        let function = r#"(core module $m (func (export "f"))) (core instance $i (instantiate $m))
            (func (canon lift (core func $i "f")))"#;
        let inner = format!(r#"(component $c {function} (func (canon lift (core func $i "f"))))"#);
        let twice = "(instance (instantiate $c)) (instance (instantiate $c))";
        assert_eq!(of(&format!("(component {inner})")).unwrap().entered, 0);
        assert_eq!(of(&format!("(component {inner} {twice})")).unwrap().entered, 2);
        let shape = of(&format!("(component {inner} {twice} {function})")).unwrap();
        assert_eq!((shape.entered, shape.max_stacks()), (3, 5));
    }

    #[test]
    fn instances_of_components_without_code_are_counted() {
        let empty = |n: usize| doubling(n).replace("(core instance (instantiate $m))", "");
        assert!(of(&empty(6)).is_ok());
        assert_eq!(
            of(&empty(9)),
            Err(LoadError::TooComplex {
                excess: ComplexityLimit::ComponentInstances
            })
        );
    }

    #[test]
    fn alias_of_an_outer_component_costs_as_much_as_the_component() {
        let text = format!(
            "(component $top {} (component (alias outer $top $c6 (component $a)) {}) )",
            doubling(6)
                .strip_prefix("(component ")
                .unwrap()
                .replace("(instance (instantiate $c6)))", ""),
            "(instance (instantiate $a))"
        );
        // Defined but not instantiated: accepted. Instantiated twice: rejected.
        assert!(of(&text).is_ok());
        let twice = text.replace(
            "(instance (instantiate $a))) )",
            "(instance (instantiate $a))) (instance (instantiate 1)) (instance (instantiate 1)))",
        );
        assert_eq!(
            of(&twice),
            Err(LoadError::TooComplex {
                excess: ComplexityLimit::CoreInstances
            })
        );
    }

    #[test]
    fn functions_memories_tables_parts_and_nesting_have_limits() {
        let module = |body: &str, n: u32| format!("(component (core module {}))", body.repeat(n as usize));
        for (body, excess, limit) in [
            ("(func)", ComplexityLimit::Functions, MAX_FUNCTIONS),
            ("(memory 0)", ComplexityLimit::Memories, MAX_MEMORIES),
            ("(table 0 funcref)", ComplexityLimit::Tables, MAX_TABLES),
        ] {
            assert!(of(&module(body, limit)).is_ok(), "{excess}");
            assert_eq!(
                of(&module(body, limit + 1)),
                Err(LoadError::TooComplex { excess }),
                "{excess}"
            );
        }
        let table = |n: u32| format!("(component (core module (table {n} funcref)))");
        assert!(of(&table(MAX_TABLE_START)).is_ok());
        assert!(of(&table(MAX_TABLE_START + 1)).is_err());
        let parts = |n: u32| format!("(component {})", "(core module)".repeat(n as usize));
        assert!(of(&parts(MAX_PARTS)).is_ok());
        assert!(of(&parts(MAX_PARTS + 1)).is_err());
        let nested = |n: u32| format!("{}{}", "(component ".repeat(n as usize), ")".repeat(n as usize));
        assert!(of(&nested(MAX_NESTING)).is_ok());
        assert!(of(&nested(MAX_NESTING + 1)).is_err());
    }

    /// Returns the instance bytes of a component with the module `$m` of 1,000 passive elements.
    fn with_elements(rest: &str) -> u64 {
        let elements = "$f ".repeat(1_000);
        let text = format!("(component (core module $m (func $f) (elem func {elements})) {rest})");
        of(&text).unwrap().instance_bytes
    }

    #[test]
    fn bytes_of_instances_are_counted_with_repetition() {
        let one = "(core instance (instantiate $m))";
        let bytes = with_elements(one);
        assert!((16_000..20_000).contains(&bytes), "{bytes}");
        assert_eq!(with_elements(""), 0);
        assert_eq!(with_elements(&one.repeat(5)), 5 * bytes);

        // Through another component, which is itself instantiated three times.
        let nested = format!(
            "(component $c (alias outer 1 $m (core module $m)) {})",
            one.repeat(2)
        );
        let thrice = "(instance (instantiate $c))".repeat(3);
        assert_eq!(with_elements(&format!("{nested} {thrice}")), 6 * bytes);

        // An unknown module costs as much as the largest.
        let exported = "(component $c (core module (export \"m\"))) (instance $i (instantiate $c))
            (alias export $i \"m\" (core module $n)) (core instance (instantiate $n))";
        assert_eq!(with_elements(exported), bytes);
    }

    #[test]
    fn elements_in_tables_are_not_copied_to_instances() {
        let elements = "$f ".repeat(1_000);
        for kind in ["(i32.const 0) func", "declare func"] {
            let text = format!(
                "(component (core module $m (table 1000 funcref) (func $f) (elem {kind} {elements}))
                    (core instance (instantiate $m)))"
            );
            let bytes = of(&text).unwrap().instance_bytes;
            assert!(bytes < 2_000, "{kind}: {bytes}");
        }
    }
}
