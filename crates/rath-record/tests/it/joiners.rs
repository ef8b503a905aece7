//! Joiners and selectors, which have no width.

use rath_record::draw::one_line;

#[test]
fn a_joiner_is_shown_only_where_it_joins_and_once() {
    for text in ["می\u{200c}خواهم", "क\u{94d}\u{200d}ष", "👩\u{200d}💻", "❤\u{fe0f}\u{200d}🔥", "1\u{fe0f}\u{20e3}"]
    {
        assert_eq!(one_line(text), text);
    }
    for (text, expected) in [
        ("é\u{200d}a", r"é\u{200d}a"),
        ("—\u{200c}\u{200c}", r"—\u{200c}\u{200c}"),
        ("👩\u{200d}\u{200d}\u{200d}", "👩\u{200d}\\u{200d}\\u{200d}"),
        ("م\u{200c}\u{200d}\u{200c}", "م\u{200c}\\u{200d}\\u{200c}"),
        ("❤\u{fe0f}\u{fe0f}\u{200d}\u{fe0f}", "❤\u{fe0f}\\u{fe0f}\u{200d}\\u{fe0f}"),
    ] {
        assert_eq!(one_line(text), expected, "{text:?}");
    }
}
