//! Words that say nothing about a text, and forms that a stemmer cannot know.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use super::fold;

/// A language, with the words of its questions and of its grammar: those that are in most of its texts.
struct Language {
    /// Words that are nothing else in English: a question with one of them is in this language.
    marks: &'static str,
    /// Words that are something else in English too, such as `die` and `comment`.
    others: &'static str,
}

/// Words that are left out of all texts.
const ENGLISH: &str = "a about above after again all am an and any anybody anyone anything anywhere are as at be because been before \
    being below between both but by can cannot cant could couldnt did didnt do does doesnt doing done dont down during each either \
    else ever every everybody everyone everything everywhere few for from further get had hadnt has hasnt have havent having he her \
    here hers herself him himself his how however hows i if im in into is isnt it its itself ive just let lets like many me might \
    more most much must my myself neither no nobody none nor not nothing now of off oh ok okay on once only or other our ours \
    ourselves out over own please really same shall she should shouldnt so some somebody someone something somewhere such tell \
    than thank thanks that thats the their theirs them themselves then there theres these they theyre this those though through to \
    too under until up very was wasnt we well were werent what whatever whats when whenever where wheres wherever whether which \
    whichever while who whoever whom whos whose why will with wont would wouldnt yeah yes yet you your youre yours yourself";

/// The other languages that put spaces between words. Their words are left out of questions in them, and of no note: a note may be
/// in several languages.
const OTHER_LANGUAGES: [Language; 7] = [
    Language {
        // German
        marks: "aber auch dass denn dich diese dieser dieses eine einem einen einer eines euch fur gegen gibt habe haben hatte \
            hatten hier ich ihm ihn ihnen ihr ihre kann kein keine konnen meine mich muss nach nicht noch oder ohne schon sein seine \
            sehr sind soll sollte uber und unser unter vom von wann warum welche welchem welchen welcher welches wem wen wer werden \
            weshalb wessen wie wieso wir wird wo woher wohin wurde wurden wurde zum zur zwischen",
        others: "als am an auf aus bei bin bist bitte da das dein dem den der des die dies dir doch dort du ein er es hat im in ist \
            man mein mir mit nur sie so um uns war waren was wenn will zu",
    },
    Language {
        // French
        marks: "aussi avec avez avons cela cet cette chez combien dans donc elles etaient etait etre je lequel leur leurs mais notre \
            nous pourquoi quand que quel quelle quelles quels qui quoi sont tres une votre vous",
        others: "a ai alors as au aux avoir c ce ces comme comment d de des du elle en es est et eux fait ici il ils l la le les lui ma \
            me mes moi mon n ne non on ont ou oui par pas plus pour qu rien s sa sans se ses si son sous sur t ta te tes toi ton tout \
            toute toutes tous un vers y",
    },
    Language {
        // Spanish
        marks: "cual cuales cuando cuanta cuantas cuanto cuantos donde ellas ellos estaba fueron hasta nosotros nuestra nuestro pero \
            porque que quien quienes tambien tiene tienen unas unos usted ustedes",
        others: "a al como con de del desde e el ella en entre era eran es esa ese eso esta estan estas este esto estos fue ha han hay la \
            las le les lo los mas me mi mis muy nos o para por se ser si sin sobre son su sus te tu tus u un una y yo",
    },
    Language {
        // Portuguese
        marks: "aquilo eles foi foram isso isto nao onde porque qual quais quando quanta quantas quanto quantos que quem sao tambem voce \
            voces",
        others: "a ao aos as com como da das de do dos e ela elas ele em era essa esse esta este eu ha mais mas me meu minha muito na nas \
            no nos o os ou para pela pelo por se sem ser seu sua te tem um uma",
    },
    Language {
        // Italian
        marks: "agli alla alle anche che chi cosa dalla degli della delle dello dove hanno negli nella nelle nello perche quale quali \
            quando quanta quante quanti quanto quella quello questa queste questi questo sono sulla",
        others: "a ai al ci come con da dei del di e era essere fra fu gli ha i il in io la le lei lo loro lui ma mi mia mio molto nel noi \
            non o per piu quest si su sua suo ti tra tu tua tuo un una uno vi voi",
    },
    Language {
        // Dutch
        marks: "deze een heeft het hebben hoe hoeveel maar naar niet ook voor waar waarom wanneer welk welke wie wordt zij zijn zou",
        others: "aan als bij dat de die dit door en er haar had hij hun ik in is je jij kan met mijn moet nog of om ons op over te toen \
            uit van waren was wat we werd worden zo",
    },
    Language {
        // Russian
        marks: "а без бы был была были было быть в вам вас ваш все всё вы где да для до его ее её ей ему если есть еще ещё же за зачем \
            здесь и из или им их к как какая какие какое какой когда кого кому который кто куда ли мне мой мои моя мы на нам нас наш \
            не нет ни но о об он она они оно от откуда очень по почему с свой сколько со так там те тебе тебя тем то того только тот \
            тут ты у уже чего чей чем что чтобы эта эти это этот я",
        others: "",
    },
];

