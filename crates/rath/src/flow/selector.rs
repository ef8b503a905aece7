//! Letting a model choose the workflow that continues.

use std::fmt;
use std::sync::Arc;

use rath_record::Text;
use rath_record::chunk::{Assistant, Choice, Chunk, Failed, Instructions, Route, Selected};

use super::Run;
use super::compressor::ask_aside;
use super::module::{AuthorGuard, Binding, Module, module_name};
use crate::error::ErrorKind;
use crate::provider::Provider;
use crate::session::{Error, Result, Session};

/// Asks a model which of several workflows continues a session.
///
/// ```
/// use rath::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let billing = Agent::new("You know bills.", &Script::of([r#"{"text": "It is paid."}"#])?.into());
/// # let tech = Agent::new("You know machines.", &Script::of([r#"{"text": "It runs."}"#])?.into());
/// # let mut session = Session::user("Is my bill paid?");
/// # let selector = Selector::new(&Script::of([r#"{"text": "1"}"#, r#"{"text": "0"}"#])?.into());
/// while let Some(next) = selector.pick(&mut session, &[&billing, &tech]).await? {
///     session = next.run(session).await?;
/// }
/// assert_eq!(session.text(), Some("It is paid."));
/// # Ok(())
/// # }
/// ```
///
/// The model reads the conversation, and the name and description of each route. The question is kept aside; the choice is
/// a step that holds the menu and the reply.
#[derive(Clone)]
pub struct Selector {
    provider: Provider,
    name: Option<String>,
    prompt: Text,
    max_picks: u64,
    forced: Vec<ForcedRoute>,
}

/// A route that is picked without asking the model.
#[derive(Clone)]
struct ForcedRoute {
    /// The path of the selector that picks it; any selector if `None`.
    by: Option<Arc<str>>,
    route: String,
}

const DEFAULT_PROMPT: &str = "\
You direct a conversation: you say who goes on with it. Answer with the number of one of the routes below and nothing else. \
Answer 0 when what the user asked for is done.";

/// The last message to the model, so that it does not take the conversation above for its task.
const QUESTION: &str = "Which route is next? Answer with its number, or 0 when everything is done.";

/// The number of picks in a row by default.
const DEFAULT_MAX_PICKS: u64 = 32;

/// The name of the route that ends a conversation.
const DONE: &str = "done";

impl Selector {
    /// Creates a selector that asks this model.
    pub fn new(provider: &Provider) -> Self {
        Selector {
            provider: provider.clone(),
            name: None,
            prompt: DEFAULT_PROMPT.into(),
            max_picks: DEFAULT_MAX_PICKS,
            forced: Vec::new(),
        }
    }

    /// Sets the name of a selector that is not a field of a module. Selectors with one name count their picks together.
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the prompt, which stands above the list of routes.
    pub fn prompt(mut self, prompt: impl Into<Text>) -> Self {
        self.prompt = prompt.into();
        self
    }

    /// Limits the number of picks until the model says done or the user writes again; 32 by default.
    pub fn max_picks(mut self, picks: u64) -> Self {
        self.max_picks = picks;
        self
    }

    /// Picks these routes, by name, instead of asking the model.
    ///
    /// The first pick in a session takes the first, and so on; `done` ends the conversation. After the last one the model is
    /// asked again.
    pub fn force<N: Into<String>>(mut self, routes: impl IntoIterator<Item = N>) -> Self {
        self.forced = routes.into_iter().map(|route| ForcedRoute { by: None, route: route.into() }).collect();
        self
    }

    /// Picks the routes that the selector at the same path picked in a recorded session, in the same order.
    pub fn follow(mut self, session: &Session) -> Self {
        let steps = session.as_record().steps();
        let picks = steps.iter().filter_map(|step| match step.chunk() {
            Chunk::Selected(selected) => Some((step.stamp().by.clone(), &selected.choice)),
            _ => None,
        });
        let forced = picks.filter_map(|(by, choice)| match choice {
            Choice::Chosen { route } => Some(ForcedRoute { by, route: route.clone() }),
            Choice::Done => Some(ForcedRoute { by, route: DONE.to_owned() }),
            _ => None,
        });
        self.forced = forced.collect();
        self
    }

    /// Returns the route to pick without asking the model, if there is one.
    fn forced_route(&self, session: &Session, picks: u64) -> Option<&str> {
        let ours = self.forced.iter().filter(|forced| forced.by.is_none() || forced.by.as_deref() == session.module());
        ours.map(|forced| forced.route.as_str()).nth(usize::try_from(picks).ok()?)
    }

