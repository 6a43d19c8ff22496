//! Bounds on host memory, for every function that a component can import.
//!
//! The functions are those of the WIT from which the linker is generated. The test fails for a function without a row,
//! a row without a function, a row that does not cover a list or text of the signature, and a kind of resource without
//! a price.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use wit_parser::{Handle, Resolve, Type, TypeDefKind};

use crate::load::imports::Ability;

mod wasi_0_3;

/// Function, bound of the lists and texts passed by the guest, and bound of those returned to it.
type Row = (&'static str, &'static str, &'static str);

const FUEL: &str = "fuel for host calls, in one piece, and freed when the function returns";
const PATH: &str = "4,096 bytes, `MAX_PATH`; refused before anything is done";
const FIELDS: &str = "32 KiB for each object of headers, part of its price";
const FIELDS_OUT: &str =
    "one object of headers, whose price covers a copy: nothing else is answered meanwhile";
const TEXT_OUT: &str = "what the guest gave it, priced with the request";
const KEPT: &str = "priced with the request by its length";
const CODE: &str = "a text of the host, or a header of 64 KiB of a response";
const BUCKET: &str = "reserved with the operation; 1,000 keys of 512 bytes, values of 1 MiB";
const BUCKET_OUT: &str = "reserved with the operation; read no further than the call has memory";
const REASON: &str = "a text of the host";
const SHUT: &str = "no such resource can be made";

const TABLE: &[(&str, &[Row])] = &[
    (
        "toolcell:tool/log",
        &[(
            "write",
            "fuel for host calls; 8 KiB of it are passed on, within the limit of the log",
            "",
        )],
    ),
    (
        "toolcell:tool/progress",
        &[("report", "fuel for host calls; 256 bytes of it are kept", "")],
    ),
    (
        "wasi:cli/environment",
        &[
            (
                "get-environment",
                "",
                "the granted variables, reserved before they are copied",
            ),
            (
                "get-arguments",
                "",
                "those of a program, reserved before they are copied",
            ),
            ("initial-cwd", "", "always empty"),
        ],
    ),
    ("wasi:cli/exit", &[("exit", "", ""), ("exit-with-code", "", "")]),
    ("wasi:cli/stdin", &[("get-stdin", "", "")]),
    ("wasi:cli/stdout", &[("get-stdout", "", "")]),
    ("wasi:cli/stderr", &[("get-stderr", "", "")]),
    ("wasi:cli/terminal-stdin", &[("get-terminal-stdin", "", "")]),
    ("wasi:cli/terminal-stdout", &[("get-terminal-stdout", "", "")]),
    ("wasi:cli/terminal-stderr", &[("get-terminal-stderr", "", "")]),
    (
        "wasi:clocks/monotonic-clock",
        &[
            ("now", "", ""),
            ("resolution", "", ""),
            ("subscribe-instant", "", ""),
            ("subscribe-duration", "", ""),
        ],
    ),
    (
        "wasi:clocks/wall-clock",
        &[("now", "", ""), ("resolution", "", "")],
    ),
    (
        "wasi:filesystem/preopens",
        &[(
            "get-directories",
            "",
            "one entry and its path for each grant, each a descriptor",
        )],
    ),
    (
        "wasi:filesystem/types",
        &[
            ("[method]descriptor.read-via-stream", "", ""),
            ("[method]descriptor.write-via-stream", "", ""),
            ("[method]descriptor.append-via-stream", "", ""),
            ("[method]descriptor.advise", "", ""),
            ("[method]descriptor.sync-data", "", ""),
            ("[method]descriptor.get-flags", "", ""),
            ("[method]descriptor.get-type", "", ""),
            ("[method]descriptor.set-size", "", ""),
            ("[method]descriptor.set-times", "", ""),
            ("[method]descriptor.read", "", "64 KiB at once"),
            ("[method]descriptor.write", FUEL, ""),
            ("[method]descriptor.read-directory", "", ""),
            ("[method]descriptor.sync", "", ""),
            ("[method]descriptor.create-directory-at", PATH, ""),
            ("[method]descriptor.stat", "", ""),
            ("[method]descriptor.stat-at", PATH, ""),
            ("[method]descriptor.set-times-at", PATH, ""),
            ("[method]descriptor.link-at", PATH, ""),
            ("[method]descriptor.open-at", PATH, ""),
            (
                "[method]descriptor.readlink-at",
                PATH,
                "a path of the system, 4,095 bytes",
            ),
            ("[method]descriptor.remove-directory-at", PATH, ""),
            ("[method]descriptor.rename-at", PATH, ""),
            ("[method]descriptor.symlink-at", PATH, ""),
            ("[method]descriptor.unlink-file-at", PATH, ""),
            ("[method]descriptor.is-same-object", "", ""),
            ("[method]descriptor.metadata-hash", "", ""),
            ("[method]descriptor.metadata-hash-at", PATH, ""),
            (
                "[method]directory-entry-stream.read-directory-entry",
                "",
                "one name, 255 bytes",
            ),
            ("filesystem-error-code", "", ""),
        ],
    ),
    ("wasi:http/outgoing-handler", &[("handle", "", CODE)]),
    (
        "wasi:http/types",
        &[
            ("http-error-code", "", CODE),
            ("[constructor]fields", "", ""),
            ("[static]fields.from-list", FIELDS, ""),
            ("[method]fields.get", FUEL, FIELDS_OUT),
            ("[method]fields.has", FUEL, ""),
            ("[method]fields.set", FIELDS, ""),
            ("[method]fields.delete", FUEL, ""),
            ("[method]fields.append", FIELDS, ""),
            ("[method]fields.entries", "", FIELDS_OUT),
            ("[method]fields.clone", "", ""),
            ("[method]incoming-request.method", "", SHUT),
            ("[method]incoming-request.path-with-query", "", SHUT),
            ("[method]incoming-request.scheme", "", SHUT),
            ("[method]incoming-request.authority", "", SHUT),
            ("[method]incoming-request.headers", "", ""),
            ("[method]incoming-request.consume", "", ""),
            ("[constructor]outgoing-request", "", ""),
            ("[method]outgoing-request.body", "", ""),
            ("[method]outgoing-request.method", "", TEXT_OUT),
            ("[method]outgoing-request.set-method", KEPT, ""),
            ("[method]outgoing-request.path-with-query", "", TEXT_OUT),
            ("[method]outgoing-request.set-path-with-query", KEPT, ""),
            ("[method]outgoing-request.scheme", "", TEXT_OUT),
            ("[method]outgoing-request.set-scheme", KEPT, ""),
            ("[method]outgoing-request.authority", "", TEXT_OUT),
            ("[method]outgoing-request.set-authority", KEPT, ""),
            ("[method]outgoing-request.headers", "", ""),
            ("[constructor]request-options", "", ""),
            ("[method]request-options.connect-timeout", "", ""),
            ("[method]request-options.set-connect-timeout", "", ""),
            ("[method]request-options.first-byte-timeout", "", ""),
            ("[method]request-options.set-first-byte-timeout", "", ""),
            ("[method]request-options.between-bytes-timeout", "", ""),
            ("[method]request-options.set-between-bytes-timeout", "", ""),
            ("[static]response-outparam.set", SHUT, ""),
            ("[method]incoming-response.status", "", ""),
            ("[method]incoming-response.headers", "", ""),
            ("[method]incoming-response.consume", "", ""),
            ("[method]incoming-body.stream", "", ""),
            ("[static]incoming-body.finish", "", ""),
            ("[method]future-trailers.subscribe", "", ""),
            ("[method]future-trailers.get", "", CODE),
            ("[constructor]outgoing-response", "", ""),
            ("[method]outgoing-response.status-code", "", ""),
            ("[method]outgoing-response.set-status-code", "", ""),
            ("[method]outgoing-response.headers", "", ""),
            ("[method]outgoing-response.body", "", ""),
            ("[method]outgoing-body.write", "", ""),
            ("[static]outgoing-body.finish", "", CODE),
            ("[method]future-incoming-response.subscribe", "", ""),
            ("[method]future-incoming-response.get", "", CODE),
        ],
    ),
    (
        "wasi:io/error",
        &[(
            "[method]error.to-debug-string",
            "",
            "an error of the system or of HTTP",
        )],
    ),
    (
        "wasi:io/poll",
        &[
            ("[method]pollable.ready", "", ""),
            ("[method]pollable.block", "", ""),
            (
                "poll",
                "as many as handles; reserved before they are waited for, 64 bytes each",
                "reserved with what was asked",
            ),
        ],
    ),
    (
        "wasi:io/streams",
        &[
            (
                "[method]input-stream.read",
                "",
                "64 KiB of a file, one piece of a body",
            ),
            (
                "[method]input-stream.blocking-read",
                "",
                "64 KiB of a file, one piece of a body",
            ),
            ("[method]input-stream.skip", "", ""),
            ("[method]input-stream.blocking-skip", "", ""),
            ("[method]input-stream.subscribe", "", ""),
            ("[method]output-stream.check-write", "", ""),
            (
                "[method]output-stream.write",
                "a file and the log hold none of it, a request body two pieces of 64 KiB",
                "",
            ),
            ("[method]output-stream.blocking-write-and-flush", "4 KiB", ""),
            ("[method]output-stream.flush", "", ""),
            ("[method]output-stream.blocking-flush", "", ""),
            ("[method]output-stream.subscribe", "", ""),
            ("[method]output-stream.write-zeroes", "", ""),
            ("[method]output-stream.blocking-write-zeroes-and-flush", "", ""),
            ("[method]output-stream.splice", "", ""),
            ("[method]output-stream.blocking-splice", "", ""),
        ],
    ),
    (
        "wasi:config/store",
        &[
            ("get", FUEL, "a granted variable, reserved before it is copied"),
            (
                "get-all",
                "",
                "the granted variables, reserved before they are copied",
            ),
        ],
    ),
    ("wasi:keyvalue/atomics", &[("increment", BUCKET, REASON)]),
    (
        "wasi:keyvalue/batch",
        &[
            ("get-many", BUCKET, BUCKET_OUT),
            ("set-many", BUCKET, REASON),
            ("delete-many", BUCKET, REASON),
        ],
    ),
    (
        "wasi:keyvalue/store",
        &[
            (
                "open",
                "fuel for host calls; a bucket keeps the name of its grant",
                REASON,
            ),
            ("[method]bucket.get", BUCKET, BUCKET_OUT),
            ("[method]bucket.set", BUCKET, REASON),
            ("[method]bucket.delete", BUCKET, REASON),
            ("[method]bucket.exists", BUCKET, REASON),
            ("[method]bucket.list-keys", "", "a page of 4,096 keys, reserved"),
        ],
    ),
    (
        "wasi:random/random",
        &[
            ("get-random-bytes", "", "1 MiB, reserved"),
            ("get-random-u64", "", ""),
        ],
    ),
    (
        "wasi:random/insecure",
        &[
            ("get-insecure-random-bytes", "", "1 MiB, reserved"),
            ("get-insecure-random-u64", "", ""),
        ],
    ),
    ("wasi:random/insecure-seed", &[("insecure-seed", "", "")]),
    ("wasi:sockets/instance-network", &[("instance-network", "", "")]),
    (
        "wasi:sockets/ip-name-lookup",
        &[
            (
                "resolve-addresses",
                "fuel for host calls; 253 bytes of it are noted",
                "",
            ),
            ("[method]resolve-address-stream.resolve-next-address", "", ""),
            ("[method]resolve-address-stream.subscribe", "", ""),
        ],
    ),
    ("wasi:sockets/tcp-create-socket", &[("create-tcp-socket", "", "")]),
    ("wasi:sockets/udp-create-socket", &[("create-udp-socket", "", "")]),
];

/// Interfaces whose functions all take a resource that cannot be created.
const WITHOUT_RESOURCE: &[&str] = &["wasi:sockets/tcp", "wasi:sockets/udp"];

/// Kinds of resources that a function can create, and the cost of an entry of each.
const RESOURCES: &[(&str, &str)] = &[
    ("bucket", "SMALL: a handle of the store and a grant"),
    ("descriptor", "DESCRIPTOR"),
    ("directory-entry-stream", "SMALL, and what `Listing` reserves"),
    ("error", "SMALL"),
    ("fields", "FIELDS"),
    (
        "future-incoming-response",
        "FIELDS, and what the request reserves",
    ),
    ("future-trailers", "INCOMING_BODY"),
    ("incoming-body", "INCOMING_BODY"),
    ("incoming-response", "FIELDS"),
    (
        "input-stream",
        "SMALL: a file has no buffer, a body's piece is in the price of the body",
    ),
    ("network", "SMALL"),
    (
        "outgoing-body",
        "SMALL: its pieces are in the price of the request",
    ),
    ("outgoing-request", "FIELDS, OUTGOING_BODY and its texts"),
    ("outgoing-response", "FIELDS and OUTGOING_BODY"),
    (
        "output-stream",
        "SMALL: a file has no buffer, a body's pieces are in the price of the request",
    ),
    ("pollable", "SMALL"),
    ("request-options", "SMALL"),
    ("resolve-address-stream", "cannot be made"),
    ("tcp-socket", "cannot be made"),
    ("terminal-input", "SMALL"),
    ("terminal-output", "SMALL"),
    ("udp-socket", "cannot be made"),
];

/// Returns a function that locates the sources of a dependency.
fn sources() -> impl Fn(&str) -> PathBuf {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let rustc = String::from_utf8(rustc.stdout).unwrap();
    let host = rustc
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--format-version",
            "1",
            "--offline",
            "--filter-platform",
            host,
            "--manifest-path",
            concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"),
        ])
        .output()
        .unwrap();
    assert!(
        metadata.status.success(),
        "{}",
        String::from_utf8_lossy(&metadata.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).unwrap();
    move |name| {
        let packages = metadata["packages"].as_array().unwrap();
        let package = packages.iter().find(|package| package["name"] == name).unwrap();
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        manifest.parent().unwrap().to_owned()
    }
}

