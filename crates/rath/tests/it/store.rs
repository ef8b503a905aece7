//! Sessions that outlive their process.

mod anew;
mod cancel;
mod close;
pub(crate) mod common;
mod damage;
mod faults;
mod ids;
mod jsonl_files;
mod jsonl_rows;
mod kill;
mod laws;
#[cfg(target_os = "linux")]
mod power_cut;
mod race;
mod size;
mod sqlite_file;

use expect_test::expect;
use rath::prelude::*;
use rath::store::Store;

use crate::support::{block_on, close, script};

/// Every kind of store, each in a place of its own.
fn stores(check: impl Fn(&dyn Fn() -> Store)) {
    for kind in ["sqlite", "jsonl"] {
        let folder = rath_test_support::temp_dir();
        let uri = format!("{kind}:{}", folder.path().join("store").display());
        check(&|| block_on(Store::open(&uri)).expect("a store"));
    }
    let memory = block_on(Store::open("memory:")).expect("a store");
    check(&|| memory.clone());
}

#[test]
fn a_recorded_session_is_there_when_its_process_is_gone() {
    stores(|open| {
        let id = {
            let store = open();
            let mut session = block_on(Session::user("hello").record(&store)).expect("recorded");
            session.push(Chunk::assistant("hi"));
            block_on(session.durable()).expect("durable");
            let id = session.id();
            close(session, store);
            id
        };
        let store = open();
        let list = block_on(store.list()).expect("a list");
        assert_eq!(list.iter().map(|listed| &*listed.title).collect::<Vec<_>>(), ["hello"]);
        let resumed = block_on(store.resume(id)).expect("resumed");
        assert_eq!(resumed.certificate().to_string(), "nothing has changed");
        let mut session = resumed.complete().expect("complete");
        session.push(Chunk::user("and now?"));
        block_on(session.durable()).expect("durable");
        close(session, store);
        let found = block_on(open().read(id)).expect("found");
        expect![[r#"
            hello
            hi
            and now?"#]]
        .assert_eq(&found.session.chunks().map(words).collect::<Vec<_>>().join("\n"));
        assert!(found.damage.is_empty());
    });
}

fn words(chunk: &Chunk) -> String {
    match chunk {
        Chunk::User(it) => it.text.to_string(),
        Chunk::Assistant(it) => it.text.to_string(),
        other => other.kind().to_owned(),
    }
}

#[test]
fn what_is_awaited_by_hand_is_durable_when_it_comes_back() {
    let folder = rath_test_support::temp_dir();
    let store = block_on(Store::open(&format!("sqlite:{}", folder.path().join("store").display()))).expect("a store");
    let provider = script([r#"{"text": "1"}"#, r#"{"text": "yes"}"#]);
    let agent = Agent::new("Help.", &provider).memory(&Memory::in_process("notes"));
    let kept = async |session: &Session, what: &str| {
        let found = store.read(session.id()).await.expect("it is there").session;
        assert_eq!(found.head(), session.head(), "{what}");
    };
    block_on(async {
        let mut session = Session::user("hello").record(&store).await?;
        agent.remember(&mut session, "a fact").await?;
        kept(&session, "remember").await;
        agent.commit(&mut session).await?;
        kept(&session, "commit").await;
        agent.forget(&mut session, &["nothing".parse().expect("an id")]).await?;
        kept(&session, "forget").await;
        Selector::new(&provider).pick(&mut session, &[&agent]).await?;
        kept(&session, "pick").await;
        let session = provider.ask(session).await?;
        kept(&session, "ask").await;
        Ok::<_, Error>(())
    })
    .expect("nothing fails");
}
