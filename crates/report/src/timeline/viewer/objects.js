// SPDX-License-Identifier: Apache-2.0 OR MIT
// The panel of objects: lives, accesses, migrations.

class Objects extends View {
  // The finest level with few enough of what can be seen, and the indices of that.
  pick(levels, most, visible) {
    for (let index = 0; index < levels.length; index++) {
      const isLast = index === levels.length - 1;
      const found = visible(levels[index], isLast ? Infinity : most);
      if (found) return { level: levels[index], found };
    }
    return { level: null, found: [] };
  }

  // The places of a level in a list of them that can be seen.
  visible(level, list, most) {
    const found = [];
    const at = (index) => level.time[list[index]];
    const top = Math.floor(this.top / level.group), bottom = this.bottom / level.group;
    const start = from(list, this.from - level.span, at);
    for (let index = start; index < list.length && at(index) <= this.to; index++) {
      const place = list[index];
      if (level.row[place] < top || level.row[place] >= bottom) continue;
      if (found.length >= most) return null;
      found.push(place);
    }
    return found;
  }

  drawLives() {
    const { context, data } = this;
    const { level, found } = this.pick(data.lives, LIVES_MAX, (level, most) => {
      const list = [];
      const top = Math.floor(this.top / level.group), bottom = this.bottom / level.group;
      for (let at = from(level.row, top); at < level.row.length && level.row[at] < bottom; at++) {
        if (level.start[at] > this.to || level.start[at] + level.length[at] < this.from) continue;
        if (list.length >= most) return null;
        list.push(at);
      }
      return list;
    });
    this.lifeLevel = level;
    if (!level) return;
    const high = Math.max(level.group * this.perRow, 0.5);
    const isOne = level.group === 1;
    const thick = isOne ? Math.min(2, Math.max(high * 0.6, 0.5)) : high;
    const late = new Map();
    for (const at of found) {
      const tier = level.tier[at], row = level.row[at];
      const y = this.y((row + 0.5) * level.group) - thick / 2;
      let stop = level.start[at] + level.length[at];
      const last = isOne && data.lastAccess ? data.lastAccess[row] : Infinity;
      if (stop > last) {
        const list = late.get(tier) || [];
        list.push([Math.max(last, level.start[at]), stop, y + thick / 2]);
        late.set(tier, list);
        stop = last;
      }
      if (stop <= level.start[at]) continue;
      const left = Math.max(this.x(level.start[at]), LEFT), right = Math.min(this.x(stop), LEFT + this.width);
      context.globalAlpha = isOne ? 0.8 : 0.1 + 0.3 * Math.min((level.more[at] + 1) / level.group, 1);
      context.fillStyle = this.tier(tier);
      context.fillRect(left, y, Math.max(right - left, 0.6), thick);
    }
    context.globalAlpha = 1;
    context.lineWidth = 1;
    context.setLineDash([1, 3]);
    for (const [tier, list] of late) {
      context.strokeStyle = this.tier(tier);
      context.beginPath();
      for (const [start, stop, y] of list) {
        context.moveTo(Math.max(this.x(start), LEFT), y);
        context.lineTo(Math.min(this.x(stop), LEFT + this.width), y);
      }
      context.stroke();
    }
    context.setLineDash([]);
  }

  drawMarks() {
    const { context, colours } = this;
    const { level, found } = this.pick(this.data.accesses, MARKS_MAX, (level, most) => this.visible(level, level.marks, most));
    this.markLevel = level;
    this.shownMarks = found;
    if (!level) return;
    const wide = level.span * this.perNs, high = level.group * this.perRow;
    const dot = Math.min(Math.max(high * 0.5, 1.2), 4), tick = Math.min(Math.max(high * 0.9, 1.5), 9);
    const isOne = level.group === 1 && wide < 3;
    // By kind, tier, and how many they sum up, so that the style changes seldom.
    const most = Math.log2(found.reduce((most, place) => Math.max(most, level.more[place]), 1) + 1);
    const parts = new Map();
    for (const place of found) {
      const depth = isOne ? SHADES : Math.round((Math.log2(level.more[place] + 1) / most) * SHADES);
      const key = (level.mark[place] * 64 + level.tier[place]) * 16 + depth;
      const list = parts.get(key);
      if (list) list.push(place); else parts.set(key, [place]);
    }
    const middle = (place) => this.y((level.row[place] + 0.5) * level.group);
    const lanes = Math.max(this.tiers.length, 1), lane = high / lanes;
    for (const key of [...parts.keys()].sort((a, b) => a - b)) {
      const mark = key >> 10, tier = (key >> 4) & 63, depth = (key & 15) / SHADES, list = parts.get(key);
      if (mark === READ || mark === REQUEST) {
        context.fillStyle = this.tier(tier);
        if (isOne) {
          for (const place of list) context.fillRect(this.x(level.time[place]) - dot / 2, middle(place) - dot / 2, dot, dot);
        } else {
          // A lane for each tier, where there is room.
          const isSplit = lane >= 1.5 && tier < lanes;
          context.globalAlpha = 0.2 + 0.8 * depth;
          const top = isSplit ? tier * lane - high / 2 : -high / 2;
          const h = Math.max(isSplit ? lane : high, 1.2);
          for (const place of list) this.cell(level.time[place], level.span, middle(place) + top, h);
        }
      } else if (mark === WRITE) {
        context.fillStyle = colours.mark;
        if (isOne || (wide >= 24 && high >= 16)) {
          context.globalAlpha = isOne ? 1 : 0.4 + 0.6 * depth;
          const h = isOne ? tick : high * 0.8;
          for (const place of list) context.fillRect(this.x(level.time[place]) - 0.65, middle(place) - h / 2, isOne ? 1.3 : 3, h);
        } else {
          context.globalAlpha = 0.05 + 0.25 * depth;
          for (const place of list) this.cell(level.time[place], level.span, middle(place) - high / 2, Math.max(high, 1.2));
        }
      }
    }
    context.globalAlpha = 1;
  }

