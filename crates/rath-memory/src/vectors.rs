//! Vectors: texts that mean alike, without a word in common, have vectors that point alike.
//!
//! A model outside turns each text into a vector. What a similarity of two vectors says depends on the model: with some, all texts
//! are at 0.8 and more. So the model is measured first, by texts that have nothing to do with each other. Their mean is
//! subtracted from every vector, and the spread of their similarities is the unit: a note is similar to a question if it is
//! further out than the most similar of that many unrelated notes would be.
//!
//! A vector is stored with 8 bits a number. In memory a search has one bit a number, by which it picks the notes whose vectors it
//! reads.

use std::collections::{BinaryHeap, HashMap};

use crate::docs::{Docs, Visible};
use crate::error::{NoteError, Result};
use crate::postings::Doc;
use crate::search::{Match, add_similar};
use crate::store::QuestionVector;

/// The most numbers in a vector.
const MAX_DIMENSIONS: usize = 8_192;
/// The least distance of a similar note, in spreads.
const MIN_SPREADS: f32 = 3.0;
/// The number of notes whose vectors are read for a question.
const MAX_READ_VECTORS: usize = 512;

/// Texts that have nothing to do with each other, by which a model is measured.
///
/// Their vectors are given to [`NoteStore::calibrate`](crate::NoteStore::calibrate).
pub const UNRELATED_TEXTS: [&str; 32] = [
    "The bridge was closed for repairs last winter.",
    "Water boils at a lower temperature in the mountains.",
    "She plays the cello in an amateur orchestra.",
    "The parser fails when a line ends with a backslash.",
    "Our train to Lyon leaves at half past six.",
    "Bees find their way home by the sun.",
    "The contract ends in March unless one side renews it.",
    "He painted the kitchen yellow.",
    "The index is rebuilt after every import.",
    "My grandmother grew up on a farm with horses.",
    "Inflation was higher than the bank had expected.",
    "Add a pinch of salt to the dough.",
    "The patient should take the tablets after meals.",
    "A new museum of photography opened near the harbour.",
    "The goalkeeper was injured in the second half.",
    "Passwords are hashed before they are stored.",
    "Thunderstorms are likely in the evening.",
    "The committee meets on the first Tuesday of the month.",
    "They adopted two cats from the shelter.",
    "The battery lasts about nine hours.",
    "Most volcanoes lie along the edges of plates.",
    "I forgot my umbrella at the dentist's.",
    "The queue grows when the worker is restarted.",
    "Her novel was translated into eleven languages.",
    "Which of the two roads is shorter?",
    "The choir rehearses in the old church.",
    "Rent is paid at the beginning of each quarter.",
    "The camera takes blurred pictures in the dark.",
    "Glaciers have become shorter in the past century.",
    "We sold our car and bought two bicycles.",
    "The function returns an empty list for unknown names.",
    "His flight was delayed because of fog.",
];

/// The mean of a model's vectors, and the spread of the similarities between unrelated texts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Calibration {
    mean: Vec<f32>,
    spread: f32,
}

/// A vector from which the mean was subtracted, with 8 bits a number.
pub(crate) type CodedVector = Vec<i8>;

impl Calibration {
    /// Measures a model by the vectors that it gives to [`UNRELATED_TEXTS`].
    pub(crate) fn measure(vectors: &[Vec<f32>]) -> Result<Self> {
        let dimensions = vectors.first().map_or(0, Vec::len);
        if !(2..=MAX_DIMENSIONS).contains(&dimensions) {
            return Err(not_usable(&format!("they have {dimensions} numbers, wanted 2 to {MAX_DIMENSIONS}")));
        }
        if vectors.len() != UNRELATED_TEXTS.len() || vectors.iter().any(|vector| vector.len() != dimensions) {
            return Err(not_usable("they differ in length or number"));
        }
        let units: Option<Vec<Vec<f32>>> = vectors.iter().map(|vector| unit(vector)).collect();
        let units = units.ok_or_else(|| not_usable("one has no direction"))?;
        let mut mean = vec![0.0; dimensions];
        for vector in &units {
            mean.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x / units.len() as f32);
        }
        let calibration = Calibration { mean, spread: 1.0 };
        let coded: Vec<CodedVector> = vectors.iter().map(|vector| calibration.code(vector)).collect::<Result<_>>()?;
        let pairs = (0..coded.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        let similarities: Vec<f32> = pairs.map(|(one, other)| similarity(&coded[one], &coded[other])).collect();
        let count = similarities.len() as f32;
        let middle = similarities.iter().sum::<f32>() / count;
        let variance = similarities.iter().map(|x| (x - middle).powi(2)).sum::<f32>() / count;
        Ok(Calibration { spread: variance.sqrt().max(f32::EPSILON), ..calibration })
    }

