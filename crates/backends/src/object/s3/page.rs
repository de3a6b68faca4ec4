// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages of listings, for any names: the client refuses a page with a name that has an empty part, `.` or `..`.

/// An object, in a state of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixObject {
    /// Its length.
    pub size_bytes: u64,
    /// When it was written, in seconds since 1970: heads of answers have no fractions of them.
    pub modified_s: i64,
    /// What the service calls this state, with its quotes; `None` where it gives none, an empty one or a weak one.
    pub tag: Option<String>,
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixPage {
    /// Objects, by what follows what is listed.
    pub objects: Vec<(String, PrefixObject)>,
    /// What names have in common up to and with the next `/`, by what follows what is listed.
    pub parts: Vec<String>,
    /// Continues the listing; `None` at the end.
    pub next: Option<String>,
}

/// Reads the answer to a listing of version 2 of what begins with `prefix`; `None` where it is none.
pub(super) fn read(body: &str, prefix: &str) -> Option<PrefixPage> {
    let (_, body) = body.split_once("<ListBucketResult")?;
    // Without its end it may be cut off.
    let (body, _) = body.rsplit_once("</ListBucketResult>")?;
    let is_encoded = inside(body, "EncodingType") == Some("url");
    let name = |text: &str| {
        let text = unescaped(text)?;
        let name = if is_encoded { decoded(&text)? } else { text };
        name.strip_prefix(prefix).map(String::from)
    };
    let mut page = PrefixPage::default();
    for contents in each(body, "Contents") {
        let object = PrefixObject {
            size_bytes: inside(contents, "Size")?.trim().parse().ok()?,
            modified_s: seconds(inside(contents, "LastModified")?.trim())?,
            tag: inside(contents, "ETag").and_then(unescaped).and_then(|text| tag(&text)),
        };
        page.objects.push((name(inside(contents, "Key")?)?, object));
    }
    for common in each(body, "CommonPrefixes") {
        // Some services join several in one element.
        for text in each(common, "Prefix") {
            page.parts.push(name(text)?);
        }
    }
    if inside(body, "IsTruncated").map(str::trim) == Some("true") {
        page.next = Some(unescaped(inside(body, "NextContinuationToken")?)?);
    }
    Some(page)
}

/// A tag as requests have it. Some services list tags without their quotes. `None` for one that does not name one
/// state: an empty one is the same for all, and a weak one (`W/`) meets no condition (RFC 9110, 13.1.1).
pub(super) fn tag(text: &str) -> Option<String> {
    let plain = text.trim_matches('"');
    (!plain.is_empty() && !text.starts_with("W/")).then(|| format!("\"{plain}\""))
}

/// What is in each element of a name.
fn each<'a>(text: &'a str, element: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, behind) = rest.split_once(&open)?;
        let (inside, behind) = behind.split_once(&close)?;
        rest = behind;
        Some(inside)
    })
}

fn inside<'a>(text: &'a str, element: &str) -> Option<&'a str> {
    each(text, element).next()
}

/// Text of XML without its references; `None` for one that means nothing.
pub(super) fn unescaped(text: &str) -> Option<String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        plain.push_str(before);
        let (reference, behind) = behind.split_once(';')?;
        plain.push(match reference {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            _ => {
                let number = reference.strip_prefix('#')?;
                let number = match number.strip_prefix(['x', 'X']) {
                    Some(digits) => u32::from_str_radix(digits, 16),
                    None => number.parse(),
                };
                char::from_u32(number.ok()?)?
            }
        });
        rest = behind;
    }
    plain.push_str(rest);
    Some(plain)
}

/// A name in the encoding `url`, in which a space may be `+`.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match byte {
            b'%' => {
                let (digits, behind) = rest.split_at_checked(2)?;
                rest = behind;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            }
            b'+' => bytes.push(b' '),
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

