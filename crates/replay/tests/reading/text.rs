// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats in text.

use std::collections::HashSet;
use std::io::Cursor;

use terrace_core::ErrorKind;
use terrace_replay::{Columns, Format, Operation, Options, Trace};

use super::{read, refusal, requests, with_columns};

#[test]
fn one_object_a_line_is_recognised() {
    let (format, found) = requests(b"7\n8\n7\n\nname\n");
    assert_eq!(format, Format::Ids);
    let objects: Vec<u64> = found.iter().map(|request| request.object).collect();
    assert_eq!(objects[..3], [7, 8, 7]);
    assert!(objects[3] > 8, "a name has a hash");
    assert!(found.iter().all(|request| request.size_bytes == 1));
}

#[test]
fn a_heading_tells_what_columns_are() {
    let text = b"time_ms, Object, size, next\n1.5,77,4096,2\n2,\"a \"\"b\"\"\",8,3\r\n";
    let (format, found) = requests(text);
    assert_eq!(format, Format::Csv);
    assert_eq!((found[0].time_ns, found[0].object, found[0].size_bytes), (1_500_000, 77, 4096));
    assert_eq!((found[1].time_ns, found[1].size_bytes), (2_000_000, 8));
}

#[test]
fn windows_follow_on_one_another() {
    let lines: String = (0..5000).map(|at| format!("{at},{at}\n")).collect();
    let stream = Box::new(Cursor::new(format!("time,id\n{lines}")));
    let whole = Trace::from_stream(stream, "test", &Options::default()).expect("a trace");
    let mut trace = whole.windows(vec![10..12, 2000..2003, 4999..6000]);
    let (mut found, mut batch) = (Vec::new(), Vec::new());
    while trace.read(&mut batch).is_ok() && !batch.is_empty() {
        found.extend(batch.iter().map(|request| (request.object, request.time_ns / 1_000_000_000)));
    }
    assert_eq!(found, [(10, 10), (11, 11), (2000, 11), (2001, 12), (2002, 13), (4999, 13)]);
}

#[test]
fn the_heading_of_cachelib_is_known() {
    let text = b"op_time,block_id,block_id_size,io_size,io_offset,user_name,user_namespace,\
        op_name,op_count,host_name,rs_shard_id\n\
        1702511878,12ce-10,40,8388608,64,42,34,getChunkData.NotInitialized,1,5,4\n\
        1702511879,12ce-10,40,4096,0,42,34,putChunk.Permanent,1,5,4\n";
    let (_, found) = requests(text);
    assert_eq!(found[0].object, found[1].object);
    assert_eq!((found[0].size_bytes, found[0].offset_bytes), (8_388_608, 64));
    assert_eq!(found[0].time_ns, 1_702_511_878_000_000_000);
    let operations = [found[0].operation, found[1].operation];
    assert_eq!(operations, [Operation::Read, Operation::Write]);
}