    /// Reads what [`Calibration::parts`] returned.
    pub(crate) fn from_parts(mean: &[u8], spread: f64) -> Option<Self> {
        let (numbers, rest) = mean.as_chunks::<4>();
        let mean: Vec<f32> = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let spread = spread as f32;
        let is_valid = rest.is_empty()
            && (2..=MAX_DIMENSIONS).contains(&mean.len())
            && mean.iter().all(|x| x.is_finite())
            && spread.is_finite()
            && spread > 0.0;
        is_valid.then_some(Calibration { mean, spread })
    }

    /// Returns the mean as bytes, and the spread.
    pub(crate) fn parts(&self) -> (Vec<u8>, f64) {
        (self.mean.iter().flat_map(|x| x.to_le_bytes()).collect(), f64::from(self.spread))
    }

    /// Returns the number of numbers in a vector.
    pub(crate) fn dimensions(&self) -> usize {
        self.mean.len()
    }

    /// Subtracts the mean from a vector.
    pub(crate) fn code(&self, vector: &[f32]) -> Result<CodedVector> {
        if vector.len() != self.mean.len() {
            let (found, wanted) = (vector.len(), self.mean.len());
            return Err(not_usable(&format!("one has {found} numbers, where others have {wanted}")));
        }
        let unit = unit(vector).ok_or_else(|| not_usable("one has no direction"))?;
        let centred: Vec<f32> = unit.iter().zip(&self.mean).map(|(x, mean)| x - mean).collect();
        let most = centred.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        // Below it is the error of the numbers, not a direction.
        if most < 1e-6 {
            return Err(not_usable("different texts have one vector"));
        }
        Ok(centred.iter().map(|x| (x / most * 127.0).round() as i8).collect())
    }

    /// Returns the least similarity of a note that is similar to a question, among this many notes in view.
    ///
    /// Of n similarities that are spread by chance, the largest is about √(2 ln n) spreads out.
    fn least_similarity(&self, notes: f32) -> f32 {
        self.spread * (2.0 * notes.max(1.0).ln()).sqrt().max(MIN_SPREADS)
    }
}

/// Makes the error for vectors that say nothing.
pub(crate) fn not_usable(reason: &str) -> NoteError {
    NoteError::Invalid(format!("the vectors of the model cannot be used: {reason}"))
}

/// Returns a vector of length 1; None if it has no direction.
fn unit(vector: &[f32]) -> Option<Vec<f32>> {
    let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    (length.is_finite() && length > 1e-12).then(|| vector.iter().map(|x| (f64::from(*x) / length) as f32).collect())
}

/// Returns the cosine of the angle between two vectors.
fn similarity(one: &[i8], other: &[i8]) -> f32 {
    let dot = |one: &[i8], other: &[i8]| -> i64 {
        one.iter().zip(other).map(|(x, y)| i32::from(*x) * i32::from(*y)).map(i64::from).sum()
    };
    let lengths = dot(one, one) as f64 * dot(other, other) as f64;
    if lengths == 0.0 { 0.0 } else { (dot(one, other) as f64 / lengths.sqrt()) as f32 }
}

/// One bit for each number of the vectors of a model, in memory.
pub(crate) struct SignIndex {
    pub(crate) calibration: Calibration,
    words: usize,
    /// The notes that have a vector, and their signs, `words` for each.
    docs: Vec<Doc>,
    signs: Vec<u64>,
    /// The place of each note in `docs`.
    places: HashMap<Doc, usize>,
}

impl SignIndex {
    pub(crate) fn new(calibration: Calibration) -> Self {
        let words = calibration.dimensions().div_ceil(64);
        SignIndex { calibration, words, docs: Vec::new(), signs: Vec::new(), places: HashMap::new() }
    }

    pub(crate) fn insert(&mut self, doc: Doc, vector: &[i8]) {
        let at = *self.places.entry(doc).or_insert_with(|| {
            self.docs.push(doc);
            self.signs.extend(std::iter::repeat_n(0, self.words));
            self.docs.len() - 1
        });
        self.signs[at * self.words..(at + 1) * self.words].copy_from_slice(&signs(vector));
    }

    pub(crate) fn remove(&mut self, doc: Doc) {
        let Some(at) = self.places.remove(&doc) else { return };
        // The last one takes its place.
        let last = self.docs.len() - 1;
        self.docs.swap_remove(at);
        self.signs.copy_within(last * self.words.., at * self.words);
        self.signs.truncate(last * self.words);
        if let Some(moved) = self.docs.get(at) {
            self.places.insert(*moved, at);
        }
    }

    /// Returns true if the note has a vector.
    pub(crate) fn contains(&self, doc: Doc) -> bool {
        self.places.contains_key(&doc)
    }