    /// Picks the route that continues the session. Returns `None` when everything is done.
    ///
    /// A reply that names no route is recorded as it is and is an error: its meaning is not guessed.
    pub async fn pick<'a>(&self, session: &mut Session, routes: &[&'a dyn Run]) -> Result<Option<&'a dyn Run>> {
        let menu = menu(session, routes);
        let mut session = AuthorGuard::new(session, self);
        let picked = self.pick_from(&mut session, menu).await;
        session.finish(picked).await.map(|picked| picked.map(|at| routes[at]))
    }

    /// Picks a route of the menu, and returns its position.
    async fn pick_from(&self, session: &mut Session, menu: Vec<Route>) -> Result<Option<usize>> {
        let picks = PickCounts::count(session);
        if picks.since_done >= self.max_picks {
            return Err(self.too_many_picks(session));
        }
        let (reply, choice, request) = match self.forced_route(session, picks.total) {
            Some(name) => (Text::default(), find_route(name, &menu), None),
            None => self.ask(session, &menu).await?,
        };
        let problem = choice_problem(&choice, reply.as_str().unwrap_or_default(), &menu);
        let picked = match &choice {
            Choice::Chosen { route } => menu.iter().position(|known| known.name == *route),
            _ => None,
        };
        session.push(Selected::new(menu, reply, choice).with_request(request));
        match problem {
            None => Ok(picked),
            Some(problem) => Err(Error::new(ErrorKind::Route, problem)
                .with_hint("pick again, or say in the selector's prompt how to answer")
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
        aside.push(Instructions::new(text).with_provider(provider));
        aside.push(Chunk::user(QUESTION));
        let aside = ask_aside(&self.provider, session, aside).await?;
        let answer = aside.head().map(|step| step.chunk());
        let Some(Chunk::Assistant(Assistant { text, request, .. })) = answer else {
            return Ok((Text::default(), Choice::Empty, None));
        };
        Ok((text.clone(), parse_reply(text.as_str().unwrap_or_default(), menu), *request))
    }

    fn too_many_picks(&self, session: &mut Session) -> Error {
        let message = format!("{} routes were picked in a row, and none of the picks said done", self.max_picks);
        session.push(Failed::new(ErrorKind::Limit.name(), message.as_str()));
        Error::new(ErrorKind::Limit, message).with_hint("allow more with `Selector::max_picks`").with_session(session)
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

/// Prints the tree.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tree())
    }
}

/// Lists the routes for the model. A number is added to a name that occurs twice.
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
        menu.push(Route::new(unique, route.description()));
    }
    menu
}

/// Parses the reply of the model.
fn parse_reply(reply: &str, menu: &[Route]) -> Choice {
    let reply = reply.trim().trim_end_matches('.').trim_matches(['`', '"', '\'']);
    if reply.is_empty() {
        return Choice::Empty;
    }
    let is_number =
        !reply.trim_start_matches('-').is_empty() && reply.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit());
    if is_number {
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

/// Finds a route by its name.
fn find_route(name: &str, menu: &[Route]) -> Choice {
    match menu.iter().find(|route| route.name == name) {
        Some(route) => Choice::Chosen { route: route.name.clone() },
        None if name == DONE => Choice::Done,
        None => Choice::OutOfRange,
    }
}

/// Returns the problem with a choice, if there is one.
fn choice_problem(choice: &Choice, reply: &str, menu: &[Route]) -> Option<String> {
    let wanted = match menu.len() {
        0 => "0, since there is no route".to_owned(),
        count => format!("a number from 0 to {count}"),
    };
    let found = rath_record::draw::preview(reply);
    match choice {
        Choice::Chosen { .. } | Choice::Done => None,
        Choice::OutOfRange if reply.is_empty() => Some("the forced route is not among the routes".to_owned()),
        Choice::OutOfRange => Some(format!("the reply is out of range: wanted {wanted}, found `{found}`")),
        Choice::Empty => Some(format!("the reply is empty: wanted {wanted}")),
        // `Unparseable`, and choices that a later version adds.
        _ => Some(format!("the reply cannot be read: wanted {wanted}, found `{found}`")),
    }
}

/// The numbers of earlier picks of a selector in a session.
#[derive(Default)]
struct PickCounts {
    total: u64,
    /// Since the newest pick that said done or message of the user.
    since_done: u64,
}

impl PickCounts {
    fn count(session: &Session) -> Self {
        let mut picks = PickCounts::default();
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
            // Picks of a selector in another module do not count.
            if step.stamp().by.as_deref() != session.module() {
                continue;
            }
            done |= selected.choice == Choice::Done;
            picks.total += 1;
            picks.since_done += u64::from(!done);
        }
        picks
    }
}
