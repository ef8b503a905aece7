//! Finding the session of a store that a name means: an id, a number or a title.

use std::path::Path;

use rath::chunk::Chunk;
use rath::record::Step;
use rath::record::draw::{count, one_line, preview};
use rath::store::{BranchSummary, StoreErrorKind};
use rath::{BranchId, Store};

use super::as_file;
use crate::output::{Exit, Failure};

/// Takes a name for a fork, or says why none could find the fork by it.
pub(crate) fn parse_fork_name(name: &str) -> Result<String, String> {
    let is_like_an_id = !name.is_empty() && name.chars().all(|digit| digit.is_ascii_hexdigit() || digit == '-');
    let problem = match name {
        _ if name.trim().is_empty() => "it has no text",
        _ if is_like_an_id => "it may be a part of an id",
        _ if name.contains('@') => "`@` is between a session and a step",
        _ if Path::new(name).is_file() => "it is the name of a file",
        _ => return Ok(name.to_owned()),
    };
    Err(format!("`{}` cannot name a fork: {problem}", one_line(name)))
}

/// Finds the branch that `name` means.
pub(crate) async fn find_branch(store: &Store, name: &str, option: &str) -> Result<BranchId, Failure> {
    if let Some(number) = name.strip_prefix('@') {
        return nth_newest(store, name, number, option).await;
    }
    if as_file(name).is_some() {
        return find_by_title(store, name, option).await;
    }
    let error = match store.find(name).await {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    if error.kind() != StoreErrorKind::NoSuchSession || !error.message().starts_with("no session") {
        return Err(error.into());
    }
    // A title may look like the beginning of an id.
    match find_by_title(store, name, option).await {
        Err(failure) if failure.exit != Exit::Usage => Err(Failure::from(error).with_hint(hint_list(option))),
        found => found,
    }
}

/// Finds a session by its number among those that no other branch continues: `@` is the newest, `@-1` the one before it.
async fn nth_newest(store: &Store, name: &str, number: &str, option: &str) -> Result<BranchId, Failure> {
    let back =
        if number.is_empty() { Some(0) } else { number.strip_prefix('-').and_then(|digits| digits.parse().ok()) };
    let Some(back) = back else {
        let message = format!("wanted a session such as `@` or `@-1`, found `{}`", one_line(name));
        return Err(Failure::new(message, "`@` is the newest session, `@-1` the one before it").with_exit(Exit::Usage));
    };
    let tips = tips(store).await?;
    if let Some(found) = tips.iter().rev().nth(back) {
        return Ok(found.branch);
    }
    Err(match tips.len() as u64 {
        0 => Failure::new(format!("there is no session in {}", store.uri()), "`rath` begins one"),
        number => {
            let others = store.list().await?.len() as u64 - number;
            let (more, all) = match others {
                0 => (String::new(), ""),
                others => (format!(", and {others} that others go on from, without a number"), " --all"),
            };
            let message = format!("there is no session {name}: the store has {}{more}", count(number, "session"));
            Failure::new(message, format!("`rath ls{all}{option}` lists them"))
        }
    })
}

/// Finds a session by its title: the name of a fork, or the first message.
async fn find_by_title(store: &Store, title: &str, option: &str) -> Result<BranchId, Failure> {
    let list = hint_list(option);
    // The title of a long message is its beginning.
    let shown = preview(title);
    let has_title = |listed: &BranchSummary| *listed.title == *title || *listed.title == *shown;
    let all = store.list().await?;
    let mut found: Vec<_> = all.iter().filter(|listed| has_title(listed)).collect();
    for fork in forked_as(store, &all, title).await {
        if found.iter().all(|known| known.branch != fork.branch) {
            found.push(fork);
        }
    }
    match &found[..] {
        [one] => Ok(one.branch),
        [] => Err(Failure::new(format!("there is no session `{}`", one_line(title)), list)),
        more => {
            let names: Vec<_> = more.iter().take(5).map(|listed| listed.branch.short()).collect();
            let message = format!("{} sessions have the title `{}`: {}", more.len(), one_line(title), names.join(", "));
            Err(Failure::new(message, "name one of them by its id").with_exit(Exit::Usage))
        }
    }
}

/// Returns the branches that were forked under a name: a fork that goes on has the title of its first message.
async fn forked_as<'a>(store: &Store, all: &'a [BranchSummary], name: &str) -> Vec<&'a BranchSummary> {
    let mut found = Vec::new();
    for listed in all {
        // A damaged session is found by its id.
        let Ok(stored) = store.read(listed.branch).await else { continue };
        let is_fork = |step: &Step| match step.chunk() {
            Chunk::Forked(forked) => step.stamp().branch == listed.branch && forked.name.as_deref() == Some(name),
            _ => false,
        };
        if stored.session.as_record().newest_first().any(is_fork) {
            found.push(listed);
        }
    }
    found
}

pub(super) fn hint_list(option: &str) -> String {
    format!("`rath ls --all{option}` lists the sessions")
}

/// Returns the sessions of a store that no other branch continues, newest last.
pub(super) async fn tips(store: &Store) -> Result<Vec<BranchSummary>, Failure> {
    let mut list = store.list().await?;
    list.retain(|listed| listed.is_tip);
    list.sort_by_key(|listed| listed.at);
    Ok(list)
}
