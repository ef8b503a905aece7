//! Choosing what to do next.

use std::fmt;
use std::sync::Arc;

use rath_record::Text;
use rath_record::chunk::{Assistant, Choice, Chunk, Failed, Instructions, Route, Selected};

use super::Run;
use super::compressor::ask_aside;
use super::module::{Acting, Binding, Module, module_name, tree};
use crate::error::ErrorKind;
use crate::provider::Provider;
use crate::session::{Error, Result, Session};

/// Asks a model which of several workflows is to go on with a session.
///
/// ```
/// use rath::prelude::*;
///
/// # async fn example(selector: Selector, billing: Agent, tech: Agent, mut session: Session) -> Result<Session> {
/// while let Some(next) = selector.pick(&mut session, &[&billing, &tech]).await? {
///     session = next.run(session).await?;
/// }
/// # Ok(session)
/// # }
/// ```
///
/// The model reads the conversation, and the name and description of each route. What it was asked is kept aside; what
/// came of it, with the menu and the reply, is a step.
#[derive(Clone)]
pub struct Selector {
    provider: Provider,
    name: Option<String>,
    prompt: Text,
    most: u64,
    forced: Vec<Forced>,
}

/// A route that is picked without asking.
#[derive(Clone)]
struct Forced {
    /// By the selector at this path; by any, if none.
    by: Option<Arc<str>>,
    route: String,
}

const PROMPT: &str = "\
You direct a conversation: you say who goes on with it. Answer with the number of one of the routes below and nothing else. \
Answer 0 when what the user asked for is done.";

/// What the model is asked in the end: the conversation above is not a task for it.
const PICK: &str = "Which route is next? Answer with its number, or 0 when everything is done.";

/// How often one selector is asked in a row, unless told otherwise.
const PICKS: u64 = 32;

/// The route that ends a conversation, where routes are named.
const DONE: &str = "done";

impl Selector {
    /// One that asks this model.
    pub fn new(provider: &Provider) -> Self {
        Selector { provider: provider.clone(), name: None, prompt: PROMPT.into(), most: PICKS, forced: Vec::new() }
    }

    /// Gives it a name, for where it is not a field of a module. Two selectors of one name count their picks together.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets what the model is told above the list of routes.
    pub fn prompt(mut self, prompt: impl Into<Text>) -> Self {
        self.prompt = prompt.into();
        self
    }

    /// Limits how many routes are picked until one pick says done or the user speaks; 32 unless told.
    pub fn most(mut self, picks: u64) -> Self {
        self.most = picks;
        self
    }

    /// Picks these routes, by name, instead of asking: the first pick in a session takes the first, and so on; `done` ends
    /// the conversation. When they are used up, the model is asked again.
    pub fn force<N: Into<String>>(mut self, routes: impl IntoIterator<Item = N>) -> Self {
        self.forced = routes.into_iter().map(|route| Forced { by: None, route: route.into() }).collect();
        self
    }

    /// Picks what the selector at the same path picked in a recorded session, in the same order.
    pub fn follow(mut self, session: &Session) -> Self {
        let steps = session.as_record().steps();
        let picks = steps.iter().filter_map(|step| match step.chunk() {
            Chunk::Selected(selected) => Some((step.stamp().by.clone(), &selected.choice)),
            _ => None,
        });
        let forced = picks.filter_map(|(by, choice)| match choice {
            Choice::Chosen { route } => Some(Forced { by, route: route.clone() }),
            Choice::Done => Some(Forced { by, route: DONE.to_owned() }),
            Choice::OutOfRange | Choice::Unparseable | Choice::Empty => None,
        });
        self.forced = forced.collect();
        self
    }

    /// The route that is to be picked without asking, if there is one.
    fn forced(&self, session: &Session, picks: u64) -> Option<&str> {
        let ours = self.forced.iter().filter(|forced| forced.by.is_none() || forced.by.as_deref() == session.module());
        ours.map(|forced| forced.route.as_str()).nth(usize::try_from(picks).ok()?)
    }

