//! `toolcell tool calibrate`: proposes limits from measured use.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use toolcell_core::json::parse_value;
use toolcell_core::{Limits, Receipt};
use toolcell_fs::Rules;

use crate::components::call;
use crate::components::loader::ComponentLoader;
use crate::components::selection;
use crate::config::source::PROJECT;
use crate::config::user_files;
use crate::config::{self, Overrides, limits};
use crate::environment::Environment;
use crate::error::{Exit, Failure};
use crate::flags::PolicyFlags;
use crate::ui::escape;
use crate::ui::render::json::print_line;
use crate::ui::render::{Console, receipt};
use crate::ui::terminal::{BAD, FAINT, GOOD, NAME, Name, Own, text};

/// Run a tool on sample arguments, measure its resource use, and propose limits with a margin.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  toolcell tool calibrate text_count samples.json
  toolcell tool calibrate ./my.wasm samples.json --grant read=. --margin 10

The file contains a JSON array of arguments, such as [{{\"text\": \"a\"}}, {{\"text\": \"a long one\"}}], or one object per line.

{}", crate::exit::TABLE))]
pub(crate) struct Calibrate {
    /// Tool, as for `toolcell call`.
    tool: String,

    /// File with sample arguments.
    #[arg(value_name = "FILE")]
    samples: PathBuf,

    #[command(flatten)]
    policy: PolicyFlags,

    /// Factor between the highest measured use and the proposed limit.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=1000))]
    margin: u64,

    /// Number of runs per sample.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,

    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Maximum size of a sample file, in bytes.
const MAX_SAMPLES_BYTES: u64 = 64 << 20;

/// Minimum limits: enough for the startup of a language runtime and a slow machine.
const MINIMUM: [(&str, u64); 4] = [
    ("fuel", 10_000_000),
    ("wall", 1_000),
    ("memory", 4 << 20),
    ("output", 16 << 10),
];

/// Highest use per limit, by the name of the limit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Most {
    pub(super) fuel: u64,
    pub(super) wall_us: u64,
    pub(super) memory: u64,
    pub(super) output: u64,
}

impl Most {
    /// Adds the use of one call.
    pub(super) fn note(&mut self, receipt: &Receipt) {
        self.fuel = self.fuel.max(receipt.fuel);
        self.wall_us = self.wall_us.max(receipt.wall_us);
        self.memory = self.memory.max(receipt.peak_memory);
        self.output = self.output.max(receipt.bytes_out);
    }

    /// Proposed limits by name, in the unit of the limit, rounded up to two digits.
    pub(super) fn proposals(&self, margin: u64) -> Vec<(&'static str, u64)> {
        MINIMUM
            .into_iter()
            .map(|(name, floor)| {
                let used = match name {
                    "fuel" => self.fuel,
                    "wall" => self.wall_us.div_ceil(1_000),
                    "memory" => self.memory,
                    _ => self.output,
                };
                let unit = if matches!(name, "memory" | "output") {
                    64 << 10
                } else {
                    1
                };
                (name, rounded_up(used.saturating_mul(margin).max(floor), unit))
            })
            .collect()
    }
}

/// Rounds up to whole units with two significant digits.
fn rounded_up(value: u64, unit: u64) -> u64 {
    let units = value.div_ceil(unit);
    let digits = units.checked_ilog10().unwrap_or(0);
    let step = 10_u64.pow(digits.saturating_sub(1));
    units.div_ceil(step).saturating_mul(step).saturating_mul(unit)
}

impl Calibrate {
    pub(crate) async fn run(
        self,
        mut overrides: Overrides,
        environment: &Environment,
        console: &Console,
    ) -> Result<Exit, Failure> {
        self.policy.apply(&mut overrides);
        let settings = config::load(environment, overrides)?;
        let samples = read_samples(&environment.path(&self.samples.to_string_lossy(), &environment.cwd))?;
        let loader = ComponentLoader::open(environment, &settings, console)?;
        let wanted = loader.find(&self.tool).await?;
        selection::check_flags(&settings, [&wanted.settings])?;
        let loaded = loader.load(&wanted.settings).await?;
        let tool = call::pick(&loaded, wanted.tool.as_deref())?;
        let cancel = CancellationToken::new();
        let mut most = Most::default();
        let (mut answered, mut failed) = (0_u32, Vec::new());
        for (i, sample) in samples.iter().enumerate() {
            let sample = Value::Object(sample.clone()).to_string();
            for _ in 0..self.runs {
                let result = call::execute(tool, &sample, console, &cancel).await;
                if let Some(receipt) = &result.receipt {
                    most.note(receipt);
                }
                match result.error {
                    None => answered += 1,
                    Some(error) => {
                        failed.push(format!("sample {}: {error}", i + 1));
                        break;
                    }
                }
            }
        }
        let name = &loaded.settings.name;
        // A project's file names its own component without the prefix.
        let name = name.strip_prefix(PROJECT).unwrap_or(name);
        self.show(name, &most, answered, &failed, console)?;
        Ok(if answered == 0 { Exit::Failed } else { Exit::Ok })
    }

    fn show(
        &self,
        component: &str,
        most: &Most,
        answered: u32,
        failed: &[String],
        console: &Console,
    ) -> io::Result<()> {
        let proposals = most.proposals(self.margin);
        let default = Limits::default();
        let used = Receipt {
            fuel: most.fuel,
            wall_us: most.wall_us,
            peak_memory: most.memory,
            ..Receipt::default()
        };
        if self.json {
            let proposed: Map<String, Value> = proposals
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            let object = json!({
                "answered": answered,
                "failed": failed,
                "used": { "fuel": most.fuel, "wall_us": most.wall_us, "memory": most.memory, "output": most.output },
                "proposed": proposed,
            });
            return print_line(console, &object);
        }
        console.write(|s| {
            s.err.styled(
                if failed.is_empty() { GOOD } else { BAD },
                text!("{} calls answered, {} samples failed", answered, failed.len()),
            )?;
            s.err.end_line()?;
            for failure in failed {
                s.err.line(text!("  {}", failure))?;
            }
            s.err
                .styled(FAINT, text!("highest use: {}", receipt::line(&used)))?;
            s.err.end_line()?;
            s.err.flush()?;
            s.out.styled(NAME, text!("[tools.{}.limits]", Name(component)))?;
            s.out.end_line()?;
            for (name, value) in &proposals {
                let shown = limits::exactly(name, *value);
                s.out.text(text!("{} = {}", Own(name), escape::toml(&shown)))?;
                let before = limits::get(&default, name);
                s.out
                    .styled(FAINT, text!("  # the default is {}", limits::shown(name, before)))?;
                s.out.end_line()?;
            }
            s.out.flush()
        })
    }
}

/// Reads samples: a JSON array of objects, or one object per line.
fn read_samples(path: &Path) -> Result<Vec<Map<String, Value>>, Failure> {
    let fail = || {
        Failure::new(
            Exit::Usage,
            text!("the samples `{}` cannot be used", path.display()),
        )
    };
    let text = toolcell_fs::read_text(path, &Rules::named(MAX_SAMPLES_BYTES))
        .map_err(|e| user_files::because(fail(), e))?;
    let values = match parse_value(&text) {
        Ok(Value::Array(values)) => values,
        Ok(other) => vec![other],
        Err(whole) => text
            .lines()
            .filter(|line| !line.trim().is_empty())
            .map(parse_value)
            .collect::<Result<_, _>>()
            .map_err(|_| fail().because(whole))?,
    };
    let objects: Option<Vec<Map<String, Value>>> = values
        .into_iter()
        .map(|value| match value {
            Value::Object(map) => Some(map),
            _ => None,
        })
        .collect();
    match objects {
        Some(objects) if !objects.is_empty() => Ok(objects),
        _ => Err(fail()
            .why("it contains no argument objects")
            .hint("write a JSON array such as [{\"text\": \"a\"}], or one object per line")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposed_limits_have_margin_and_minimum() {
        let mut most = Most::default();
        for (fuel, wall_us) in [(123_456_789, 2_000), (1, 1_500_001)] {
            most.note(&Receipt {
                fuel,
                wall_us,
                peak_memory: 3 << 20,
                ..Receipt::default()
            });
        }
        assert_eq!(
            most.proposals(4),
            [
                ("fuel", 500_000_000),
                ("wall", 6_100),
                ("memory", 200 * (64 << 10)),
                ("output", 64 << 10)
            ]
        );
        assert_eq!(Most::default().proposals(4)[0], ("fuel", 10_000_000));
    }

    #[test]
    fn samples_are_json_array_or_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        for (text, count) in [
            ("[{}, {\"a\": 1}]", 2),
            ("{\"a\":1}\n\n{\"a\":2}\n", 2),
            ("{}", 1),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_samples(&path).unwrap().len(), count, "{text}");
        }
        for text in ["", "[]", "[1]", "{"] {
            std::fs::write(&path, text).unwrap();
            assert!(read_samples(&path).is_err(), "{text}");
        }
    }
}
