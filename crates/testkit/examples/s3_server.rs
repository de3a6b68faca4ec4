// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service that speaks S3 of the testkit, for `benches/bindings`: `s3_server COUNT BYTES` has so many objects, each
//! with its number again and again. It prints endpoint, bucket, region, key and secret in a line, and ends with standard
//! input.

use std::io::Read;

use terrace_testkit::s3::{BUCKET, KEY_ID, REGION, S3Server, SECRET};

fn main() {
    let server = S3Server::start();
    let number = |index| -> usize {
        let text = std::env::args().nth(index).expect("usage: s3_server COUNT BYTES");
        text.parse().expect("it is a number")
    };
    let (count, bytes) = (number(1), number(2));
    for object in 0..count {
        let content = u32::try_from(object).expect("it is small").to_le_bytes().repeat(bytes / 4);
        server.plant(&format!("many/{object:05}"), &content);
    }
    println!("{}\t{BUCKET}\t{REGION}\t{KEY_ID}\t{SECRET}", server.endpoint());
    // Only its end counts.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
