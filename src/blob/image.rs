//! The four kinds of image that are written, by their declared type and by their first bytes [LIM-3].

/// An image format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// GIF.
    Gif,
    /// JPEG.
    Jpeg,
    /// PNG.
    Png,
    /// WebP.
    Webp,
}

/// Media types with an extension of their own; all others are `bin`.
const EXTENSIONS: [(&str, &str); 24] = [
    ("application/gzip", "gz"),
    ("application/json", "json"),
    ("application/pdf", "pdf"),
    ("application/rtf", "rtf"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/xml", "xml"),
    ("application/zip", "zip"),
    ("audio/mpeg", "mp3"),
    ("audio/ogg", "ogg"),
    ("audio/wav", "wav"),
    ("image/gif", "gif"),
    ("image/jpeg", "jpg"),
    ("image/png", "png"),
    ("image/webp", "webp"),
    ("text/calendar", "ics"),
    ("text/css", "css"),
    ("text/csv", "csv"),
    ("text/html", "html"),
    ("text/markdown", "md"),
    ("text/plain", "txt"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
];

/// Returns the extension of a well-formed media type.
#[must_use]
pub fn extension_of(mime: &str) -> &'static str {
    EXTENSIONS.iter().find(|(known, _)| *known == mime).map_or("bin", |(_, extension)| extension)
}

/// Returns the media type of an extension that the gateway has given.
#[must_use]
pub fn mime_of(extension: &str) -> &'static str {
    EXTENSIONS.iter().find(|(_, known)| *known == extension).map_or("application/octet-stream", |(mime, _)| mime)
}

impl Image {
    /// How many first bytes tell the format.
    pub const SIGNATURE_BYTES: usize = 12;

    /// Finds the format of a well-formed media type in lower case.
    #[must_use]
    pub fn of_mime(mime: &str) -> Option<Self> {
        match mime {
            "image/gif" => Some(Self::Gif),
            "image/jpeg" | "image/jpg" | "image/pjpeg" => Some(Self::Jpeg),
            "image/png" | "image/x-png" => Some(Self::Png),
            "image/webp" => Some(Self::Webp),
            _ => None,
        }
    }

    /// Finds the format that the first bytes of a file show.
    #[must_use]
    pub fn of_signature(head: &[u8]) -> Option<Self> {
        match head {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    /// Returns its media type.
    #[must_use]
    pub const fn mime(self) -> &'static str {
        match self {
            Self::Gif => "image/gif",
            Self::Jpeg => "image/jpeg",
            Self::Png => "image/png",
            Self::Webp => "image/webp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Image, extension_of, mime_of};

    /// [LIM-3]
    #[test]
    fn formats_are_known_by_type_and_by_signature() {
        for (image, head) in [
            (Image::Png, &b"\x89PNG\r\n\x1a\n\0\0"[..]),
            (Image::Jpeg, b"\xff\xd8\xff\xe0"),
            (Image::Gif, b"GIF87a"),
            (Image::Gif, b"GIF89a.."),
            (Image::Webp, b"RIFF\0\0\0\0WEBP"),
        ] {
            assert_eq!(Image::of_signature(head), Some(image));
            assert_eq!(Image::of_mime(image.mime()), Some(image));
            assert_eq!(mime_of(extension_of(image.mime())), image.mime());
        }
        for odd in [&b""[..], b"GIF88a", b"RIFF\0\0\0\0WAVE", b"\x89PNG", b"%PDF-1.7"] {
            assert_eq!(Image::of_signature(odd), None);
        }
        assert_eq!(Image::of_mime("image/svg+xml"), None);
        assert_eq!((extension_of("x/y"), mime_of("bin")), ("bin", "application/octet-stream"));
    }
}
