//! Programs that run on until their input ends.

use super::*;

/// Lines of its observer, and its receipts.
#[derive(Default)]
struct Told {
    lines: std::sync::Mutex<Vec<String>>,
    receipts: std::sync::Mutex<Vec<toolcell_core::Receipt>>,
}

impl toolcell_core::tool::CallObserver for Told {
    fn log(&self, line: toolcell_core::tool::LogLine) {
        self.lines.lock().unwrap().push(line.message);
    }

    fn receipt(&self, receipt: toolcell_core::Receipt) {
        self.receipts.lock().unwrap().push(receipt);
    }
}

/// Answers what it reads at once, and logs it.
const ECHO: &str = "(block $end (loop $next
    (local.set $i (call $read (i32.const 0) (i32.const 2048) (i32.const 4096)))
    (br_if $end (i32.eqz (local.get $i)))
    (call $write (i32.const 1) (i32.const 2048) (local.get $i))
    (call $write (i32.const 2) (i32.const 2048) (local.get $i))
    (br $next)))
    (call $write (i32.const 1) (i32.const 1024) (i32.const 3))";

async fn start(body: &str, limits: Limits, told: &Arc<Told>) -> crate::RunningProgram {
    let policy = Policy {
        limits,
        ..Policy::default()
    };
    let component = load("end", body).await;
    let observer = told.clone();
    let arguments = vec!["server".to_owned()];
    component
        .start_program(Arc::new(policy), &Secrets::default(), arguments, observer)
        .unwrap()
}

#[tokio::test]
async fn program_that_runs_on_answers_until_its_input_ends() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let told = Arc::new(Told::default());
    let crate::RunningProgram { mut stream, cell, .. } = start(ECHO, Limits::default(), &told).await;
    for line in ["one\n", "two\n"] {
        stream.write_all(line.as_bytes()).await.unwrap();
        let mut answer = vec![0; line.len()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, line.as_bytes());
    }
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "end");
    // Its record is complete when its output ends, and when its input is refused.
    assert_eq!(*told.lines.lock().unwrap(), ["one", "two"]);
    assert!(told.receipts.lock().unwrap()[0].fuel > 0);
    drop(cell);
}

#[tokio::test]
async fn program_that_runs_on_ends_with_its_cell_or_a_limit() {
    use tokio::io::AsyncReadExt as _;
    let told = Arc::new(Told::default());
    let endless = "(loop $l (br $l))";
    let running = start(endless, Limits::default(), &told).await;
    let (mut stream, cell) = (running.stream, running.cell);
    drop(cell);
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    let limits = Limits {
        fuel: 1_000_000,
        ..Limits::default()
    };
    let mut limited = start(endless, limits, &told).await;
    assert_eq!(limited.stream.read(&mut [0]).await.unwrap(), 0);
    let is_told = || {
        let lines = told.lines.lock().unwrap();
        lines
            .iter()
            .any(|line| line.starts_with("stopped by a limit: 1 M units of fuel"))
    };
    while !is_told() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn only_a_program_can_run_on() {
    let text = r#"(component (core module $m (func (export "f"))) (core instance $i (instantiate $m))
        (func (export "f") (canon lift (core func $i "f"))))"#;
    let component = sandbox().load("f", &wat::parse_str(text).unwrap()).await.unwrap();
    let refused = component.start_program(
        Arc::default(),
        &Secrets::default(),
        Vec::new(),
        Arc::new(Told::default()),
    );
    assert!(matches!(refused, Err(crate::StartProgramError::NotAProgram)));
}

#[tokio::test]
async fn programs_that_run_on_leave_half_of_the_cells_to_calls() {
    use tokio::io::AsyncReadExt as _;
    let options = SandboxOptions {
        slots: 4,
        ..SandboxOptions::default()
    };
    let sandbox = Sandbox::new(options).unwrap();
    let component = sandbox.load("echo.wasm", &module("end", ECHO)).await.unwrap();
    let start = || {
        let told = Arc::new(Told::default());
        component.start_program(Arc::default(), &Secrets::default(), vec!["a".into()], told)
    };
    let (first, second) = (start().unwrap(), start().unwrap());
    assert!(matches!(start(), Err(crate::StartProgramError::TooMany)));
    let result = call(&component, Policy::default(), json!({})).await;
    assert!(result.into_result().is_ok());
    drop(first.cell);
    let mut stream = first.stream;
    assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    drop(second);
    while start().is_err() {
        tokio::task::yield_now().await;
    }
}
