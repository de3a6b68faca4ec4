// SPDX-License-Identifier: Apache-2.0 OR MIT
// The data in a page, and its words; docs/reference/timeline.md describes it.

const TIER_NONE = 63;
const READ = 0, WRITE = 1, REQUEST = 2, HANDLE = 3, DELETE = 4, DOWN = 5, UP = 6, COPIED = 7, DROPPED = 8;
// Marks, lives and stars that one frame draws at most, unless the coarsest level has more.
const MARKS_MAX = 16000, LIVES_MAX = 6000, STARS_MAX = 1500;
// Marks that are neither accesses nor migrations: left out where more are in view.
const OTHERS_MAX = 2000;
const LEFT = 148, RIGHT = 16, TOP = 46, GAP = 52, FILL_HEIGHT = 110, WAITS_HEIGHT = 120, BOTTOM = 46;
// Steps from pale to strong of marks that sum up few and many.
const SHADES = 8;
const FONT = "12px system-ui, 'Segoe UI', 'Noto Sans', sans-serif";

// --- Data.

// Numbers in groups of seven bits, as base64; all are 0 where there is no text.
function numbers(text, count, isAscending = false) {
  const list = new Float64Array(count);
  if (text === "") return list;
  const bytes = atob(text);
  let at = 0, before = 0;
  for (let index = 0; index < count; index++) {
    let value = 0, unit = 1, byte;
    do {
      byte = bytes.charCodeAt(at++);
      value += (byte & 127) * unit;
      unit *= 128;
    } while (byte & 128);
    if (isAscending) before = value += before;
    list[index] = value;
  }
  return list;
}

function times(head, key = "time", isAscending = true) {
  const list = numbers(head[key], head.n, isAscending);
  for (let index = 0; index < list.length; index++) list[index] = list[index] * head.span_ns - head.before_ns;
  return list;
}

function accessLevel(head) {
  const what = numbers(head.what, head.n);
  const mark = new Uint8Array(head.n), tier = new Uint8Array(head.n);
  for (let index = 0; index < head.n; index++) {
    mark[index] = what[index] & 15;
    tier[index] = what[index] < 16 ? TIER_NONE : (what[index] >> 4) - 1;
  }
  const level = {
    span: head.span_ns, group: head.group, time: times(head), row: numbers(head.row, head.n), mark, tier,
    more: numbers(head.more, head.n), bytes: numbers(head.bytes, head.n), latency: numbers(head.latency, head.n),
    guard: numbers(head.guard, head.n),
  };
  const pick = (isWanted) => Uint32Array.from({ length: head.n }, (_, index) => index).filter((index) => isWanted(mark[index]));
  const isAccess = (one) => one === READ || one === WRITE || one === REQUEST, isStar = (one) => one === DOWN || one === UP;
  level.marks = pick(isAccess);
  level.stars = pick(isStar);
  level.others = pick((one) => !isAccess(one) && !isStar(one));
  return level;
}

function lifeLevel(head) {
  return {
    span: head.span_ns, group: head.group, row: numbers(head.row, head.n, true), tier: numbers(head.tier, head.n),
    start: times(head, "start", false), length: numbers(head.length, head.n).map((spans) => spans * head.span_ns),
    more: numbers(head.more, head.n),
  };
}

function decode(data) {
  const shared = numbers(data.names.shared, data.names.rest.length);
  let name = "";
  data.names = data.names.rest.map((rest, index) => (name = name.slice(0, shared[index]) + rest));
  data.lastAccess = data.last_access === "" ? null : numbers(data.last_access, data.objects);
  data.accesses = data.accesses.map(accessLevel);
  data.lives = data.lives.map(lifeLevel);
  data.fill = data.fill.map((head) => ({
    tier: head.tier, span: head.span_ns, time: times(head), least: numbers(head.least, head.n),
    most: numbers(head.most, head.n), last: numbers(head.last, head.n),
  }));
  data.waits = data.waits.map((head) => ({
    span: head.span_ns, time: times(head), count: numbers(head.count, head.n), mean: numbers(head.mean, head.n),
    most: numbers(head.most, head.n), guard: numbers(head.guard, head.n), guardMost: numbers(head.guard_most, head.n),
  }));
  const moves = data.moves;
  for (const key of ["time", "row", "from", "to", "reason"]) moves[key] = numbers(moves[key], moves.n);
  data.movesOf = new Map();
  for (let index = 0; index < moves.n; index++) {
    const of = data.movesOf.get(moves.row[index]);
    if (of) of.push(index); else data.movesOf.set(moves.row[index], [index]);
  }
  return data;
}

// The first index whose value is at least `value`, of values that ascend.
function from(list, value, at = (index) => list[index], count = list.length) {
  let low = 0, high = count;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at(middle) < value) low = middle + 1; else high = middle;
  }
  return low;
}

// --- Words.

const group = (value) => Math.round(value).toLocaleString("en");
const plural = (count, noun) => `${group(count)} ${noun}${count === 1 ? "" : "s"}`;

function bytesIn(value) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit++; }
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

function duration(ns) {
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const [unit, word] = units.find(([unit]) => ns >= unit) || units[3];
  return `${Number((ns / unit).toPrecision(3))} ${word}`;
}

// A round step for about `count` of them, and the values from `start` to `end`.
function ticks(start, end, count) {
  const rough = (end - start) / count, magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * magnitude).find((step) => step >= rough * 0.999);
  const list = [];
  for (let index = Math.ceil(start / step); index * step <= end; index++) list.push(index * step);
  return { step, list };
}

// Seconds, or another unit, with as many digits as tell ticks of this distance apart.
function seconds(ns, step, unit = 1e9) {
  return (ns / unit).toFixed(Math.max(0, Math.min(9, Math.ceil(-Math.log10(step / unit) - 1e-9))));
}
