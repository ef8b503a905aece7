//! Reservations: branches that ask side by side do not exceed a limit together. `RATH_SCRIPTS` sets how many random trees are
//! tried, from the seed `RATH_SEED` on.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use expect_test::{Expect, expect};
use futures_util::future::{Either, join_all, select};
use rath::Usage;
use rath::prelude::*;
use rath::provider::{Anthropic, Money, OpenAi, Price, Prices, Retry};
use rath::record::draw;
use rath_test_support::{Chance, LIMIT, seeds};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::server::{AfterBody, ReceivedRequest, Reply, TestServer};
use crate::support::block_on;

/// Dollars for a million tokens, so that a token costs about as much as in a limit of tokens.
const PRICE: [f64; 2] = [1_000.0, 4_000.0];

/// The end of a call. A prompt names it, and the number of tokens that the model would write without a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ending {
    Answered,
    /// Every attempt is refused before an answer begins.
    Refused,
    /// The connection breaks in the middle of every attempt.
    BrokenOff,
    /// The program drops the call when its answer has begun.
    Dropped,
}

/// The call of a branch, and the forks that continue from its end side by side.
#[derive(Clone, Debug)]
struct BranchPlan {
    ending: Ending,
    wanted_output: u64,
    padding: usize,
    forks: Vec<BranchPlan>,
}

impl BranchPlan {
    /// Returns a tree of at most `calls` calls.
    fn random(chance: &mut Chance, calls: &mut u64) -> Self {
        *calls = calls.saturating_sub(1);
        let ending = match chance.below(10) {
            0 => Ending::Refused,
            1 => Ending::BrokenOff,
            2 => Ending::Dropped,
            _ => Ending::Answered,
        };
        let mut plan = BranchPlan {
            ending,
            wanted_output: chance.below(3_000),
            padding: chance.below(600) as usize,
            forks: Vec::new(),
        };
        for _ in 0..chance.below(17) {
            if *calls > 0 {
                plan.forks.push(BranchPlan::random(chance, calls));
            }
        }
        plan
    }

    fn prompt(&self) -> String {
        format!("{:?} {} {}", self.ending, self.wanted_output, "x".repeat(self.padding))
    }
}

/// The usage of the answers that a server gave.
#[derive(Clone, Default)]
struct Bill(Arc<Mutex<Vec<Usage>>>);

impl Bill {
    fn tokens(&self) -> u64 {
        self.0.lock().expect("no panic").iter().map(Usage::total).sum()
    }

    /// Returns the input of the largest call.
    fn largest_input(&self) -> u64 {
        self.0.lock().expect("no panic").iter().map(|usage| usage.input).max().unwrap_or_default()
    }

    /// Answers a request as its prompt says. Each byte of the request is an `input_share`th of a token, and an answer has at most
    /// as many tokens as the request allows.
    fn reply(&self, request: &ReceivedRequest, input_share: u64) -> Reply {
        let body: Value = serde_json::from_str(&request.body).expect("a request");
        let messages = body["messages"].as_array().expect("messages");
        let prompt = messages.last().expect("a message")["content"].as_str().expect("a text");
        let mut words = prompt.split(' ');
        let (ending, wanted) = (words.next().expect("an ending"), words.next().expect("a number"));
        let wanted: u64 = wanted.parse().expect("a number");
        let begin = "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"}}]}\n\n";
        match ending {
            "Refused" => return Reply::json(503, r#"{"error":{"message":"busy"}}"#),
            "BrokenOff" => return Reply::stream(begin).then(AfterBody::Break),
            "Dropped" => return Reply::stream(begin).then(AfterBody::Hang),
            _ => {}
        }
        let limit = ["max_tokens", "max_completion_tokens"].into_iter().find_map(|name| body[name].as_u64());
        let input = request.body.len() as u64 / input_share;
        let output = wanted.min(limit.unwrap_or(u64::MAX));
        self.0.lock().expect("no panic").push(Usage::new(input, output));
        let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
        let finish = if output < wanted { "length" } else { "stop" };
        let end = json!({"choices": [{"delta": {}, "finish_reason": finish}], "usage": usage});
        Reply::stream(format!("{begin}data: {end}\n\ndata: [DONE]\n\n"))
    }
}

