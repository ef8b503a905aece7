//! What the compiler says to someone who holds it wrong.

/// The messages around ours differ from compiler to compiler: they are compared on this one.
const RUSTC: &str = "rustc 1.95.";

#[test]
fn mistakes_are_told_where_they_are_with_what_to_do() {
    let version = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .arg("--version")
        .output()
        .expect("the compiler that built this test");
    let version = String::from_utf8_lossy(&version.stdout);
    if !version.starts_with(RUSTC) {
        eprintln!("skipped: the messages are those of {RUSTC}x, and this is {version}");
        return;
    }
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