  // What is neither an access nor a migration, of the finest level.
  drawOthers() {
    const { context, colours } = this;
    const level = this.data.accesses[0];
    const found = level ? this.visible(level, level.others, OTHERS_MAX) : [];
    this.hidesOthers = found === null;
    this.shownOthers = found || [];
    const high = level ? level.group * this.perRow : 0;
    const half = Math.min(Math.max(high * 0.3, 1.5), 3.5), tick = Math.min(Math.max(high * 0.45, 1), 4.5);
    const draw = (isWanted, trace) => {
      context.beginPath();
      for (const place of this.shownOthers) {
        if (isWanted(level.mark[place])) trace(this.x(level.time[place]), this.y((level.row[place] + 0.5) * level.group), level.mark[place]);
      }
    };
    context.fillStyle = colours.muted;
    draw((mark) => mark === HANDLE, (x, y) => context.rect(x - 0.5, y, 1, tick));
    context.fill();
    context.lineWidth = 1.2;
    context.strokeStyle = colours.ink;
    draw((mark) => mark === DELETE, (x, y) => {
      context.moveTo(x - half, y - half);
      context.lineTo(x + half, y + half);
      context.moveTo(x + half, y - half);
      context.lineTo(x - half, y + half);
    });
    context.stroke();
    context.strokeStyle = colours.star;
    draw((mark) => mark === COPIED || mark === DROPPED, (x, y, mark) => {
      const up = mark === COPIED ? half : -half;
      context.moveTo(x - half, y + up);
      context.lineTo(x, y - up);
      context.lineTo(x + half, y + up);
      context.closePath();
    });
    context.stroke();
  }

  // Fills a cell up to whole pixels, so that its neighbours join without a seam.
  cell(start, span, top, high) {
    const whole = (value) => Math.round(value * this.scale) / this.scale;
    const left = whole(this.x(start)), right = Math.max(whole(this.x(start + span)), left + 1);
    const above = whole(top), below = Math.max(whole(top + high), above + 1);
    this.context.fillRect(left, above, right - left, below - above);
  }

  drawStars() {
    const { context, colours } = this;
    const { level, found } = this.pick(this.data.accesses, STARS_MAX, (level, most) => this.visible(level, level.stars, most));
    this.starLevel = level;
    this.shownStars = found;
    if (!level) return;
    const wide = level.span * this.perNs, high = level.group * this.perRow;
    const isOne = level.group === 1 && wide < 3;
    const most = Math.log2(found.reduce((most, place) => Math.max(most, level.more[place]), 1) + 1);
    // In both directions side by side, and none over its neighbour.
    const radius = isOne ? Math.min(Math.max(high * 0.6, 3.5), 6.5) : Math.min(Math.max(wide * 0.22, high * 0.22, 2.5), 6.5);
    for (const isUp of [false, true]) {
      context.beginPath();
      for (const place of found) {
        if ((level.mark[place] === UP) !== isUp) continue;
        const size = isOne ? 1 : 0.5 + (0.5 * Math.log2(level.more[place] + 1)) / most;
        const x = this.x(level.time[place]) + (isOne ? 0 : wide * (isUp ? 0.28 : 0.72));
        this.star(x, this.y((level.row[place] + 0.5) * level.group), radius * size);
      }
      context.fillStyle = isUp ? colours.ground : colours.star;
      context.strokeStyle = isUp ? colours.star : colours.ground;
      context.lineWidth = isUp ? 1.2 : 0.6;
      context.fill();
      context.stroke();
    }
  }

  star(x, y, radius) {
    for (let corner = 0; corner < 10; corner++) {
      const angle = Math.PI * (corner / 5 - 0.5), length = corner % 2 === 0 ? radius : radius * 0.45;
      const [at, high] = [x + length * Math.cos(angle), y + length * Math.sin(angle)];
      if (corner === 0) this.context.moveTo(at, high); else this.context.lineTo(at, high);
    }
    this.context.closePath();
  }
}
