// SPDX-License-Identifier: Apache-2.0 OR MIT
// Draws each `div.timeline` of the page.

class Chart extends Readout {
  draw(scale = window.devicePixelRatio || 1) {
    const began = performance.now();
    this.scale = scale;
    const wide = Math.max(this.root.clientWidth, 320);
    this.width = wide - LEFT - RIGHT;
    let end = TOP + this.height;
    this.fillTop = end + GAP;
    if (this.hasFill) end = this.fillTop + FILL_HEIGHT;
    this.waitsTop = end + GAP;
    if (this.hasWaits) end = this.waitsTop + WAITS_HEIGHT;
    const high = end + BOTTOM;
    const { canvas } = this;
    if (canvas.width !== Math.round(wide * scale) || canvas.height !== Math.round(high * scale)) {
      canvas.width = Math.round(wide * scale);
      canvas.height = Math.round(high * scale);
      canvas.style.aspectRatio = `${wide} / ${high}`;
    }
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries(
      ["ground", "ink", "muted", "line", "star", "mark", "time", "note", "panel"].map((name) => [name, colour(name)]));
    this.tiers = this.data.tiers.map((tier) => colour(`tier-${tier.colour}`));
    const context = (this.context = canvas.getContext("2d"));
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = this.colours.ground;
    context.fillRect(0, 0, wide, high);
    context.font = FONT;
    this.perNs = this.width / (this.to - this.from);
    this.perRow = this.height / (this.bottom - this.top);
    this.drawPhases(end);
    this.drawTime(end);
    this.inPanel(TOP, this.height, () => {
      this.drawLives();
      this.drawMarks();
      this.drawOthers();
      this.drawStars();
    });
    this.drawRows();
    if (this.hasFill) this.drawFill();
    if (this.hasWaits) this.drawWaits();
    this.drawNotes(end);
    this.point();
    this.tell();
    this.root.dispatchEvent(new CustomEvent("drawn", { detail: performance.now() - began }));
  }
}

const charts = new Map();
const chart = (root) => {
  if (!charts.has(root)) charts.set(root, new Chart(root));
  return charts.get(root);
};
const roots = [...document.querySelectorAll("div.timeline")];
// One at a time, when it comes near: decoding a large one takes a moment.
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting) continue;
    observer.unobserve(entry.target);
    chart(entry.target);
  }
}, { rootMargin: "200px" });
roots.forEach((root) => observer.observe(root));
const again = () => charts.forEach((one) => one.later());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
// Paper is light, and finer than a screen.
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("printing");
  roots.forEach((root) => chart(root).draw(2));
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("printing");
  again();
});