/// Makes the calls of a plan.
fn work<'a>(
    provider: &'a Provider,
    mut session: Session,
    plan: &'a BranchPlan,
) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> {
    Box::pin(async move {
        session.push(Chunk::user(plan.prompt()));
        let has_begun = Notify::new();
        let ask = provider.ask(session.clone()).each(|_| has_begun.notify_one()).into_future();
        let asked = match plan.ending {
            Ending::Dropped => match select(ask, std::pin::pin!(has_begun.notified())).await {
                Either::Left((asked, _)) => asked,
                Either::Right(_) => Ok(session),
            },
            _ => ask.await,
        };
        let session = match asked {
            Ok(session) => session,
            Err(error) if error.kind() == ErrorKind::Budget => return,
            Err(error) => error.into_session().expect("a failed call leaves its session"),
        };
        check_requests(&session);
        join_all(plan.forks.iter().map(|fork| work(provider, session.fork(), fork))).await;
    })
}

/// Rebuilds the requests of a session from its record.
fn check_requests(session: &Session) {
    for step in session.as_record().steps() {
        if matches!(step.chunk(), Chunk::Assistant(_)) {
            session.request(step.id()).expect("the request as it was sent can be rebuilt");
        }
    }
}

/// Makes the calls of plans side by side in forks of a session with this budget. Returns what the server gave.
fn spend(budget: &Budget, max_tokens: Option<u64>, input_share: u64, plans: &[BranchPlan]) -> Bill {
    let bill = Bill::default();
    block_on(async {
        let server = {
            let bill = bill.clone();
            TestServer::start(move |_, request| bill.reply(request, input_share)).await
        };
        let mut model =
            OpenAi::new("m").base_url(&format!("{}/v1", server.url)).expect("a URL").key("sk-test-0123456789");
        if let Some(max) = max_tokens {
            model = model.max_tokens(max);
        }
        let provider = Provider::from(model)
            .prices(Prices::none().set("openai:m", Price::new(PRICE[0], PRICE[1])))
            .retry(Retry { attempts: 2, first: Duration::ZERO, ..Retry::default() });
        let root = Session::empty().within(budget.clone());
        let all = join_all(plans.iter().map(|plan| work(&provider, root.fork(), plan)));
        tokio::time::timeout(LIMIT, all).await.expect("no call waits without end");
    });
    bill
}

#[track_caller]
fn check_limits(budget: &Budget, bill: &Bill, case: &str) {
    let (tokens, largest) = (bill.tokens(), bill.largest_input());
    let limits = budget.limits();
    if let Some(limit) = limits.tokens {
        assert!(tokens <= limit + largest, "{case}: {tokens} of {limit} tokens, the largest input has {largest}");
    }
    if let Some(limit) = limits.money {
        let price = Price::new(PRICE[0], PRICE[1]);
        let paid: Money = bill.0.lock().expect("no panic").iter().map(|usage| price.cost(*usage)).sum();
        assert!(paid <= limit + price.cost(Usage::new(largest, 0)), "{case}: {paid} of {limit}");
    }
}

#[test]
fn sixteen_forks_that_ask_at_once_stay_within_any_limit() {
    let plan = BranchPlan { ending: Ending::Answered, wanted_output: 5_000, padding: 100, forks: Vec::new() };
    for limit in [0, 20, 100, 480, 3_000, 20_000, 200_000] {
        for max_tokens in [None, Some(10), Some(700)] {
            let money = Money::dollars(limit as f64 * PRICE[0] / 1e6);
            for budget in [Budget::new().tokens(limit), Budget::new().money(money)] {
                let bill = spend(&budget, max_tokens, 1, &vec![plan.clone(); 16]);
                check_limits(&budget, &bill, &format!("limit {limit}, max_tokens {max_tokens:?}"));
            }
        }
    }
}

