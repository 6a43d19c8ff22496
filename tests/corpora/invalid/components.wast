;; Components that break one rule of validation each (Component Model, `design/mvp/Binary.md` and `Explainer.md`). The text
;; of each says the rule. `runtime/sandbox/tests/invalid.rs` puts each inside of a component that is a tool otherwise, and
;; expects that it is refused as malformed.

;; Indices that lead nowhere.
(assert_invalid (component (type (list 7))) "a type that does not exist")
(assert_invalid (component (type (func (param "a" 3)))) "a parameter of a type that does not exist")
(assert_invalid (component (import "a" (func (type 0)))) "an import of a type that does not exist")
(assert_invalid (component (export "a" (func 0))) "an export of a function that does not exist")
(assert_invalid (component (export "a" (instance 0))) "an export of an instance that does not exist")
(assert_invalid (component (export "a" (component 0))) "an export of a component that does not exist")
(assert_invalid (component (core instance (instantiate 0))) "a module that does not exist")
(assert_invalid (component (instance (export "a" (func 0)))) "an instance of a function that does not exist")
(assert_invalid (component (alias export 0 "a" (func))) "an alias into an instance that does not exist")
(assert_invalid (component (alias core export 0 "a" (core func))) "an alias into a core instance that does not exist")
(assert_invalid (component (alias outer 0 0 (type))) "an outer alias of a type that does not exist")
(assert_invalid (component (alias outer 100 0 (type))) "an outer alias through levels that do not exist")
(assert_invalid (component (core func (canon lower (func 0)))) "lowering a function that does not exist")
(assert_invalid (component (func (canon lift (core func 0)))) "lifting a function that does not exist")
(assert_invalid (component (core func (canon resource.drop 0))) "dropping a resource that does not exist")

;; Aliases of what is not exported, or is something else.
(assert_invalid
  (component (import "a" (instance $a)) (alias export $a "b" (func)))
  "an alias of an export that an instance does not have")
(assert_invalid
  (component (import "a" (instance $a (export "b" (func)))) (alias export $a "b" (instance)))
  "an alias of a function as an instance")
(assert_invalid
  (component (core module $m) (core instance $i (instantiate $m)) (alias core export $i "b" (core memory)))
  "an alias of a core export that is not there")
(assert_invalid
  (component (core module $m (func (export "b"))) (core instance $i (instantiate $m)) (alias core export $i "b" (core memory)))
  "an alias of a core function as a memory")
(assert_invalid
  (component $c (type $r (resource (rep i32))) (component (alias outer $c $r (type))))
  "an outer alias of a resource")

;; Names.
(assert_invalid (component (import "a" (func)) (import "a" (func))) "an import name that stands twice")
(assert_invalid (component (import "a" (func)) (import "A" (func))) "import names that differ in case alone")
(assert_invalid
  (component (import "a" (func $f)) (export "b" (func $f)) (export "b" (func $f)))
  "an export name that stands twice")
(assert_invalid
  (component (import "a" (func $f)) (export "b-c" (func $f)) (export "B-c" (func $f)))
  "export names that differ in case alone")
(assert_invalid (component (import "" (func))) "an empty name")
(assert_invalid (component (import "a_b" (func))) "a name that is not in kebab case")
(assert_invalid (component (import "a-" (func))) "a name that ends with a hyphen")
(assert_invalid (component (import "aB" (func))) "a name with words of mixed case")
(assert_invalid (component (import "é" (func))) "a name beyond ASCII")
(assert_invalid (component (import "a:b/c@1" (instance))) "a version that is none")
(assert_invalid (component (import "a:b/" (instance))) "an interface without a name")
(assert_invalid (component (import "[method]a.b" (func))) "a method without a receiver")
(assert_invalid (component (import "[constructor]a" (func))) "a constructor without a result")
(assert_invalid (component (import "[static]a.b" (func))) "a static function of a resource that is not there")
(assert_invalid
  (component (import "a" (func $f)) (instance (export "b" (func $f)) (export "b" (func $f))))
  "an instance that exports a name twice")
(assert_invalid
  (component (core module $m (func (export "b"))) (core instance $i (instantiate $m))
    (core instance (export "b" (func $i "b")) (export "b" (func $i "b"))))
  "a core instance that exports a name twice")

