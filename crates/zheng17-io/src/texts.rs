//! Many texts in little memory: one buffer for all, shared by whoever names cells and genes.

use std::fmt;
use std::ops::Index;
use std::sync::Arc;

/// A list of texts. Copies share its memory.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Texts(Arc<Buffer>);

#[derive(Clone, Default, PartialEq, Eq)]
struct Buffer {
    text: String,
    /// Where each text ends.
    ends: Vec<u64>,
}

impl Texts {
    /// How many texts.
    pub fn len(&self) -> usize {
        self.0.ends.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.ends.is_empty()
    }

    /// The text at a position.
    pub fn get(&self, at: usize) -> Option<&str> {
        let end = *self.0.ends.get(at)? as usize;
        let start = at.checked_sub(1).map_or(0, |before| self.0.ends[before] as usize);
        Some(&self.0.text[start..end])
    }

    /// All texts in their order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.len()).map(|at| &self[at])
    }

    /// Only the texts at these positions.
    ///
    /// # Panics
    /// If a position is beyond the end.
    pub fn select(&self, rows: &[usize]) -> Self {
        rows.iter().map(|&row| &self[row]).collect()
    }
}

impl Index<usize> for Texts {
    type Output = str;

    fn index(&self, at: usize) -> &str {
        match self.get(at) {
            Some(text) => text,
            None => panic!("text {at} of {}", self.len()),
        }
    }
}

impl<S: AsRef<str>> Extend<S> for Texts {
    /// Adds texts. Copies made before don't get them.
    fn extend<I: IntoIterator<Item = S>>(&mut self, texts: I) {
        let Buffer { text: all, ends } = Arc::make_mut(&mut self.0);
        for text in texts {
            all.push_str(text.as_ref());
            ends.push(all.len() as u64);
        }
    }
}

impl<S: AsRef<str>> FromIterator<S> for Texts {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let mut all = Self::default();
        all.extend(texts);
        all
    }
}

impl<S: AsRef<str>> From<Vec<S>> for Texts {
    fn from(texts: Vec<S>) -> Self {
        texts.into_iter().collect()
    }
}

impl fmt::Debug for Texts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<S: AsRef<str>> PartialEq<[S]> for Texts {
    fn eq(&self, other: &[S]) -> bool {
        self.iter().eq(other.iter().map(AsRef::as_ref))
    }
}

impl<S: AsRef<str>, const N: usize> PartialEq<[S; N]> for Texts {
    fn eq(&self, other: &[S; N]) -> bool {
        *self == other[..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back_and_copies_share_them() {
        let mut texts: Texts = ["a", "", "größe"].into_iter().collect();
        assert_eq!(texts, ["a", "", "größe"]);
        assert_eq!((texts.len(), texts.get(1), texts.get(3), &texts[2]), (3, Some(""), None, "größe"));
        assert_eq!(texts.select(&[2, 0]), ["größe", "a"]);
        let copy = texts.clone();
        assert!(std::ptr::eq(copy[0].as_ptr(), texts[0].as_ptr()));
        texts.extend(["b"]);
        assert_eq!((copy.len(), &texts[3]), (3, "b"));
        assert!(Texts::from(Vec::<String>::new()).is_empty());
    }
}