#[test]
fn random_trees_of_forks_stay_within_random_limits() {
    for seed in seeds(40) {
        let mut chance = Chance(seed);
        let limit = 10_u64.pow(2 + chance.below(4) as u32) * (1 + chance.below(9));
        let budget = match chance.below(3) {
            0 => Budget::new().tokens(limit),
            1 => Budget::new().money(Money::dollars(limit as f64 * PRICE[0] / 1e6)),
            _ => Budget::new().tokens(limit).money(Money::dollars(limit as f64 * PRICE[1] / 1e6)),
        };
        let max_tokens = [None, Some(1 + chance.below(50)), Some(1 + chance.below(4_000))][chance.below(3) as usize];
        let input_share = 1 + chance.below(8);
        let mut calls = 40;
        let plans: Vec<_> = (0..16).map(|_| BranchPlan::random(&mut chance, &mut calls)).collect();
        let bill = spend(&budget, max_tokens, input_share, &plans);
        check_limits(&budget, &bill, &format!("seed {seed}"));
    }
}

/// Asks once within a budget, and describes the record and what the budget counts.
fn settle(replies: Vec<Reply>, stops: Stop, expected: Expect) {
    let budget = Budget::new().tokens(1_000);
    let told = block_on(async {
        let server = TestServer::start(move |nth, _| replies[nth.min(replies.len() - 1)].clone()).await;
        let model = OpenAi::new("m").base_url(&format!("{}/v1", server.url)).expect("a URL").key("sk-test-0123456789");
        let provider = Provider::from(model).retry(Retry { attempts: 2, first: Duration::ZERO, ..Retry::default() });
        let (cancel, has_begun) = (Cancel::new(), Notify::new());
        let session = Session::user("What is the weather?").within(budget.clone()).until(&cancel);
        let ask = provider.ask(session).each(|_| match stops {
            Stop::Never => {}
            Stop::Cancel => cancel.cancel(),
            Stop::Drop => has_begun.notify_one(),
        });
        match select(ask.into_future(), std::pin::pin!(has_begun.notified())).await {
            Either::Left((Ok(session), _)) => Some(session),
            Either::Left((Err(error), _)) => error.into_session(),
            Either::Right(_) => None,
        }
    });
    let mut text = format!("counted: {} tokens, {} turns\n", budget.spent_tokens(), budget.spent_turns());
    if let Some(session) = told {
        let steps = session.as_record().steps();
        let steps = steps.iter().filter(|step| !matches!(step.chunk(), Chunk::User(_)));
        text.extend(steps.map(|step| format!("{}\n", draw::headline(step))));
        assert_eq!(session.usage().total(), budget.spent_tokens(), "the record and the budget count the same");
        let again = Budget::new();
        drop(Session::resume_own(session.as_record().clone()).within(again.clone()));
        assert_eq!((again.spent_tokens(), again.spent_turns()), (budget.spent_tokens(), budget.spent_turns()));
    }
    expected.assert_eq(&text);
}

/// The way in which a program stops a call whose answer has begun.
#[derive(Clone, Copy)]
enum Stop {
    Never,
    Cancel,
    Drop,
}

