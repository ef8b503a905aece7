//! The members of an object as JSON: byte for byte as serde_json writes them, and much quicker where they are long texts.

use std::fmt;

use serde::ser::{Error, Impossible, Serialize, SerializeStruct, Serializer};

/// Appends the members of a struct, each after a comma. False, and nothing is appended, if it is not one.
pub(super) fn members(out: &mut Vec<u8>, value: &impl Serialize) -> bool {
    value.serialize(Object(out)).is_ok()
}

/// Appends a text in quotes.
fn text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 16);
    out.push(b'"');
    let mut written = 0;
    for (nth, block) in bytes.chunks(BLOCK).enumerate() {
        // One answer for a whole block: nearly all have nothing to escape.
        if !block.iter().fold(false, |found, byte| found | is_escaped(*byte)) {
            continue;
        }
        for (at, byte) in block.iter().enumerate().filter(|(_, byte)| is_escaped(**byte)) {
            let at = nth * BLOCK + at;
            out.extend_from_slice(&bytes[written..at]);
            escape(out, *byte);
            written = at + 1;
        }
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

const BLOCK: usize = 64;

fn is_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn escape(out: &mut Vec<u8>, byte: u8) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let short = match byte {
        0x08 => b'b',
        b'\t' => b't',
        b'\n' => b'n',
        0x0c => b'f',
        b'\r' => b'r',
        b'"' | b'\\' => byte,
        _ => {
            out.extend_from_slice(b"\\u00");
            return out.extend([DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]]);
        }
    };
    out.extend([b'\\', short]);
}

/// Takes a struct.
struct Object<'a>(&'a mut Vec<u8>);

impl SerializeStruct for Object<'_> {
    type Ok = ();
    type Error = Other;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Other> {
        let out = &mut *self.0;
        out.push(b',');
        text(out, key);
        out.push(b':');
        if value.serialize(Member(out)).is_err() {
            serde_json::to_writer(out, value).expect("chunks have string keys and a Vec takes every write");
        }
        Ok(())
    }

    fn end(self) -> Result<(), Other> {
        Ok(())
    }
}

/// Takes a text.
struct Member<'a>(&'a mut Vec<u8>);

/// It is something else, and nothing was written.
#[derive(Debug)]
struct Other;

impl fmt::Display for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something else")
    }
}

impl std::error::Error for Other {}

impl Error for Other {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Other
    }
}

/// Everything that is left to serde_json.
macro_rules! others {
    ($($name:ident($($type:ty),*) -> $made:ty;)*) => {
        $(fn $name(self, $(_: $type),*) -> Result<$made, Other> {
            Err(Other)
        })*
    };
}

macro_rules! serializer {
    ($name:ident, $structs:ty, $($own:item)*) => {
        impl Serializer for $name<'_> {
            type Ok = ();
            type Error = Other;
            type SerializeSeq = Impossible<(), Other>;
            type SerializeTuple = Impossible<(), Other>;
            type SerializeTupleStruct = Impossible<(), Other>;
            type SerializeTupleVariant = Impossible<(), Other>;
            type SerializeMap = Impossible<(), Other>;
            type SerializeStruct = $structs;
            type SerializeStructVariant = Impossible<(), Other>;

            $($own)*

            others! {
                serialize_bool(bool) -> ();
                serialize_i8(i8) -> ();
                serialize_i16(i16) -> ();
                serialize_i32(i32) -> ();
                serialize_i64(i64) -> ();
                serialize_u8(u8) -> ();
                serialize_u16(u16) -> ();
                serialize_u32(u32) -> ();
                serialize_u64(u64) -> ();
                serialize_f32(f32) -> ();
                serialize_f64(f64) -> ();
                serialize_char(char) -> ();
                serialize_bytes(&[u8]) -> ();
                serialize_none() -> ();
                serialize_unit() -> ();
                serialize_unit_struct(&'static str) -> ();
                serialize_unit_variant(&'static str, u32, &'static str) -> ();
                serialize_seq(Option<usize>) -> Self::SerializeSeq;
                serialize_tuple(usize) -> Self::SerializeTuple;
                serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
                serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
                serialize_map(Option<usize>) -> Self::SerializeMap;
                serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
            }

            fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), Other> {
                Err(Other)
            }

            fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, _: &T) -> Result<(), Other> {
                Err(Other)
            }

            fn serialize_newtype_variant<T: Serialize + ?Sized>(
                self,
                _: &'static str,
                _: u32,
                _: &'static str,
                _: &T,
            ) -> Result<(), Other> {
                Err(Other)
            }

            fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), Other> {
                Err(Other)
            }
        }
    };
}

serializer! { Object, Self,
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Other> {
        Ok(self)
    }

    fn serialize_str(self, _: &str) -> Result<(), Other> {
        Err(Other)
    }
}

serializer! { Member, Impossible<(), Other>,
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Other> {
        Err(Other)
    }

    fn serialize_str(self, value: &str) -> Result<(), Other> {
        text(self.0, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_serde_json_does() {
        let every: String = (0..0x300_u32).filter_map(char::from_u32).collect();
        let long = "x".repeat(3 * BLOCK);
        let mut texts =
            vec![String::new(), long.clone(), every.clone(), format!("{long}\n"), "\u{2028} ☀️ 你好".repeat(50)];
        for at in 0..=2 * BLOCK {
            for byte in ["\n", "\"", "\\", "\0", "\u{1f}", "\u{7f}", "é"] {
                let mut text = long.clone();
                text.insert_str(at, byte);
                texts.push(text);
            }
        }
        for text in texts {
            let mut out = Vec::new();
            super::text(&mut out, &text);
            assert_eq!(String::from_utf8_lossy(&out), serde_json::to_string(&text).expect("a text"));
        }
    }
}
