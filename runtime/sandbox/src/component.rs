//! Loaded components, ready to be called.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use toolcell_core::{Grant, Grants, Policy, ToolSpec};

use crate::bindings::{ProviderPre, Role};
use crate::cell::state::CellState;
use crate::cell::{CellRequest, CellRunner, Footprint, GuestCall};
use crate::context::ContextExports;
use crate::egress::{BoundSecrets, Egress, Transport};
use crate::error::LoadError;
use crate::load::definitions::{self, DefinitionLog};
use crate::load::imports::{Ability, Import};
use crate::program::{Program, ProgramCall};
use crate::sandbox::LaterCode;
use crate::typed::{Functions, LeftOut};

/// SHA-256 digest of a component's bytes (FIPS 180-4). Printed as `sha256:` and 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// A loaded component and its tools. Clones are cheap and share everything.
#[derive(Clone)]
pub struct Component(pub(crate) Arc<Loaded>);

/// Identity of a component and the facts derived from its bytes, independent of its role.
#[derive(Debug, Clone)]
pub struct Identity {
    pub(crate) label: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    pub(crate) imports: Vec<Import>,
    pub(crate) exports: Vec<String>,
}

/// Identity of a component and the definitions of its tools, without its code.
#[derive(Debug, Clone)]
pub struct Description {
    pub(crate) identity: Identity,
    pub(crate) specs: Vec<Arc<ToolSpec>>,
}

/// Everything that a cell needs, for components of any role.
#[derive(Clone)]
pub(crate) struct Base {
    pub(crate) cells: Arc<CellRunner>,
    pub(crate) transport: Transport,
    pub(crate) footprint: Footprint,
    pub(crate) identity: Identity,
}

/// Data shared by all tools of a component.
pub(crate) struct Loaded {
    pub(crate) base: Base,
    pub(crate) code: Code,
    pub(crate) specs: Vec<Arc<ToolSpec>>,
    pub(crate) exports: ContextExports,
}

/// Kind of a component with tools: what its tools are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ComponentKind {
    /// It exports the interface of tools, which defines them.
    Tools,
    /// Each of its functions is a tool.
    Functions,
    /// It is a program (`wasi:cli/run`), which is one tool.
    Program,
}

/// A component linked for calls, by its kind.
pub(crate) enum Code {
    Tools(ProviderPre<CellState>),
    Functions(Functions),
    Program(Program),
    /// Of a component that defines its tools, read for the first call.
    Later(Arc<LaterCode>),
}

impl Identity {
    /// Returns the label given when the component was loaded, such as a file name.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the digest of its bytes.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns all imports. The component cannot access anything else.
    pub fn imports(&self) -> &[Import] {
        &self.imports
    }

    /// Returns the abilities that its imports provide, each once, in a fixed order.
    pub fn abilities(&self) -> Vec<Ability> {
        let mut abilities: Vec<Ability> = self.imports.iter().map(|i| i.ability).collect();
        abilities.sort_unstable();
        abilities.dedup();
        abilities
    }

    /// Returns `true` if its imports can use a grant; otherwise the grant has no effect.
    pub fn can_use(&self, grant: &Grant) -> bool {
        let ability = Ability::of_grant(grant);
        self.imports.iter().any(|import| import.ability == ability)
    }

    /// Returns the part of the grants that its imports can use. Its tools reach nothing else.
    pub fn usable(&self, grants: &Grants) -> Grants {
        let abilities = self.abilities();
        let has = |ability| abilities.contains(&ability);
        let mut usable = grants.clone();
        if !has(Ability::Files) {
            usable.dirs.clear();
        }
        if !has(Ability::Environment) {
            usable.env.clear();
        }
        if !has(Ability::Http) {
            usable.http.clear();
            usable.secrets.clear();
        }
        if !has(Ability::KeyValue) {
            usable.buckets.clear();
        }
        usable
    }

    /// Returns `true` if it exports tools, so that [`crate::Sandbox::load`] accepts it.
    pub fn has_tools(&self) -> bool {
        Role::Tools.is_among(&self.exports)
    }

    /// Returns `true` if it is a hook, so that [`crate::Sandbox::load_hook`] accepts it. It can be both.
    pub fn has_hook(&self) -> bool {
        Role::Hook.is_among(&self.exports)
    }
}

