//! Notes that are found, and questions that find nothing.

use rath_memory::{NoteStore, Query};

use crate::{note, recall};

/// Returns the notes that a question finds among others.
fn found(notes: &[(&str, &str)], question: &str) -> String {
    let store = NoteStore::in_process();
    let notes: Vec<_> = notes.iter().map(|(name, text)| note(name, text)).collect();
    store.remember(&notes).expect("written");
    recall(&store, &Query::new(question)).join(" ")
}

const NOTES: [(&str, &str); 16] = [
    ("python", "The user works mostly in Python."),
    ("deploy", "We deploy on Mondays; never deploy on a Friday."),
    ("parser", "parse_config in src/config.rs panics when the file is empty"),
    ("http", "HTTPServer2 listens on port 8080 and serves the metrics endpoint"),
    ("cpp", "The renderer is written in C++ and has to stay so"),
    ("csharp", "The launcher is written in C#"),
    ("borrow", "error[E0382]: borrow of moved value `session`"),
    ("cat", "我的猫叫咪咪，今年三岁。"),
    ("beijing", "用户住在北京，喜欢喝绿茶"),
    ("meeting", "会議は毎週月曜日の朝に行います。"),
    ("sushi", "田中さんは寿司とラーメンが好きです。"),
    ("seoul", "사용자는 서울에 살고 파이썬을 좋아합니다."),
    ("coffee", "김 대리는 아침마다 커피를 마십니다."),
    ("mixed", "我们用Kubernetes部署服务，集群在东京"),
    ("cafe", "They met at the Café Müller in Zürich."),
    ("trip", "Last spring we went to the mountains and bought a tent."),
];

#[test]
fn questions_in_any_script_find_their_note() {
    for (question, first) in [
        ("Which language does the user work in? Python?", "python"),
        ("deployment on Fridays", "deploy"),
        ("parseConfig", "parser"),
        ("parse config panic", "parser"),
        ("config.rs", "parser"),
        ("http server", "http"),
        ("HttpServer2", "http"),
        ("port 8080", "http"),
        ("C++", "cpp"),
        ("c#", "csharp"),
        ("E0382", "borrow"),
        ("猫", "cat"),
        ("猫叫什么名字", "cat"),
        ("北京绿茶", "beijing"),
        ("会議はいつですか", "meeting"),
        ("月曜日", "meeting"),
        ("ラーメン", "sushi"),
        ("ﾗｰﾒﾝ", "sushi"),
        ("파이썬", "seoul"),
        ("서울에서 사는 사람", "seoul"),
        ("커피", "coffee"),
        ("kubernetes 部署", "mixed"),
        ("東京的集群", "mixed"),
        ("cafe muller zurich", "cafe"),
        ("When did we go to buy tents?", "trip"),
        ("mountain trips", "trip"),
    ] {
        let found = found(&NOTES, question);
        assert_eq!(found.split(' ').next(), Some(first), "{question}: {found}");
    }
}

#[test]
fn a_question_without_a_match_finds_nothing() {
    for question in [
        "",
        "the of and",
        "What is it?",
        "preferred programming language",
        "quantum chromodynamics",
        "火星",
        "ロケット",
        "축구",
        "🚀",
        "   \n",
        "z",
    ] {
        assert_eq!(found(&NOTES, question), "", "{question}");
    }
}

