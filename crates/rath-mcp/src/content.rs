//! From the content that a server sends to the output of a tool.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rath::Secrets;
use rath::chunk::{Image, Json};
use rath::tool::Output;
use rmcp::model::{CallToolResult, ContentBlock, PromptMessage, ResourceContents};

use crate::text::one_line;

/// The most images of one result.
const MAX_IMAGES: usize = 16;
/// The most bytes of a value that is recorded beside the text.
const MAX_STRUCTURED_BYTES: usize = 256 * 1024;
/// The bytes of a name, an address or a media type in a line about content that is not text.
const MAX_NAME_BYTES: usize = 500;

/// Returns the output of a call.
pub(crate) fn output(result: CallToolResult, secrets: &Secrets) -> Output {
    let mut output = Output::default();
    result.content.into_iter().for_each(|block| add_block(&mut output, secrets, block));
    if let Some(value) = result.structured_content {
        let json = value.to_string();
        if output.text.is_empty() && output.images.is_empty() {
            output.text.clone_from(&json);
        }
        match json.len() <= MAX_STRUCTURED_BYTES {
            true => output.structured = Json::parse(&json).ok(),
            false => add_line(&mut output, &format!("[a value of {} bytes is not recorded]", json.len())),
        }
    }
    output
}

/// Returns the content of a resource as an output.
pub(crate) fn resource_output(contents: Vec<ResourceContents>, secrets: &Secrets) -> Output {
    let mut output = Output::default();
    contents.into_iter().for_each(|contents| add_resource(&mut output, secrets, contents));
    output
}

/// Returns the content of a message of a prompt as an output.
pub(crate) fn message_output(message: PromptMessage, secrets: &Secrets) -> Output {
    let mut output = Output::default();
    add_block(&mut output, secrets, message.content);
    output
}

fn add_block(output: &mut Output, secrets: &Secrets, block: ContentBlock) {
    match block {
        ContentBlock::Text(text) => add_line(output, &text.text),
        ContentBlock::Image(image) => add_image(output, secrets, &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => {
            let line = format!(
                "[audio: {}, {} bytes, not shown]",
                name(secrets, &audio.mime_type),
                decoded_bytes(&audio.data)
            );
            add_line(output, &line);
        }
        ContentBlock::Resource(resource) => add_resource(output, secrets, resource.resource),
        ContentBlock::ResourceLink(link) => {
            let about =
                link.description.as_deref().map(|text| format!(": {}", name(secrets, text))).unwrap_or_default();
            add_line(
                output,
                &format!("[resource {} ({}){about}]", name(secrets, &link.uri), name(secrets, &link.name)),
            );
        }
        _ => add_line(output, "[content of an unknown kind]"),
    }
}

fn add_resource(output: &mut Output, secrets: &Secrets, contents: ResourceContents) {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => {
            add_line(output, &format!("[resource {}]", name(secrets, &uri)));
            add_line(output, &text);
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
            let media_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            let bytes = decoded_bytes(&blob);
            add_line(
                output,
                &format!("[resource {}: {}, {bytes} bytes]", name(secrets, &uri), name(secrets, &media_type)),
            );
            if media_type.starts_with("image/") {
                add_image(output, secrets, &media_type, &blob);
            }
        }
        _ => add_line(output, "[a resource of an unknown kind]"),
    }
}

fn add_image(output: &mut Output, secrets: &Secrets, media_type: &str, data: &str) {
    let media_type = name(secrets, media_type).to_ascii_lowercase();
    let media_type = if media_type == "image/jpg" { "image/jpeg" } else { &media_type };
    let line = match BASE64.decode(data.trim()) {
        Err(_) => format!("[image: {media_type}, which cannot be read]"),
        Ok(bytes) => match (image_type(&bytes), READABLE_IMAGES.into_iter().find(|known| *known == media_type)) {
            // Models refuse a whole request for an image that is not what it is said to be.
            (found, said) if found != said => {
                let found = found.unwrap_or("something else");
                format!("[image: {media_type} by its name, {found} by its bytes, left out]")
            }
            _ if bytes.is_empty() || output.images.len() >= MAX_IMAGES => {
                format!("[image: {media_type}, {} bytes, left out]", bytes.len())
            }
            _ => return output.images.push(Image::new(media_type, bytes)),
        },
    };
    add_line(output, &line);
}

/// The media types of images that models read.
const READABLE_IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns the media type of an image that models read by its first bytes.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

fn add_line(output: &mut Output, line: &str) {
    if !output.text.is_empty() && !output.text.ends_with('\n') {
        output.text.push('\n');
    }
    output.text.push_str(line);
}