    /// Picks the route that is to go on with the session; none when everything is done.
    ///
    /// A reply that names no route is recorded as it is, and is an error: nobody guesses what was meant.
    pub async fn pick<'a>(&self, session: &mut Session, routes: &[&'a dyn Run]) -> Result<Option<&'a dyn Run>> {
        let menu = menu(session, routes);
        let mut session = Acting::new(session, self);
        let picked = self.pick_from(&mut session, menu).await;
        session.done(picked).await.map(|picked| picked.map(|at| routes[at]))
    }

    /// Picks a place on the menu.
    async fn pick_from(&self, session: &mut Session, menu: Vec<Route>) -> Result<Option<usize>> {
        let picks = Picks::of(session);
        if picks.since_done >= self.most {
            return Err(self.too_many(session));
        }
        let (reply, choice, request) = match self.forced(session, picks.all) {
            Some(name) => (Text::default(), named(name, &menu), None),
            None => self.ask(session, &menu).await?,
        };
        let what = outcome(&choice, reply.as_str().unwrap_or_default(), &menu);
        let picked = match &choice {
            Choice::Chosen { route } => menu.iter().position(|known| known.name == *route),
            _ => None,
        };
        session.push(Selected { menu, reply, choice, request });
        match what {
            None => Ok(picked),
            Some(wrong) => Err(Error::new(ErrorKind::Route, wrong)
                .with_hint("pick again, or say in the selector's prompt what the answer has to be")
                .with_session(session)),
        }
    }

    async fn ask(&self, session: &mut Session, menu: &[Route]) -> Result<(Text, Choice, Option<rath_record::Digest>)> {
        let mut text = self.prompt.to_string();
        for (nth, route) in menu.iter().enumerate() {
            text.push_str(&format!("\n\n{}. {}", nth + 1, route.name));
            if !route.description.is_empty() {
                text.push_str(&format!(": {}", route.description));
            }
        }
        let mut aside = session.fork_named("selector");
        let provider = Some(self.provider.identity().clone());
        aside.push(Instructions { text: text.into(), tools: Vec::new(), provider });
        aside.push(Chunk::user(PICK));
        let aside = ask_aside(&self.provider, session, aside).await?;
        let answer = aside.head().map(|step| step.chunk());
        let Some(Chunk::Assistant(Assistant { text, request, .. })) = answer else {
            return Ok((Text::default(), Choice::Empty, None));
        };
        Ok((text.clone(), read(text.as_str().unwrap_or_default(), menu), *request))
    }

    fn too_many(&self, session: &mut Session) -> Error {
        let message = format!("{} routes were picked in a row, and none of the picks said done", self.most);
        session.push(Failed { error: ErrorKind::Limit.name().to_owned(), message: message.as_str().into() });
        Error::new(ErrorKind::Limit, message).with_hint("allow more with `Selector::most`").with_session(session)
    }
}

impl Module for Selector {
    fn kind(&self) -> &str {
        "Selector"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn detail(&self) -> String {
        self.provider.identity().to_string()
    }

    fn bind(&mut self, binding: &Binding) {
        if let Binding::Provider(provider) = binding {
            self.provider = provider.clone();
        }
    }
}

impl fmt::Debug for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The tree.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&tree(self))
    }
}

/// What is on offer. Two of one name are told apart by a number.
fn menu(session: &Session, routes: &[&dyn Run]) -> Vec<Route> {
    let mut menu: Vec<Route> = Vec::with_capacity(routes.len());
    for route in routes {
        let name = module_name(session, *route);
        let mut unique = name.clone();
        for nth in 2.. {
            if unique != DONE && menu.iter().all(|known| known.name != unique) {
                break;
            }
            unique = format!("{name}_{nth}");
        }
        menu.push(Route { name: unique, description: route.description().to_owned() });
    }
    menu
}

/// What a reply means.
fn read(reply: &str, menu: &[Route]) -> Choice {
    let reply = reply.trim().trim_end_matches('.').trim_matches(['`', '"', '\'']);
    if reply.is_empty() {
        return Choice::Empty;
    }
    let digits =
        !reply.trim_start_matches('-').is_empty() && reply.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit());
    if digits {
        return match reply.parse::<usize>() {
            Ok(0) => Choice::Done,
            Ok(nth) if nth <= menu.len() => Choice::Chosen { route: menu[nth - 1].name.clone() },
            _ => Choice::OutOfRange,
        };
    }
    if reply.eq_ignore_ascii_case(DONE) {
        return Choice::Done;
    }
    match menu.iter().find(|route| route.name.eq_ignore_ascii_case(reply)) {
        Some(route) => Choice::Chosen { route: route.name.clone() },
        None => Choice::Unparseable,
    }
}

/// A route by its name.
fn named(name: &str, menu: &[Route]) -> Choice {
    match menu.iter().find(|route| route.name == name) {
        Some(route) => Choice::Chosen { route: route.name.clone() },
        None if name == DONE => Choice::Done,
        None => Choice::OutOfRange,
    }
}

/// What is wrong with a choice, if anything.
fn outcome(choice: &Choice, reply: &str, menu: &[Route]) -> Option<String> {
    let wanted = match menu.len() {
        0 => "0, since there is no route".to_owned(),
        most => format!("a number from 0 to {most}"),
    };
    let found = rath_record::draw::preview(reply);
    match choice {
        Choice::Chosen { .. } | Choice::Done => None,
        Choice::OutOfRange if reply.is_empty() => Some("the forced route is not on the menu".to_owned()),
        Choice::OutOfRange => Some(format!("the reply is out of range: wanted {wanted}, found `{found}`")),
        Choice::Unparseable => Some(format!("the reply cannot be read: wanted {wanted}, found `{found}`")),
        Choice::Empty => Some(format!("the reply is empty: wanted {wanted}")),
    }
}

/// What was picked in a session before.
#[derive(Default)]
struct Picks {
    all: u64,
    since_done: u64,
}

impl Picks {
    fn of(session: &Session) -> Self {
        let mut picks = Picks::default();
        let mut done = false;
        for step in session.as_record().newest_first() {
            let selected = match step.chunk() {
                Chunk::Selected(selected) => selected,
                Chunk::User(_) => {
                    done = true;
                    continue;
                }
                _ => continue,
            };
            // Picks of another selector, in another module, are its own business.
            if step.stamp().by.as_deref() != session.module() {
                continue;
            }
            done |= selected.choice == Choice::Done;
            picks.all += 1;
            picks.since_done += u64::from(!done);
        }
        picks
    }
}