#[test]
fn columns_can_be_named() {
    let text = b"a\tb\tc\nx\t5\t6\n";
    assert_eq!(with_columns(text, "id=a,size=c").unwrap()[0].size_bytes, 6);
    assert_eq!(with_columns(text, "id=1,size=2").unwrap()[0].size_bytes, 5);
    let without_heading = b"9;5\n9;6\n";
    assert_eq!(with_columns(without_heading, "id=1,size=2").unwrap().len(), 2);
    let error = with_columns(text, "id=d").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("no column d; it has a, b, c"), "{error}");
    for wrong in ["", "id", "id=0", "id=1,id=2", "size=1", "colour=1,id=2"] {
        assert_eq!(Columns::parse(wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
    }
}

#[test]
fn a_heading_is_no_request_where_numbers_name_columns() {
    let objects = |text: &[u8], columns: &str| with_columns(text, columns).unwrap().len();
    for text in ["id\n1\n2\n1\n", "name\n1\n2\n1\n", "key\na\nb\nc\n"] {
        assert_eq!(objects(text.as_bytes(), "id=1"), 3, "{text}");
    }
    assert_eq!(objects(b"what,how\nx,5\ny,6\n", "id=1"), 2);
    assert_eq!(objects(b"a,b\nc,d\n", "id=1"), 2, "nothing says that it is one");
    assert_eq!(objects(b"7\n8\n", "id=1"), 2);
    // Alone, too, a column of objects may say so.
    let (format, found) = requests(b"# Obj_Id\n1\n2\n1\n");
    assert_eq!((format, found.len()), (Format::Csv, 3));
}

#[test]
fn what_is_in_front_of_a_heading_is_no_name() {
    for text in ["\u{feff}time_us,id,size\n5,7,9\n", "#time_us,id,size\n5,7,9\n"] {
        let (_, found) = requests(text.as_bytes());
        assert_eq!((found[0].time_ns, found[0].object, found[0].size_bytes), (5000, 7, 9));
    }
    assert_eq!(with_columns(b"# id;n\n1;2\n", "id=id,size=n").unwrap()[0].size_bytes, 2);
    assert_eq!(requests("\u{feff}7\n8\n".as_bytes()).1[0].object, 7);
}

#[test]
fn columns_are_what_divides_lines_evenly() {
    for text in [
        "id;\"size, or so\";size\n7;1;9\n8;1;9\n",
        "id\tfirst, second\tsize\n7\tx\t9\n",
        "id;note;size\n7;a,b;9\n8;c,d;9\n",
        "id;share;size\n7;0,5;9\n8;0,7;9\n",
    ] {
        let (format, found) = requests(text.as_bytes());
        assert_eq!((format, found[0].object, found[0].size_bytes), (Format::Csv, 7, 9), "{text}");
    }
}

#[test]
fn a_time_has_the_unit_that_its_name_or_a_user_says() {
    assert_eq!(requests(b"ID,TIME_US\n1,5\n").1[0].time_ns, 5000);
    let text = b"timestamp,id,size\n1702511878000,1,5\n";
    let error = read(text, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("time_ms=1") && error.ends_with("line=2"), "{error}");
    let found = with_columns(text, "time_ms=timestamp,id=id,latency_us=3").unwrap();
    assert_eq!((found[0].time_ns, found[0].latency_ns), (1_702_511_878_000_000_000, 5000));
    assert_eq!(with_columns(b"9,1\n", "time_ns=1,id=2").unwrap()[0].time_ns, 9);
    for wrong in ["time_min=1,id=2", "size_ms=1,id=2", "time=1,time_ms=2,id=3"] {
        assert_eq!(Columns::parse(wrong).unwrap_err().kind(), ErrorKind::Invalid, "{wrong}");
    }
}

#[test]
fn clients_are_numbers_or_names() {
    let (_, found) = requests(b"time,id,client\n1,1,7\n2,1,node-a\n3,1,node-b\n4,1,node-a\n");
    let clients: Vec<_> = found.iter().map(|one| one.client).collect();
    assert_eq!((clients[0], clients[1]), (7, clients[3]));
    assert!(clients[1] != clients[2] && !clients[1..].contains(&7), "{clients:?}");
}

#[test]
fn a_line_that_does_not_fit_is_named() {
    for (line, why) in [
        ("1,2", "fewer columns"),
        ("1,2,3,4", "more columns"),
        ("1,,3", "no name"),
        ("1,2,-3", "size"),
        ("1,2,3.5", "size"),
        ("x,2,3", "time"),
        ("1,\"2,3", "does not end"),
    ] {
        let text = format!("time,id,size\n1,2,3\n{line}\n");
        let error = refusal(text.as_bytes(), Format::Csv).to_string();
        assert!(error.contains(why) && error.ends_with("file=test line=3"), "{error}");
    }
}

#[test]
fn text_of_unknown_columns_says_what_to_do() {
    let error = read(b"x,y\n1,2\n", &Options::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("id=2,size=3"), "{error}");
}

#[test]
fn nothing_is_no_trace() {
    let error = read(b"", &Options::default()).unwrap_err();
    assert!(error.to_string().contains("it is empty"), "{error}");
    let error = read(b"\0\x01\x02 what is this?", &Options::default()).unwrap_err();
    assert!(error.to_string().contains("say which it is: terrace, oracleGeneral"), "{error}");
}

const DXT: &str = "\
# darshan log version: 3.41
# nprocs: 2

# ***************************************************
# DXT_POSIX module data
# ***************************************************

# DXT, file_id: 1000, file_name: /scratch/a
# DXT, rank: 0, hostname: n1
# Module    Rank  Wt/Rd  Segment          Offset       Length    Start(s)      End(s)
 X_POSIX       0  write        0               0         4096      0.5000      0.6000
 X_POSIX       0  read         0               0         4096      2.0000      2.1000  [3] [4]

# DXT, file_id: 2000, file_name: /scratch/b
# DXT, rank: 1, hostname: n2
 X_POSIX       1  write        0            4096         4096      1.2500      1.3000

# DXT_MPIIO module data
# DXT, file_id: 2000, file_name: /scratch/b
 X_MPIIO       1  write        0             N/A         4096      1.2500      1.3000
";

#[test]
fn dxt_is_brought_into_the_order_of_time() {
    let (format, found, notes) = read(DXT.as_bytes(), &Options::default()).unwrap();
    assert_eq!(format, Format::Dxt);
    let seen: Vec<_> = found.iter().map(|one| (one.time_ns / 1_000_000, one.object)).collect();
    assert_eq!(seen, [(500, 1000), (1250, 2000), (2000, 1000)]);
    assert_eq!((found[1].client, found[1].size_bytes), (1, 8192), "as long as is known by then");
    assert_eq!(notes.len(), 1, "accesses through MPI-IO appear twice");
}

#[test]
fn dxt_that_does_not_fit_is_named() {
    let cut = &DXT[..DXT.find("0.6000").unwrap() - 1];
    let error = refusal(cut.as_bytes(), Format::Dxt).to_string();
    assert!(error.ends_with("fewer than eight columns file=test line=11"), "{error}");
    let error = refusal(b"X_POSIX 0 read 0 0 1 0.1 0.2\n", Format::Dxt).to_string();
    assert!(error.contains("before the line that names its file"), "{error}");
}

const DFTRACER: &str = r#"[
{"id":1,"name":"FH","cat":"dftracer","pid":7,"tid":7,"ph":"M","args":{"name":"/data/a","value":"f1"}}
{"id":2,"name":"open64","cat":"POSIX","pid":7,"tid":7,"ts":90,"dur":1,"ph":"X","args":{"fhash":"f1","ret":3}}
{"id":4,"name":"read","cat":"POSIX","pid":7,"tid":7,"ts":200,"dur":1,"ph":"X","args":{"fhash":"f1","ret":"50"}}
{"id":3,"name":"read","cat":"POSIX","pid":7,"tid":7,"ts":100,"dur":1,"ph":"X","args":{"fhash":"f1","ret":100}},
{"id":5,"name":"pwrite","cat":"POSIX","pid":8,"tid":8,"ts":300,"dur":1,"ph":"X","args":{"fhash":"f1","ret":10,"offset":1000}}
{"id":6,"name":"read","cat":"POSIX","pid":8,"tid":8,"ts":400,"dur":1,"ph":"X","args":{"fhash":"f1","ret":-1}}
{"id":7,"name":"epoch","cat":"app","pid":8,"tid":8,"ts":500,"dur":1,"ph":"X","args":{}}
]
"#;

