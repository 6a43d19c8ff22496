//! Components whose functions are tools.

use serde_json::json;

use crate::support::cli_user::{SCRIPTED, User};

/// A component with `scale` and, in an interface, `check`. Its doc comments have a hidden character.
fn geometry() -> Vec<u8> {
    let docs = json!({
        "worlds": {"geometry": {"func_exports": {"scale": {"docs": "Multiplies the coordinates.\u{200b}"}}}},
        "interfaces": {"rules": {"funcs": {"check": {"docs": "Fails for 0."}}}},
    });
    let docs: String = (docs.to_string().bytes())
        .map(|byte| format!("\\{byte:02x}"))
        .collect();
    wat::parse_str(format!(
        r#"(component
(core module $m
  (memory (export "memory") 1)
  (data (i32.const 64) "nought")
  (func (export "scale") (param f64 f64 i32) (result i32)
    (f64.store (i32.const 16) (f64.mul (local.get 0) (f64.convert_i32_u (local.get 2))))
    (f64.store (i32.const 24) (f64.mul (local.get 1) (f64.convert_i32_u (local.get 2))))
    (i32.const 16))
  (func (export "check") (param i32) (result i32)
    (i32.store8 (i32.const 32) (i32.eqz (local.get 0)))
    (i32.store (i32.const 36) (i32.const 64))
    (i32.store (i32.const 40) (i32.const 6))
    (i32.const 32))
  (func (export "use") (param i32)))
(core instance $i (instantiate $m))
(type $p (record (field "x" f64) (field "y" f64)))
(export $point "point" (type $p))
(type $r (resource (rep i32)))
(export $thing "thing" (type $r))
(func $scale (param "point" $point) (param "factor" u8) (result $point)
  (canon lift (core func $i "scale") (memory $i "memory")))
(func $check (param "n" u32) (result (result (error string)))
  (canon lift (core func $i "check") (memory $i "memory")))
(func $use (param "thing" (own $thing)) (canon lift (core func $i "use")))
(instance $rules (export "check" (func $check)))
(export "scale" (func $scale))
(export "demo:geometry/rules@1.2.3" (instance $rules))
(export "use" (func $use))
(@custom "package-docs" "\01{docs}"))"#
    ))
    .unwrap()
}

#[test]
fn function_of_a_component_is_called_by_its_name() {
    let user = User::new();
    user.file("geometry.wasm", geometry());
    let point = r#"{"point": {"x": 1.5, "y": -2}, "factor": 2}"#;
    let seen = user
        .run(&["call", "geometry.wasm#scale", point, "--json"])
        .ended(0);
    assert_eq!(seen.json()["structured"], json!({"x": 3.0, "y": -4.0}));
    let seen = user
        .run(&["call", "geometry.wasm#rules_check", r#"{"n": 0}"#])
        .ended(1);
    assert!(seen.stderr.contains("nought"), "{}", seen.stderr);
    user.run(&["call", "geometry.wasm#rules_check", r#"{"n": 1}"#])
        .ended(0);
    // Without its interface, as only one has it; a part of a name is none.
    user.run(&["call", "geometry.wasm#check", r#"{"n": 1}"#]).ended(0);
    let seen = user.run(&["call", "geometry.wasm#heck", r#"{"n": 1}"#]).ended(2);
    assert!(seen.stderr.contains("has no tool `heck`"), "{}", seen.stderr);
    // Its name is needed where there are several.
    let seen = user.run(&["call", "geometry.wasm", point]).ended(2);
    assert!(seen.stderr.contains("`scale`, `rules_check`"), "{}", seen.stderr);
    let seen = user
        .run(&[
            "call",
            "geometry.wasm#scale",
            r#"{"point": {"x": 1, "y": 2, "z": 3}, "factor": 2}"#,
        ])
        .ended(2);
    assert!(
        seen.stderr.contains("there is no property `z`"),
        "{}",
        seen.stderr
    );
}

#[test]
fn directory_names_its_only_component() {
    let user = User::new();
    user.file("math/geometry.wasm", geometry());
    let point = r#"{"point": {"x": 1, "y": 1}, "factor": 2}"#;
    for args in [
        &["tool", "inspect", "math/"][..],
        &["tool", "inspect", "./math"],
        &["call", "./math#scale", point],
    ] {
        user.run(args).ended(0);
    }
    // A name without a slash is that of a tool, never that of a directory.
    let seen = user.run(&["tool", "inspect", "math"]).ended(2);
    assert!(seen.stderr.contains("there is no tool `math`"), "{}", seen.stderr);
    let seen = user.run(&["tool", "inspect", "."]).ended(2);
    assert!(
        seen.stderr.contains("the directory `.` names no component"),
        "{}",
        seen.stderr
    );
    user.file("geometry.wasm", geometry());
    user.run(&["tool", "inspect", "."]).ended(0);
    user.file("other.wasm", geometry());
    let seen = user.run(&["tool", "inspect", "."]).ended(2);
    assert!(
        seen.stderr.contains("it has several components"),
        "{}",
        seen.stderr
    );
}

#[test]
fn inspection_shows_the_functions_and_what_is_left_out() {
    let user = User::new();
    user.file("geometry.wasm", geometry());
    let seen = user.run(&["tool", "inspect", "geometry.wasm"]).ended(0);
    let shown = seen.stdout.split("nothing is granted to it\n").nth(1).unwrap();
    insta::assert_snapshot!(shown, @r"
      ! the description of `scale` has 1 hidden or control characters

    each function of it is a tool
        except use: it uses a resource, which exists only within one call

    scale
      │ Multiplies the coordinates.\u{200b}
        factor  integer required
        point   object required

    rules_check
      │ Fails for 0.
        n  integer required
    ");
    let json = user
        .run(&["tool", "inspect", "geometry.wasm", "--json"])
        .ended(0)
        .json();
    assert_eq!(json["kind"], "functions");
    assert_eq!(json["left_out"][0]["function"], "use");
    let factor = &json["tools"][0]["input"]["properties"]["factor"];
    assert_eq!(*factor, json!({"type": "integer", "minimum": 0, "maximum": 255}));
}

#[test]
fn model_calls_a_function_of_a_configured_component() {
    let user = User::new();
    user.file("geometry.wasm", geometry()).configure(&format!(
        "[tools.geometry]\ncomponent = \"{}\"\nonly = [\"scale\"]\n",
        user.work().join("geometry.wasm").display()
    ));
    user.file(
        "script.json",
        json!({"steps": [
            {"calls": [{"name": "scale", "arguments": {"point": {"x": 1, "y": 2}, "factor": 3}}]},
            {"text": "Done."},
        ]})
        .to_string(),
    );
    let seen = user.run(&[&SCRIPTED[..], &["--tool", "geometry", "--json"]].concat());
    assert!(
        seen.stdout.contains(r#"{\"x\":3.0,\"y\":6.0}"#),
        "{}{}",
        seen.stdout,
        seen.stderr
    );
    // The lock has the definitions of the functions.
    user.run(&["lock", "--tool", "geometry"]).ended(0);
    let locked = std::fs::read_to_string(user.work().join("toolcell.lock")).unwrap();
    assert!(locked.contains("[components.geometry.tools.scale]"), "{locked}");
    user.run(&[
        "call",
        "geometry#scale",
        r#"{"point": {"x": 1, "y": 2}, "factor": 3}"#,
        "--locked",
    ])
    .ended(0);
}
