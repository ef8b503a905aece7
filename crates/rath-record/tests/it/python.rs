//! Runs `docs/verify.py`, written from `docs/format.md` alone, on files of the codec.

use rath_record::codec;

use crate::codec::reseal;

/// Returns every test file, whole and damaged in many ways.
fn files() -> Vec<Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/codec");
    let compat = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compat/v1.rath");
    let seeds = std::fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("an entry").path());
    // Without the files that a fuzzer left there, which are named by their hashes and may be thousands.
    let seeds = seeds.filter(|path| path.file_name().is_some_and(|name| name.len() != 40));
    let mut whole: Vec<_> = seeds.chain([compat.into()]).map(|path| std::fs::read(path).expect("a file")).collect();
    whole.sort();
    whole.push(crate::appending::file());
    whole.push(crate::appending::grouped_file().0);
    let mut files = Vec::new();
    for file in whole {
        for nth in 0..40 {
            let at = (nth * 7919 + nth) % file.len().max(1);
            let mut flipped = file.clone();
            flipped.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (nth % 8));
            files.push(flipped);
            files.push(file[..at.min(file.len())].to_vec());
        }
        let lines: Vec<_> = file.split_inclusive(|byte| *byte == b'\n').collect();
        for row in 0..lines.len() {
            let mut dropped = lines.clone();
            let line = dropped.remove(row);
            files.push(dropped.concat());
            dropped.insert((row + 1).min(lines.len() - 1), line);
            files.push(dropped.concat());
            dropped.insert(row, line);
            files.push(dropped.concat());
        }
        files.push(file);
    }
    files.extend(spellings(&std::fs::read_to_string(compat).expect("a file")));
    files
}

/// Returns variants of a file with valid seals and spellings that no encoder writes.
fn spellings(file: &str) -> Vec<Vec<u8>> {
    let spelled = [
        (r#""by":"a.b""#, r#""by": "a.b""#),
        (r#""by":"a.b""#, r#""by":"\u0061.b""#),
        (r#""at":1767225600000000"#, r#""at":-0"#),
        (r#""at":1767225600000000"#, r#""at":9223372036854775808"#),
        (r#"{"input":5,"output":4,"#, r#"{"output":4,"input":5,"#),
        (r#"{"input":5,"output":4,"#, r#"{"input":0,"output":4,"#),
        (r#"{"input":5,"output":4,"#, r#"{"input":9223372036854775808,"output":4,"#),
        (r#""n":2,"#, r#""n":02,"#),
        (r#""n":2,"#, r#""n":9223372036854775808,"#),
        (r#""end":28"#, r#""end":29"#),
        (r#""version":1}"#, r#""version":0}"#),
        (r#""version":1}"#, r#""version":1,"more":2}"#),
        (r#""version":1}"#, r#""version":2}"#),
        (r#""version":1}"#, r#""version":4}"#),
        (r#""n":2,"#, r#""n":2,"after_sync":true,"#),
        (r#""n":2,"#, r#""n":2,"after_sync":false,"#),
        (r#""kind":"forked""#, r#""kind":"spooned""#),
        (r#","chunk":"#, r#","signed":"abcdefghijABCDEFG0+/","chunk":"#),
        (r#","chunk":"#, r#","signed":"abcdefghijABCDEFG0+","chunk":"#),
        (r#","chunk":"#, r#","signed":"abcdefghijABCDEFG0+/==","chunk":"#),
        (r#","chunk":"#, r#","signed":"abcdefghijABCDEFG==","chunk":"#),
        (r#","chunk":"#, r#","signed":"abcdefghijABCDEFG0-_","chunk":"#),
        (r#","chunk":"#, r#","signed":"","chunk":"#),
        (r#","at":1767225600000000"#, r#","signed":"abcdefghijABCDEFG0+/","at":1767225600000000"#),
    ];
    let respelled = |(from, to)| {
        assert!(file.contains(from), "{from}");
        let line = |line: &str| if line.contains(from) { reseal(&line.replacen(from, to, 1)) } else { line.to_owned() };
        file.lines().map(|text| line(text) + "\n").collect::<String>().into_bytes()
    };
    spelled.into_iter().map(respelled).collect()
}

#[test]
#[ignore = "needs Python with the package blake3, named by RATH_PYTHON: see CONTRIBUTING.md"]
fn the_python_verifier_agrees_about_every_file() {
    let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON names a Python that has blake3");
    let folder = rath_test_support::temp_dir();
    let files = files();
    let names: Vec<_> = (0..files.len()).map(|nth| format!("{nth}.rath")).collect();
    for (name, file) in names.iter().zip(&files) {
        std::fs::write(folder.path().join(name), file).expect("written");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/verify.py");
    let output = rath_test_support::program(python)
        .arg(script)
        .args(&names)
        .current_dir(folder.path())
        .output()
        .expect("Python");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!err.contains("Traceback"), "{err}");
    let mut differences = Vec::new();
    for (name, file) in names.iter().zip(&files) {
        let begins =
            |text: &str, verdict: &str| text.lines().any(|line| line.starts_with(&format!("{name}: {verdict}")));
        let agrees = match codec::read(file) {
            Ok(opened) => {
                let report = opened.report;
                let verdict = if report.is_whole() {
                    format!("whole, {} rows, {} steps", report.rows, report.steps)
                } else {
                    format!("damaged, {} good rows, {} steps", report.rows, report.steps)
                };
                begins(&out, &verdict)
            }
            Err(_) => !begins(&out, "whole") && !begins(&out, "damaged") && err.contains(name.as_str()),
        };
        if !agrees {
            let told: Vec<_> = out.lines().filter(|line| line.starts_with(&format!("{name}:"))).collect();
            differences.push(format!("{told:#?}\n{:#?}", codec::read(file).map(|opened| opened.report)));
        }
    }
    assert!(differences.is_empty(), "{} of {}: {}", differences.len(), files.len(), differences[0]);
}