;; Types.
(assert_invalid (component (type (record))) "a record without fields")
(assert_invalid (component (type (record (field "a" u8) (field "a" u8)))) "a record with a field twice")
(assert_invalid (component (type (record (field "a" u8) (field "A" u8)))) "fields that differ in case alone")
(assert_invalid (component (type (record (field "" u8)))) "a field without a name")
(assert_invalid (component (type (variant))) "a variant without cases")
(assert_invalid (component (type (variant (case "a") (case "a")))) "a variant with a case twice")
(assert_invalid (component (type (enum))) "an enum without cases")
(assert_invalid (component (type (enum "a" "a"))) "an enum with a case twice")
(assert_invalid (component (type (flags))) "flags without a flag")
(assert_invalid (component (type (flags "a" "a"))) "flags with a flag twice")
(assert_invalid
  (component (type (flags
    "a0" "a1" "a2" "a3" "a4" "a5" "a6" "a7" "a8" "a9" "b0" "b1" "b2" "b3" "b4" "b5" "b6" "b7" "b8" "b9"
    "c0" "c1" "c2" "c3" "c4" "c5" "c6" "c7" "c8" "c9" "d0" "d1" "d2")))
  "more flags than 32")
(assert_invalid (component (type (tuple))) "a tuple of nothing")
(assert_invalid (component (type (func (param "a" u8) (param "a" u8)))) "a parameter twice")
(assert_invalid (component (type $f (func)) (type (list $f))) "a list of functions")
(assert_invalid (component (type $f (func)) (type (option $f))) "an option of a function")
(assert_invalid (component (type $f (func)) (import "a" (instance (type $f)))) "an instance of a function type")
(assert_invalid (component (type $i (instance)) (import "a" (func (type $i)))) "a function of an instance type")
(assert_invalid (component (type $t u8) (type (own $t))) "owning what is no resource")
(assert_invalid (component (type $t u8) (type (borrow $t))) "borrowing what is no resource")
(assert_invalid
  (component (import "r" (type $r (sub resource))) (type (func (result (borrow $r)))))
  "a result that is borrowed")
(assert_invalid (component (type (resource (rep f32)))) "a resource that is no 32-bit number")
(assert_invalid
  (component (type (component (type (resource (rep i32))))))
  "a resource that is defined in a type")
(assert_invalid
  (component (type $r (record (field "a" u8))) (import "f" (func (param "p" $r))))
  "an import with a type that has no name")
(assert_invalid
  (component (import "t" (type $t (eq 0))))
  "a type that is equal to none")

;; Lifting and lowering.
(assert_invalid
  (component (core module $m (func (export "f") (param i32))) (core instance $i (instantiate $m))
    (func (canon lift (core func $i "f"))))
  "lifting a function of another signature")
(assert_invalid
  (component (core module $m (func (export "f") (result i32) unreachable)) (core instance $i (instantiate $m))
    (func (result string) (canon lift (core func $i "f"))))
  "a string without a memory")
(assert_invalid
  (component (core module $m (memory (export "m") 1) (func (export "f") (param i32 i32))) (core instance $i (instantiate $m))
    (func (param "a" string) (canon lift (core func $i "f") (memory $i "m"))))
  "a string parameter without a way to allocate it")
(assert_invalid
  (component (core module $m (memory (export "m") 1) (func (export "f") (param i32 i32)) (func (export "r"))) (core instance $i (instantiate $m))
    (func (param "a" string) (canon lift (core func $i "f") (memory $i "m") (realloc (func $i "r")))))
  "an allocator of another signature")
(assert_invalid
  (component (core module $m (func (export "f")) (func (export "p") (param i64))) (core instance $i (instantiate $m))
    (func (canon lift (core func $i "f") (post-return (func $i "p")))))
  "a function to return with of another signature")
(assert_invalid
  (component (core module $m (memory (export "m") 1) (func (export "f"))) (core instance $i (instantiate $m))
    (func (canon lift (core func $i "f") (memory $i "m") (memory $i "m"))))
  "an option twice")
