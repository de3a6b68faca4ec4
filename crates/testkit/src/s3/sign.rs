// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Version 4 of Amazon's signatures, from the side of the service.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::http::{Request, encode};

/// Longest that clocks may be apart.
const SKEW_SECONDS_MAX: u64 = 15 * 60;

/// What the service knows.
pub(super) struct Known<'a> {
    pub(super) key_id: &'a str,
    pub(super) secret: &'a str,
    pub(super) region: &'a str,
    /// Seconds since 1970.
    pub(super) now: u64,
}

/// Why a request is refused: status and code.
pub(super) type Refusal = (u16, &'static str);

/// Looks whether a request was signed with the secret for this service and region, now, over these
/// bytes.
pub(super) fn check(request: &Request, known: &Known<'_>) -> Result<(), Refusal> {
    let header = |name: &str| request.header(name);
    let denied = (403, "AccessDenied");
    let authorization = header("authorization").ok_or(denied)?;
    let fields = authorization.strip_prefix("AWS4-HMAC-SHA256 ").ok_or(denied)?;
    let field = |name: &str| {
        let mut parts = fields.split(',').map(str::trim);
        parts.find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
    };
    let credential = field("Credential").ok_or(denied)?;
    let signed = field("SignedHeaders").ok_or(denied)?;
    let signature = field("Signature").ok_or(denied)?;
    let (key_id, scope) = credential.split_once('/').ok_or(denied)?;
    if key_id != known.key_id {
        return Err((403, "InvalidAccessKeyId"));
    }
    let date = header("x-amz-date").ok_or(denied)?;
    let seconds = seconds(date).ok_or(denied)?;
    if seconds.abs_diff(known.now) > SKEW_SECONDS_MAX {
        return Err((403, "RequestTimeTooSkewed"));
    }
    let day = &date[..8];
    if scope != format!("{day}/{}/s3/aws4_request", known.region) {
        return Err((400, "AuthorizationHeaderMalformed"));
    }
    let content = header("x-amz-content-sha256").ok_or(denied)?;
    if content != "UNSIGNED-PAYLOAD" && content != hex(&Sha256::digest(&request.body)) {
        return Err((400, "XAmzContentSHA256Mismatch"));
    }
    // What changes the meaning of a request must be signed.
    let names: Vec<_> = signed.split(';').collect();
    let must_be = |name: &str| name == "host" || name.starts_with("x-amz-");
    let is_unsigned = |name: &str| must_be(name) && !names.contains(&name);
    if request.headers.iter().any(|(name, _)| is_unsigned(name)) {
        return Err(denied);
    }
    let mut canonical = format!("{}\n{}\n{}\n", request.method, request.raw_path, query(request));
    for name in &names {
        canonical.push_str(&format!("{name}:{}\n", header(name).ok_or(denied)?.trim()));
    }
    canonical.push_str(&format!("\n{signed}\n{content}"));
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
        hex(&Sha256::digest(canonical.as_bytes()))
    );
    let mut key = format!("AWS4{}", known.secret).into_bytes();
    for part in [day, known.region, "s3", "aws4_request"] {
        key = mac(&key, part.as_bytes());
    }
    match hex(&mac(&key, to_sign.as_bytes())) == signature {
        true => Ok(()),
        false => Err((403, "SignatureDoesNotMatch")),
    }
}

/// The query, encoded anew and in order.
fn query(request: &Request) -> String {
    let mut pairs: Vec<_> =
        request.query.iter().map(|(name, value)| (encode(name), encode(value))).collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

fn mac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("keys of any length are taken");
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Seconds since 1970 of a date such as `20260102T030405Z`.
fn seconds(date: &str) -> Option<u64> {
    if date.len() != 16 || !date.ends_with('Z') || date.as_bytes()[8] != b'T' {
        return None;
    }
    let number = |range: std::ops::Range<usize>| date.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let of_day = number(9..11)? * 3600 + number(11..13)? * 60 + number(13..15)?;
    // Years that begin in March have their leap day at the end.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    Some(days.checked_sub(719_469)? * 86_400 + of_day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        assert_eq!(seconds("19700101T000000Z"), Some(0));
        assert_eq!(seconds("20000301T000001Z"), Some(951_868_801));
        assert_eq!(seconds("20240229T235959Z"), Some(1_709_251_199));
        assert_eq!(seconds("2024-02-29"), None);
    }

    /// The example of Amazon's documentation, "GET Object".
    #[test]
    fn the_documented_signature_is_right() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let headers = [
            ("host", "examplebucket.s3.amazonaws.com"),
            ("range", "bytes=0-9"),
            ("x-amz-content-sha256", empty),
            ("x-amz-date", "20130524T000000Z"),
            (
                "authorization",
                "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
                 SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,\
                 Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
        ];
        let mut request = Request {
            method: "GET".into(),
            raw_path: "/test.txt".into(),
            query: Vec::new(),
            headers: headers.map(|(name, value)| (name.into(), value.into())).to_vec(),
            body: Vec::new(),
        };
        let known = Known {
            key_id: "AKIAIOSFODNN7EXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            region: "us-east-1",
            now: seconds("20130524T000500Z").expect("a date"),
        };
        assert_eq!(check(&request, &known), Ok(()));
        assert_eq!(
            check(&request, &Known { secret: "other", ..known }),
            Err((403, "SignatureDoesNotMatch"))
        );
        request.body = b"x".to_vec();
        assert_eq!(check(&request, &known), Err((400, "XAmzContentSHA256Mismatch")));
    }
}
