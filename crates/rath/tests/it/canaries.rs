//! Secrets on every channel of a session: none of ten thousand is stored, shown or told.
//!
//! `channels.rs` is the table of channels, `FORMS` in `plant.rs` that of forms. Each round is a session with other canaries.
//! The control is the same session that is not told of them: every channel has to show its canaries there.

mod channels;
mod plant;
mod search;
mod steps;
mod talk;
mod work;

use std::collections::BTreeSet;
use std::path::Path;

use rath::interchange::{atif, openrath};
use rath::prelude::*;
use rath::secrets::AddOutcome;

use channels::Medium;
use plant::{CANARIES_PER_CHANNEL, FORMS, Random, Round, Species};
use search::{CanarySearch, all_files};

use crate::secrets::streamed;
use crate::support::block_on;

/// The number of canaries that are planted in all rounds together, at least.
const MIN_CANARIES: usize = 10_000;

/// Everything that a session left behind.
#[derive(Default)]
struct Evidence(Vec<(Medium, String, Vec<u8>)>);

impl Evidence {
    fn add(&mut self, medium: Medium, whose: &str, bytes: impl Into<Vec<u8>>) {
        self.0.push((medium, whose.to_owned(), bytes.into()));
    }

    /// Adds all files below a directory, without those that are left out.
    fn add_files(&mut self, medium: Medium, root: &Path, is_left_out: &dyn Fn(&Path) -> bool) {
        self.0.extend(all_files(root, is_left_out).into_iter().map(|(path, bytes)| (medium, path, bytes)));
    }
}

#[test]
fn no_canary_of_ten_thousand_is_left_on_any_channel() {
    let mut random = Random::new();
    let mut planted = 0;
    for nth in 0.. {
        let species = if nth % 4 == 3 { Species::Keys } else { Species::Known };
        let round = Round::new(nth, species, &mut random);
        let search = CanarySearch::new(&round.canaries);
        let evidence = block_on(all_evidence(&round, round.secrets(), &mut random)).0;
        // What only looks like a key stays in the user's files.
        let searched = evidence.iter().filter(|(medium, ..)| species == Species::Known || *medium != Medium::Objects);
        let leaks: Vec<_> = searched.flat_map(|(_, whose, bytes)| search.leaks(whose, bytes)).collect();
        assert!(leaks.is_empty(), "round {nth} leaks {}: {leaks:#?}", leaks.len());
        planted += round.canaries.len();
        if planted >= MIN_CANARIES {
            break;
        }
    }
}

#[test]
fn every_channel_shows_canaries_that_a_session_is_not_told_of() {
    let mut random = Random::new();
    // After these rounds, every form was in every channel that can hold it.
    for nth in 0..FORMS.len().div_ceil(CANARIES_PER_CHANNEL) {
        let round = Round::new(nth, Species::Known, &mut random);
        let search = CanarySearch::new(&round.canaries);
        let evidence = block_on(all_evidence(&round, Secrets::default(), &mut random));
        round.check_used();
        let found: Vec<(Medium, BTreeSet<usize>)> =
            evidence.0.iter().map(|(medium, _, bytes)| (*medium, search.find(bytes))).collect();
        let is_shown = |nth: usize, expected: Medium| {
            found.iter().any(|(medium, found)| *medium == expected && found.contains(&nth))
        };
        let canaries = round.canaries.iter().enumerate();
        let missing = canaries.filter(|(nth, canary)| !is_shown(*nth, canary.channel.medium));
        let missing: Vec<_> = missing.map(|(nth, _)| search.describe(nth)).collect();
        assert!(missing.is_empty(), "{} are not found: {missing:#?}", missing.len());
    }
}

#[test]
fn every_form_is_hidden_in_a_text_and_in_its_pieces() {
    let round = Round::new(0, Species::Known, &mut Random::new());
    let search = CanarySearch::new(&round.canaries);
    for (form, encode) in FORMS {
        // One value of each kind: plain, with quotes and other letters, with line breaks.
        for canary in &round.canaries[..3] {
            let mut secrets = Secrets::default();
            assert_eq!(secrets.add("CANARY", canary.value.as_str()), AddOutcome::Added);
            let text = format!("see {} here", encode(&canary.value));
            let whole = secrets.hide(&text).unwrap_or_else(|| panic!("{form} is left: {text}"));
            assert!(search.find(whole.as_bytes()).is_empty(), "{form} is left: {whole}");
            assert!(whole.starts_with("see ") && whole.ends_with(" here"), "{form}: {whole}");
            let ends: Vec<_> = (1..text.len()).filter(|end| text.is_char_boundary(*end)).collect();
            let check = |shown: String, cut: &str| {
                assert!(search.find(shown.as_bytes()).is_empty(), "{form} is left, {cut}: {shown}");
                // A digit of Base64 before the value, which has two or four bits of it, and padding may arrive apart from it.
                assert!(form.starts_with("Base64") || shown == whole, "{form}, {cut}: {shown}");
            };
            check(streamed(&secrets, &text, ends.iter().copied()), "letter by letter");
            ends.iter().for_each(|end| check(streamed(&secrets, &text, [*end]), &format!("cut at {end}")));
        }
    }
}

