//! Words that say nothing about a text, and forms that a stemmer cannot know.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

/// Words of English that are in most texts.
const STOP_WORDS: &str = "a about above after again all am an and any are as at be because been before being below between \
    both but by can could did do does doing done down during each few for from further get had has have having he her here \
    hers herself him himself his how i if in into is it its itself just let like me might more most must my myself no nor \
    not now of off oh ok okay on once only or other our ours ourselves out over own please really same shall she should so \
    some such tell than thank thanks that the their theirs them themselves then there these they this those though through to \
    too under until up us very was we well were what when where which while who whom whose why will with would yeah yes yet \
    you your yours yourself";

/// Pairs of characters that grammar puts into most texts in Chinese, Japanese and Korean.
const STOP_PAIRS: &str = "什么 怎么 哪里 为什 这个 那个 是什 的是 了吗 是的 我们 你们 他们 \
    です ます した して から ので れる いる ある こと もの これ それ ない たい では には とは ですか すか ました せん まし は何 何で \
    니다 습니 입니 해요 에서 으로 하는 있는 무엇 어떤 은무 는무";

/// Irregular forms of English: the base form first.
const IRREGULAR: &str = "become became|begin began begun|bend bent|bind bound|bite bit bitten|blow blew blown|break broke broken|\
    bring brought|build built|burn burnt|buy bought|catch caught|choose chose chosen|come came|creep crept|deal dealt|dig dug|\
    draw drew drawn|dream dreamt|drink drank drunk|drive drove driven|eat ate eaten|fall fell fallen|feed fed|feel felt|\
    fight fought|find found|fly flew flown|forbid forbade forbidden|forget forgot forgotten|forgive forgave forgiven|\
    freeze froze frozen|give gave given|go went gone goes|grow grew grown|hang hung|hear heard|hide hid hidden|hold held|\
    keep kept|kneel knelt|know knew known|lead led|lean leant|learn learnt|leave left|lend lent|light lit|lose lost|make made|\
    mean meant|meet met|pay paid|ride rode ridden|ring rang rung|rise rose risen|run ran|say said|see saw seen|seek sought|\
    sell sold|send sent|shake shook shaken|shine shone|shoot shot|show shown|shrink shrank shrunk|sing sang sung|sink sank sunk|\
    sit sat|sleep slept|slide slid|speak spoke spoken|spend spent|spin spun|spring sprang sprung|stand stood|steal stole stolen|\
    stick stuck|sting stung|strike struck|swear swore sworn|sweep swept|swim swam swum|swing swung|take took taken|\
    teach taught|tear tore torn|think thought|throw threw thrown|understand understood|wake woke woken|wear wore worn|\
    weep wept|win won|withdraw withdrew withdrawn|write wrote written|child children|foot feet|goose geese|man men|mouse mice|\
    ox oxen|person people|tooth teeth|woman women|knife knives|leaf leaves|life lives|shelf shelves|wife wives|wolf wolves|\
    good better best|bad worse worst|index indices|matrix matrices|vertex vertices|analysis analyses|crisis crises|\
    hypothesis hypotheses|datum data|criterion criteria";

/// Returns true for a word in lower case that is in most texts.
pub(super) fn is_stop_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| STOP_WORDS.split_whitespace().collect());
    WORDS.contains(word)
}

/// Returns true for two characters that are in most texts of their language.
pub(super) fn is_stop_pair(pair: &str) -> bool {
    static PAIRS: LazyLock<HashSet<&str>> = LazyLock::new(|| STOP_PAIRS.split_whitespace().collect());
    PAIRS.contains(pair)
}

/// Returns the base form of an irregular form in lower case.
pub(super) fn base_form(word: &str) -> Option<&'static str> {
    static FORMS: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
        let entries = IRREGULAR.split('|').flat_map(|entry| {
            let mut forms = entry.split_whitespace();
            let base = forms.next().unwrap_or_default();
            forms.map(move |form| (form, base))
        });
        entries.collect()
    });
    FORMS.get(word).copied()
}