/// Each question has words of its note, and they are all words of questions or of grammar.
#[test]
fn words_of_questions_and_of_grammar_find_nothing() {
    for (note, question) in [
        ("I can't remember what it was that we did.", "What is it?"),
        ("She was the one who was late.", "who was the"),
        ("Nobody knows how many there are, or which.", "How many? And however many, which?"),
        ("Nobody knows how much anybody needs.", "Is there anything that anybody or nobody has so much of?"),
        ("I can't, I won't, I shan't.", "Can't you? Won't you? Ain't it?"),
        ("They told us.", "tell us"),
        ("dont know whats wrong, doesnt work", "whats that, dont you, doesnt it"),
        ("Das ist das Haus, und wo ist der Hund?", "Was ist das?"),
        ("Wer nicht wagt, der war die ganze Zeit mit dem Rad da.", "Wer war die mit dem?"),
        ("Wie für über nach.", "Wie für über?"),
        ("C'est la vie, qui est là avec l'homme ?", "Qu'est-ce que c'est ?"),
        ("Où est-ce que vous étiez, et pourquoi pas ici ?", "Pourquoi pas ici, et où ?"),
        ("¿Qué es esto y dónde está la casa?", "¿Qué es esto? ¿Dónde está?"),
        ("O que é isso, e por que não?", "O que é isso?"),
        ("Che cos'è questo, e dov'è la casa?", "Che cos'è? Dov'è?"),
        ("Wat is dit en waarom heeft hij het?", "Waarom heeft hij het?"),
        ("Что это такое и где ещё что-то?", "Что это? Где ещё?"),
        ("这是谁的书？他是谁？", "他是谁"),
        ("这个东西在哪里？", "这个在哪里？"),
        ("這是什麼東西？", "這是什麼？"),
        ("これは何の本ですか。", "これは何ですか"),
        ("それはどこにありますか。", "どこにありますか"),
        ("이것은 무엇입니까? 누구예요?", "이것은 무엇입니까?"),
    ] {
        assert_eq!(found(&[("note", note), ("other", "The build is green.")], question), "", "{question}");
    }
    // Words with another meaning count where the question is not in their language, and in notes.
    for (note, question) in [
        ("Add a comment to the code.", "Who wrote a comment?"),
        ("He will die in the last act.", "die"),
        ("The MIT licence is fine; DAS storage is not.", "Is it under MIT?"),
        ("dir lists the files", "What does dir do?"),
        ("It took place in the US.", "Is it in the US?"),
        ("Die Katze heißt Minka.", "Wie heißt die Katze?"),
        ("L'homme s'appelle Luc.", "Comment s'appelle l'homme ?"),
        ("El gato se llama Tom.", "¿Cómo se llama el gato?"),
        ("かにが好きです。", "かに"),
        ("我的猫在北京", "猫在哪里"),
    ] {
        assert_eq!(found(&[("note", note), ("other", "The build is green.")], question), "note", "{question}");
    }
}

#[test]
fn a_word_that_every_note_has_is_no_match() {
    let notes: Vec<(String, String)> =
        (0..200).map(|nth| (nth.to_string(), format!("The user has the number {nth} in the list"))).collect();
    let notes: Vec<(&str, &str)> = notes.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(found(&notes, "Which food does the user eat?"), "");
    assert_eq!(found(&notes, "number 17"), "17");
}

/// A note is found by a tenth of the question, or by one word that hardly any other note has.
#[test]
fn a_rare_word_of_a_long_question_is_a_hit_and_a_common_one_is_not() {
    // A number is a term of its own.
    let letters = |nth: u8| format!("{}{}", char::from(b'a' + nth / 26), char::from(b'a' + nth % 26));
    let notes: Vec<(String, String)> = (0..40)
        .map(|nth| {
            let common = if nth % 2 == 0 { "garden" } else { "river" };
            let rare = if nth == 7 { "alpaca" } else { "" };
            (nth.to_string(), format!("we saw the {common} {rare} place{}", letters(nth)))
        })
        .collect();
    let notes: Vec<(&str, &str)> = notes.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    for (others, word, hits) in [
        (0, "alpaca", 1),
        (5, "alpaca", 1),
        (30, "alpaca", 1),
        (60, "alpaca", 1),
        (0, "garden", 8),
        (1, "garden", 8),
        (5, "garden", 0),
        (30, "garden", 0),
        (30, "garden river", 0),
    ] {
        let question = (0..others).fold(word.to_owned(), |question, nth| format!("{question} unknown{}", letters(nth)));
        let found = found(&notes, &question);
        assert_eq!(found.split_whitespace().count(), hits, "{word} and {others} others: {found}");
    }
    // Of one note nothing is rare.
    assert_eq!(found(&[("one", "we saw the alpaca")], "alpaca farm shop visit Sunday"), "");
}

