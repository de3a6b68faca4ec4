// SPDX-License-Identifier: Apache-2.0 OR MIT
// Words about what is shown, and about what the pointer is at.

class Readout extends Panels {
  tell() {
    const { step } = ticks(this.from, this.to, 10);
    const level = this.markLevel || { span: 1, group: 1 };
    const isExact = level.span === 1 && level.group === 1;
    const marks = isExact
      ? "each event has a mark"
      : `a mark sums up ${plural(level.group, "object")} over ${duration(level.span)}`;
    const words = `${seconds(this.from, step / 10)} to ${seconds(this.to, step / 10)} of ${seconds(this.span, step / 10)} s; ` +
      (this.data.objects === 0 ? "no objects" : `objects ${group(Math.floor(this.top) + 1)} to ` +
        `${group(Math.min(Math.ceil(this.bottom), this.data.objects))} of ${group(this.data.objects)}; ${marks}`) +
      `${this.hidesOthers ? "; marks other than accesses and migrations appear when zoomed in" : ""}`;
    if (this.status.textContent !== words) this.status.textContent = words;
    this.canvas.setAttribute("aria-label", words);
  }

  // What the pointer is at.
  point() {
    const { pointer, tip } = this;
    const isAcross = pointer && pointer.x >= LEFT && pointer.x <= LEFT + this.width;
    const isIn = (top, height) => isAcross && pointer.y >= top && pointer.y <= top + height;
    const row = isIn(TOP, this.height) ? Math.floor(this.top + (pointer.y - TOP) / this.perRow) : -1;
    this.marker.hidden = row < 0 || this.perRow < 2;
    this.marker.style.top = `${this.canvas.offsetTop + Math.max(this.y(row), TOP)}px`;
    this.marker.style.height = `${this.perRow}px`;
    let lines = [];
    if (row >= 0) lines = this.about(row);
    else if (this.hasFill && isIn(this.fillTop, FILL_HEIGHT)) lines = this.fillAt();
    else if (this.hasWaits && isIn(this.waitsTop, WAITS_HEIGHT)) lines = this.waitsAt();
    tip.hidden = lines.length === 0;
    if (tip.hidden) return;
    tip.textContent = lines.filter(Boolean).join("\n");
    const left = Math.min(pointer.x + 14, this.root.clientWidth - tip.offsetWidth - 4);
    tip.style.left = `${Math.max(left, 0)}px`;
    const below = pointer.y + 18, room = this.canvas.offsetHeight;
    tip.style.top = `${this.canvas.offsetTop + (below + tip.offsetHeight < room ? below : pointer.y - tip.offsetHeight - 10)}px`;
  }

  about(row) {
    const near =
      this.nearest(this.starLevel, this.shownStars) || this.nearest(this.data.accesses[0], this.shownOthers) ||
      this.nearest(this.markLevel, this.shownMarks);
    return near ? this.story(near.level, near.place) : [this.name(row), this.where(row)];
  }

  // The time at the pointer, in words.
  timeAt() {
    const time = this.from + (this.pointer.x - LEFT) / this.perNs;
    return { time, words: `at ${seconds(time, (this.to - this.from) / 1000)} s` };
  }

  fillAt() {
    const { time, words } = this.timeAt();
    const lines = this.data.fill.map((fill) => {
      const at = from(fill.time, time + 1) - 1;
      const bytes = at < 0 ? 0 : fill.last[at];
      return `${this.tierName(fill.tier) || "all objects"}: ${bytesIn(bytes)}`;
    });
    return [words, ...lines];
  }

  waitsAt() {
    const { words } = this.timeAt();
    const lines = this.data.waits.map((waits, index) => {
      let best = null;
      for (const column of this.columns(waits)) {
        const distance = Math.abs(column.x + column.wide / 2 - this.pointer.x);
        if (distance < 8 && (!best || distance < best.distance)) best = { ...column, distance };
      }
      if (!best) return "";
      const what = plural(best.count, index === 0 ? (this.data.tiers.length > 0 ? "read" : "request") : "write");
      const guard = best.guard > 0 ? `, longest wait at the guard ${duration(best.guard)}` : "";
      return `${what}: mean ${duration(best.mean)}, longest ${duration(best.most)}${guard}`;
    });
    return lines.some(Boolean) ? [words, ...lines] : [];
  }

  nearest(level, places) {
    if (!level || !places) return null;
    let best = null, least = 64;
    for (const place of places) {
      const wide = level.span * this.perNs, x = this.x(level.time[place]);
      const sideways = Math.max(x - this.pointer.x, this.pointer.x - x - wide, 0);
      if (sideways > 8) continue;
      const high = Math.max(level.group * this.perRow, 4) / 2;
      const upwards = Math.max(Math.abs(this.y((level.row[place] + 0.5) * level.group) - this.pointer.y) - high, 0);
      const distance = sideways ** 2 + upwards ** 2;
      if (distance < least) [best, least] = [place, distance];
    }
    return best === null ? null : { level, place: best };
  }

  name(row) {
    return this.data.names[row] || `object ${group(row + 1)}`;
  }

  tierName(tier) {
    return this.data.tiers[tier] ? this.data.tiers[tier].name : "";
  }

  where(row) {
    const { level } = { level: this.lifeLevel };
    if (!level || level.group !== 1) return "";
    const time = this.from + (this.pointer.x - LEFT) / this.perNs;
    for (let at = from(level.row, row); at < level.row.length && level.row[at] === row; at++) {
      if (level.start[at] <= time && time <= level.start[at] + level.length[at]) {
        const name = this.tierName(level.tier[at]);
        return name && `on ${name} from ${seconds(level.start[at], 1e6)} to ${seconds(level.start[at] + level.length[at], 1e6)} s`;
      }
    }
    return "";
  }

  story(level, place) {
    const { data } = this;
    const row = level.row[place] * level.group, count = level.more[place] + 1;
    const last = Math.min(row + level.group, data.objects);
    const mark = level.mark[place], tier = this.tierName(level.tier[place]);
    const isMove = mark === UP || mark === DOWN;
    const lines = [level.group === 1 ? this.name(row) : `objects ${group(row + 1)} to ${group(last)}`];
    const at = `${seconds(level.time[place], 1e4)} s`;
    const when = level.span === 1 ? `at ${at}` : `within ${duration(level.span)} from ${at}`;
    lines.push(`${count === 1 ? "" : `${group(count)} × `}${data.marks[mark]}${tier && `${isMove ? ", to" : " on"} ${tier}`} ${when}`);
    if (level.bytes[place] > 0 && !isMove) lines.push(bytesIn(level.bytes[place]));
    if (level.latency[place] > 0) lines.push(`${count === 1 ? "latency" : "longest latency"} ${duration(level.latency[place])}`);
    if (level.guard[place] > 0) lines.push(`of which waiting for a migration ${duration(level.guard[place])}`);
    const found = isMove && level.group === 1 ? data.movesOf.get(row) || [] : [];
    for (const index of found) {
      const ns = data.moves.time[index];
      if (ns < level.time[place] || ns >= level.time[place] + level.span || lines.length > 8) continue;
      const reason = data.moves.reasons[data.moves.reason[index] - 1];
      lines.push(`from ${this.tierName(data.moves.from[index]) || "?"} to ${this.tierName(data.moves.to[index])}${reason ? `: ${reason}` : ""}`);
    }
    return lines;
  }
}