(assert_invalid
  (component (core module $m (func (export "f"))) (core instance $i (instantiate $m))
    (func (canon lift (core func $i "f") string-encoding=utf8 string-encoding=utf16)))
  "two codings of strings")
(assert_invalid
  (component (import "f" (func $f (param "a" string))) (core func (canon lower (func $f))))
  "lowering a string without a memory")
(assert_invalid
  (component (import "f" (func $f)) (core module $m (func (export "p"))) (core instance $i (instantiate $m))
    (core func (canon lower (func $f) (post-return (func $i "p")))))
  "a function to return with for lowering")
(assert_invalid
  (component (import "r" (type $r (sub resource))) (core func (canon resource.new $r)))
  "creating a foreign resource")
(assert_invalid
  (component (import "r" (type $r (sub resource))) (core func (canon resource.rep $r)))
  "reading a foreign resource")
(assert_invalid (component (type $t u8) (core func (canon resource.drop $t))) "dropping what is no resource")

;; Instances.
(assert_invalid
  (component (core module $m (import "a" "b" (func))) (core instance (instantiate $m)))
  "a module without what it imports")
(assert_invalid
  (component (core module $m (import "a" "b" (func))) (core module $n) (core instance $i (instantiate $n))
    (core instance (instantiate $m (with "a" (instance $i)))))
  "a module with an instance that lacks what it imports")
(assert_invalid
  (component (core module $m (import "a" "b" (func))) (core module $n (func (export "b") (param i32)))
    (core instance $i (instantiate $n)) (core instance (instantiate $m (with "a" (instance $i)))))
  "a module with a function of another signature")
(assert_invalid
  (component (core module $m (import "a" "b" (memory 2))) (core module $n (memory (export "b") 1))
    (core instance $i (instantiate $n)) (core instance (instantiate $m (with "a" (instance $i)))))
  "a module with a memory that is too small")
(assert_invalid
  (component (core module $m (import "a" "b" (global (mut i32)))) (core module $n (global (export "b") i32 (i32.const 0)))
    (core instance $i (instantiate $n)) (core instance (instantiate $m (with "a" (instance $i)))))
  "a module with a global that does not change")
(assert_invalid
  (component (component $c (import "a" (func))) (instance (instantiate $c)))
  "a component without what it imports")
(assert_invalid
  (component (component $c (import "a" (func))) (import "b" (func $b (param "x" u8)))
    (instance (instantiate $c (with "a" (func $b)))))
  "a component with a function of another type")
(assert_invalid
  (component (component $c (import "a" (func))) (import "b" (instance $b))
    (instance (instantiate $c (with "a" (instance $b)))))
  "a component with an instance for a function")
(assert_invalid
  (component (component $c (import "a" (func))) (import "b" (func $b))
    (instance (instantiate $c (with "a" (func $b)) (with "a" (func $b)))))
  "an argument twice")
(assert_invalid
  (component (component $c (import "r" (type (sub resource)))) (instance (instantiate $c (with "r" (type 0)))))
  "a component with a type that does not exist")
(assert_invalid
  (component (type $r (record (field "a" u8))) (import "f" (func $f)) (export "f" (func $f) (func (param "x" u8))))
  "an export under a type that it does not have")

;; Bytes that follow no grammar.
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\0c\01\00") "a section of an unknown kind")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\07\05\01") "a section that is longer than the file")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\07\02\01\ff") "a type that ends in the middle")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\07\80\80\80\80\80\00") "a number of too many bytes")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\07\01\ff") "a count that ends in the middle")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\07\05\ff\ff\ff\ff\0f") "more types than bytes")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\07\03\01\40\ff") "a function type of an unknown form")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\01\04\00asm") "a module that is cut short")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\01\08\00asm\0d\00\01\00") "a component in the place of a module")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\04\08\00asm\01\00\00\00") "a module in the place of a component")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\0a\05\01\00\01\ff\01") "a name that is no UTF-8")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\06\03\01\ff\00") "an alias of an unknown kind")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\08\02\01\ff") "a canonical function of an unknown kind")
(assert_malformed (component binary "\00asm" "\0d\00\01\00" "\00\01\05") "a custom section with a name longer than itself")