impl Description {
    /// Returns the identity of the component.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns the definitions of its tools, in the component's order.
    pub fn definitions(&self) -> &[Arc<ToolSpec>] {
        &self.specs
    }
}

impl Base {
    /// Returns the egress of its cells under a policy.
    pub(crate) fn egress(&self, policy: &Policy, secrets: BoundSecrets) -> Arc<Egress> {
        let transport = self.transport.clone();
        let egress = Egress::new(&policy.grants.http, &policy.limits, secrets, transport);
        Arc::new(egress.denying(&policy.grants.denied.http))
    }

    /// Reads definitions, in a cell with nothing granted.
    pub(crate) async fn ask<J: GuestCall>(&self, pre: &J::World, job: J) -> Result<J::Done, LoadError> {
        let policy = Arc::new(definitions::bare_policy());
        let log = Arc::new(DefinitionLog::default());
        let request = CellRequest {
            pre,
            policy: &policy,
            limits: policy.limits.clone(),
            egress: &self.egress(&policy, BoundSecrets::default()),
            observer: log.clone(),
            footprint: self.footprint,
            bytes_in: 0,
        };
        let ended = self.cells.run_cell(request, job).await;
        ended.result.map_err(|source| LoadError::Definitions {
            source,
            log: log.take(),
        })
    }
}

impl Component {
    /// Returns the identity of the component.
    pub fn identity(&self) -> &Identity {
        &self.0.base.identity
    }

    /// As [`Identity::label`].
    pub fn label(&self) -> &str {
        self.identity().label()
    }

    /// As [`Identity::digest`].
    pub fn digest(&self) -> Digest {
        self.identity().digest()
    }

    /// As [`Identity::size`].
    pub fn size(&self) -> u64 {
        self.identity().size()
    }

    /// As [`Identity::imports`].
    pub fn imports(&self) -> &[Import] {
        self.identity().imports()
    }

    /// As [`Identity::abilities`].
    pub fn abilities(&self) -> Vec<Ability> {
        self.identity().abilities()
    }

    /// Returns the definitions of its tools, in the component's order.
    pub fn definitions(&self) -> &[Arc<ToolSpec>] {
        &self.0.specs
    }

    /// Returns its kind.
    pub fn kind(&self) -> ComponentKind {
        match &self.0.code {
            Code::Tools(_) | Code::Later(_) => ComponentKind::Tools,
            Code::Functions(_) => ComponentKind::Functions,
            Code::Program(_) => ComponentKind::Program,
        }
    }

    /// Returns the names of the tools that are functions with this name, in any interface; none if it has tools of another kind.
    pub fn tools_of_function(&self, function: &str) -> Vec<&str> {
        match &self.0.code {
            Code::Functions(functions) => functions.tools_of(function).collect(),
            Code::Tools(_) | Code::Program(_) | Code::Later(_) => Vec::new(),
        }
    }

    /// Returns its functions that are no tools, with the reasons.
    pub fn left_out(&self) -> &[LeftOut] {
        match &self.0.code {
            Code::Functions(functions) => functions.left_out(),
            Code::Tools(_) | Code::Program(_) | Code::Later(_) => &[],
        }
    }

    /// Returns the program with another description for the model.
    ///
    /// # Errors
    /// [`LoadError::NotAProgram`] if its tools describe themselves, [`LoadError::TextTooLong`].
    pub fn with_description(&self, description: &str) -> Result<Self, LoadError> {
        let (Code::Program(program), [spec]) = (&self.0.code, self.definitions()) else {
            return Err(LoadError::NotAProgram);
        };
        definitions::check_description(spec.name.as_str(), description)?;
        let spec = ToolSpec {
            description: description.to_owned(),
            ..ToolSpec::clone(spec)
        };
        Ok(Self(Arc::new(Loaded {
            base: self.0.base.clone(),
            code: Code::Program(program.clone()),
            specs: vec![Arc::new(spec)],
            exports: ContextExports::default(),
        })))
    }