#[test]
fn dftracer_events_become_requests() {
    let (format, found) = requests(DFTRACER.as_bytes());
    assert_eq!(format, Format::Dftracer);
    let seen: Vec<_> =
        found.iter().map(|one| (one.time_ns / 1000, one.length_bytes, one.size_bytes)).collect();
    assert_eq!(seen[2], (300, 10, 1010));
    assert_eq!(seen.len(), 3, "a call that failed is none");
    assert_eq!(found[2].operation, Operation::Write);
    assert_eq!((seen[0].0, seen[1].0), (100, 200), "in the order of time");
    assert!(found.iter().all(|one| one.latency_ns == 1000), "{found:?}");
    assert!(found[0].client == found[1].client && found[1].client != found[2].client);
}

#[test]
fn a_document_of_chrome_reads_as_its_events_do_line_by_line() {
    let (_, expected) = requests(DFTRACER.as_bytes());
    let lines = DFTRACER.lines().filter(|line| line.starts_with('{'));
    let events: Vec<_> = lines.map(|line| line.trim_end_matches(',')).collect();
    let on_one_line = format!("{{\"traceEvents\":[{}]}}", events.join(","));
    let among_others = format!(
        "{{\"displayTimeUnit\": \"ms\", \"otherData\": {{\"of\": [\"a ]}}\", 1]}},\n \"traceEvents\" : [\n{}\n],\n\
         \"metadata\": {{\"traceEvents\": [1]}}}}\n",
        events.join(",\n")
    );
    let array = format!("[{}]", events.join(", "));
    let spread = format!("{}\n", events.join("\n").replace(",\"", ",\n  \""));
    for text in [on_one_line, among_others, array, spread] {
        let (format, found) = requests(text.as_bytes());
        assert_eq!((format, &found), (Format::Dftracer, &expected), "{text}");
        for cut in [text.len() / 2, text.len() * 2 / 3] {
            let error = refusal(&text.as_bytes()[..cut], Format::Dftracer).to_string();
            assert!(error.contains("cut short"), "{error}");
        }
    }
}

