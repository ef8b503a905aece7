//! Compiler messages for misuse of the macros and traits.

/// The compiler whose messages are compared; those around ours differ between versions.
const RUSTC: &str = "rustc 1.95.";

#[test]
fn misuse_is_reported_where_it_is_with_a_remedy() {
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