/// Runs the session of a round, and collects everything that it leaves behind.
async fn all_evidence(round: &Round, secrets: Secrets, random: &mut Random) -> Evidence {
    let mut evidence = Evidence::default();
    let pushed = steps::record_every_kind(round, secrets.clone());
    let kinds: BTreeSet<&str> = pushed.as_record().steps().iter().map(|step| step.chunk().kind()).collect();
    let unused: Vec<_> = Chunk::KINDS.iter().filter(|kind| !kinds.contains(**kind)).collect();
    assert!(unused.is_empty(), "no channel has these kinds of chunk: {unused:?}");
    let talked = talk::converse(round, secrets.clone(), random, &mut evidence).await;
    let folder = rath_test_support::temp_dir();
    let worked = work::work_in_files(round, secrets.clone(), folder.path(), &mut evidence).await;
    let mut exported = Session::empty().hiding(secrets);
    exported.push(Chunk::user(round.text("export")));
    exported.push(Chunk::assistant(round.text("export")));
    add_exports(&[&exported, &pushed, &talked, &worked], &mut evidence);
    add_stores(&[&pushed, &talked, &worked], &mut evidence).await;
    drop((pushed, talked, worked));
    // The directories of forks are copies of the user's files, in which the user's values stay.
    let is_copy = |path: &Path| path.starts_with("work") || path.starts_with("put-back");
    evidence.add_files(Medium::Objects, &folder.path().join(".rath"), &is_copy);
    evidence
}

/// Adds the sessions as rows, in both kinds of store and as files.
async fn add_stores(sessions: &[&Session], evidence: &mut Evidence) {
    for session in sessions {
        let mut rows = format!("{session}\n{session:?}\n{}\n", session.lineage()).into_bytes();
        for step in session.lineage().walk() {
            rows.extend(format!("{}\n{:?}\n{:?}\n", step.json(), step.stamp(), step.chunk()).bytes());
            step.chunk().payloads().iter().for_each(|(_, payload)| rows.extend(payload.bytes()));
        }
        evidence.add(Medium::Store, "the steps of a session", rows);
        evidence.add(Medium::Store, "a session file", session.to_bytes().expect("it is written"));
    }
    let folder = rath_test_support::temp_dir();
    for scheme in ["sqlite", "jsonl"] {
        let store = Store::open(&format!("{scheme}:{}/{scheme}", folder.path().display())).await.expect("a store");
        for session in sessions {
            drop((*session).clone().record(&store).await.expect("it is recorded"));
        }
        let mut listed = Vec::new();
        for summary in store.list().await.expect("a list") {
            listed.extend(format!("{summary:?}\n").bytes());
            for step in store.read(summary.branch).await.expect("a session").session.lineage().walk() {
                listed.extend(format!("{}\n{:?}\n", step.json(), step.stamp()).bytes());
            }
        }
        evidence.add(Medium::Store, "what a store returns", listed);
        evidence.add_files(Medium::Store, folder.path(), &|_| false);
        store.close().await.expect("it is closed");
        evidence.add_files(Medium::Store, folder.path(), &|_| false);
    }
}

/// Adds the sessions in the formats of other programs, and their notes.
fn add_exports(sessions: &[&Session], evidence: &mut Evidence) {
    for session in sessions {
        for export in [openrath::write(session), atif::write(session)] {
            evidence.add(Medium::Exports, "an export", export.bytes);
            evidence.add(Medium::Exports, "the notes of an export", format!("{:?}", export.notes));
        }
    }
}

/// Returns everything that an error prints.
fn describe_error(error: &Error) -> String {
    format!("{error}\n{error:?}\n{}\n{:?}\n", error.message(), error.hint())
}