    /// Adds the notes in view that are similar to a question to those that were found by words, and the similarity of these.
    ///
    /// `read` reads the vector of a note.
    pub(crate) fn add_similar(
        &self,
        docs: &Docs,
        visible: &Visible,
        question: &QuestionVector,
        found: Vec<Match>,
        limit: usize,
        mut read: impl FnMut(Doc) -> Result<Option<CodedVector>>,
    ) -> Result<Vec<Match>> {
        let question = self.calibration.code(&question.numbers)?;
        // A vector of another length is damage.
        let mut similarity_of = |doc| -> Result<Option<f32>> {
            let vector = read(doc)?.filter(|vector| vector.len() == question.len());
            Ok(vector.map(|vector| similarity(&question, &vector)))
        };
        let least = self.calibration.least_similarity(visible.statistics(docs).0);
        let mut similar = Vec::new();
        for doc in self.nearest(docs, visible, &signs(&question)) {
            similar.extend(similarity_of(doc)?.filter(|similarity| *similarity >= least).map(|alike| (doc, alike)));
        }
        add_similar(found, similarity_of, &similar, limit)
    }

    /// Returns the notes in view whose signs differ least; of two that differ equally, the newer.
    fn nearest(&self, docs: &Docs, visible: &Visible, question: &[u64]) -> Vec<Doc> {
        let mut nearest: BinaryHeap<(u32, std::cmp::Reverse<Doc>)> = BinaryHeap::new();
        for (doc, signs) in self.docs.iter().zip(self.signs.chunks_exact(self.words)) {
            let differ: u32 = signs.iter().zip(question).map(|(one, other)| (one ^ other).count_ones()).sum();
            let entry = (differ, std::cmp::Reverse(*doc));
            let is_full = nearest.len() == MAX_READ_VECTORS;
            if is_full && nearest.peek().is_some_and(|worst| entry >= *worst) {
                continue;
            }
            if visible.contains(docs, *doc) {
                if is_full {
                    nearest.pop();
                }
                nearest.push(entry);
            }
        }
        nearest.into_iter().map(|(_, doc)| doc.0).collect()
    }
}

fn signs(vector: &[i8]) -> Vec<u64> {
    let word = |numbers: &[i8]| numbers.iter().enumerate().fold(0, |word, (at, x)| word | u64::from(*x > 0) << at);
    vector.chunks(64).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of 64 numbers that point anywhere, all shifted alike.
    fn vectors(shift: f32, seed: u64) -> Vec<Vec<f32>> {
        let mut state = seed;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..UNRELATED_TEXTS.len()).map(|_| (0..64).map(|_| next() + shift).collect()).collect()
    }

    #[test]
    fn a_model_whose_vectors_are_all_alike_is_measured_like_any_other() {
        let plain = Calibration::measure(&vectors(0.0, 1)).expect("measured");
        let shifted = Calibration::measure(&vectors(20.0, 1)).expect("measured");
        assert!((plain.spread - shifted.spread).abs() < 0.02, "{} {}", plain.spread, shifted.spread);
        let [one, other] = [&vectors(20.0, 1)[3], &vectors(20.0, 7)[3]];
        let [one, other] = [one, other].map(|vector| shifted.code(vector).expect("a direction"));
        assert!(similarity(&one, &other) < shifted.least_similarity(1.0));
        assert!(similarity(&one, &one) > 0.999);
    }

    #[test]
    fn vectors_that_say_nothing_are_refused() {
        let good = vectors(0.0, 1);
        let nan = || [vec![vec![f32::NAN; 64]], good[1..].to_vec()].concat();
        for (vectors, reason) in [
            (Vec::new(), "0 numbers"),
            (vec![vec![1.0; MAX_DIMENSIONS + 1]; 32], "8193 numbers"),
            (good[1..].to_vec(), "number"),
            ([vec![vec![1.0; 63]], good[1..].to_vec()].concat(), "number"),
            ([vec![vec![0.0; 64]], good[1..].to_vec()].concat(), "no direction"),
            (nan(), "no direction"),
            (vec![vec![1.0; 64]; 32], "one vector"),
        ] {
            let error = Calibration::measure(&vectors).expect_err("refused").to_string();
            assert!(error.contains(reason), "{error}");
        }
        let calibration = Calibration::measure(&good).expect("measured");
        assert!(calibration.code(&[f32::INFINITY; 64]).is_err());
        assert!(calibration.code(&[1.0; 63]).is_err());
        let (mean, spread) = calibration.parts();
        assert_eq!(Calibration::from_parts(&mean, spread), Some(calibration));
        assert_eq!(Calibration::from_parts(&mean[1..], spread), None);
        assert_eq!(Calibration::from_parts(&mean, f64::NAN), None);
    }
}
