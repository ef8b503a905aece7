//! A JSON writer for the members of a struct: byte for byte like serde_json, and much faster for long texts.

use std::fmt;

use serde::ser::{Error, Impossible, Serialize, SerializeStruct, Serializer};

/// Appends the members of a struct, each after a comma.
///
/// Returns false, and appends nothing, if `value` is not a struct.
pub(super) fn write_members(out: &mut Vec<u8>, value: &impl Serialize) -> bool {
    value.serialize(StructWriter(out)).is_ok()
}

/// Appends a text as a JSON string.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 16);
    out.push(b'"');
    let mut written = 0;
    for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        // One test for a whole block: nearly all blocks have nothing to escape.
        if !block.iter().fold(false, |any, byte| any | is_escaped(*byte)) {
            continue;
        }
        for (at, byte) in block.iter().enumerate().filter(|(_, byte)| is_escaped(**byte)) {
            let at = index * BLOCK_BYTES + at;
            out.extend_from_slice(&bytes[written..at]);
            write_escape(out, *byte);
            written = at + 1;
        }
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

const BLOCK_BYTES: usize = 64;

fn is_escaped(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

fn write_escape(out: &mut Vec<u8>, byte: u8) {
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

/// Writes the fields of a struct.
struct StructWriter<'a>(&'a mut Vec<u8>);

impl SerializeStruct for StructWriter<'_> {
    type Ok = ();
    type Error = Unsupported;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Unsupported> {
        let out = &mut *self.0;
        out.push(b',');
        write_text(out, key);
        out.push(b':');
        if value.serialize(TextWriter(out)).is_err() {
            serde_json::to_writer(out, value).expect("chunks have string keys and a Vec takes every write");
        }
        Ok(())
    }

    fn end(self) -> Result<(), Unsupported> {
        Ok(())
    }
}

/// Writes a value that is a text.
struct TextWriter<'a>(&'a mut Vec<u8>);

/// The value is of another type, and nothing was written.
#[derive(Debug)]
struct Unsupported;

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a struct or a text")
    }
}

impl std::error::Error for Unsupported {}

impl Error for Unsupported {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Unsupported
    }
}

/// Declares the methods for every type that is left to serde_json.
macro_rules! unsupported {
    ($($name:ident($($type:ty),*) -> $ok:ty;)*) => {
        $(fn $name(self, $(_: $type),*) -> Result<$ok, Unsupported> {
            Err(Unsupported)
        })*
    };
}

macro_rules! serializer {
    ($name:ident, $structs:ty, $($own:item)*) => {
        impl Serializer for $name<'_> {
            type Ok = ();
            type Error = Unsupported;
            type SerializeSeq = Impossible<(), Unsupported>;
            type SerializeTuple = Impossible<(), Unsupported>;
            type SerializeTupleStruct = Impossible<(), Unsupported>;
            type SerializeTupleVariant = Impossible<(), Unsupported>;
            type SerializeMap = Impossible<(), Unsupported>;
            type SerializeStruct = $structs;
            type SerializeStructVariant = Impossible<(), Unsupported>;

            $($own)*

            unsupported! {
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

            fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<(), Unsupported> {
                Err(Unsupported)
            }

            fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, _: &T) -> Result<(), Unsupported> {
                Err(Unsupported)
            }

            fn serialize_newtype_variant<T: Serialize + ?Sized>(
                self,
                _: &'static str,
                _: u32,
                _: &'static str,
                _: &T,
            ) -> Result<(), Unsupported> {
                Err(Unsupported)
            }

            fn collect_str<T: fmt::Display + ?Sized>(self, _: &T) -> Result<(), Unsupported> {
                Err(Unsupported)
            }
        }
    };
}

serializer! { StructWriter, Self,
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unsupported> {
        Ok(self)
    }

    fn serialize_str(self, _: &str) -> Result<(), Unsupported> {
        Err(Unsupported)
    }
}

serializer! { TextWriter, Impossible<(), Unsupported>,
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Unsupported> {
        Err(Unsupported)
    }

    fn serialize_str(self, value: &str) -> Result<(), Unsupported> {
        write_text(self.0, value);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_serde_json_does() {
        let every: String = (0..0x300_u32).filter_map(char::from_u32).collect();
        let long = "x".repeat(3 * BLOCK_BYTES);
        let mut texts =
            vec![String::new(), long.clone(), every.clone(), format!("{long}\n"), "\u{2028} ☀️ 你好".repeat(50)];
        for at in 0..=2 * BLOCK_BYTES {
            for byte in ["\n", "\"", "\\", "\0", "\u{1f}", "\u{7f}", "é"] {
                let mut text = long.clone();
                text.insert_str(at, byte);
                texts.push(text);
            }
        }
        for text in texts {
            let mut out = Vec::new();
            super::write_text(&mut out, &text);
            assert_eq!(String::from_utf8_lossy(&out), serde_json::to_string(&text).expect("a text"));
        }
    }
}
