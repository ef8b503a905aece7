//! Encoding a record and reading it back.

use std::sync::Arc;

use expect_test::expect;
use rath_record::chunk::{Assistant, Call, Chunk, Image, Json, ToolSpec, User};
use rath_record::codec::{self, CodecError, Encoder, FORMAT_VERSION};
use rath_record::{Digest, Payload, Record, Reference, Seal, Stamp, Text, Timestamp, Usage};

use crate::support::{branch, record, scenario};

pub(crate) fn encode(record: &Record) -> Vec<u8> {
    Encoder::encode_record(record).expect("rows that are short enough")
}

fn stamp() -> Stamp {
    Stamp::on(branch("main"))
}

/// Replaces the body of a line and seals it anew, as a forger would.
pub(crate) fn reseal(line: &str) -> String {
    format!("{{\"seal\":\"{}\",{}", Seal::compute(&line.as_bytes()[43..]), &line[43..])
}

#[test]
fn a_file_is_lines_of_json_that_a_person_can_read() {
    let mut record = record("user hi");
    let stamp = stamp().by("readme.agent").usage(Usage::new(12, 3)).at(Timestamp(1_767_225_600_000_000));
    record.push(Chunk::assistant("hello"), stamp);
    expect![[r#"
        {"seal":"43e0bdaa2d319fb028fdb2fe6e6c0fc7","format":"rath record","version":1}
        {"seal":"847dbe4fb1750df80e2936319fb4ed73","prev":"43e0bdaa2d319fb028fdb2fe6e6c0fc7","n":1,"id":"bc8e37443b8e36cd192f3b04085eb2a257ee4ee264fcfba87de29ecbb4be96a4","parents":[],"branch":"e726318b-bc3f-d75a-c873-3a7e030cc35b","chunk":{"kind":"user","text":"hi"}}
        {"seal":"c65df269bbec9e12c08f4615e7e25192","prev":"847dbe4fb1750df80e2936319fb4ed73","n":2,"id":"f14b3364ea4f5edab34a85bec3960ecf3ebded3f3824af22a5e08bf2520b98b5","parents":["bc8e37443b8e36cd192f3b04085eb2a257ee4ee264fcfba87de29ecbb4be96a4"],"branch":"e726318b-bc3f-d75a-c873-3a7e030cc35b","by":"readme.agent","usage":{"input":12,"output":3},"at":1767225600000000,"chunk":{"kind":"assistant","text":"hello","finish":"stop"}}
        {"seal":"5cf0c5473f484d4ad058162272939c55","prev":"c65df269bbec9e12c08f4615e7e25192","n":3,"end":2}
    "#]].assert_eq(&String::from_utf8(encode(&record)).expect("UTF-8"));
}

#[test]
fn any_text_round_trips() {
    let texts = [
        String::new(),
        "\u{2028}\u{2029}\u{85}\u{b}\u{c}\r\n\0\u{1}\u{7f}\u{feff}\\\"/".to_owned(),
        "𝄞 👩‍👩‍👧‍👦 日本語 مرحبا \u{10ffff}".to_owned(),
        "{\"seal\":\"00000000000000000000000000000000\",".to_owned(),
        (0..=0x10_ffff).step_by(7).filter_map(char::from_u32).collect(),
        "x".repeat(16 * 1024),
        "x".repeat(16 * 1024 + 1),
        "\u{0}é𝄞\n".repeat(10 << 20 >> 3),
    ];
    for text in texts {
        let mut record = Record::new();
        record.push(Chunk::user(text.as_str()), stamp());
        record.push(Chunk::note(text.as_str()), stamp());
        let file = encode(&record);
        let opened = codec::read(&file).expect("a file of ours");
        assert!(opened.report.is_whole(), "{:?}", opened.report.damage);
        let back: Vec<_> = opened.record.steps().into_iter().map(|step| step.chunk().clone()).collect();
        assert!(back == [Chunk::user(text.as_str()), Chunk::note(text.as_str())], "{text:.40}");
        assert!(encode(&opened.record) == file, "{text:.40}");
    }
}

#[test]
fn a_long_text_is_stored_as_one_payload_row() {
    let long: Text = "long".repeat(10_000).into();
    let call = Call::new("1", "t", long.clone());
    let answer = Assistant::new(long.clone()).with_reasoning(long.clone()).with_calls(vec![call]);
    let image = Image::new("image/png", *b"\x89PNG");
    let mut record = Record::new();
    record.push(User::new(long.clone()).with_images(vec![image.clone(), image]).into(), stamp());
    record.push(answer.clone().into(), stamp());
    let file = encode(&record);
    assert_eq!(String::from_utf8_lossy(&file).matches("\"payload\":").count(), 2);
    assert!(file.len() < 50_000);
    let opened = codec::read(&file).expect("a file of ours");
    assert!(opened.report.is_whole());
    assert_eq!(opened.record.steps()[1].chunk(), &Chunk::Assistant(answer));
    let Chunk::User(user) = opened.record.steps()[0].chunk() else { panic!("the user spoke first") };
    assert_eq!(user.images[1].blob.data().map(|data| &data[..]), Some(&b"\x89PNG"[..]));
}

#[test]
fn every_text_of_every_kind_finds_its_payload_again() {
    let story = "instructions T; user T; assistant T; calls t#1; denied 1 T; result 1 T; remember T; recall T T; \
                 x= note T; compress x: T; retry T; interrupted T; failed T";
    let long = "T".repeat(20_000);
    let told = record(story);
    let mut record = Record::new();
    for step in told.steps() {
        let reference = Reference { digest: Digest::compute(long.as_bytes()), bytes: long.len() as u64 };
        let json = step.json().replace("\"T\"", &serde_json::to_string(&reference).expect("a reference"));
        let mut chunk = Chunk::decode(&json).expect("a chunk");
        assert!(!matches!(chunk, Chunk::Other(_)), "{}", step.json());
        chunk.fill_payloads(|_| Some(Payload::Text(long.as_str().into())));
        record.push(chunk, stamp());
    }
    let file = encode(&record);
    assert!(file.len() < 40_000, "all of them beside their rows, and once");
    let opened = codec::read(&file).expect("a file of ours");
    assert!(opened.report.is_whole());
    for (back, step) in opened.record.steps().into_iter().zip(record.steps()) {
        assert_eq!(back.chunk(), step.chunk());
        assert_eq!(step.chunk().payloads().len(), step.json().matches("\"digest\"").count(), "{}", step.json());
    }
}

#[test]
fn unknown_kinds_and_members_survive_byte_for_byte() {
    let unknown = [
        r#"{"kind":"hologram"}"#,
        r#"{"kind":"hologram", "depth" : 1.50, "b":{"a":[1e3 ,-0.0]} , "s":"\u0041\/"}"#,
        r#"{"kind":"user","text":"hi","mood":"😀","n":1.0}"#,
        r#"{"kind":"user","text":17}"#,
        r#"{"kind":"assistant","finish":"paused"}"#,
        r#"{"kind":"note", "text":"\u0041"}"#,
    ];
    let mut record = Record::new();
    for json in unknown {
        record = push_json(&record, json);
    }
    let file = encode(&record);
    let opened = codec::read(&file).expect("a file of ours");
    assert!(opened.report.is_whole());
    assert_eq!(encode(&opened.record), file);
    let kept: Vec<_> = opened.record.steps().iter().map(|step| step.json().into_owned()).collect();
    assert_eq!(kept, unknown);
    assert_eq!(format!("{:?}", opened.report.unread), r#"{"assistant": 1, "hologram": 2, "user": 1}"#);
    let Chunk::User(user) = opened.record.steps()[2].chunk() else { panic!("known but for two members") };
    assert_eq!(user.text.as_str(), Some("hi"));
}

fn push_json(record: &Record, json: &str) -> Record {
    use rath_record::{Parent, Parents, Step};
    let parents = record.head().map_or(Parents::None, |head| Parents::One(Parent::Loaded(head.clone())));
    Record::at(Step::from_json(parents, json, stamp()).expect("a chunk"))
}

#[test]
fn json_stays_as_written_but_on_one_line() {
    let parameters = Json::parse("{\n  \"type\": \"object\"\r\n}\n").expect("JSON");
    let tool = ToolSpec::new("t", "d", parameters);
    let mut record = Record::new();
    let instructions = rath_record::chunk::Instructions::default().with_tools(vec![tool]);
    record.push(instructions.into(), stamp());
    let opened = codec::read(&encode(&record)).expect("a file of ours");
    assert!(opened.report.is_whole());
    assert_eq!(opened.record.steps()[0].chunk(), record.steps()[0].chunk());
    assert!(Json::parse("{").is_err());
}

#[test]
fn equal_history_has_equal_ids_for_any_writer_and_time() {
    let one = record("user hi; assistant hello");
    let mut other = Record::new();
    other.push(Chunk::user("hi"), Stamp::on(branch("elsewhere")));
    other.push(Chunk::assistant("hello"), stamp().at(Timestamp(-1)).by("x").usage(Usage::new(1, 1)));
    assert_eq!(one.head().map(|head| head.id()), other.head().map(|head| head.id()));
    assert_ne!(encode(&one), encode(&other));
}

#[test]
fn a_newer_version_gets_a_clear_error() {
    let file = String::from_utf8(encode(&record("user hi"))).expect("UTF-8");
    let (header, rest) = file.split_once('\n').expect("a header");
    let newer = reseal(&header.replace("\"version\":1}", "\"version\":4,\"more\":true}"));
    let error = codec::read(format!("{newer}\n{rest}").as_bytes()).expect_err("newer");
    assert_eq!(error, CodecError::NewerVersion { found: FORMAT_VERSION + 1 });
    assert_eq!(error.to_string(), "the file has format version 4; this program reads versions up to 3");
}

#[test]
fn another_file_is_not_read_as_a_session() {
    for other in ["hello", "# README\n\nHello.\n", "{\"id\":1}\n{\"id\":2}\n", "\n", "\0\n", "\0a"] {
        assert_eq!(codec::read(other.as_bytes()).map(|_| ()), Err(CodecError::NotARecord), "{other:?}");
    }
    // A file that was cut at its first byte. Some file systems leave zeros.
    for empty in [&b""[..], &[0], &[0; 5000]] {
        let opened = codec::read(empty).expect("a file of ours, cut");
        assert!(!opened.report.is_whole() && opened.report.damage.is_empty());
    }
}

#[test]
fn several_heads_in_one_file_are_all_found() {
    let scenario = scenario("user hi; fork b1; user one; on main; fork b2; user two");
    let mut encoder = Encoder::new();
    let lineage = rath_record::lineage::Lineage::new(
        ["b1", "b2"].map(|name| scenario.branch(name).head().expect("a step").clone()),
    );
    for step in lineage.walk() {
        encoder.push_step(step).expect("short rows");
    }
    let opened = codec::read(&encoder.finish()).expect("a file of ours");
    assert!(opened.report.is_whole());
    assert_eq!(opened.heads, lineage.heads());
    assert_eq!(opened.record.head(), scenario.branch("b2").head());
}

#[test]
fn a_missing_payload_stays_missing() {
    let mut record = Record::new();
    let away = Text::Missing(Box::new(Reference { digest: Digest::compute(b"gone"), bytes: 20_000 }));
    record.push(Chunk::User(User::new(away.clone())), stamp());
    let opened = codec::read(&encode(&record)).expect("a file of ours");
    assert_eq!(opened.record.steps()[0].chunk(), record.steps()[0].chunk());
    assert_eq!(opened.report.damage.len(), 1, "and the file reports it as missing");
    let mut chunk = opened.record.steps()[0].chunk().clone();
    chunk.fill_payloads(|_| Some(Payload::Text(Arc::from("found"))));
    assert_eq!(chunk, Chunk::user("found"));
}

#[test]
fn one_payload_serves_a_text_and_an_image() {
    let text = "<svg/>".repeat(4_000);
    let image = Image::new("image/svg+xml", text.as_bytes().to_vec());
    let mut record = Record::new();
    record.push(User::new("look").with_images(vec![image]).into(), stamp());
    record.push(Chunk::assistant(text.as_str()), stamp());
    let opened = codec::read(&encode(&record)).expect("a file of ours");
    assert!(opened.report.is_whole());
    assert_eq!(opened.record.steps()[1].chunk(), &Chunk::assistant(text));
}

#[test]
fn a_text_in_the_wrong_place_is_kept_and_not_read() {
    let long = format!(r#"{{"kind":"note","text":"{}"}}"#, "x".repeat(20_000));
    let short = format!(r#"{{"kind":"note","text":{{"digest":"{}","bytes":2}}}}"#, Digest::compute(b"hi"));
    for json in [long, short] {
        let record = push_json(&Record::new(), &json);
        let file = encode(&record);
        let opened = codec::read(&file).expect("a file of ours");
        assert!(opened.report.is_whole());
        assert_eq!(opened.report.unread.len(), 1);
        assert_eq!(encode(&opened.record), file);
    }
    for not_one_line in ["{\"kind\":\"x\",\n\"a\":1}", "{\"kind\":\"x\"} "] {
        assert!(Chunk::decode(not_one_line).is_err());
    }
    let tool: ToolSpec =
        serde_json::from_str("{\"name\":\"t\",\"description\":\"d\",\"parameters\":{\n}}").expect("a tool");
    assert_eq!(tool.parameters.as_str(), "{ }");
}

#[test]
fn how_a_file_is_cut_into_blocks_does_not_matter() {
    let file = encode(&record("user hi; assistant hello"));
    for (bytes, is_ours) in [(&file[..], true), (b"{\"id\":1}\n", false), (b"{\"seal", true), (b"{\"sea_", false)] {
        for size in 1..20 {
            let mut reader = codec::Reader::new();
            reader.feed(b"");
            bytes.chunks(size).for_each(|block| reader.feed(block));
            assert_eq!(reader.finish().is_ok(), is_ours, "{size}");
        }
    }
}

#[test]
fn the_payloads_of_unreadable_chunks_survive_too() {
    let long = "thought ".repeat(3_000);
    let mut told = Record::new();
    told.push(Chunk::note(long.as_str()), stamp());
    let json = told.steps()[0].json().into_owned();
    for newer in
        [json.replace("\"note\"", "\"thought\""), json.replace("note\",", "assistant\",\"finish\":\"paused\",")]
    {
        let mut file = lines_of(&encode(&told));
        let record = push_json(&Record::new(), &newer);
        let row = lines_of(&encode(&record))[1].clone();
        // The row stands after its payload, as an encoder that knows its kind would have written it.
        let seal = |line: &str| line[9..41].to_owned();
        file[2] = reseal(&row.replace("\"n\":1,", "\"n\":2,").replacen(&seal(&file[0]), &seal(&file[1]), 1));
        file[3] = reseal(&file[3].replacen(&file[3][51..83], &seal(&file[2]), 1));
        let file = file.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes();
        let opened = codec::read(&file).expect("a file of ours");
        assert!(opened.report.is_whole(), "{:?}", opened.report.damage);
        assert_eq!(opened.report.unread.len(), 1);
        assert!(encode(&opened.record) == file, "written anew byte for byte, the long text included");
    }
}

fn lines_of(file: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(file).lines().map(str::to_owned).collect()
}
