//! The Python OpenRath's own functions read the graph that we export.

use std::io::Write;
use std::process::Stdio;

use expect_test::expect;
use rath::record::graph::Ids;

use crate::session::program;

#[test]
#[ignore = "needs Python with the package openrath, named by RATH_PYTHON: see CONTRIBUTING.md"]
fn the_python_openrath_reads_our_graph() {
    let python = std::env::var_os("RATH_PYTHON").expect("RATH_PYTHON names a Python that has openrath");
    let mut child = rath_test_support::program(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/openrath.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("Python");
    let graph = program().export(Ids::Original);
    child.stdin.take().expect("a pipe").write_all(graph.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("Python ends");
    assert!(output.status.success());
    expect![[r#"
        leaf_system 4 12 0 []
        op_fork 6 27 1 ['at', 'name']
        op_fork 5 12 1 ['at']
        op_merge 7 27 3 ['strategy']
        op_detach 5 12 0 ['at']
        op_merge 9 52 5 ['strategy']
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stdout));
}
