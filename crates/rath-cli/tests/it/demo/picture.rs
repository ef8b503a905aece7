//! A picture of a terminal, as SVG.

use std::fmt::Write as _;

const COLUMNS: usize = 80;
const CHAR_WIDTH: f64 = 8.4;
const LINE_HEIGHT: usize = 19;
/// The space around the text.
const MARGIN: usize = 20;
/// The space above the text, with the three dots of a window.
const TOP: usize = 44;
/// The seconds after which the next line is shown.
const LINE_DELAY: f64 = 0.14;

/// The element around each line of text.
const ROW_START: &str = "<text class=\"row\"";
const ROW_END: &str = "</text>";
/// The element around the name of an agent.
pub(super) const NAME_START: &str = "<tspan class=\"cyan\">";

/// Draws lines with the escape sequences of colours. The lines appear one after the other where CSS animations are
/// supported, and are simply there elsewhere.
pub(super) fn draw(screen: &str) -> String {
    let lines: Vec<&str> = screen.trim_end().lines().collect();
    let width = MARGIN * 2 + (COLUMNS as f64 * CHAR_WIDTH) as usize;
    let height = TOP + lines.len() * LINE_HEIGHT + MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <title>rath demo in a terminal</title>\n<style>\n\
         .row {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, \"DejaVu Sans Mono\", monospace; \
         white-space: pre; fill: #d5d8de; animation: show 0.2s backwards }}\n\
         .b {{ font-weight: bold; fill: #ffffff }} .f {{ fill: #8b919e }} .red {{ fill: #f2777a }} .green {{ fill: #8ccf7e }}\n\
         .yellow {{ fill: #e5c76b }} .cyan {{ fill: #6cbfbf }}\n\
         @keyframes show {{ from {{ opacity: 0 }} }}\n\
         @media (prefers-reduced-motion: reduce) {{ .row {{ animation: none }} }}\n</style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"10\" fill=\"#1b1e25\"/>\n"
    );
    for (nth, colour) in ["#f2777a", "#e5c76b", "#8ccf7e"].into_iter().enumerate() {
        let _ = writeln!(svg, "<circle cx=\"{}\" cy=\"20\" r=\"6\" fill=\"{colour}\"/>", MARGIN + 6 + nth * 20);
    }
    for (nth, line) in lines.iter().enumerate() {
        let y = TOP + nth * LINE_HEIGHT + 14;
        let delay = nth as f64 * LINE_DELAY;
        let spans = spans(line);
        let _ = writeln!(
            svg,
            "{ROW_START} xml:space=\"preserve\" x=\"{MARGIN}\" y=\"{y}\" style=\"animation-delay: {delay:.2}s\">{spans}{ROW_END}"
        );
    }
    svg + "</svg>\n"
}

/// Returns the lines of a picture, with the elements of their colours.
pub(super) fn rows(svg: &str) -> Vec<String> {
    let rows = svg.lines().filter(|line| line.starts_with(ROW_START));
    let content = rows.filter_map(|row| row.split_once('>')?.1.strip_suffix(ROW_END));
    content.map(str::to_owned).collect()
}

/// Turns a line with escape sequences into text with elements.
fn spans(line: &str) -> String {
    let mut spans = String::new();
    let mut parts = line.split("\x1b[");
    spans.push_str(&escape(parts.next().unwrap_or_default()));
    let mut is_open = false;
    for part in parts {
        let (code, text) = part.split_once('m').expect("a colour");
        if is_open {
            spans.push_str("</tspan>");
        }
        let class = match code {
            "0" => None,
            "1" => Some("b"),
            "2" => Some("f"),
            "31" => Some("red"),
            "32" => Some("green"),
            "33" => Some("yellow"),
            "36" => Some("cyan"),
            other => panic!("the demo prints the style {other}"),
        };
        is_open = class.is_some();
        class.into_iter().for_each(|class| spans.push_str(&format!("<tspan class=\"{class}\">")));
        spans.push_str(&escape(text));
    }
    if is_open { spans + "</tspan>" } else { spans }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
