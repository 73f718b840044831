//! The generated program, outside the workspace, and its builds.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// The number of functions in the program.
pub(crate) const FUNCTIONS: u32 = 100;

/// Whether the functions of the program have the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Plain,
    Annotated,
}

/// The generated program. The last build has annotated functions.
pub(crate) struct Program {
    place: PathBuf,
}

/// What one build has cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build {
    /// The processor time of the compiler and the linker, in seconds: other work on the machine hardly changes it.
    pub(crate) time: f64,
    /// The size of the program without symbols.
    pub(crate) bytes: f64,
}

/// The fastest build of each form.
pub(crate) struct Builds {
    plain: Build,
    annotated: Build,
}

impl Builds {
    pub(crate) fn of(&self, form: Form) -> Build {
        match form {
            Form::Plain => self.plain,
            Form::Annotated => self.annotated,
        }
    }
}

impl Program {
    /// Writes the manifest and builds the dependencies.
    pub(crate) fn new() -> anyhow::Result<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = Self {
            place: Path::new(env!("CARGO_TARGET_TMPDIR")).join("expansion"),
        };
        fs::create_dir_all(program.place.join("src"))?;
        fs::copy(here.join("../Cargo.lock"), program.place.join("Cargo.lock"))?;
        let library = std::env::var("MONGOLOCK").map_or_else(|_| here.join("../mongolock"), PathBuf::from);
        let manifest = include_str!("manifest.toml").replace("MONGOLOCK", &library.display().to_string());
        fs::write(program.place.join("Cargo.toml"), manifest)?;
        program.build(Form::Plain)?;
        Ok(program)
    }

    /// Builds both forms in turns, so that other work on the machine slows down both.
    pub(crate) fn build_in_turns(&self, times: usize) -> anyhow::Result<Builds> {
        let (mut plain, mut annotated) = (Vec::new(), Vec::new());
        for _ in 0..times {
            plain.push(self.build(Form::Plain)?);
            annotated.push(self.build(Form::Annotated)?);
        }
        let fastest = |builds: Vec<Build>| {
            builds
                .into_iter()
                .min_by(|one, other| one.time.total_cmp(&other.time))
        };
        Ok(Builds {
            plain: fastest(plain).context("no build")?,
            annotated: fastest(annotated).context("no build")?,
        })
    }

    /// Runs the program and returns its output.
    pub(crate) fn run(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let output = Command::new(self.binary()).args(arguments).output()?;
        ensure!(
            output.status.success(),
            "the generated program failed: {output:?}"
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    pub(crate) fn binary(&self) -> PathBuf {
        self.place.join("target/release/expansion")
    }

    fn build(&self, form: Form) -> anyhow::Result<Build> {
        fs::write(self.place.join("src/main.rs"), source(form))?;
        let begun = processor_time()?;
        let status = Command::new(env!("CARGO"))
            .args(["build", "--release", "--quiet", "--offline"])
            .current_dir(&self.place)
            .env("CARGO_TARGET_DIR", self.place.join("target"))
            .env_remove("RUSTFLAGS")
            .status()?;
        let time = processor_time()? - begun;
        ensure!(status.success(), "the generated program does not compile");
        #[expect(clippy::cast_precision_loss, reason = "a program has fewer than 2^52 bytes")]
        let bytes = fs::metadata(self.binary())?.len() as f64;
        Ok(Build { time, bytes })
    }
}

/// The processor time of all child processes that have ended, in seconds, as Linux counts it.
fn processor_time() -> anyhow::Result<f64> {
    const TICKS_PER_SECOND: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").context("the processor times of Linux")?;
    let (_, after_name) = stat.rsplit_once(')').context("the name of the program")?;
    // The fields `cutime` and `cstime`; the first field after the name is the third of all.
    let fields = after_name.split_whitespace().skip(16 - 3).take(2);
    let ticks: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SECOND)
}

/// The source of the program: its fixed part, the functions, and a table that keeps each of them.
fn source(form: Form) -> String {
    let mut source = include_str!("template.rs").to_owned();
    for number in 0..FUNCTIONS {
        let attribute = match form {
            Form::Plain => String::new(),
            Form::Annotated => {
                format!("#[distributed_lock(name = \"job {number}:<id>\", expiry = \"30s\")]\n")
            }
        };
        let _ = writeln!(
            source,
            "{attribute}async fn job_{number}(id: u64) -> Result<u64, AppError> {{\n    \
                 let first = step(id + {number}).await?;\n    step(first).await\n}}"
        );
    }
    let _ = writeln!(
        source,
        "static JOBS: [fn(u64) -> Pin<Box<dyn Future<Output = Result<u64, AppError>> + Send>>; {FUNCTIONS}] = ["
    );
    for number in 0..FUNCTIONS {
        let _ = writeln!(source, "    |id| Box::pin(job_{number}(id)),");
    }
    source.push_str("];\n");
    source
}
