//! Workflows: their trees, their paths, and the sessions that they return.

use expect_test::expect;
use rath::Usage;
use rath::chunk::Call;
use rath::prelude::*;
use rath::turn::Next;

use crate::support::{block_on, log, now, script};

/// Writes.
#[derive(Clone, Module)]
struct Desk {
    writer: Agent,
    editor: Agent,
}

impl Workflow for Desk {
    async fn forward(&self, session: Session) -> Result<Session> {
        let session = self.writer.run(session).await?;
        self.editor.run(session).await
    }
}

/// Publishes what a desk wrote.
#[derive(Module)]
struct House {
    desk: Desk,
    readers: Vec<Agent>,
    printer: Option<Agent>,
    #[module(skip)]
    copies: usize,
}

impl Workflow for House {
    async fn forward(&self, session: Session) -> Result<Session> {
        let mut session = self.desk.run(session).await?;
        for reader in &self.readers {
            session = reader.run(session).await?;
        }
        if let Some(printer) = &self.printer {
            session = printer.run(session).await?;
        }
        session.push(Chunk::note(format!("{} copies", self.copies)));
        Ok(session)
    }
}

fn house(provider: &Provider) -> House {
    let agent = |prompt: &str| Agent::new(prompt, provider);
    House {
        desk: Desk { writer: agent("Write."), editor: agent("Edit.") },
        readers: vec![agent("Read."), agent("Read again.")],
        printer: Some(agent("Print.")),
        copies: 7,
    }
}

fn says(texts: &[&str]) -> Provider {
    let turns =
        texts.iter().map(|text| serde_json::json!({"text": text, "usage": {"input": 10, "output": 1}}).to_string());
    script(turns)
}

