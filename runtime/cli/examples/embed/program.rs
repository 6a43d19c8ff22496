use toolcell_agent::Agent;
use toolcell_core::{Event, Policy};
use toolcell_providers::offline::Offline;
use toolcell_sandbox::{Sandbox, SandboxOptions};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let sandbox = Sandbox::new(SandboxOptions::default())?;
    let component = std::fs::read("tools/prebuilt/text.wasm")?;
    let text = sandbox.load("text", &component).await?;

    // A real model: `OpenAi::new(Connection::new("gpt-5").with_key(key))?`.
    let agent = Agent::builder(Offline::new())
        .tools(text.tools(Policy::granting(["read=."])?))
        .instructions("Answer in one sentence.")
        .build()?;

    let show = |event: &Event| match event {
        Event::CallStarted { tool, arguments, .. } => println!("calls {tool} {arguments}"),
        Event::TextDelta { text } => print!("{text}"),
        _ => {}
    };
    let session = agent.session();
    println!("session {}", session.id());
    let (mut session, report) = session.spawn("How many words are in README.md?", show).await;
    println!("\n{} steps", report?.steps);
    println!("{}", session.ask("How many words has CHANGELOG.md?").await?.text);
    Ok(())
}
