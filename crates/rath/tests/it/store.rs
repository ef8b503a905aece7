//! Sessions that outlive their process.

mod anew;
mod cancel;
pub(crate) mod common;
mod damage;
mod faults;
mod kill;
mod laws;
mod race;
mod size;

use expect_test::expect;
use rath::prelude::*;
use rath::store::Store;

use crate::support::{block_on, script};

/// Every kind of store, each in a place of its own.
fn stores(check: impl Fn(&dyn Fn() -> Store)) {
    for kind in ["sqlite", "jsonl"] {
        let folder = rath_test_support::temp_dir();
        let uri = format!("{kind}:{}", folder.path().join("store").display());
        check(&|| Store::open(&uri).expect("a store"));
    }
    let memory = Store::open("memory:").expect("a store");
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
            session.id()
        };
        let store = open();
        let list = store.list().expect("a list");
        assert_eq!(list.iter().map(|listed| &*listed.title).collect::<Vec<_>>(), ["hello"]);
        let resumed = block_on(store.resume(id)).expect("resumed");
        assert_eq!(resumed.certificate().to_string(), "nothing has changed");
        let mut session = resumed.complete().expect("complete");
        session.push(Chunk::user("and now?"));
        block_on(session.durable()).expect("durable");
        drop(session);
        drop(store);
        let found = open().read(id).expect("found");
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
    let store = Store::open(&format!("sqlite:{}", folder.path().join("store").display())).expect("a store");
    let provider = script([r#"{"text": "1"}"#, r#"{"text": "yes"}"#]);
    let agent = Agent::new("Help.", &provider).memory(&Memory::in_process("notes"));
    let kept = |session: &Session, what: &str| {
        let found = store.read(session.id()).expect("it is there").session;
        assert_eq!(found.head(), session.head(), "{what}");
    };
    block_on(async {
        let mut session = Session::user("hello").record(&store).await?;
        agent.remember(&mut session, "a fact").await?;
        kept(&session, "remember");
        agent.commit(&mut session).await?;
        kept(&session, "commit");
        agent.forget(&mut session, &["nothing".to_owned()]).await?;
        kept(&session, "forget");
        Selector::new(&provider).pick(&mut session, &[&agent]).await?;
        kept(&session, "pick");
        let session = provider.ask(session).await?;
        kept(&session, "ask");
        Ok::<_, Error>(())
    })
    .expect("nothing fails");
}