#[test]
fn an_answer_is_found_by_the_question_before_it() {
    let store = NoteStore::in_process();
    let talk = [("q", "What is your favourite food?"), ("a", "Sushi, definitely!"), ("b", "Let us go on Sunday then.")];
    let talk: Vec<_> = talk.iter().map(|(name, text)| note(name, text).thread("talk")).collect();
    store.remember(&talk).expect("written");
    store.remember(&[note("other", "The build is green.")]).expect("written");
    assert_eq!(recall(&store, &Query::new("favourite food")), ["q", "a", "b"]);
    let hits = store.recall(&Query::new("favourite food")).expect("an answer");
    assert_eq!(hits.iter().map(|hit| hit.has_words).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn the_speaker_the_date_and_the_path_of_a_note_count() {
    let store = NoteStore::in_process();
    // 2023-05-08 and 2024-01-31.
    let notes = [
        note("ann", "I adopted a dog").said_by("Ann").at(1_683_504_000_000_000),
        note("ben", "I adopted a cat").said_by("Ben").at(1_706_659_200_000_000),
        {
            let mut note = note("ship", "run the script");
            note.path = "memory://shared/deployment/steps".parse().expect("a path");
            note
        },
    ];
    store.remember(&notes).expect("written");
    for (question, first) in [
        ("What did Ann adopt?", "ann"),
        ("What did Ben adopt?", "ben"),
        ("adopted in May 2023", "ann"),
        ("adopted in January", "ben"),
        ("deployment steps", "ship"),
    ] {
        assert_eq!(recall(&store, &Query::new(question)).first().map(String::as_str), Some(first), "{question}");
    }
}

#[test]
fn equal_texts_are_one_hit_that_names_the_others() {
    let store = NoteStore::in_process();
    let twice = [note("one", "Use tabs."), note("two", "Use tabs."), note("three", "Use tabs or spaces.")];
    store.remember(&twice).expect("written");
    let hits = store.recall(&Query::new("tabs")).expect("an answer");
    let hits: Vec<_> = hits.iter().map(|hit| (hit.note.id.as_str(), hit.duplicates.len())).collect();
    assert_eq!(hits, [("two", 1), ("three", 0)]);
}

#[test]
fn a_new_version_is_found_instead_of_the_old_one() {
    let store = NoteStore::in_process();
    let before = store.remember(&[note("old", "The server runs on port 80.")]).expect("written");
    store
        .remember(&[note("new", "The server runs on port 443.").replaces("old".parse().expect("an id"))])
        .expect("written");
    assert_eq!(recall(&store, &Query::new("server port")), ["new"]);
    assert_eq!(recall(&store, &Query::new("server port").as_of(before)), ["old"]);
}

#[test]
fn a_note_that_expired_is_not_found() {
    let store = NoteStore::in_process();
    store.remember(&[note("short", "The token is valid today.").expires(1_000)]).expect("written");
    assert_eq!(recall(&store, &Query::new("token").now(999)), ["short"]);
    assert!(recall(&store, &Query::new("token").now(1_000)).is_empty());
}

#[test]
fn hostile_notes_and_questions_are_no_trouble() {
    let store = NoteStore::in_process();
    assert!(store.remember(&[note("empty", " \n")]).is_err());
    assert!(store.remember(&[note("long", &"x ".repeat(40_000))]).is_err());
    assert!(store.remember(&[note("self", "text").replaces("self".parse().expect("an id"))]).is_err());
    let long = "wort ".repeat(12_000);
    store.remember(&[note("full", &long), note("odd", "\u{0}\u{202e}\u{feff} ok \u{10ffff}")]).expect("written");
    for question in [long.as_str(), "\u{0}", "a'b\"c; DROP TABLE notes", "%_*", &"字".repeat(10_000)] {
        store.recall(&Query::new(question)).expect("an answer");
    }
    for path in ["", "memory://", "memory://else/x", "memory://user//x", "memory://user/../x", "memory://user/a\nb"] {
        assert!(path.parse::<rath_memory::NotePath>().is_err(), "{path}");
    }
}

/// Beside a text are its speaker, its date and its path. They say which of several notes is meant.
#[test]
fn what_is_beside_a_text_is_no_answer_to_a_question_about_something_else() {
    let store = NoteStore::in_process();
    let session = "0197f3a2-8c1d-7e44-b1f0-2023a97c11d5";
    let said = [
        ("tea", "Ann", "I always drink green tea."),
        ("dog", "Ben", "We adopted a dog."),
        ("cat", "Ann", "Our cat is three."),
        ("bike", "user", "My bike has a flat tyre."),
    ];
    let mut notes: Vec<_> = said
        .iter()
        .map(|(name, speaker, text)| {
            let mut note = note(name, text).said_by(*speaker).at(1_683_504_000_000_000).thread(*name);
            note.path = format!("memory://session/{session}").parse().expect("a path");
            note
        })
        .collect();
    let mut ship = note("ship", "run the script");
    ship.path = "memory://shared/deployment/steps".parse().expect("a path");
    notes.push(ship);
    store.remember(&notes).expect("written");
    for (question, wanted) in [
        ("Who has three houses in May 2023?", "cat"),
        ("What is the script of the film, Ann?", "ship"),
        ("Which flat did Ben rent on 8 May 2023?", "bike"),
        ("error 8c1d in process 7e44", ""),
        (session, ""),
        ("Which rocket launched to which planet with Ben?", ""),
        ("Does the user drink?", "tea"),
        // The notes have nothing of them but what is beside texts.
        ("What did Ben say?", "dog"),
        ("What happened on 8 May 2023?", "bike cat dog tea"),
        ("deployment of rockets", "ship"),
        ("deployment steps", "ship"),
        ("Ben", "dog"),
        ("2023", "bike cat dog tea"),
        // Of several notes it says which.
        ("What did Ann drink?", "tea"),
        ("green tea in 2023", "tea"),
    ] {
        let mut found = recall(&store, &Query::new(question));
        let mut wanted: Vec<&str> = wanted.split_whitespace().collect();
        assert_eq!(found.first().map(String::as_str), wanted.first().copied(), "{question}");
        found.sort();
        wanted.sort_unstable();
        assert_eq!(found, wanted, "{question}");
    }
}

/// A name that is beside nearly every text is rare in texts. It must not fill the candidates.
#[test]
fn a_name_beside_many_texts_hides_no_note_with_the_word() {
    let store = NoteStore::in_process();
    let plants = (0..600).map(|nth| note(nth, &format!("plant {nth} grows")).said_by("user").thread(nth.to_string()));
    let food = (0..30).map(|nth| {
        note(format!("food{nth}"), &format!("food number {nth} is good here")).thread("food").said_by("cook")
    });
    let notes: Vec<_> = plants.chain(food).collect();
    store.remember(&notes).expect("written");
    let found = recall(&store, &Query::new("Which food does the user eat?").limit(100));
    assert!(found.len() == 30 && found.iter().all(|id| id.starts_with("food")), "{found:?}");
}

/// A name or a month that many texts have beside them is found, and hides no note with a word of the question.
#[test]
fn many_notes_with_one_name_or_date_beside_them_are_found() {
    // 2026-01-31 and 2026-03-03.
    let (january, march) = (1_769_860_800_000_000, 1_772_539_200_000_000);
    let things = ["river", "lamp", "train", "candle", "hammer"];
    for count in [10, 100, 1_000] {
        let store = NoteStore::in_process();
        let check = |question: &str, alice: usize, bob: usize| {
            let found = recall(&store, &Query::new(question).limit(2_000));
            let number = |name: &str| found.iter().filter(|id| id.starts_with(name)).count();
            assert_eq!((number("alice"), number("bob")), (alice, bob), "{count} notes: {question}");
        };
        let notes = (0..count).map(|nth| {
            let text = format!("we saw a {} with number{nth}", things[nth % 5]);
            note(format!("alice{nth}"), &text).said_by("Alice").at(january)
        });
        store.remember(&notes.collect::<Vec<_>>()).expect("written");
        for (question, alice) in [
            ("Alice", count),
            ("January 2026", count),
            ("What did Alice say?", count),
            ("What happened in January 2026?", count),
            ("Which lamp did Alice buy?", count / 5),
            ("What did Alice say about number7?", 1),
            ("What did Bob say?", 0),
            ("What happened in May?", 0),
        ] {
            check(question, alice, 0);
        }
        let pizza = count / 20 + 1;
        let notes = (0..pizza).map(|nth| {
            let text = format!("pizza with a topping of {} and extra{nth}", things[nth % 5]);
            note(format!("bob{nth}"), &text).said_by("Bob").at(march)
        });
        store.remember(&notes.collect::<Vec<_>>()).expect("written");
        let hits = |question: &str| store.recall(&Query::new(question)).expect("an answer");
        // By the name alone it has what was asked for; with a word that no note has, it may not.
        assert!(hits("Alice").iter().all(|hit| hit.has_words) && hits("Alice rocket").iter().all(|hit| !hit.has_words));
        for (question, alice, bob) in [
            ("Alice", count, 0),
            ("Bob", 0, pizza),
            ("pizza", 0, pizza),
            ("Alice pizza", 0, pizza),
            ("pizza in January 2026", 0, pizza),
            ("What did Alice tell Bob about the lamp?", count / 5, (pizza + 3) / 5),
            ("What happened in March?", 0, pizza),
        ] {
            check(question, alice, bob);
        }
    }
}

/// Notes that have no more than the name do not take the places of those with the word, also where the word is common.
#[test]
fn many_notes_of_one_speaker_hide_no_note_with_a_common_word() {
    let store = NoteStore::in_process();
    let alice = (0..1_000).map(|nth| {
        let thing = ["pizza", "lamp"][nth % 2];
        note(format!("alice{nth}"), &format!("we saw a {thing} with number{nth}")).said_by("Alice")
    });
    let bob = (0..300).map(|nth| note(format!("bob{nth}"), &format!("the train{nth} was late")).said_by("Bob"));
    store.remember(&alice.chain(bob).collect::<Vec<_>>()).expect("written");
    for question in ["Bob pizza", "Did Bob see a pizza?"] {
        let found = recall(&store, &Query::new(question));
        assert!(found.len() == 8 && found.iter().all(|id| id.starts_with("alice")), "{question}: {found:?}");
    }
}