    /// Returns the program with what it writes when it is run with `--help` as its description for the model. It runs in a cell
    /// with nothing granted and with low limits. Without such output its description stays as it is.
    ///
    /// # Errors
    /// [`LoadError::NotAProgram`] if its tools describe themselves, [`LoadError::Definitions`] if it crashes or exceeds a limit.
    pub async fn with_help_as_description(&self) -> Result<Self, LoadError> {
        let (Code::Program(program), [spec]) = (&self.0.code, self.definitions()) else {
            return Err(LoadError::NotAProgram);
        };
        let help = ProgramCall::for_help(&spec.name, definitions::MAX_DESCRIPTION);
        let help = self.0.base.ask(program, help).await?.into_help();
        match help.is_empty() {
            true => Ok(self.clone()),
            false => self.with_description(&help),
        }
    }

    /// Returns its identity and the definitions of its tools.
    pub fn description(&self) -> Description {
        Description {
            identity: self.identity().clone(),
            specs: self.0.specs.clone(),
        }
    }
}

impl fmt::Debug for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Component")
            .field("label", &self.label())
            .field("digest", &self.digest())
            .finish_non_exhaustive()
    }
}

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the digest with this value, such as one computed when a program was built.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error of an invalid digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid digest `{}`: expected `sha256:` and 64 hexadecimal digits", .0.escape_debug())]
pub struct InvalidDigest(String);

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        let parse = || {
            let digits = text.strip_prefix("sha256:")?;
            let mut bytes = [0; 32];
            if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return None;
            }
            for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
                let pair = std::str::from_utf8(pair).ok()?;
                *byte = u8::from_str_radix(pair, 16).ok()?;
            }
            Some(Self(bytes))
        };
        parse().ok_or_else(|| InvalidDigest(text.clone()))
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use toolcell_core::policy::{DirAccess, DirGrant};

    use super::*;

    fn with(abilities: &[Ability]) -> Identity {
        let import = |ability: &Ability| Import {
            name: String::new(),
            ability: *ability,
        };
        Identity {
            label: "x".into(),
            digest: Digest::of(b""),
            size: 0,
            imports: abilities.iter().map(import).collect(),
            exports: Vec::new(),
        }
    }

    #[test]
    fn only_grants_that_the_imports_can_use_are_usable() {
        let grant = |line: &str| line.parse::<Grant>().unwrap();
        let (Grant::Http(http), Grant::Bucket(bucket)) = (grant("http=a.com"), grant("keyvalue=b")) else {
            panic!("parsed as others");
        };
        let granted = Grants {
            dirs: vec![DirGrant {
                host: "/a".into(),
                guest: "/".into(),
                access: DirAccess::READ,
                overlay: None,
            }],
            env: vec![("A".into(), "1".into())],
            http: vec![http],
            buckets: vec![bucket],
            ..Grants::default()
        };
        let lines = ["read=/a", "env=A=1", "http=a.com", "keyvalue=b"];
        let denials = ["deny=/a", "deny-http=a.com", "deny-keyvalue=b"];
        let of_denials = [Ability::Files, Ability::Http, Ability::KeyValue];
        let abilities = [
            Ability::Files,
            Ability::Environment,
            Ability::Http,
            Ability::KeyValue,
        ];
        for (index, ability) in abilities.into_iter().enumerate() {
            let identity = with(&[ability]);
            let usable = identity.usable(&granted);
            let kept = [
                usable.dirs.len(),
                usable.env.len(),
                usable.http.len(),
                usable.buckets.len(),
            ];
            for (of, line) in lines.iter().enumerate() {
                assert_eq!(kept[of] == 1, of == index, "{ability:?} {line}");
                assert_eq!(identity.can_use(&grant(line)), of == index, "{ability:?} {line}");
            }
            for (of, line) in of_denials.iter().zip(denials) {
                assert_eq!(
                    identity.can_use(&grant(line)),
                    *of == ability,
                    "{ability:?} {line}"
                );
            }
        }
        assert_eq!(with(&abilities).usable(&granted), granted);
        assert_eq!(with(&[Ability::Log]).usable(&granted), Grants::default());
    }

    #[test]
    fn digest_round_trips() {
        let digest = Digest::of(b"");
        assert_eq!(
            digest.to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(Digest::try_from(digest.to_string()), Ok(digest));
        for bad in [
            "",
            "sha256:",
            "md5:00",
            &digest.hex(),
            &format!("sha256:{}", "é".repeat(32)),
        ] {
            assert!(Digest::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
