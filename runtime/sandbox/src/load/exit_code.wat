;; `proc_exit` of WASI preview 1, by `exit-with-code` of WASI 0.2.12, which has codes of one byte. A larger code must not
;; become 0 by losing its upper bytes.
(module
  (import "wasi:cli/exit@0.2.12" "exit-with-code" (func $exit (param i32)))
  (func (export "proc_exit") (param $code i32)
    (call $exit
      (select (local.get $code) (i32.const 255) (i32.lt_u (local.get $code) (i32.const 255))))
    unreachable))