#[test]
fn every_attempt_counts_what_arrived_of_its_answer() {
    let begin = "data: {\"choices\":[{\"delta\":{\"content\":\"It is sunny in Paris.\"}}]}\n\n";
    let reported = concat!(
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":100,",
        "\"completion_tokens\":7}}\n\ndata: [DONE]\n\n"
    );
    let whole = Reply::stream(format!("{begin}{reported}"));
    let refused = Reply::json(400, r#"{"error":{"message":"no such option"}}"#);
    let busy = Reply::json(503, r#"{"error":{"message":"busy"}}"#);
    let broken = Reply::stream(begin).then(AfterBody::Break);
    let hanging = Reply::stream(begin).then(AfterBody::Hang);
    settle(
        vec![whole.clone()],
        Stop::Never,
        expect![[r#"
        counted: 107 tokens, 1 turns
        assistant: It is sunny in Paris.  (100 in, 7 out)
    "#]],
    );
    settle(
        vec![refused],
        Stop::Never,
        expect![[r#"
        counted: 0 tokens, 0 turns
        failed: refused: no such option (400)
    "#]],
    );
    settle(
        vec![busy, whole.clone()],
        Stop::Never,
        expect![[r#"
        counted: 107 tokens, 1 turns
        retry: attempt 1 of 2 failed: busy (503)
        assistant: It is sunny in Paris.  (100 in, 7 out)
    "#]],
    );
    settle(
        vec![broken.clone(), whole],
        Stop::Never,
        expect![[r#"
        counted: 150 tokens, 1 turns
        retry: attempt 1 of 2 failed: the answer was cut off: end of file before message length r…  (37 in, 6 out)
        assistant: It is sunny in Paris.  (100 in, 7 out)
    "#]],
    );
    settle(
        vec![broken],
        Stop::Never,
        expect![[r#"
        counted: 86 tokens, 0 turns
        retry: attempt 1 of 2 failed: the answer was cut off: end of file before message length r…  (37 in, 6 out)
        failed: connection: the answer was cut off: end of file before message length r…  (37 in, 6 out)
    "#]],
    );
    settle(
        vec![hanging.clone()],
        Stop::Cancel,
        expect![[r#"
        counted: 43 tokens, 0 turns
        interrupted: the run was cancelled  (37 in, 6 out)
    "#]],
    );
    settle(
        vec![hanging],
        Stop::Drop,
        expect![[r#"
        counted: 43 tokens, 0 turns
    "#]],
    );
}

#[test]
fn a_request_whose_limit_a_budget_lowered_is_rebuilt_and_replayed() {
    let bill = Bill::default();
    let (session, replayed) = block_on(async {
        let server = {
            let bill = bill.clone();
            TestServer::start(move |_, request| bill.reply(request, 4)).await
        };
        let model = OpenAi::new("m").base_url(&format!("{}/v1", server.url)).expect("a URL").key("sk-test-0123456789");
        let agent = Agent::new("Be brief.", &Provider::from(model));
        let session = Session::user("Answered 50 x").within(Budget::new().tokens(400));
        let mut session = agent.run(session).await.expect("an answer");
        session.push(Chunk::user("Answered 60 y"));
        let session = agent.run(session).await.expect("another answer");
        let replayed = session.replay(&agent).await.expect("a replay");
        (session, replayed)
    });
    check_requests(&session);
    assert!(replayed.is_exact(), "{replayed}");
    let limits = session.as_record().steps().into_iter().filter_map(|step| match step.chunk() {
        Chunk::Assistant(_) => {
            let request = session.request(step.id()).expect("it can be rebuilt");
            serde_json::from_slice::<Value>(request.body()).expect("JSON")["max_tokens"].as_u64()
        }
        _ => None,
    });
    let limits: Vec<_> = limits.collect();
    assert!(limits.len() == 2 && limits[1] < limits[0] && limits[0] < 400, "{limits:?}");
    // The limit belongs to the budget: the settings are those that the provider has.
    let settings = Provider::recorded(&session).expect("a model answered");
    let request = settings.request(&session).expect("a request");
    assert!(!String::from_utf8_lossy(request.body()).contains("max_tokens"));
}

#[test]
fn an_answer_may_be_as_long_as_the_model_writes() {
    let limit = |model: &str| {
        let provider = Provider::from(Anthropic::new(model).key("sk-ant-test-0123456789"));
        let request = provider.request(&Session::user("hi")).expect("a request");
        serde_json::from_slice::<Value>(request.body()).expect("JSON")["max_tokens"].as_u64()
    };
    assert_eq!(limit("claude-sonnet-4-5"), Some(64_000));
    assert_eq!(limit("claude-opus-4-1-20250805"), Some(32_000));
    assert_eq!(limit("claude-3-5-haiku-latest"), Some(8_192));
    assert_eq!(limit("a-model-that-is-not-known"), Some(8_192));
}