#[test]
fn every_step_says_which_module_appended_it_by_its_full_path() {
    let house = house(&says(&["a", "b", "c", "d", "e"]));
    let session = block_on(house.run(Session::user("go"))).expect("a run");
    expect![[r#"
        user: go
        instructions: Write.  [house.desk.writer]
        assistant: a  [house.desk.writer]  (10 in, 1 out)
        instructions: Edit.  [house.desk.editor]
        assistant: b  [house.desk.editor]  (10 in, 1 out)
        instructions: Read.  [house.readers.0]
        assistant: c  [house.readers.0]  (10 in, 1 out)
        instructions: Read again.  [house.readers.1]
        assistant: d  [house.readers.1]  (10 in, 1 out)
        instructions: Print.  [house.printer]
        assistant: e  [house.printer]  (10 in, 1 out)
        note: 7 copies  [house]
    "#]]
    .assert_eq(&log(&session));
    assert_eq!(session.module(), None);
    assert_eq!(session.usage(), Usage::new(50, 5));
}

#[test]
fn a_module_draws_its_tree_and_lists_its_children() {
    let provider = says(&["a"]);
    let house = house(&provider);
    expect![[r#"
        House(
          (desk): Desk(
            (writer): Agent(script:script)
            (editor): Agent(script:script)
          )
          (readers): Vec(
            (0): Agent(script:script)
            (1): Agent(script:script)
          )
          (printer): Agent(script:script)
        )"#]]
    .assert_eq(&house.tree());
    let names: Vec<_> = house.named_modules().map(|(path, module)| format!("{path}: {}", module.kind())).collect();
    expect![[r#"
        [
            ": House",
            "desk: Desk",
            "desk.writer: Agent",
            "desk.editor: Agent",
            "readers: Vec",
            "readers.0: Agent",
            "readers.1: Agent",
            "printer: Agent",
        ]
    "#]]
    .assert_debug_eq(&names);
    assert_eq!(house.description(), "Publishes what a desk wrote.");
}

/// A module without any data, so that all values of it share one address.
#[derive(Module)]
struct Note;

impl Workflow for Note {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        session.push(Chunk::note("noted"));
        Ok(session)
    }
}

#[test]
fn zero_sized_modules_are_never_recorded_under_the_name_of_another() {
    /// A wrapper, so that the two fields are of two types.
    #[derive(Module)]
    struct Other(Note);
    #[derive(Module)]
    struct Notes {
        only: Note,
        list: Vec<Other>,
    }
    impl Workflow for Notes {
        async fn forward(&self, mut session: Session) -> Result<Session> {
            session = self.only.run(session).await?;
            for other in &self.list {
                session = other.0.run(session).await?;
            }
            Ok(session)
        }
    }
    let authors = |count: usize| {
        let notes = Notes { only: Note, list: (0..count).map(|_| Other(Note)).collect() };
        let session = block_on(notes.run(Session::user("go"))).expect("a run");
        let authors = session.as_record().steps().into_iter().filter_map(|step| step.stamp().by.clone());
        authors.collect::<Vec<_>>().join(", ")
    };
    expect!["notes.only, notes.list.0.0"].assert_eq(&authors(1));
    // Of two values at one address the name of either would be a guess, so the name of the type is recorded.
    expect!["notes.only, notes.note, notes.note"].assert_eq(&authors(2));
}

#[test]
fn a_module_can_have_a_display_of_its_own() {
    #[derive(Module)]
    struct Named(Note);
    impl std::fmt::Display for Named {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a name")
        }
    }
    let named = Named(Note);
    assert_eq!((named.to_string().as_str(), named.tree().as_str()), ("a name", "Named(\n  (0): Note()\n)"));
}

#[test]
fn to_binds_a_whole_workflow_to_a_provider_or_a_place() {
    let house = house(&says(&["never asked"]));
    let other = Provider::from(Script::of([r#"{"text": "x"}"#; 5]).expect("a script").named("other"));
    let house = house.to(&other).to(Sandbox::local("/here"));
    let session = block_on(house.run(Session::user("go"))).expect("a run");
    assert_eq!(session.place().expect("placed").as_str(), "local:/here");
    let asked: Vec<_> = session
        .chunks()
        .filter_map(|chunk| match chunk {
            Chunk::Assistant(answer) => answer.provider.as_ref().map(ToString::to_string),
            _ => None,
        })
        .collect();
    assert_eq!(asked, ["script:other"; 5]);
    // Recorded once: for the second agent the session is in the right place already.
    assert_eq!(session.chunks().filter(|chunk| matches!(chunk, Chunk::Placed(_))).count(), 1);
}

#[test]
fn closures_and_sequences_are_workflows_too() {
    let provider = says(&["a", "b"]);
    let steps = Sequential::new()
        .then("draft", Agent::new("Draft.", &provider))
        .then("mark", |mut session: Session| async move {
            session.push(Chunk::note("between"));
            Ok(session)
        })
        .then("polish", Agent::new("Polish.", &provider));
    expect![[r#"
        Sequential(
          (draft): Agent(script:script)
          (mark): Closure()
          (polish): Agent(script:script)
        )"#]]
    .assert_eq(&steps.tree());
    let session = block_on(steps.run(Session::user("go"))).expect("a run");
    expect![[r#"
        user: go
        instructions: Draft.  [sequential.draft]
        assistant: a  [sequential.draft]  (10 in, 1 out)
        note: between  [sequential.mark]
        instructions: Polish.  [sequential.polish]
        assistant: b  [sequential.polish]  (10 in, 1 out)
    "#]]
    .assert_eq(&log(&session));
}

#[test]
fn two_agents_work_concurrently_and_are_merged() {
    let provider = script([r#"{"agent": "writer", "text": "w"}"#, r#"{"agent": "critic", "text": "c"}"#]);
    let writer = Agent::new("Write.", &provider).named("writer");
    let critic = Agent::new("Criticise.", &provider).named("critic");
    let session = Session::user("go");
    let merged = block_on(async {
        let (ours, theirs) = tokio::try_join!(writer.run(session.fork()), critic.run(session.fork()))?;
        ours.merge(&theirs).await
    });
    expect![[r#"
        user: go
        instructions: Write.  [writer]
        assistant: w  [writer]  (39 in, 1 out)
        instructions: Criticise.  [critic]
        assistant: c  [critic]  (40 in, 1 out)
    "#]]
    .assert_eq(&log(&merged.expect("a merge")));
}

#[test]
fn the_same_agent_run_again_has_nothing_to_add() {
    let agent = Agent::new("Be brief.", &says(&["a", "b"]));
    block_on(async {
        let once = agent.run(Session::user("go")).await.expect("a run");
        let twice = agent.run(once.clone()).await.expect("a run");
        assert_eq!(once.head(), twice.head());
        let mut more = twice;
        more.push(Chunk::user("and now?"));
        let more = agent.run(more).await.expect("a run");
        assert_eq!(more.text(), Some("b"));
        // The instructions are recorded once.
        assert_eq!(more.chunks().filter(|chunk| matches!(chunk, Chunk::Instructions(_))).count(), 1);
    });
}

#[test]
fn an_error_of_the_users_code_carries_the_session_too() {
    let flow = |session: Session| async move {
        drop(session);
        Err(Error::new(ErrorKind::Io, "the printer is on fire"))
    };
    let error = block_on(flow.run(Session::user("go"))).expect_err("it fails");
    assert_eq!(format!("{error:?}"), "the printer is on fire");
    assert_eq!(log(error.session().expect("the session as it went in")), "user: go\n");
}

#[test]
fn the_error_of_a_child_restores_the_path_of_the_parent() {
    let house = house(&script([r#"{"text": "a"}"#, r#"{"error": {"status": 400, "message": "no"}}"#]));
    let error = block_on(house.run(Session::user("go"))).expect_err("the script refuses");
    let session = error.into_session().expect("the session so far");
    assert_eq!(session.module(), None);
    expect![[r#"
        user: go
        instructions: Write.  [house.desk.writer]
        assistant: a  [house.desk.writer]  (39 in, 1 out)
        instructions: Edit.  [house.desk.editor]
        failed: refused: no (400)  [house.desk.editor]
    "#]]
    .assert_eq(&log(&session));
}

#[test]
fn a_branch_that_fails_does_not_lose_the_others() {
    let provider = script((0..8).map(|nth| {
        let agent = format!("agent{nth}");
        match nth {
            3 => serde_json::json!({"agent": agent, "error": {"status": 400, "message": "no"}}).to_string(),
            _ => serde_json::json!({"agent": agent, "text": format!("answer {nth}"), "usage": {"input": 10, "output": 1}})
                .to_string(),
        }
    }));
    let agents: Vec<_> = (0..8).map(|nth| Agent::new("Go.", &provider).named(format!("agent{nth}"))).collect();
    let branches = || agents.iter().enumerate().map(|(nth, agent)| Branch::new(format!("b{nth}"), agent));
    let session = Session::user("go");
    let joined = block_on(async { fork_join(&session, branches()).max_concurrent(3).await });
    assert!(joined.branches[3].1.is_err());
    let merged = now(joined.merge()).expect("seven branches");
    let answers: Vec<_> = merged.chunks().filter(|chunk| matches!(chunk, Chunk::Assistant(_))).collect();
    assert_eq!(answers.len(), 7);
    assert_eq!(merged.usage(), Usage::new(70, 7));
    // The work of branches that failed is on the record as well.
    assert!(merged.lineage().to_string().contains("failed: refused: no"));
}

#[test]
fn branches_have_places_of_their_own() {
    let agent = Agent::new("Go.", &says(&["a", "b"]));
    let session = Session::user("go").to(Sandbox::local("/here"));
    let there = Branch::new("there", &agent).to(Sandbox::local("/there"));
    let joined = block_on(async { fork_join(&session, [Branch::new("here", &agent), there]).await });
    let places: Vec<_> = joined
        .branches
        .iter()
        .map(|(_, branch)| branch.as_ref().expect("a branch").place().expect("a place").to_string())
        .collect();
    assert_eq!(places, ["local:/here", "local:/there"]);
}

#[test]
fn if_all_branches_fail_the_error_carries_the_work_of_all() {
    let agent = Agent::new("Go.", &script([r#"{"error": {"status": 400, "message": "no"}}"#; 2]));
    let session = Session::user("go");
    let branches = [Branch::new("one", &agent), Branch::new("two", &agent)];
    let error = now(block_on(async { fork_join(&session, branches).await }).merge()).expect_err("both fail");
    assert_eq!(format!("{error:?}"), "2 of 2 branches failed: `one`: no (400); `two`: no (400)");
    let session = error.into_session().expect("a session");
    assert_eq!(log(&session), "user: go\n");
    assert_eq!(session.lineage().to_string().matches("failed: refused: no").count(), 2);
}

#[test]
fn the_number_of_picks_in_a_row_is_limited() {
    let provider = script([r#"{"text": "1"}"#; 10]);
    let route = |session: Session| async move { Ok(session) };
    let picking = move |mut session: Session| {
        let selector = Selector::new(&provider).max_picks(3);
        async move {
            while let Some(next) = selector.pick(&mut session, &[&route]).await? {
                session = next.run(session).await?;
            }
            Ok(session)
        }
    };
    let error = block_on(picking.run(Session::user("go"))).expect_err("no pick says done");
    assert_eq!(error.kind(), ErrorKind::Limit);
    let session = error.into_session().expect("a session");
    assert_eq!(session.chunks().filter(|chunk| matches!(chunk, Chunk::Selected(_))).count(), 3);
}

/// Support for customers.
#[derive(Module)]
struct Support {
    selector: Selector,
    billing: Agent,
    tech: Agent,
}

impl Workflow for Support {
    async fn forward(&self, mut session: Session) -> Result<Session> {
        while let Some(next) = self.selector.pick(&mut session, &[&self.billing, &self.tech]).await? {
            session = next.run(session).await?;
        }
        Ok(session)
    }
}

fn support(provider: &Provider) -> Support {
    Support {
        selector: Selector::new(provider),
        billing: Agent::new("You do billing.", provider).describe("Knows about invoices."),
        tech: Agent::new("You do tech.", provider).describe("Knows about machines."),
    }
}

#[test]
fn a_selector_asks_the_model_records_the_choice_and_counts_the_cost() {
    let provider = script([
        r#"{"agent": "support.selector", "expect": {"contains": ["1. billing: Knows about invoices.", "2. tech"]}, "text": "2", "usage": {"input": 30, "output": 1}}"#,
        r#"{"agent": "support.tech", "text": "Turn it off and on.", "usage": {"input": 20, "output": 5}}"#,
        r#"{"agent": "support.selector", "text": "0", "usage": {"input": 40, "output": 1}}"#,
    ]);
    let support = support(&provider);
    let session = block_on(support.run(Session::user("It is broken."))).expect("a run");
    expect![[r#"
        user: It is broken.
        selected: tech (of 2)  [support.selector]
        instructions: You do tech.  [support.tech]
        assistant: Turn it off and on.  [support.tech]  (20 in, 5 out)
        selected: done (of 2)  [support.selector]
    "#]]
    .assert_eq(&log(&session));
    assert_eq!(session.usage(), Usage::new(90, 7));
    let by_module: Vec<_> =
        session.spending().by_module.iter().map(|(module, spent)| (module.clone(), spent.calls)).collect();
    assert_eq!(by_module, [(Some("support.selector".into()), 2), (Some("support.tech".into()), 1)]);
    // The request of the selector can be rebuilt, byte for byte.
    let answers: Vec<_> = session.lineage().walk().into_iter().cloned().collect();
    for step in answers.iter().filter(|step| matches!(step.chunk(), Chunk::Assistant(_))) {
        session.request(step.id()).expect("its request");
    }
    // Its picks can be followed without a model.
    let replay = Support {
        selector: Selector::new(&script([r#"{"text": "never asked"}"#])).follow(&session),
        ..self::support(&script([r#"{"text": "Turn it off and on."}"#]))
    };
    let again = block_on(replay.run(Session::user("It is broken."))).expect("a run");
    assert_eq!(again.text(), session.text());
}

#[test]
fn every_reply_of_a_selector_is_recorded_and_all_but_a_choice_are_errors() {
    let check = |reply: &str, expected: &str| {
        let provider = script([serde_json::json!({ "text": reply }).to_string()]);
        let support = support(&provider);
        let mut session = Session::user("It is broken.");
        let picked = block_on(support.selector.pick(&mut session, &[&support.billing, &support.tech]));
        let told = match &picked {
            Ok(Some(route)) => format!("goes on with `{}`", route.description()),
            Ok(None) => "is done".to_owned(),
            Err(error) => format!("{:?}: {}", error.kind(), error.message()),
        };
        let Some(Chunk::Selected(selected)) = session.chunks().last() else { panic!("nothing recorded") };
        assert_eq!(selected.reply.as_str(), Some(reply));
        assert_eq!(selected.menu.len(), 2);
        assert_eq!(format!("{:?}: {told}", selected.choice), expected, "{reply}");
    };
    check("1", r#"Chosen { route: "agent" }: goes on with `Knows about invoices.`"#);
    check(" 2.\n", r#"Chosen { route: "agent_2" }: goes on with `Knows about machines.`"#);
    check("Agent", r#"Chosen { route: "agent" }: goes on with `Knows about invoices.`"#);
    check("0", "Done: is done");
    check("done", "Done: is done");
    check("3", "OutOfRange: Route: the reply is out of range: wanted a number from 0 to 2, found `3`");
    check("-1", "OutOfRange: Route: the reply is out of range: wanted a number from 0 to 2, found `-1`");
    check(
        "billing, I think",
        "Unparseable: Route: the reply cannot be read: wanted a number from 0 to 2, found `billing, I think`",
    );
    check("", "Empty: Route: the reply is empty: wanted a number from 0 to 2");
}

#[test]
fn a_forced_route_that_is_not_offered_is_an_error() {
    let support = support(&script([r#"{"text": "never asked"}"#]));
    let selector = Selector::new(&script([r#"{"text": "never asked"}"#])).force(["sales"]);
    let mut session = Session::user("go");
    let picked = block_on(selector.pick(&mut session, &[&support.billing]));
    let error = picked.err().expect("an error");
    assert_eq!(error.message(), "the forced route is not among the routes");
}

#[test]
fn a_workflow_run_again_leaves_open_calls_to_the_agent_that_asked() {
    /// Send money.
    #[tool(approval)]
    async fn pay() -> &'static str {
        "paid"
    }
    let steps = Sequential::new().then("draft", Agent::new("Draft.", &says(&["a draft"]))).then(
        "clerk",
        Agent::new("Pay.", &script([r#"{"calls": [{"name": "pay"}]}"#, r#"{"text": "done"}"#])).tool(pay),
    );
    let error = block_on(steps.run(Session::user("go"))).expect_err("it needs approval");
    assert_eq!(error.kind(), ErrorKind::Approval);
    let mut session = error.into_session().expect("a session");
    session.approve("call_1_1").expect("it waits");
    let session = block_on(steps.run(session)).expect("a run");
    assert!(log(&session).contains("ok: paid  [sequential.clerk]"), "{}", log(&session));
}

#[test]
fn an_error_carries_the_session_with_the_work_before_it() {
    #[derive(Module)]
    struct Own {
        agent: Agent,
        helper: Agent,
        #[module(skip)]
        asks: bool,
    }
    impl Workflow for Own {
        async fn forward(&self, session: Session) -> Result<Session> {
            let session = self.agent.run(session).await?;
            let branches = [Branch::new("one", &self.agent), Branch::new("two", &self.agent)];
            let session = fork_join(&session, branches).await.merge().await?;
            if self.asks {
                self.helper.run(Session::user("a question beside it")).await?;
            }
            std::fs::read("/there/is/no/such/file")?;
            Ok(session)
        }
    }
    for asks in [false, true] {
        let helper = Agent::new("Help.", &script([r#"{"error": {"status": 400, "message": "no"}}"#]));
        let own = Own { agent: Agent::new("Go.", &says(&["a"; 3])), helper, asks };
        let error = block_on(own.run(Session::user("go"))).expect_err("it fails");
        let session = error.into_session().expect("a session");
        assert!(log(&session).starts_with("user: go\n"), "{}", log(&session));
        assert_eq!(session.usage(), Usage::new(10, 1), "{}", session.lineage());
        assert_eq!(session.module(), None);
        assert_eq!(session.lineage().to_string().contains("a question beside it"), asks);
    }
}

#[test]
fn a_branch_that_panics_or_ends_within_a_turn_does_not_lose_the_others() {
    let good = Agent::new("Go.", &says(&["a"; 9]));
    let panics = |mut session: Session| async move {
        session.push(Chunk::note("before the panic"));
        if session.chunk_count() > 1 {
            panic!("a branch's own problem");
        }
        Ok(session)
    };
    let open = |mut session: Session| async move {
        session.push(Chunk::calls([Call::new("c", "tool", "{}")]));
        Ok(session)
    };
    let branches = || [Branch::new("good", &good), Branch::new("panics", &panics), Branch::new("open", &open)];
    let joined = block_on(async { fork_join(&Session::user("go"), branches()).await });
    let session = now(joined.merge()).expect("one is good");
    assert_eq!(session.text(), Some("a"));
    let lineage = session.lineage().to_string();
    assert!(lineage.contains("before the panic") && lineage.contains("calls tool"), "{lineage}");
    // A session in the middle of a turn cannot be merged; the work of the branches is kept aside.
    let mut base = Session::user("go");
    base.push(Chunk::calls([Call::new("c", "tool", "{}")]));
    let note = |mut session: Session| async move {
        session.push(Chunk::note("done beside it"));
        Ok(session)
    };
    let joined = block_on(async { fork_join(&base, [Branch::new("one", &note), Branch::new("two", &note)]).await });
    let session = now(joined.merge()).expect_err("a call is open").into_session().expect("a session");
    assert_eq!(session.lineage().to_string().matches("done beside it").count(), 2);
}

#[test]
fn selectors_follow_their_own_picks_and_a_user_message_resets_the_limit() {
    #[derive(Module)]
    struct Two {
        first: Selector,
        second: Selector,
    }
    impl Workflow for Two {
        async fn forward(&self, mut session: Session) -> Result<Session> {
            let (x, y) = (|s: Session| async move { Ok(s) }, Agent::new("y", &script([r#"{"text": "y"}"#])).named("y"));
            self.first.pick(&mut session, &[&x, &y]).await?;
            self.second.pick(&mut session, &[&x, &y]).await?;
            self.first.pick(&mut session, &[&x, &y]).await?;
            Ok(session)
        }
    }
    let picks = |session: &Session| {
        let picks = session.chunks().filter_map(|chunk| match chunk {
            Chunk::Selected(selected) => Some(format!("{:?}", selected.choice)),
            _ => None,
        });
        picks.collect::<Vec<_>>()
    };
    let provider = script([r#"{"text": "1"}"#, r#"{"text": "2"}"#, r#"{"text": "0"}"#]);
    let two = Two { first: Selector::new(&provider), second: Selector::new(&provider) };
    let session = block_on(two.run(Session::user("go"))).expect("a run");
    let unused = script([r#"{"text": "never asked"}"#]);
    let again = Two { first: Selector::new(&unused).follow(&session), second: Selector::new(&unused).follow(&session) };
    let again = block_on(again.run(Session::user("go"))).expect("a run");
    assert_eq!(picks(&again), picks(&session));

    let route = |session: Session| async move { Ok(session) };
    let selector = Selector::new(&script([r#"{"text": "1"}"#; 9])).max_picks(2);
    let mut session = Session::empty();
    for _ in 0..4 {
        session.push(Chunk::user("again"));
        block_on(selector.pick(&mut session, &[&route])).expect("one pick for each question");
    }
}

#[test]
fn an_agent_that_is_picked_again_answers_again() {
    let provider = script(["1", "a", "1", "b", "0"].map(|text| serde_json::json!({ "text": text }).to_string()));
    let support = support(&provider);
    let session = block_on(support.run(Session::user("go"))).expect("a run");
    let said: Vec<_> = session
        .chunks()
        .filter_map(|chunk| match chunk {
            Chunk::Assistant(answer) => answer.text.as_str(),
            _ => None,
        })
        .collect();
    assert_eq!(said, ["a", "b"]);
    assert_eq!(session.next(), Next::Done);
}

#[test]
fn workflows_behind_pointers_are_workflows() {
    #[derive(Module)]
    struct Holder {
        boxed: Box<dyn Run>,
        shared: std::sync::Arc<Agent>,
        pair: [Agent; 2],
        named: std::collections::BTreeMap<String, Agent>,
    }
    impl Workflow for Holder {
        async fn forward(&self, session: Session) -> Result<Session> {
            let session = self.boxed.run(session).await?;
            let session = self.shared.run(session).await?;
            let session = self.pair[1].run(session).await?;
            self.named["last"].run(session).await
        }
    }
    let provider = says(&["a"; 4]);
    let agent = |prompt: &str| Agent::new(prompt, &provider);
    let holder = Holder {
        boxed: Box::new(Sequential::new().then("inner", agent("1"))),
        shared: agent("2").into(),
        pair: [agent("3"), agent("4")],
        named: [("last".to_owned(), agent("5"))].into(),
    };
    let session = block_on(holder.run(Session::user("go"))).expect("a run");
    let by: Vec<_> = session.spending().by_module.iter().filter_map(|(module, _)| module.clone()).collect();
    assert_eq!(
        by.iter().map(|by| &**by).collect::<Vec<_>>(),
        ["holder.boxed.inner", "holder.shared", "holder.pair.1", "holder.named.last"]
    );
}

#[test]
fn usage_is_the_sum_of_all_calls_over_stages_forks_and_merges() {
    /// Everything that asks a model.
    #[derive(Module)]
    struct All {
        selector: Selector,
        worker: Agent,
        compressor: Compressor,
    }
    impl Workflow for All {
        async fn forward(&self, mut session: Session) -> Result<Session> {
            while let Some(next) = self.selector.pick(&mut session, &[&self.worker]).await? {
                session = next.run(session).await?;
            }
            let fork = |name| {
                let mut fork = session.fork_named(name);
                fork.push(Chunk::user("and?"));
                fork
            };
            let (ours, theirs) = (self.worker.run(fork("ours")).await?, self.worker.run(fork("theirs")).await?);
            self.compressor.run(ours.merge(&theirs).await?).await
        }
    }
    let mut total = Usage::default();
    let mut turn = |agent: &str, nth: u64, text: &str| {
        let usage = Usage::new(1 << nth, 1 << (20 + nth));
        total += usage;
        let agent = format!("all.{agent}");
        let usage = serde_json::json!({"input": usage.input, "output": usage.output});
        serde_json::json!({"agent": agent, "text": text, "usage": usage}).to_string()
    };
    let turns = [
        turn("selector", 0, "1"),
        turn("worker", 1, "a"),
        turn("selector", 2, "0"),
        turn("worker", 3, "b"),
        turn("worker", 4, "c"),
        turn("compressor", 5, "summary"),
    ];
    let provider = script(turns);
    let all = All {
        selector: Selector::new(&provider),
        worker: Agent::new("Work.", &provider),
        compressor: Compressor::new(&provider).keep(1),
    };
    let session = Session::user("go").within(Budget::new());
    let session = block_on(all.run(session)).expect("a run");
    assert_eq!(session.usage(), total);
    assert_eq!(session.spending().total.usage, total);
    assert_eq!(session.spending().total.calls, 6);
    assert_eq!(session.budget().expect("a budget").spent_tokens(), total.total());
    assert_eq!(session.folds().len(), 1);
}