/// Returns `true` if a value of the type contains a list or a text.
fn has_list(resolve: &Resolve, ty: &Type) -> bool {
    let has = |ty: &Type| has_list(resolve, ty);
    match ty {
        Type::String => true,
        Type::Id(id) => match &resolve.types[*id].kind {
            TypeDefKind::List(_) | TypeDefKind::Map(..) | TypeDefKind::Stream(_) => true,
            TypeDefKind::Future(ty) => ty.iter().any(has),
            TypeDefKind::Record(record) => record.fields.iter().any(|field| has(&field.ty)),
            TypeDefKind::Tuple(tuple) => tuple.types.iter().any(has),
            TypeDefKind::Variant(variant) => {
                variant.cases.iter().filter_map(|case| case.ty.as_ref()).any(has)
            }
            TypeDefKind::Option(ty) | TypeDefKind::Type(ty) => has(ty),
            TypeDefKind::Result(result) => [&result.ok, &result.err].into_iter().flatten().any(has),
            TypeDefKind::Handle(_) | TypeDefKind::Resource | TypeDefKind::Flags(_) | TypeDefKind::Enum(_) => {
                false
            }
            other => panic!("a type that no interface has used so far: {other:?}"),
        },
        _ => false,
    }
}

/// Collects the kinds of resources that a value of the type transfers.
fn made(resolve: &Resolve, ty: &Type, kinds: &mut BTreeSet<String>) {
    let Type::Id(id) = ty else { return };
    let mut of = |ty: &Type| made(resolve, ty, kinds);
    match &resolve.types[*id].kind {
        TypeDefKind::Handle(Handle::Own(resource)) => {
            let mut resource = *resource;
            while let TypeDefKind::Type(Type::Id(of)) = resolve.types[resource].kind {
                resource = of;
            }
            kinds.insert(resolve.types[resource].name.clone().unwrap());
        }
        TypeDefKind::Record(record) => record.fields.iter().for_each(|field| of(&field.ty)),
        TypeDefKind::Tuple(tuple) => tuple.types.iter().for_each(of),
        TypeDefKind::Variant(variant) => variant
            .cases
            .iter()
            .filter_map(|case| case.ty.as_ref())
            .for_each(of),
        TypeDefKind::Option(ty) | TypeDefKind::Type(ty) | TypeDefKind::List(ty) => of(ty),
        TypeDefKind::Stream(ty) | TypeDefKind::Future(ty) => ty.iter().for_each(of),
        TypeDefKind::Result(result) => [&result.ok, &result.err].into_iter().flatten().for_each(of),
        _ => {}
    }
}