fn name(secrets: &Secrets, text: &str) -> String {
    one_line(secrets, text, MAX_NAME_BYTES)
}

fn decoded_bytes(base64: &str) -> usize {
    base64.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(result: &str, expected: Expect) {
        let result: CallToolResult = serde_json::from_str(result).expect("a result");
        let output = output(result, &Secrets::default());
        let images: String =
            output.images.iter().map(|it| format!("\nimage {} {}", it.media_type, it.blob.bytes())).collect();
        let value = output.structured.map(|value| format!("\nvalue {value}")).unwrap_or_default();
        expected.assert_eq(&format!("{}{images}{value}", output.text));
    }

    #[test]
    fn every_kind_of_content_is_carried_through() {
        check(
            r#"{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}"#,
            expect![[r#"
            a
            b"#]],
        );
        check(
            r#"{"content": [{"type": "text", "text": "a"}, {"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}]}"#,
            expect![[r#"
                a
                image image/png 8"#]],
        );
        check(
            r#"{"content": [{"type": "image", "mimeType": "image/png", "data": "%%"}]}"#,
            expect!["[image: image/png, which cannot be read]"],
        );
        check(
            r#"{"content": [{"type": "audio", "mimeType": "audio/wav", "data": "AAECAwQ="}]}"#,
            expect!["[audio: audio/wav, 5 bytes, not shown]"],
        );
        check(
            r#"{"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "file:///b", "mimeType": "image/gif", "blob": "R0lGODlh"}},
                {"type": "resource_link", "uri": "file:///c", "name": "c\u001b[31m", "description": "the\nthird"}]}"#,
            expect![[r#"
                [resource file:///a]
                inside
                [resource file:///b: image/gif, 6 bytes]
                [resource file:///c (c[31m): the third]
                image image/gif 6"#]],
        );
        check(
            r#"{"content": [], "structuredContent": {"b": 1, "a": [2]}}"#,
            expect![[r#"
            {"a":[2],"b":1}
            value {"a":[2],"b":1}"#]],
        );
        check(
            r#"{"content": [{"type": "text", "text": "{}"}], "structuredContent": {"n": 1.5}}"#,
            expect![[r#"
            {}
            value {"n":1.5}"#]],
        );
    }

    #[test]
    fn what_is_too_much_is_left_out_and_named() {
        let image = r#"{"type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo="}"#;
        let images = vec![image; MAX_IMAGES + 1].join(",");
        let result: CallToolResult = serde_json::from_str(&format!(r#"{{"content": [{images}]}}"#)).expect("a result");
        let output = output(result, &Secrets::default());
        assert_eq!((output.images.len(), &*output.text), (MAX_IMAGES, "[image: image/png, 8 bytes, left out]"));
        let long = "x".repeat(MAX_STRUCTURED_BYTES);
        let result = format!(r#"{{"content": [{{"type": "text", "text": "a"}}], "structuredContent": "{long}"}}"#);
        check(
            &result,
            expect![[r#"
            a
            [a value of 262146 bytes is not recorded]"#]],
        );
    }

    #[test]
    fn an_image_is_what_its_bytes_say() {
        for (media_type, data, expected) in [
            ("image/png", "iVBORw0KGgo=", "\nimage image/png 8"),
            ("image/JPG", "/9j/4A==", "\nimage image/jpeg 4"),
            ("image/gif", "R0lGODlh", "\nimage image/gif 6"),
            ("image/webp", "UklGRgAAAABXRUJQ", "\nimage image/webp 12"),
            ("image/svg+xml", "PHN2Zy8+", "\nimage image/svg+xml 6"),
            ("image/png", "/9j/4A==", "[image: image/png by its name, image/jpeg by its bytes, left out]"),
            ("image/png", "PGh0bWw+", "[image: image/png by its name, something else by its bytes, left out]"),
            ("image/png", "", "[image: image/png by its name, something else by its bytes, left out]"),
            ("image/bmp", "R0lGODlh", "[image: image/bmp by its name, image/gif by its bytes, left out]"),
        ] {
            let result =
                format!(r#"{{"content": [{{"type": "image", "mimeType": "{media_type}", "data": "{data}"}}]}}"#);
            let result: CallToolResult = serde_json::from_str(&result).expect("a result");
            let output = output(result, &Secrets::default());
            let images = output.images.iter().map(|it| format!("\nimage {} {}", it.media_type, it.blob.bytes()));
            assert_eq!(output.text.clone() + &images.collect::<String>(), expected);
        }
    }
}
