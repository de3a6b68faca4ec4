// SPDX-License-Identifier: Apache-2.0 OR MIT
// Axes, and the panels below that of objects.

class Panels extends Objects {
  drawPhases(end) {
    const { context } = this;
    this.data.phases.forEach(([name, start, stop], index) => {
      const left = Math.max(this.x(start), LEFT), right = Math.min(this.x(stop), LEFT + this.width);
      if (right <= left) return;
      if (index % 2 === 0) {
        context.fillStyle = this.colours.panel;
        context.fillRect(left, 22, right - left, end - 22);
      }
      context.font = `600 ${FONT}`;
      if (right - left > context.measureText(name).width) {
        this.text(name, (left + right) / 2, 16, { align: "center", colour: "ink", bold: true });
      }
    });
  }

  drawTime(end) {
    const { context } = this;
    const { step, list } = ticks(this.from, this.to, Math.max(2, Math.min(10, this.width / 90)));
    const [unit, word] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]].find(([unit]) => this.span >= unit) || [1, "ns"];
    context.strokeStyle = this.colours.line;
    context.lineWidth = 1;
    for (const tick of list) {
      this.line(this.x(tick), TOP, this.x(tick), end);
      this.text(seconds(tick, step, unit), this.x(tick), end + 16, { align: "center" });
    }
    const words = `time since the first event in ${word} (n = ${plural(this.data.events, "event")})`;
    this.text(words, LEFT + this.width, end + 34, { align: "right", colour: "ink" });
  }

  drawRows() {
    const { context, data } = this;
    const label = data.phases.length > 0 ? 36 : 22;
    this.text(`objects, in the order of their first event (n = ${group(data.objects)})`, 2, label, { colour: "ink", bold: true });
    context.strokeStyle = this.colours.muted;
    this.line(LEFT, TOP, LEFT, TOP + this.height);
    const areNames = this.perRow >= 11 && data.names.length >= this.bottom;
    const step = areNames ? 1 : Math.max(1, ticks(this.top, this.bottom, this.height / 40).step);
    for (let row = Math.ceil(this.top / step) * step; row <= this.bottom; row += step) {
      const at = areNames ? row : Math.max(row - 1, 0);
      const y = this.y(at + 0.5);
      if (y < TOP || y > TOP + this.height || at >= data.objects) continue;
      const words = areNames ? this.short(data.names[at]) : group(at + 1);
      this.text(words, LEFT - 6, y + 4, { align: "right" });
    }
  }

  short(name) {
    return name.length > 22 ? `…${name.slice(-21)}` : name;
  }

  drawFill() {
    const { context, data } = this;
    const top = this.fillTop, bottom = top + FILL_HEIGHT, most = this.fillMost * 1.05;
    const y = (bytes) => bottom - (bytes / most) * FILL_HEIGHT;
    const n = data.fill.reduce((sum, fill) => sum + fill.time.length, 0);
    const where = data.tiers.length > 0 ? "on the tiers" : "of the objects seen";
    this.text(`bytes ${where}${data.fill_is_counted ? "" : ", as far as events show"} (n = ${plural(n, "value")})`, 2, top - 10, { colour: "ink", bold: true });
    context.strokeStyle = this.colours.line;
    context.lineWidth = 1;
    for (const tick of ticks(0, most, 3).list) {
      this.line(LEFT, y(tick), LEFT + this.width, y(tick));
      this.text(bytesIn(tick), LEFT - 6, y(tick) + 4, { align: "right" });
    }
    this.inPanel(top, FILL_HEIGHT, () => {
      for (const fill of data.fill) {
        context.strokeStyle = context.fillStyle = this.tier(fill.tier);
        const first = Math.max(from(fill.time, this.from) - 1, 0);
        context.beginPath();
        let before = y(first > 0 || fill.time[0] <= this.from ? fill.last[first] : 0);
        context.moveTo(LEFT - 2, before);
        let x = LEFT - 2;
        for (let at = first; at < fill.time.length && fill.time[at] <= this.to; at++) {
          x = Math.max(this.x(fill.time[at]), LEFT - 2);
          context.lineTo(x, before);
          context.lineTo(x, y(fill.most[at]));
          context.lineTo(x, y(fill.least[at]));
          context.lineTo(x, (before = y(fill.last[at])));
        }
        const right = Math.min(this.x(this.span), LEFT + this.width + 2);
        context.lineTo(right, before);
        context.lineWidth = 1.6;
        context.stroke();
        context.lineTo(right, bottom);
        context.lineTo(LEFT - 2, bottom);
        context.globalAlpha = 0.2;
        context.fill();
        context.globalAlpha = 1;
        const capacity = data.tiers[fill.tier] && data.tiers[fill.tier].capacity_bytes;
        if (capacity && capacity <= most) {
          context.lineWidth = 1;
          context.setLineDash([6, 4]);
          this.line(LEFT, y(capacity), LEFT + this.width, y(capacity));
          context.setLineDash([]);
        }
      }
    });
  }

  drawWaits() {
    const { context, colours, data } = this;
    const top = this.waitsTop, bottom = top + WAITS_HEIGHT;
    const low = Math.log10(this.waitsLeast), high = Math.log10(this.waitsMost) + 0.05;
    const y = (ns) => bottom - ((Math.log10(Math.max(ns, this.waitsLeast)) - low) / (high - low)) * WAITS_HEIGHT;
    const count = (waits) => waits.count.reduce((a, b) => a + b, 0);
    const isBare = data.tiers.length === 0;
    this.text(`latency, on a logarithmic scale: mean, and up to the longest (n = ${plural(count(data.waits[0]), isBare ? "request" : "read")}, ` +
      `${plural(count(data.waits[1]), "write")})`, 2, top - 10, { colour: "ink", bold: true });
    const keys = [["time", isBare ? "reads and others" : "reads"], ["mark", "writes"], ["note", "longest wait at the guard"]];
    let x = LEFT + this.width;
    for (const [colour, words] of keys.reverse()) {
      if (colour === "note" && !data.waits.some((waits) => waits.guardMost.some((ns) => ns > 0))) continue;
      this.text(words, x, top - 10, { align: "right" });
      x -= context.measureText(words).width + 12;
      context.fillStyle = colours[colour];
      context.fillRect(x, top - 18, 8, 8);
      x -= 14;
    }
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    for (let power = Math.ceil(low); power <= high; power++) {
      this.line(LEFT, y(10 ** power), LEFT + this.width, y(10 ** power));
      if ((power - Math.ceil(low)) % Math.ceil((high - low) / 5) === 0) {
        this.text(duration(10 ** power), LEFT - 6, y(10 ** power) + 4, { align: "right" });
      }
    }
    this.inPanel(top, WAITS_HEIGHT, () => {
      data.waits.forEach((waits, index) => {
        context.fillStyle = index === 0 ? colours.time : colours.mark;
        const columns = this.columns(waits);
        context.globalAlpha = 0.3;
        for (const { x, wide, most, mean } of columns) context.fillRect(x, y(most), wide, Math.max(y(mean) - y(most), 1));
        context.globalAlpha = 1;
        for (const { x, wide, mean } of columns) context.fillRect(x, y(mean) - 1, Math.max(wide, 2), 2);
        context.fillStyle = colours.note;
        for (const { x, wide, guard } of columns) if (guard > 0) context.fillRect(x, y(guard) - 1, Math.max(wide, 2), 2);
      });
    });
  }

  // Latencies in view, those of one column of pixels as one.
  columns(waits) {
    const columns = [];
    const wide = Math.max(waits.span * this.perNs, 1.5);
    let last = null;
    for (let at = from(waits.time, this.from - waits.span); at < waits.time.length && waits.time[at] <= this.to; at++) {
      const x = this.x(waits.time[at]);
      if (last === null || x - last.x >= 1.5) {
        last = { x, wide, most: 0, sum: 0, count: 0, guard: 0 };
        columns.push(last);
      }
      last.most = Math.max(last.most, waits.most[at]);
      last.sum += waits.mean[at] * waits.count[at];
      last.count += waits.count[at];
      last.guard = Math.max(last.guard, waits.guardMost[at]);
    }
    for (const column of columns) column.mean = column.sum / column.count;
    return columns;
  }

  drawNotes(end) {
    const { context } = this;
    let free = LEFT;
    for (const [ns, words] of this.data.notes) {
      if (ns < this.from || ns > this.to) continue;
      const x = this.x(ns);
      context.strokeStyle = this.colours.note;
      context.lineWidth = 1.4;
      context.setLineDash([6, 3]);
      this.line(x, TOP - 8, x, end);
      context.setLineDash([]);
      context.font = FONT;
      const wide = context.measureText(words).width;
      const at = Math.min(x + 5, LEFT + this.width - wide);
      if (at < free) continue;
      this.text(words, at, TOP - 2, { colour: "note" });
      free = at + wide + 12;
    }
  }
}