#[test]
fn every_imported_function_states_its_bounds() {
    let sources = sources();
    let wit = [
        sources("wasmtime-wasi").join("src/p2/wit"),
        sources("wasmtime-wasi-http").join("wit"),
        Path::new(env!("CARGO_MANIFEST_DIR")).join("wit"),
    ];
    check(&wit, Ability::of_interface, TABLE, RESOURCES);
    let wit = [sources("wasmtime-wasi").join("src/p3/wit")];
    check(
        &wit,
        Ability::of_async_interface,
        wasi_0_3::TABLE,
        wasi_0_3::RESOURCES,
    );
}

fn check(
    wit: &[PathBuf],
    ability: fn(&str) -> Option<Ability>,
    table: &[(&'static str, &[Row])],
    prices: &[(&str, &str)],
) {
    let mut expected: BTreeMap<String, BTreeMap<String, (bool, bool)>> = BTreeMap::new();
    let mut resources = BTreeSet::new();
    for wit in wit {
        let mut resolve = Resolve::default();
        resolve
            .push_dir(wit)
            .unwrap_or_else(|error| panic!("{}: {error:#}", wit.display()));
        for (id, interface) in resolve.interfaces.iter() {
            let Some(name) = resolve.id_of(id) else { continue };
            let name = name.split('@').next().unwrap();
            if ability(name).is_none() || WITHOUT_RESOURCE.contains(&name) {
                continue;
            }
            for function in interface.functions.values() {
                let given = function.params.iter().any(|param| has_list(&resolve, &param.ty));
                let answer = function.result.iter().any(|ty| has_list(&resolve, ty));
                function
                    .result
                    .iter()
                    .for_each(|ty| made(&resolve, ty, &mut resources));
                let functions = expected.entry(name.to_owned()).or_default();
                functions.insert(function.name.clone(), (given, answer));
            }
        }
    }
    assert!(expected.len() > 10, "{:?}", expected.keys());

    let mut wrong = Vec::new();
    let mut rows: BTreeMap<&str, BTreeMap<&str, (bool, bool)>> = BTreeMap::new();
    for (interface, functions) in table {
        for (function, given, answer) in *functions {
            let says = (!given.is_empty(), !answer.is_empty());
            let known = rows.entry(interface).or_default().insert(function, says);
            assert!(known.is_none(), "two rows for {interface} {function}");
            match expected.get(*interface).and_then(|functions| functions.get(*function)) {
                None => wrong.push(format!("{interface} {function}: unknown function")),
                Some(carries) if *carries != says => wrong.push(format!(
                    "{interface} {function}: the signature has lists or texts: {carries:?}, the row states {says:?}"
                )),
                Some(_) => {}
            }
        }
    }
    for (interface, functions) in &expected {
        for function in functions.keys() {
            let has_row = rows
                .get(interface.as_str())
                .is_some_and(|rows| rows.contains_key(function.as_str()));
            if !has_row {
                wrong.push(format!("{interface} {function}: missing row"));
            }
        }
    }
    let priced: BTreeSet<String> = prices.iter().map(|(kind, _)| (*kind).to_owned()).collect();
    wrong.extend(
        resources
            .difference(&priced)
            .map(|kind| format!("resource {kind}: missing price")),
    );
    wrong.extend(
        priced
            .difference(&resources)
            .map(|kind| format!("resource {kind}: no function creates it")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
