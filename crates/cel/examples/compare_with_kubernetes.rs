//! Evaluates random expressions with this crate and with Kubernetes, and compares the answers.
//! `make fuzz-cel` runs this example.
//!
//! The arguments are the path of the program `cel-oracle`, the duration of the comparison in
//! seconds, and the seed. `cel-oracle` evaluates expressions with the code of Kubernetes. The same
//! seed yields the same expressions.
//!
//! ```console
//! $ cargo run --example compare_with_kubernetes -- "$(tests/cel-oracle/build)" 60 1
//! ```
//!
//! The example prints each difference that is not on the lists of known differences in
//! `ifo_cel::fuzzing::kubernetes_comparison`, with the smallest expression that it finds for the
//! difference. If the example prints a difference, the exit code is 1.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use ifo_cel::fuzzing::Expression;
use ifo_cel::fuzzing::kubernetes_comparison::{Answer, Comparison, PolicyVariable, compare};
use ifo_cel::fuzzing::random_expressions::{Case, Generator};
use serde_json::{Value, json};

/// Number of expressions that are sent to `cel-oracle` at once.
const BATCH: usize = 500;

/// Number of times that Kubernetes evaluates an expression again after its answer differed from
/// ours. Kubernetes' answer can depend on the order of a map, which is random. If Kubernetes'
/// answers vary, the example does not report the difference.
const REPETITIONS: usize = 16;

/// Number of differences after which the program ends. Each difference takes some seconds, because
/// the program then searches for a smaller expression with the same difference.
const MAX_DIFFERENCES: usize = 40;

/// Maximum length of a compared expression in bytes. The program drops longer expressions, because
/// this crate refuses them.
const MAX_LENGTH: usize = 4_096;

/// The folder of the objects on which the recorded answers were computed.
const OBJECTS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/kubernetes-cel/objects"
);

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [program, seconds, seed] = &*args else {
        return Err("usage: compare_with_kubernetes CEL_ORACLE SECONDS SEED".into());
    };
    let (seconds, seed) = (seconds.parse()?, seed.parse()?);
    println!("seed {seed}");
    let objects = objects(Path::new(OBJECTS))?;
    let mut run = ComparisonRun {
        generator: Generator::new(seed, objects.clone()),
        objects: objects.iter().map(Value::to_string).collect(),
        kubernetes: Kubernetes::start(program)?,
        compared: 0,
        phases: BTreeMap::new(),
        known: BTreeMap::new(),
        varying: 0,
        different: BTreeMap::new(),
    };
    run.compare_for(Duration::from_secs(seconds))?;
    run.report();
    Ok(if run.different.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Reads the objects from the files in `folder`. Leaves out files that are not valid JSON.
fn objects(folder: &Path) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut objects = Vec::new();
    for path in paths {
        objects.extend(serde_json::from_slice(&fs::read(path)?));
    }
    Ok(objects)
}

/// The state of one run of this example, with its counters.
struct ComparisonRun {
    generator: Generator,
    /// The objects as JSON texts.
    objects: Vec<String>,
    kubernetes: Kubernetes,
    compared: usize,
    /// Number of Kubernetes' answers by phase, such as `ok` or `compile-err`.
    phases: BTreeMap<String, usize>,
    /// Number of known differences, by reason.
    known: BTreeMap<&'static str, usize>,
    /// Number of expressions for which Kubernetes' answer varies between evaluations.
    varying: usize,
    /// The descriptions of the unknown differences. The key is the smallest expression that was
    /// found for the difference.
    different: BTreeMap<String, String>,
}

impl ComparisonRun {
    fn compare_for(&mut self, time: Duration) -> Result<(), Box<dyn Error>> {
        let start = Instant::now();
        while start.elapsed() < time && self.different.len() < MAX_DIFFERENCES {
            let mut cases: Vec<_> = (0..BATCH).map(|_| self.generator.case()).collect();
            cases.retain(|case| case.expression.to_string().len() <= MAX_LENGTH);
            for (case, answer) in self.answers(&cases)? {
                *self.phases.entry(answer.phase.clone()).or_default() += 1;
                self.compared += 1;
                match self.compare(&answer) {
                    Comparison::Same => {}
                    Comparison::Known(reason) => *self.known.entry(reason).or_default() += 1,
                    Comparison::Different(_) if self.varies(&case)? => self.varying += 1,
                    Comparison::Different(_) => self.add_difference(case)?,
                }
            }
        }
        Ok(())
    }

    /// Asks Kubernetes for the answers to `cases`.
    fn answers(&mut self, cases: &[Case]) -> Result<Vec<(Case, Answer)>, Box<dyn Error>> {
        let questions: Vec<_> = cases.iter().map(|case| self.question(case)).collect();
        let replies = self.kubernetes.ask(&questions)?;
        let with_case = |(case, reply): (&Case, String)| {
            let mut answer: Answer = serde_json::from_str(&reply)?;
            answer.expr = case.expression.to_string();
            answer.object = case.object;
            answer.variables.clone_from(&case.variables);
            Ok((case.clone(), answer))
        };
        cases.iter().zip(replies).map(with_case).collect()
    }

