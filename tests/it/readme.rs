//! What the two README files tell people to type and to write: it has to parse, and what can run is run.
//!
//! A command that the binary does not have, an option that was renamed, a key that the configuration refuses:
//! each is a failure with the file and the line that says it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser as _;
use clap::error::ErrorKind;
use payhook::cli::CommandLine;
use payhook::time::Clock;

use super::support::daemon::{Daemon, Setup};
use super::support::traffic::{Happening, Sender, Signers, Telling};

const PAGES: [&str; 2] = ["README.md", "deploy/README.md"];

/// Commands that the pages may already show although the binary does not have them yet.
const COMING: &[&str] = &[];

/// A line of a page that people may type.
#[derive(Debug)]
struct Line {
    /// `file:line`.
    at: String,
    text: String,
}

/// A fenced block: its language, and its lines.
struct Block {
    language: String,
    lines: Vec<Line>,
}

/// The fenced blocks of a page, and its text outside of them.
fn page(name: &str) -> (Vec<Block>, Vec<Line>) {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap();
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut open: Option<Block> = None;
    for (n, text) in text.lines().enumerate() {
        let at = format!("{name}:{}", n + 1);
        match (text.strip_prefix("```"), open.as_mut()) {
            (Some(language), None) => {
                open = Some(Block {
                    language: language.trim().to_owned(),
                    lines: Vec::new(),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(Line {
                at,
                text: text.to_owned(),
            }),
            (None, None) => prose.push(Line {
                at,
                text: text.to_owned(),
            }),
        }
    }
    assert!(open.is_none(), "{name}: a block has no end");
    (blocks, prose)
}

/// The blocks in `language` of both pages.
fn blocks(language: &str) -> Vec<Block> {
    let all = PAGES.iter().flat_map(|name| page(name).0);
    let found: Vec<_> = all.filter(|block| block.language == language).collect();
    assert!(!found.is_empty(), "no block in {language}");
    found
}

/// The commands of a shell line: no comment, and each part between `&&`, `|` and `;` by itself.
fn commands(text: &str) -> Vec<Vec<String>> {
    let code = text.split(" #").next().unwrap_or_default();
    let code = if code.starts_with('#') { "" } else { code };
    code.replace(" && ", "\n")
        .replace(" | ", "\n")
        .replace("; ", "\n")
        .lines()
        .map(words)
        .filter(|words| !words.is_empty())
        .collect()
}

/// The words of one command; what stands in double quotes is part of one.
fn words(command: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let (mut quoted, mut open) = (false, false);
    for c in command.chars() {
        match c {
            '"' => quoted = !quoted,
            c if c.is_whitespace() && !quoted => {
                open = false;
                continue;
            }
            _ => {}
        }
        if !open {
            words.push(String::new());
            open = true;
        }
        if c != '"' {
            words.last_mut().unwrap().push(c);
        }
    }
    words
}

/// What payhook would be given: the words behind its name, if the line calls it.
fn arguments(mut words: &[String]) -> Option<&[String]> {
    if let [sudo, rest @ ..] = words
        && sudo == "sudo"
    {
        words = match rest {
            [user, _, rest @ ..] if user == "-u" => rest,
            rest => rest,
        };
    }
    match words {
        [payhook, rest @ ..] if payhook == "payhook" => Some(rest),
        [cargo, run, rest @ ..] if cargo == "cargo" && run == "run" => {
            let own = rest.iter().position(|word| word == "--")?;
            rest.get(own + 1..)
        }
        // The image's entrypoint is the binary: what follows the image's name.
        [docker, run, rest @ ..] if docker == "docker" && run == "run" => {
            let image = rest.iter().rposition(|word| word == "payhook")?;
            rest.get(image + 1..)
        }
        _ => None,
    }
}

/// One call of payhook on a page.
struct Call {
    at: String,
    words: Vec<String>,
    /// Named in a sentence, where values may be left out.
    in_passing: bool,
}

impl Call {
    fn of(at: &str, words: &[String], in_passing: bool) -> Option<Self> {
        let words = arguments(words)?.to_vec();
        let at = at.to_owned();
        Some(Self {
            at,
            words,
            in_passing,
        })
    }
}

/// Every way in which the pages call payhook: in shell blocks (with continued lines joined), and in backticks.
fn calls() -> Vec<Call> {
    let mut found = Vec::new();
    for block in blocks("sh") {
        let mut joined: Option<Line> = None;
        for line in block.lines {
            let mut whole = joined.take().unwrap_or(Line {
                at: line.at,
                text: String::new(),
            });
            whole.text.push_str(&line.text);
            if whole.text.ends_with('\\') {
                whole.text.pop();
                joined = Some(whole);
                continue;
            }
            for words in commands(&whole.text) {
                found.extend(Call::of(&whole.at, &words, false));
            }
        }
    }
    for line in PAGES.iter().flat_map(|name| page(name).1) {
        for quoted in line.text.split('`').skip(1).step_by(2) {
            if quoted.starts_with("payhook ") {
                for words in commands(quoted) {
                    found.extend(Call::of(&line.at, &words, true));
                }
            }
        }
    }
    assert!(found.len() > 15, "the pages call payhook {} times", found.len());
    found
}

/// Why the command line refuses it, if it does.
fn refused(call: &Call) -> Option<String> {
    let words = call.words.iter().map(String::as_str);
    let error = CommandLine::try_parse_from(std::iter::once("payhook").chain(words)).err()?;
    let left_out = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => true,
        ErrorKind::MissingRequiredArgument => call.in_passing,
        // `payhook serve --role` in a sentence: the option is there and wants its value.
        ErrorKind::InvalidValue => call.in_passing && call.words.last().is_some_and(|w| w.starts_with("--")),
        _ => false,
    };
    let why = error.to_string().lines().next().unwrap_or_default().to_owned();
    (!left_out).then_some(why)
}

#[test]
fn every_command_that_is_shown_is_one() {
    let (mut wrong, mut coming) = (Vec::new(), Vec::new());
    for call in calls() {
        let Some(why) = refused(&call) else { continue };
        let first = call.words.first().map(String::as_str).unwrap_or_default();
        if COMING.contains(&first) && why.contains("unrecognized subcommand") {
            coming.push(first.to_owned());
        } else {
            wrong.push(format!("{}: payhook {}: {why}", call.at, call.words.join(" ")));
        }
    }
    for command in COMING {
        if !coming.iter().any(|one| one == command) {
            wrong.push(format!(
                "{command} is there now, or nowhere shown: take it off COMING"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn files_that_shell_lines_name_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for line in blocks("sh").into_iter().flat_map(|block| block.lines) {
        for word in commands(&line.text).into_iter().flatten() {
            let path = word.strip_prefix("./").unwrap_or(&word);
            if path.starts_with("deploy/") || path.starts_with("tests/") {
                assert!(root.join(path).exists(), "{}: {word} does not exist", line.at);
            }
        }
    }
}

/// A folder with the key under the name that the example uses.
fn with_key() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    payhook::samples::unpack(&dir.path().join("samples")).unwrap();
    let keys = dir.path().join("samples/keys");
    let key = keys.join("alipay_public.pem");
    fs::copy(key, dir.path().join("alipay_public_key.pem")).unwrap();
    dir
}

/// Runs the binary in `folder`: (exit code, all it said).
fn run(folder: &Path, args: &[&str]) -> (i32, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_payhook"))
        .args(args)
        .current_dir(folder)
        .env_remove("PAYHOOK_CONFIG")
        .env("AMQP_PASSWORD", "guest")
        .output()
        .unwrap();
    let said = [out.stdout, out.stderr].concat();
    (
        out.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// What is wrong with the configuration, apart from services that do not run here.
fn refusal(config: &str) -> Option<String> {
    let dir = with_key();
    fs::write(dir.path().join("payhook.toml"), config).unwrap();
    let (code, said) = run(dir.path(), &["check"]);
    (code == 2).then_some(said)
}

#[test]
fn every_block_of_configuration_is_accepted() {
    for block in blocks("toml") {
        let text: Vec<&str> = block.lines.iter().map(|line| line.text.as_str()).collect();
        let at = block
            .lines
            .first()
            .map(|line| line.at.clone())
            .unwrap_or_default();
        let refusal = refusal(&text.join("\n"));
        assert_eq!(refusal, None, "{at}");
    }
    assert!(refusal("[store]\ncolour = 1\n").is_some(), "a wrong one is told");
}

#[test]
fn the_first_steps_work_as_written() {
    let dir = tempfile::tempdir().unwrap();
    let steps: Vec<Vec<String>> = calls()
        .into_iter()
        .map(|call| call.words)
        .filter(|words| matches!(words.as_slice(), [one] if one == "init" || one == "check"))
        .collect();
    assert!(steps[0] == ["init"] && steps[1] == ["check"], "{steps:?}");
    for step in [&steps[0], &steps[1]] {
        let words: Vec<&str> = step.iter().map(String::as_str).collect();
        let (code, said) = run(dir.path(), &words);
        assert_eq!(code, 0, "payhook {}: {said}", words.join(" "));
    }
    let config = fs::read_to_string(dir.path().join("payhook.toml")).unwrap();
    assert_eq!(config, payhook::config::EXAMPLE);
}

/// What a reader of the sections on orders and attention types, in the order of the page, to a daemon of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_are_registered_and_attention_resolved_as_written() {
    let mut daemon = Daemon::new(&Setup::default());
    daemon.start().await;
    let shown: Vec<Vec<String>> = calls().into_iter().map(|call| call.words).collect();
    let named = |first: &str, second: &str| -> Vec<&str> {
        let found = shown
            .iter()
            .find(|words| words.len() > 2 && words[0] == first && words[1] == second);
        let words = found.unwrap_or_else(|| panic!("{first} {second} is not shown"));
        words.iter().map(String::as_str).collect()
    };
    let run = |words: &[&str]| {
        let (code, out, err) = daemon.run(words);
        assert_eq!(code, 0, "{words:?}: {out}{err}");
        out
    };
    let registered = run(&named("orders", "register"));
    assert!(registered.contains("registered 88.88 CNY"), "{registered}");
    let registrations = shown
        .iter()
        .filter(|words| words.join(" ").starts_with("orders register"));
    for other in registrations.skip(1) {
        run(&other.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let closed = run(&named("orders", "close"));
    assert!(closed.contains("closed by the merchant"), "{closed}");

    // The page's own body, sent without curl.
    let (body, _) = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"))
        .unwrap()
        .split_once("-d '")
        .and_then(|(_, rest)| {
            rest.split_once('\'')
                .map(|(body, rest)| (body.to_owned(), rest.len()))
        })
        .unwrap();
    let body = serde_json::from_str(&body).unwrap();
    let answer = daemon.caller().post("/v1/orders", "a-key", &body).await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.text);
    let answer = daemon
        .caller()
        .post("/v1/orders", "another-key", &body)
        .await
        .unwrap();
    assert_eq!(answer.status, 200, "it was registered so before: {}", answer.text);

    let telling = Telling {
        sender: Sender::Alipay,
        order_id: "ORDER-1001".to_owned(),
        trade_id: "2026112922001400000000000001".to_owned(),
        amount: 8000,
        number: 0,
        happening: Happening::Paid,
    };
    let paid = Signers::new().sign(&telling, Clock::system().now());
    let acked = daemon.notify(&reqwest::Client::new(), &paid).await;
    assert_eq!(acked.map(|(status, _)| status), Some(200));
    let until = Instant::now() + Duration::from_mins(1);
    let id = loop {
        let page: serde_json::Value = serde_json::from_str(&run(&["attention", "list", "--json"])).unwrap();
        if let Some(id) = page["items"][0]["id"].as_str() {
            break id.to_owned();
        }
        assert!(Instant::now() < until, "the payment is not held");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    for second in ["show", "resolve"] {
        let mut words = named("attention", second);
        words[2] = &id;
        let said = run(&words);
        assert!(
            said.contains("amount_mismatch") && said.contains("ORDER-1001"),
            "{said}"
        );
    }
    assert!(run(&["orders", "show", "ORDER-1001"]).contains("paid since "));
}
