//! Compiles the first process of containers, `init/main.rs`, for the kernel alone.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=init");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(has_init)");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    // Its system calls are those of this architecture.
    if variable("CARGO_CFG_TARGET_OS") != "linux" || variable("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        return;
    }
    let init = PathBuf::from(variable("OUT_DIR")).join("init");
    // The linker that comes with Rust needs no other for the target. A distribution's Rust may lack it.
    let own_linker = ["linker=rust-lld", "linker-flavor=ld.lld", "link-self-contained=no"];
    let c_compiler = ["link-arg=-nostartfiles", "link-arg=-nostdlib", "link-arg=-static"];
    if let Err(first) = compile(&init, &variable("RUSTC"), &variable("TARGET"), &own_linker)
        && let Err(second) = compile(&init, &variable("RUSTC"), &variable("TARGET"), &c_compiler)
    {
        panic!("cannot compile init/main.rs:\n{first}\n{second}");
    }
    println!("cargo::rustc-cfg=has_init");
}

/// Compiles the program with further options of code generation. Fails with what the compiler printed.
fn compile(to: &Path, rustc: &str, target: &str, options: &[&str]) -> Result<(), String> {
    let common = ["opt-level=s", "panic=abort", "debuginfo=0", "strip=symbols", "overflow-checks=no"];
    let layout = ["relocation-model=static", "target-feature=+crt-static"];
    let mut command = Command::new(rustc);
    command.args(["init/main.rs", "--edition=2024", "--crate-type=bin", "--crate-name=rath_init", "--target", target]);
    command.arg("-o").arg(to);
    command.args(common.iter().chain(&layout).chain(options).flat_map(|option| ["-C", option]));
    let output = command.output().map_err(|error| format!("cannot run {rustc}: {error}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
