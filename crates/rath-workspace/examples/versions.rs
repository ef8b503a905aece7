//! Versions of a small directory: snapshots, two forks, a merge with a conflict, blame and bisect.
//!
//! ```text
//! cargo run -p rath-workspace --example versions
//! ```

use std::error::Error;
use std::fs;
use std::path::Path;

use rath_workspace::{Bisect, ChangeKind, FileChange, Labels, Objects, Revision, Verdict, Workspace};

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    let project = temp.path().join("project");
    fs::create_dir(&project)?;
    let objects = Objects::open(&temp.path().join("versions"))?;
    let mut workspace = Workspace::open(&project, &objects, &temp.path().join("project.index"))?;

    title("a first version");
    write(&project, "greet.sh", "name=world\n# greet\necho hello $name\n# done\nexit 0\n")?;
    write(&project, "README", "A program that greets.\n")?;
    let base = workspace.snapshot()?;
    print_changes(&objects.diff(None, base.tree)?);
    println!("  stored as {}", base.tree);

    title("two forks change the same line");
    let mut polite = workspace.fork(base.tree, &temp.path().join("polite"), &temp.path().join("polite.index"))?;
    write(polite.root(), "greet.sh", "name=$1\n# greet\necho good morning $name\n# done\nexit 0\n")?;
    write(polite.root(), "LICENSE", "MIT\n")?;
    let mut loud = workspace.fork(base.tree, &temp.path().join("loud"), &temp.path().join("loud.index"))?;
    write(loud.root(), "greet.sh", "name=world\n# greet\necho HELLO $name\n# done\nexit $?\n")?;
    let (ours, theirs) = (polite.snapshot()?, loud.snapshot()?);
    println!("  polite:");
    print_changes(&objects.diff(Some(base.tree), ours.tree)?);
    println!("  loud:");
    print_changes(&objects.diff(Some(base.tree), theirs.tree)?);

    title("a merge finds the conflict");
    let labels = Labels { ours: "polite", theirs: "loud" };
    let merged = objects.merge(base.tree, ours.tree, theirs.tree, labels)?;
    for conflict in &merged.conflicts {
        println!("  {}: {:?}", conflict.path, conflict.kind);
        print_file(&objects.read(merged.tree, &conflict.path)?.unwrap_or_default());
    }
    let Some(conflict) = merged.conflicts.first() else { return Err("the two forks did not conflict".into()) };
    let sides: Vec<_> = [&conflict.ours, &conflict.theirs].into_iter().flatten().cloned().collect();
    let resolution = b"name=$1\n# greet\necho GOOD MORNING $name\n# done\nexit $?\n";
    let resolved = objects.with_content(merged.tree, &conflict.path, &sides, resolution)?;

    title("the resolution goes back to the project");
    let restored = workspace.restore(&base, resolved)?;
    print_changes(&workspace.changes(&base, &restored)?);
    println!("{}", indent(&objects.patch(base.tree, restored.tree)?));

    title("each line has an author");
    let names = ["first version", "polite", "loud", "merge"];
    let history = [
        Revision { tree: base.tree, parents: vec![] },
        Revision { tree: ours.tree, parents: vec![0] },
        Revision { tree: theirs.tree, parents: vec![0] },
        Revision { tree: restored.tree, parents: vec![1, 2] },
    ];
    for line in objects.blame(&history, 3, "greet.sh")?.unwrap_or_default() {
        println!("  {:13} | {}", names[line.revision], line.text);
    }

    title("the version that broke it");
    let mut versions = vec![restored.tree];
    for number in 1..20 {
        let name = if number < 13 { "name=$1" } else { "nane=$1" };
        write(&project, "greet.sh", &format!("{name}\n# greet, {number}\necho GOOD MORNING $name\n"))?;
        versions.push(workspace.snapshot()?.tree);
    }
    let mut bisect = Bisect::new((0..versions.len()).map(|at| at.checked_sub(1).into_iter().collect()));
    while let Some(at) = bisect.next() {
        let checkout = objects.temp_checkout(versions[at])?;
        let text = fs::read_to_string(checkout.path().join("greet.sh"))?;
        let verdict = if text.starts_with("name=") { Verdict::Good } else { Verdict::Bad };
        println!("  version {at:2} is {}", if verdict == Verdict::Good { "good" } else { "bad" });
        bisect.report(at, verdict);
    }
    if let Some(at) = bisect.first_bad() {
        println!("  the first bad version is {at}:");
        println!("{}", indent(&objects.patch(versions[at - 1], versions[at])?));
    }
    objects.sync()?;
    Ok(())
}

fn write(directory: &Path, name: &str, text: &str) -> std::io::Result<()> {
    fs::write(directory.join(name), text)
}

fn title(text: &str) {
    println!("\n{text}");
}

fn print_changes(changes: &[FileChange]) {
    for change in changes {
        match &change.kind {
            ChangeKind::Created => println!("    + {}", change.path),
            ChangeKind::Modified => println!("    ~ {}", change.path),
            ChangeKind::Deleted => println!("    - {}", change.path),
            ChangeKind::Renamed { from } => println!("    {from} -> {}", change.path),
        }
    }
}

fn print_file(content: &[u8]) {
    println!("{}", indent(&String::from_utf8_lossy(content)));
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
}