/// Pairs of characters that grammar puts into most texts in Chinese, Japanese and Korean.
const STOP_PAIRS: &str = "什么 怎么 哪里 为什 这个 那个 是什 的是 了吗 是的 我们 你们 他们 \
    です ます した して から ので れる いる ある こと もの これ それ ない たい では には とは ですか すか ました せん まし は何 何で \
    니다 습니 입니 해요 에서 으로 하는 있는 무엇 어떤 은무 는무";

/// Words of questions and of grammar in Chinese, Japanese and Korean.
const UNSPACED_WORDS: &str = "什么 什么时候 什麼 什麼時候 怎么 怎么样 怎樣 怎样 怎麼 为什么 为何 為什麼 為何 哪个 哪些 哪儿 哪里 哪裡 哪 谁 誰 何 何时 何時 \
    多少 几个 幾個 几 幾 是 有 没有 沒有 在 这 這 那 这个 這個 那个 那個 这些 這些 那些 这里 這裡 那里 那裡 我 你 您 他 她 它 我们 我們 你们 你們 他们 他們 \
    她们 她們 它们 它們 请问 請問 请 請 告诉 告訴 知道 一下 \
    これ それ あれ どれ この その あの どの ここ そこ あそこ どこ だれ なに なん いつ なぜ どう どうして どんな どちら いくつ いくら です でした \
    でしょう だった である ます ました います いました あります ありました いる ある いた あった する した して なる こと もの 教えて ください 私 僕 君 彼 \
    彼女 あなた \
    이것 그것 저것 여기 거기 저기 무엇 뭐 누구 어디 언제 왜 어떻게 어떤 어느 몇 우리 당신 입니까 입니다 이에요 예요 인가요 인가 있는 있어 있나요 있습니까 \
    하는 했어 하나요 합니까 해요";

/// Characters of grammar that follow a word in these scripts. Alone, or as the first of several, they may be a part of another word.
const UNSPACED_PARTICLES: &str = "的 了 吗 嗎 呢 吧 は が を に で と の も か ね よ へ って という とは には では から まで さん 은 는 이 가 을 를 의 에 에서 로 으로 \
    와 과 도 만";

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

/// Returns true for a word of English in lower case that is in most texts.
pub(super) fn is_stop_word(word: &str) -> bool {
    static WORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| ENGLISH.split_whitespace().collect());
    WORDS.contains(word)
}

/// A set of words without marks above or below their letters.
type WordSet = HashSet<String>;

/// The words of another language: those that tell it, and all of them.
struct LanguageWords {
    marks: WordSet,
    all: WordSet,
}

/// Returns the words of a question that are grammar in its language, unless that is English.
///
/// A question is in a language if it has one of its marks, or two words or more, of which all are its grammar.
pub(super) fn foreign_stop_words(question: &[String]) -> HashSet<&'static str> {
    static LANGUAGES: LazyLock<Vec<LanguageWords>> = LazyLock::new(|| {
        let words = |text: &str| text.split_whitespace().map(|word| fold(word).into_owned()).collect::<WordSet>();
        let languages = OTHER_LANGUAGES.iter();
        languages
            .map(|it| LanguageWords { marks: words(it.marks), all: &words(it.marks) | &words(it.others) })
            .collect()
    });
    let is_in = |language: &&LanguageWords| {
        let has_mark = question.iter().any(|word| language.marks.contains(word));
        has_mark || question.len() > 1 && question.iter().all(|word| language.all.contains(word))
    };
    LANGUAGES.iter().filter(is_in).flat_map(|language| language.all.iter().map(String::as_str)).collect()
}

/// Returns true if a text in a script without spaces has nothing but words of questions and of grammar.
pub(super) fn is_unspaced_grammar(text: &[char]) -> bool {
    static WORDS: LazyLock<[Vec<Vec<char>>; 2]> = LazyLock::new(|| {
        [UNSPACED_WORDS, UNSPACED_PARTICLES]
            .map(|text| text.split_whitespace().map(|word| word.chars().collect()).collect())
    });
    let [words, particles] = &*WORDS;
    // The places that words lead to; particles follow a word.
    let mut is_reached = vec![false; text.len() + 1];
    is_reached[0] = true;
    for at in 0..text.len() {
        if !is_reached[at] {
            continue;
        }
        let follows = if at == 0 { &[][..] } else { particles };
        for word in words.iter().chain(follows).filter(|word| text[at..].starts_with(word)) {
            is_reached[at + word.len()] = true;
        }
    }
    is_reached[text.len()]
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
