;; Functions of WASI preview 1 that never leave the guest: no arguments, no environment, no files, what is written is
;; dropped, the clock counts its readings, random numbers have a fixed seed. A module linked with it imports nothing of WASI,
;; and its allocator, in which the canonical ABI forbids calls of imports, can call them.
(module
  (import "env" "memory" (memory 0))
  (global $now (mut i64) (i64.const 0))
  (global $seed (mut i64) (i64.const 0x9E3779B97F4A7C15))

  (func $zero2 (param i32 i32) (result i32)
    (i32.store (local.get 0) (i32.const 0)) (i32.store (local.get 1) (i32.const 0)) (i32.const 0))
  (func (export "args_sizes_get") (param i32 i32) (result i32) (call $zero2 (local.get 0) (local.get 1)))
  (func (export "environ_sizes_get") (param i32 i32) (result i32) (call $zero2 (local.get 0) (local.get 1)))
  (func (export "args_get") (param i32 i32) (result i32) (i32.const 0))
  (func (export "environ_get") (param i32 i32) (result i32) (i32.const 0))

  ;; 1 microsecond per reading
  (func $tick (result i64)
    (global.set $now (i64.add (global.get $now) (i64.const 1000))) (global.get $now))
  (func (export "clock_time_get") (param $id i32) (param $prec i64) (param $out i32) (result i32)
    (i64.store (local.get $out) (call $tick)) (i32.const 0))
  (func (export "clock_res_get") (param $id i32) (param $out i32) (result i32)
    (i64.store (local.get $out) (i64.const 1000)) (i32.const 0))
  (func (export "adapter_monotonic_clock_set_paused") (param i32))

  (func (export "random_get") (param $p i32) (param $n i32) (result i32)
    (local $x i64)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $x (global.get $seed))
        (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 13))))
        (local.set $x (i64.xor (local.get $x) (i64.shr_u (local.get $x) (i64.const 7))))
        (local.set $x (i64.xor (local.get $x) (i64.shl (local.get $x) (i64.const 17))))
        (global.set $seed (local.get $x))
        (i64.store8 (local.get $p) (i64.shr_u (local.get $x) (i64.const 32)))
        (local.set $p (i32.add (local.get $p) (i32.const 1)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
    (i32.const 0))

  ;; count the bytes and drop them
  (func (export "fd_write") (param $fd i32) (param $iov i32) (param $n i32) (param $out i32) (result i32)
    (local $sum i32)
    (if (i32.gt_u (i32.sub (local.get $fd) (i32.const 1)) (i32.const 1)) (then (return (i32.const 8))))
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $n)))
        (local.set $sum (i32.add (local.get $sum) (i32.load offset=4 (local.get $iov))))
        (local.set $iov (i32.add (local.get $iov) (i32.const 8)))
        (local.set $n (i32.sub (local.get $n) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $out) (local.get $sum))
    (i32.const 0))

  ;; every subscription is ready at once: 48-byte subscriptions in, 32-byte events out
  (func (export "poll_oneoff") (param $in i32) (param $out i32) (param $n i32) (param $cnt i32) (result i32)
    (local $i i32)
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
        (i64.store (local.get $out) (i64.load (local.get $in)))
        (i64.store offset=8 (local.get $out) (i64.const 0))
        (i64.store offset=16 (local.get $out) (i64.const 0))
        (i64.store offset=24 (local.get $out) (i64.const 0))
        (i32.store8 offset=10 (local.get $out) (i32.load8_u offset=8 (local.get $in)))
        ;; a relative clock subscription moves the clock on
        (if (i32.eqz (i32.load8_u offset=8 (local.get $in)))
          (then (global.set $now (i64.add (global.get $now) (i64.load offset=24 (local.get $in))))))
        (local.set $in (i32.add (local.get $in) (i32.const 48)))
        (local.set $out (i32.add (local.get $out) (i32.const 32)))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $cnt) (local.get $n))
    (i32.const 0))

  (func (export "sched_yield") (result i32) (i32.const 0))
  (func (export "proc_exit") (param i32) unreachable)

  ;; no files: EBADF (8) on descriptors, ENOTCAPABLE (76) on paths
  (func (export "fd_close") (param i32) (result i32) (i32.const 8))
  (func (export "fd_read") (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_flags") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_prestat_dir_name") (param i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_filestat_get") (param i32 i32) (result i32) (i32.const 8))
  (func (export "fd_readdir") (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 76))
  (func (export "path_filestat_get") (param i32 i32 i32 i32 i32) (result i32) (i32.const 76))
)