#[test]
fn a_document_is_read_as_it_comes_however_long_its_only_line_is() {
    let event = |at: u32| {
        format!(
            "{{\"name\":\"read\",\"cat\":\"POSIX\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":{at}.5,\"dur\":1,\
             \"args\":{{\"fname\":\"/f\\\"{{\",\"ret\":1}}}}"
        )
    };
    let events: Vec<_> = (0..10_000).map(event).collect();
    let text = format!("{{\"traceEvents\":[{}]}}", events.join(","));
    assert!(text.len() > 1_000_000);
    let (_, found) = requests(text.as_bytes());
    assert_eq!((found.len(), found[9_999].time_ns), (10_000, 9_999_500));
}

#[test]
fn documents_that_follow_each_other_are_all_read() {
    let document = |thread: &str, file: char| {
        format!(
            "{{\"traceEvents\":[{{\"ph\":\"M\",\"pid\":\"Spans\",\"args\":null}},\
             {{\"name\":\"read\",\"cat\":\"POSIX\",\"ph\":\"X\",\"pid\":1,\"tid\":{thread},\"ts\":5,\
             \"args\":{{\"fname\":\"/{file}\",\"ret\":1}}}}],\"of\":{{\"traceEvents\":[{{}}]}}}}\n"
        )
    };
    let text = document("2", 'a') + &document("\"GPU 0\"", 'b') + &document("\"GPU 1\"", 'a');
    let (_, found) = requests(text.as_bytes());
    let objects: HashSet<_> = found.iter().map(|one| one.object).collect();
    let clients: HashSet<_> = found.iter().map(|one| one.client).collect();
    assert_eq!((found.len(), objects.len(), clients.len()), (3, 2, 3), "{found:?}");
    let error = refusal(&text.as_bytes()[..text.len() - 3], Format::Dftracer).to_string();
    assert!(error.contains("cut short behind its events"), "{error}");
}

#[test]
fn a_trace_without_a_request_is_no_success() {
    let refused = |text: &str, format, why: &str| {
        let error = refusal(text.as_bytes(), format).to_string();
        assert!(error.contains(why), "{error}");
    };
    let idle =
        r#"{"traceEvents":[{"name":"epoch","cat":"app","ph":"X","pid":1,"tid":1,"args":{}}]}"#;
    refused(idle, Format::Dftracer, "none of its events is a read or write");
    refused("{\"a\":1}", Format::Dftracer, "events=1");
    refused("[]", Format::Dftracer, "events=0");
    refused("time,id,size\n", Format::Csv, "there is no request in it");
    refused("time,id,op\n1,1,open\n", Format::Csv, "there is no request in it");
    refused("# DXT, file_id: 1, file_name: /f\n", Format::Dxt, "there is no request in it");
    refused("", Format::Vscsi, "there is no request in it");
}

#[test]
fn dftracer_threads_are_clients() {
    let line = |tid: u32, ts: u32| {
        let args = r#"{"fname":"/f","ret":10,"offset":0}"#;
        format!(
            "{{\"name\":\"pread\",\"cat\":\"POSIX\",\"ph\":\"X\",\"pid\":1,\"tid\":{tid},\"ts\":{ts},\
             \"dur\":90,\"args\":{args}}}\n"
        )
    };
    let text = [line(1, 0), line(2, 10), line(1, 100)].concat();
    let (_, found) = requests(text.as_bytes());
    let clients: Vec<_> = found.iter().map(|one| one.client).collect();
    assert!(clients[0] == clients[2] && clients[0] != clients[1], "{clients:?}");
}

#[test]
fn a_dftracer_line_that_is_no_event_is_named() {
    let cut = &DFTRACER[..DFTRACER.len() - 20];
    let error = refusal(cut.as_bytes(), Format::Dftracer).to_string();
    assert!(error.contains("cut short?") && error.ends_with("line=8"), "{error}");
}
