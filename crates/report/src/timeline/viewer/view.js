// SPDX-License-Identifier: Apache-2.0 OR MIT
// What is shown of the data, and how the reader changes it.

class View {
  constructor(root) {
    this.root = root;
    this.data = decode(JSON.parse(root.querySelector("script").textContent));
    const data = this.data;
    this.span = Math.max(data.span_ns, 1);
    this.rows = Math.max(data.objects, 1);
    this.hasWaits = data.waits.some((waits) => waits.time.length > 0);
    this.hasFill = data.fill.length > 0;
    this.height = Math.min(Math.max(this.rows * 14, 120), 560);
    this.fillMost = Math.max(1, ...data.fill.map((fill) => fill.most.reduce((a, b) => Math.max(a, b), 0)));
    const latencies = data.waits.flatMap((waits) => [waits.most, waits.mean]);
    const all = (pick, first) => latencies.reduce((one, list) => list.reduce((a, b) => (b > 0 ? pick(a, b) : a), one), first);
    this.waitsMost = all(Math.max, 1);
    this.waitsLeast = Math.min(all(Math.min, this.waitsMost), this.waitsMost / 10);
    this.makeElements();
    this.whole();
    this.listen();
    new ResizeObserver(() => this.later()).observe(root);
  }

  makeElements() {
    const make = (name, kind, parent) => {
      const element = document.createElement(name);
      element.className = kind;
      return parent.appendChild(element);
    };
    const tools = make("div", "tools", this.root);
    for (const [words, label, act] of [
      ["+", "zoom in", () => this.zoom(0.5, 1)],
      ["−", "zoom out", () => this.zoom(2, 1)],
      ["◀", "earlier", () => this.pan(-0.25, 0)],
      ["▶", "later", () => this.pan(0.25, 0)],
      ["everything", "show everything", () => this.whole()],
    ]) {
      const button = make("button", "", tools);
      button.type = "button";
      button.textContent = words;
      button.setAttribute("aria-label", label);
      button.addEventListener("click", act);
    }
    this.canvas = make("canvas", "", this.root);
    this.canvas.setAttribute("role", "img");
    this.marker = make("div", "marker", this.root);
    this.marker.style.left = `${LEFT}px`;
    this.marker.style.right = `${RIGHT}px`;
    this.marker.hidden = true;
    this.tip = make("div", "tip", this.root);
    this.tip.hidden = true;
    this.status = make("p", "status", this.root);
    this.status.setAttribute("aria-live", "polite");
  }

  listen() {
    const { root, canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      const isOurs = event.ctrlKey || event.metaKey || event.shiftKey || event.altKey || root.contains(document.activeElement);
      if (!isOurs) return;
      event.preventDefault();
      const by = (event.deltaY || event.deltaX) * (event.deltaMode === 1 ? 16 : 1);
      const at = this.place(event);
      if (event.shiftKey) this.pan(by / 1000, 0);
      else if (event.altKey) this.zoom(1, 1.0015 ** by, at);
      else this.zoom(1.0015 ** by, 1, at);
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.drag = { x: event.offsetX, y: event.offsetY };
      canvas.setPointerCapture(event.pointerId);
      root.focus({ preventScroll: true });
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) {
        this.pan((this.drag.x - event.offsetX) / this.width, (this.drag.y - event.offsetY) / this.height);
        this.drag = { x: event.offsetX, y: event.offsetY };
      }
      this.pointer = this.drag ? null : { x: event.offsetX, y: event.offsetY };
      this.pointLater();
    });
    for (const kind of ["pointerup", "pointercancel"]) canvas.addEventListener(kind, () => (this.drag = null));
    canvas.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.pointLater();
    });
    canvas.addEventListener("dblclick", (event) => this.zoom(0.25, 0.5, this.place(event)));
    root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = {
        ArrowLeft: () => this.pan(-0.1, 0), ArrowRight: () => this.pan(0.1, 0),
        ArrowUp: () => this.pan(0, -0.1), ArrowDown: () => this.pan(0, 0.1),
        "+": () => this.zoom(0.5, 1), "=": () => this.zoom(0.5, 1), "-": () => this.zoom(2, 1),
        PageUp: () => this.zoom(1, 0.5), PageDown: () => this.zoom(1, 2),
        0: () => this.whole(), Home: () => this.whole(),
      }[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    });
  }

  // Where in the panel of objects an event is, from 0 to 1.
  place(event) {
    const limit = (value) => Math.min(Math.max(value, 0), 1);
    return { x: limit((event.offsetX - LEFT) / this.width), y: limit((event.offsetY - TOP) / this.height) };
  }

  whole() {
    [this.from, this.to, this.top, this.bottom] = [0, this.span, 0, this.rows];
    this.later();
  }

  zoom(byTime, byRows, at = { x: 0.5, y: 0.5 }) {
    const time = this.from + at.x * (this.to - this.from), row = this.top + at.y * (this.bottom - this.top);
    const long = Math.min(Math.max((this.to - this.from) * byTime, Math.min(100, this.span)), this.span);
    const high = Math.min(Math.max((this.bottom - this.top) * byRows, Math.min(4, this.rows)), this.rows);
    this.show(time - at.x * long, long, row - at.y * high, high);
  }

  pan(byTime, byRows) {
    const long = this.to - this.from, high = this.bottom - this.top;
    this.show(this.from + byTime * long, long, this.top + byRows * high, high);
  }

  show(from, long, top, high) {
    this.from = Math.min(Math.max(from, 0), this.span - long);
    this.to = this.from + long;
    this.top = Math.min(Math.max(top, 0), this.rows - high);
    this.bottom = this.top + high;
    this.later();
  }

  later() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = null;
      this.draw();
    });
  }

  pointLater() {
    if (this.frame || this.pointing) return;
    this.pointing = requestAnimationFrame(() => {
      this.pointing = null;
      this.point();
    });
  }

  x(ns) {
    return LEFT + (ns - this.from) * this.perNs;
  }

  y(row) {
    return TOP + (row - this.top) * this.perRow;
  }

  tier(tier) {
    return this.tiers[tier] || this.colours.time;
  }

  text(words, x, y, { align = "left", colour = "muted", bold = false } = {}) {
    const { context } = this;
    context.font = bold ? `600 ${FONT}` : FONT;
    context.fillStyle = this.colours[colour];
    context.textAlign = align;
    context.fillText(words, x, y);
  }

  line(x0, y0, x1, y1) {
    const { context } = this;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  }

  inPanel(top, height, draw) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(LEFT, top - 1, this.width + 1, height + 2);
    context.clip();
    draw();
    context.restore();
  }
}