    fn question(&self, case: &Case) -> String {
        let variables = |PolicyVariable { name, expression }: &PolicyVariable| json!({"name": name, "expression": expression});
        let variables: Vec<_> = case.variables.iter().map(variables).collect();
        let expression = Value::String(case.expression.to_string());
        let object = case.object.map_or("null", |at| &self.objects[at]);
        let variables = Value::Array(variables);
        format!("{{\"expr\":{expression},\"variables\":{variables},\"object\":{object}}}\n")
    }

    fn compare(&self, answer: &Answer) -> Comparison {
        let json = answer.object.map_or("null", |at| &self.objects[at]);
        compare(answer, json.as_bytes())
    }

    /// Returns true if repeated evaluations of `case` in Kubernetes have different answers.
    fn varies(&mut self, case: &Case) -> Result<bool, Box<dyn Error>> {
        let again = vec![case.clone(); REPETITIONS];
        let answers = self.answers(&again)?;
        let (_, first) = &answers[0];
        Ok(answers.iter().any(|(_, answer)| answer.v != first.v))
    }

    /// Makes the expression of `case` smaller as long as the answers still differ. Then prints the
    /// difference, and adds the difference to the report.
    fn add_difference(&mut self, case: Case) -> Result<(), Box<dyn Error>> {
        let mut smallest = case;
        while let Some(smaller) = self.smaller(&smallest)? {
            smallest = smaller;
        }
        let (_, answer) = self.answers(std::slice::from_ref(&smallest))?.remove(0);
        if let Comparison::Different(here) = self.compare(&answer) {
            let object = answer.object.map(|at| self.objects[at].clone());
            let description = format!(
                "  Kubernetes: {}: {}\n  ifo-cel:    {here}\n  object:     {:.200}\n  variables:  {:?}",
                answer.phase,
                answer.v,
                object.unwrap_or_default(),
                answer.variables
            );
            if self
                .different
                .insert(answer.expr.clone(), description.clone())
                .is_none()
            {
                println!("{}\n{description}", answer.expr);
            }
        }
        Ok(())
    }

    /// Simplifies the expression of `case` in one place, for example replaces a call by its
    /// argument. There are several ways to do this. Returns the smallest result with which the
    /// answers still differ, or None if there is none.
    fn smaller(&mut self, case: &Case) -> Result<Option<Case>, Box<dyn Error>> {
        let with = |expression: Expression| Case {
            expression,
            ..case.clone()
        };
        let mut candidates: Vec<_> = case.expression.smaller().into_iter().map(with).collect();
        if case.object.is_some() {
            let mut without = case.clone();
            without.object = None;
            candidates.push(without);
        }
        for index in 0..case.variables.len() {
            let mut without = case.clone();
            without.variables.remove(index);
            candidates.push(without);
        }
        let length = |case: &Case| {
            let object = usize::from(case.object.is_some());
            case.expression.to_string().len() + object + case.variables.len()
        };
        candidates.retain(|candidate| length(candidate) < length(case));
        candidates.sort_by_key(length);
        candidates.dedup_by_key(|case| self.question(case));
        for chunk in candidates.chunks(50) {
            for (candidate, answer) in self.answers(chunk)? {
                if let Comparison::Different(_) = self.compare(&answer)
                    && !self.varies(&candidate)?
                {
                    return Ok(Some(candidate));
                }
            }
        }
        Ok(None)
    }

    fn report(&self) {
        println!(
            "{} expressions were compared: {:?}",
            self.compared, self.phases
        );
        println!("{} answers vary in Kubernetes", self.varying);
        for (reason, count) in &self.known {
            println!("{count} known differences: {reason}");
        }
        println!("{} differences are not known", self.different.len());
    }
}

/// The running program `cel-oracle`.
struct Kubernetes {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Kubernetes {
    fn start(program: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(program)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().ok_or("the program has no input")?;
        let output = child.stdout.take().ok_or("the program has no output")?;
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    /// Sends the questions, and returns the replies in the same order.
    fn ask(&mut self, questions: &[String]) -> Result<Vec<String>, Box<dyn Error>> {
        let Self { input, output, .. } = self;
        // While its output is full, `cel-oracle` reads no further questions. So another thread
        // writes the questions, and this thread reads the replies at the same time.
        thread::scope(|scope| {
            let writing = scope.spawn(|| -> std::io::Result<()> {
                for question in questions {
                    input.write_all(question.as_bytes())?;
                }
                input.flush()
            });
            let mut replies = Vec::new();
            for question in questions {
                let mut reply = String::new();
                if output.read_line(&mut reply)? == 0 {
                    return Err(format!("cel-oracle ended without an answer to {question}").into());
                }
                replies.push(reply);
            }
            writing.join().map_err(|_| "the writer panicked")??;
            Ok(replies)
        })
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        // `cel-oracle` may have ended already. Errors are ignored for this reason.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