/// Seconds since 1970 of `2026-01-01T00:00:00.000Z`; fractions are cut off.
fn seconds(text: &str) -> Option<i64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let whole = time.split_once('.').map_or(time, |(whole, _)| whole);
    let mut time = whole.splitn(3, ':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    let is_date =
        (1..=12).contains(&month) && (1..=31).contains(&day) && (0..10_000).contains(&year);
    // 60 is a leap second.
    let is_time =
        (0..24).contains(&hour) && (0..60).contains(&minute) && (0..=60).contains(&second);
    if !is_date || !is_time {
        return None;
    }
    // Days since 1970 in the Gregorian calendar, with years that begin in March (Hinnant 2013, `days_from_civil`).
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(size_bytes: u64, modified_s: i64, tag: Option<&str>) -> PrefixObject {
        PrefixObject { size_bytes, modified_s, tag: tag.map(Into::into) }
    }

    #[test]
    fn a_page_has_names_as_they_are() {
        let body = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><Name>b</Name>\
            <Prefix>a/</Prefix><IsTruncated>true</IsTruncated><EncodingType>url</EncodingType>\
            <NextContinuationToken>1&amp;2</NextContinuationToken>\
            <Contents><Key>a/b+%2B%26%C3%A9</Key><LastModified>2024-02-29T23:59:59.999Z</LastModified>\
            <ETag>&quot;t-1&quot;</ETag><Size>7</Size></Contents>\
            <Contents><Key>a/</Key><LastModified>1970-01-01T00:00:00Z</LastModified><Size>0</Size></Contents>\
            <CommonPrefixes><Prefix>a//</Prefix></CommonPrefixes>\
            <CommonPrefixes><Prefix>a/../</Prefix></CommonPrefixes></ListBucketResult>";
        let page = read(body, "a/").expect("a page");
        let objects = [
            ("b +&é".into(), object(7, 1_709_251_199, Some("\"t-1\""))),
            (String::new(), object(0, 0, None)),
        ];
        assert_eq!(page.objects, objects);
        assert_eq!(page.parts, ["/", "../"]);
        assert_eq!(page.next.as_deref(), Some("1&2"));
    }

    #[test]
    fn names_of_a_service_without_the_encoding_are_text() {
        let body = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>100%&lt;&#39;+&#x26;</Key>\
            <LastModified>2026-01-01T00:00:00Z</LastModified><ETag>t</ETag><Size>1</Size></Contents>\
            </ListBucketResult>";
        let page = read(body, "").expect("a page");
        let expected = ("100%<'+&".into(), object(1, 1_767_225_600, Some("\"t\"")));
        assert_eq!(page.objects, [expected]);
        assert_eq!(page.next, None);
    }

    #[test]
    fn a_tag_that_names_no_state_is_none() {
        let tag = |listed: &str| {
            let body = format!(
                "<ListBucketResult><Contents><Key>a</Key><LastModified>2026-01-01T00:00:00Z</LastModified>\
                 <ETag>{listed}</ETag><Size>1</Size></Contents></ListBucketResult>"
            );
            read(&body, "").expect("a page").objects.remove(0).1.tag
        };
        assert_eq!(tag("&quot;t&quot;").as_deref(), Some("\"t\""));
        assert_eq!(tag("t").as_deref(), Some("\"t\""));
        for none in ["", "&quot;&quot;", "W/&quot;t&quot;"] {
            assert_eq!(tag(none), None, "{none}");
        }
    }

    #[test]
    fn what_is_no_page_is_none() {
        let page =
            |inside: &str| read(&format!("<ListBucketResult>{inside}</ListBucketResult>"), "a/");
        assert!(read("<html></html>", "").is_none());
        assert!(page("<Contents><Key>a/b</Key></Contents>").is_none(), "without a length");
        assert!(
            page("<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>").is_none(),
            "elsewhere"
        );
        assert!(page("<CommonPrefixes><Prefix>a/&no;</Prefix></CommonPrefixes>").is_none());
        assert!(page("<IsTruncated>true</IsTruncated>").is_none(), "it cannot be continued");
        let cut = "<ListBucketResult><CommonPrefixes><Prefix>a/b/</Prefix></CommonPrefixes><Conte";
        assert!(read(cut, "a/").is_none(), "it is cut off");
        assert_eq!(page(""), Some(PrefixPage::default()));
        for time in ["", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01 00:00:00Z"] {
            assert_eq!(seconds(time), None, "{time}");
        }
    }
}
