"use strict";
// Charts from the data in the page. A view is what an axis shows, in the units of its scale
// (logarithms on a logarithmic axis), so that zooming is the same on both.
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const HEIGHT = 300, LEFT = 58, RIGHT = 14, TOP = 26, BOTTOM = 40;
  const tip = document.getElementById("tip");
  const data = JSON.parse(document.getElementById("data").textContent);
  let count = 0;

  const make = (name, attributes = {}, ...children) => {
    const node = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...children);
    return node;
  };
  const element = (name, className, ...children) => {
    const node = document.createElement(name);
    if (className) node.className = className;
    node.append(...children);
    return node;
  };

  const plain = value => {
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e9 || size < 1e-3)) return value.toExponential().replace("e+", "e");
    if (size >= 1e6) return plain(value / 1e6) + " M";
    return value.toLocaleString("en", {maximumSignificantDigits: 7});
  };
  const shown = (value, percent) =>
    percent ? plain(+(100 * value).toPrecision(6)) + " %" : plain(+value.toPrecision(6));

  const scale = log => log
    ? {to: v => Math.log10(v), from: u => 10 ** u}
    : {to: v => v, from: u => u};

  // Round numbers inside a view: 1, 2, 5 times a power of ten, or powers of ten.
  const ticks = ([low, high], log, wanted) => {
    if (log && high - low > 0.9) {
      const every = Math.max(1, Math.ceil((high - low) / wanted));
      const out = [];
      for (let e = Math.floor(low); e <= high; e += 1) {
        const between = high - low < 2.2 ? [1, 2, 5] : high - low < 3.5 ? [1, 3] : [1];
        if (e % every === 0 || between.length > 1) {
          for (const k of between) {
            const u = e + Math.log10(k);
            if (u >= low - 1e-9 && u <= high + 1e-9) out.push(k * 10 ** e);
          }
        }
      }
      return out;
    }
    const [a, b] = log ? [10 ** low, 10 ** high] : [low, high];
    const power = 10 ** Math.floor(Math.log10((b - a) / wanted));
    const step = [1, 2, 5, 10].map(k => k * power).find(s => (b - a) / s <= wanted) || 10 * power;
    const out = [];
    for (let k = Math.ceil(a / step - 1e-9); k * step <= b + 1e-9 * step; k++) {
      if (!log || k > 0) out.push(+(k * step).toPrecision(12));
    }
    return out;
  };

  class Panel {
    constructor(panel) {
      this.panel = panel;
      this.hidden = new Set();
      this.logX = panel.logX;
      this.logY = panel.logY;
      this.id = "clip" + count++;
      this.svg = make("svg", {tabindex: 0, role: "img", "aria-label": this.describe()});
      this.node = element("div", "panel");
      const title = element("h4", "", panel.title);
      this.node.append(element("div", "head", title, this.buttons()), this.svg, this.legend());
      this.reset();
      this.listen();
    }

    describe() {
      const ends = this.panel.curves.filter(c => c.points.length).map(c =>
        `${c.name} ends at ${shown(c.points.at(-1)[1], this.panel.percent)}`);
      return `${this.panel.title}: ${this.panel.y} over ${this.panel.x}. ${ends.join("; ")}.`;
    }

    button(text, label, act) {
      const node = element("button", "", text);
      node.type = "button";
      node.title = label;
      node.setAttribute("aria-label", `${label}: ${this.panel.title}`);
      node.addEventListener("click", act);
      return node;
    }

    buttons() {
      const bar = element("div", "tools");
      const axis = (name, key) => {
        const node = this.button(`${name} log`, `logarithmic ${name} axis`, () => {
          this[key] = !this[key];
          this.reset();
          node.setAttribute("aria-pressed", this[key]);
        });
        node.setAttribute("aria-pressed", this[key]);
        node.dataset.act = key;
        return node;
      };
      const positive = place =>
        this.panel.curves.some(c => c.points.some(p => p[place] > 0));
      if (positive(0)) bar.append(axis("x", "logX"));
      if (positive(1)) bar.append(axis("y", "logY"));
      const act = (name, text, label, what) => {
        const node = this.button(text, label, what);
        node.dataset.act = name;
        bar.append(node);
      };
      act("in", "+", "zoom in", () => this.zoom(0.6));
      act("out", "−", "zoom out", () => this.zoom(1 / 0.6));
      act("left", "←", "move left", () => this.pan(-0.2, 0));
      act("right", "→", "move right", () => this.pan(0.2, 0));
      act("reset", "reset", "show everything", () => this.reset());
      return bar;
    }

    legend() {
      const list = element("div", "legend");
      const entries = [
        ...this.panel.curves.map(c => ({...c, key: "c:" + c.name})),
        ...this.panel.lines.map(l => ({...l, key: "l:" + l.name, dash: "1 3"})),
      ];
      for (const entry of entries) {
        const line = make("line", {
          x1: 0, x2: 22, y1: 5, y2: 5, class: "curve", style: `--c:${entry.colour}`,
          "stroke-dasharray": entry.dash || "none"});
        const sample = make("svg", {viewBox: "0 0 22 10", "aria-hidden": "true"}, line);
        const note = entry.ended ? element("small", "", ` (${entry.ended})`) : "";
        const node = element("button", "", sample, element("span", "", entry.name, note));
        node.type = "button";
        node.setAttribute("aria-pressed", "true");
        node.title = "switch on or off";
        node.addEventListener("click", () => {
          const off = this.hidden.has(entry.key);
          this.hidden[off ? "delete" : "add"](entry.key);
          node.setAttribute("aria-pressed", off);
          this.draw();
        });
        list.append(node);
      }
      return list;
    }

    // The points of a curve that its axes can show.
    points(curve) {
      return curve.points.filter(p => (!this.logX || p[0] > 0) && (!this.logY || p[1] > 0));
    }

    reset() {
      const x = scale(this.logX), y = scale(this.logY);
      const xs = this.panel.curves.flatMap(c => this.points(c).map(p => x.to(p[0])));
      let [low, high] = xs.length ? [Math.min(...xs), Math.max(...xs)] : [0, 1];
      if (low === high) [low, high] = [low - 0.5, high + 0.5];
      const pad = this.logX || this.panel.curves.every(c => c.points.length < 2)
        ? 0.03 * (high - low) : 0;
      let [bottom, top] = this.panel.range;
      if (this.logY && !this.panel.logY) {
        const ys = this.panel.curves.flatMap(c => this.points(c).map(p => p[1]));
        bottom = Math.max(bottom, 0.9 * Math.min(...ys.filter(v => v <= top), top));
      } else if (!this.logY && this.panel.logY) bottom = 0;
      this.view = {x: [low - pad, high + pad], y: [y.to(bottom), y.to(top)]};
      this.draw();
    }

    zoom(factor, at = [0.5, 0.5]) {
      for (const [axis, share] of [["x", at[0]], ["y", at[1]]]) {
        const [low, high] = this.view[axis];
        const centre = low + share * (high - low), span = (high - low) * factor;
        if (span < 1e-9 * Math.max(1, Math.abs(centre))) continue;
        this.view[axis] = [centre - share * span, centre + (1 - share) * span];
      }
      this.draw();
    }

    pan(x, y) {
      for (const [axis, share] of [["x", x], ["y", y]]) {
        const [low, high] = this.view[axis];
        this.view[axis] = [low + share * (high - low), high + share * (high - low)];
      }
      this.draw();
    }

    place() {
      const x = scale(this.logX), y = scale(this.logY);
      const [left, right] = this.view.x, [bottom, top] = this.view.y;
      const width = this.width - LEFT - RIGHT, height = HEIGHT - TOP - BOTTOM;
      return {
        x: v => +(LEFT + width * (x.to(v) - left) / (right - left)).toFixed(2),
        y: v => +(TOP + height * (top - y.to(v)) / (top - bottom)).toFixed(2),
      };
    }

    draw() {
      this.width = Math.max(this.svg.clientWidth || 520, 240);
      const {svg, panel, width} = this, at = this.place();
      svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      svg.dataset.view = JSON.stringify(this.view);
      const inner = {x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: HEIGHT - TOP - BOTTOM};
      const clip = make("clipPath", {id: this.id}, make("rect", inner));
      const body = make("g", {"clip-path": `url(#${this.id})`});
      svg.replaceChildren(make("defs", {}, clip), ...this.axes(at), body);
      for (const line of panel.lines) {
        if (this.hidden.has("l:" + line.name) || this.logY && line.y <= 0) continue;
        const y = at.y(line.y);
        body.append(make("line", {x1: LEFT, x2: width - RIGHT, y1: y, y2: y, class: "curve line",
          style: `--c:${line.colour}`, "stroke-dasharray": "1 3"}));
      }
      for (const curve of panel.curves) {
        if (!this.hidden.has("c:" + curve.name)) this.curve(body, curve, at);
      }
      this.cursor = make("line", {class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden"});
      this.box = make("rect", {class: "box", visibility: "hidden"});
      svg.append(this.cursor, this.box);
    }

    curve(body, curve, at) {
      const points = this.points(curve), style = `--c:${curve.colour}`;
      if (!points.length) return;
      if (points.some(p => p[4] > 1)) {
        const low = v => this.logY && v <= 0 ? 10 ** this.view.y[0] : v;
        const there = points.map(p => `${at.x(p[0])} ${at.y(p[3])}`);
        const back = points.slice().reverse().map(p => `${at.x(p[0])} ${at.y(low(p[2]))}`);
        body.append(make("path", {class: "band", style, d: `M${[...there, ...back].join("L")}Z`}));
      }
      const d = "M" + points.map(p => `${at.x(p[0])} ${at.y(p[1])}`).join("L");
      body.append(make("path", {class: "curve", style, d, "data-name": curve.name,
        "stroke-dasharray": curve.dash || "none"}));
      if (points.length < 12) {
        for (const p of points) {
          body.append(make("circle", {class: "dotted", style, cx: at.x(p[0]), cy: at.y(p[1]), r: 2.6}));
        }
      }
      if (curve.diverged) {
        const [x, y] = [at.x(points.at(-1)[0]), at.y(points.at(-1)[1])];
        const v = Math.min(Math.max(y, TOP + 6), HEIGHT - BOTTOM - 6);
        body.append(make("path", {class: "curve cross", style,
          d: `M${x - 5} ${v - 5}L${x + 5} ${v + 5}M${x - 5} ${v + 5}L${x + 5} ${v - 5}`}));
      }
    }

    // A few measured places on a logarithmic axis are named themselves.
    ticksX() {
      const [low, high] = this.view.x;
      const places = [...new Set(this.panel.curves.flatMap(c => this.points(c).map(p => p[0])))];
      const few = places.filter(v => Math.log10(v) >= low && Math.log10(v) <= high);
      if (this.logX && this.panel.logX && few.length > 1 && few.length * 44 < this.width) return few;
      return ticks(this.view.x, this.logX, Math.max(3, Math.floor(this.width / 90)));
    }

    axes(at) {
      const {panel, width} = this, out = [];
      for (const value of ticks(this.view.y, this.logY, 6)) {
        const y = at.y(value);
        const text = panel.percent ? plain(+(100 * value).toPrecision(6)) + " %" : plain(value);
        out.push(make("line", {class: "grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y}),
          make("text", {class: "ty", x: LEFT - 8, y: y + 4, "text-anchor": "end"}, text));
      }
      for (const value of this.ticksX()) {
        const x = at.x(value);
        out.push(make("line", {class: "tick", x1: x, x2: x, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4}),
          make("text", {class: "tx", x, y: HEIGHT - BOTTOM + 18, "text-anchor": "middle"}, plain(value)));
      }
      const base = HEIGHT - BOTTOM;
      out.push(make("line", {class: "base", x1: LEFT, x2: width - RIGHT, y1: base, y2: base}),
        make("text", {x: width - RIGHT, y: HEIGHT - 6, "text-anchor": "end"}, panel.x),
        make("text", {x: 2, y: 12, "text-anchor": "start"}, panel.y));
      return out;
    }

    // Pixels of the chart, and shares of its inside, at an event.
    where(event) {
      const box = this.svg.getBoundingClientRect(), k = this.width / box.width;
      const x = (event.clientX - box.left) * k, y = (event.clientY - box.top) * k;
      const share = [(x - LEFT) / (this.width - LEFT - RIGHT), 1 - (y - TOP) / (HEIGHT - TOP - BOTTOM)];
      return {x, y, share: share.map(s => Math.min(Math.max(s, 0), 1))};
    }

    listen() {
      const {svg} = this;
      let start = null;
      svg.addEventListener("pointerdown", event => {
        if (event.button || event.pointerType === "touch") return;
        start = this.where(event);
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointermove", event => {
        const now = this.where(event);
        if (!start) return this.hover(event, now);
        hide();
        const [x, y] = [Math.min(start.x, now.x), Math.min(start.y, now.y)];
        for (const [key, value] of Object.entries({x, y, width: Math.abs(now.x - start.x),
          height: Math.abs(now.y - start.y), visibility: "visible"})) this.box.setAttribute(key, value);
      });
      svg.addEventListener("pointerup", event => {
        if (!start) return;
        const from = start.share, end = this.where(event), to = end.share;
        const far = Math.hypot(end.x - start.x, end.y - start.y) > 8;
        start = null;
        this.box.setAttribute("visibility", "hidden");
        if (!far) return;
        for (const [axis, i] of [["x", 0], ["y", 1]]) {
          const [low, high] = this.view[axis], span = high - low;
          const [a, b] = [Math.min(from[i], to[i]), Math.max(from[i], to[i])];
          // A drag along one axis zooms that axis alone.
          if (b - a > 0.03) this.view[axis] = [low + a * span, low + b * span];
        }
        this.draw();
      });
      svg.addEventListener("pointercancel", () => { start = null; this.draw(); });
      svg.addEventListener("pointerleave", () => { if (!start) { hide(); this.cursor.setAttribute("visibility", "hidden"); } });
      svg.addEventListener("dblclick", () => this.reset());
      svg.addEventListener("wheel", event => {
        // The page keeps its wheel until the reader has taken hold of the chart.
        if (!event.ctrlKey && document.activeElement !== svg) return;
        event.preventDefault();
        this.zoom(event.deltaY < 0 ? 0.85 : 1 / 0.85, this.where(event).share);
      }, {passive: false});
      svg.addEventListener("keydown", event => {
        const act = {
          "+": () => this.zoom(0.6), "=": () => this.zoom(0.6), "-": () => this.zoom(1 / 0.6),
          "0": () => this.reset(), Escape: () => this.reset(),
          ArrowLeft: () => this.pan(-0.1, 0), ArrowRight: () => this.pan(0.1, 0),
          ArrowUp: () => this.pan(0, 0.1), ArrowDown: () => this.pan(0, -0.1),
        }[event.key];
        if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        act();
      });
    }

    hover(event, now) {
      const at = this.place(), {percent} = this.panel;
      const near = this.panel.curves.filter(c => !this.hidden.has("c:" + c.name)).map(c => {
        const points = this.points(c).map(p => ({p, x: at.x(p[0])}));
        return points.length && {c, ...points.reduce((a, b) =>
          Math.abs(b.x - now.x) < Math.abs(a.x - now.x) ? b : a)};
      }).filter(Boolean);
      if (!near.length) return hide();
      const best = near.reduce((a, b) => Math.abs(b.x - now.x) < Math.abs(a.x - now.x) ? b : a);
      near.sort((a, b) => at.y(a.p[1]) - at.y(b.p[1]));
      const rows = near.map(({c, p}) => {
        const dot = element("span", "dot");
        dot.style.setProperty("--c", c.colour);
        const value = element("b", "", shown(p[1], percent));
        const range = p[4] > 1
          ? ` (${shown(p[2], percent)} to ${shown(p[3], percent)}, ${p[4]} seeds)` : "";
        const elsewhere = p[0] === best.p[0] ? "" : ` at ${plain(p[0])}`;
        return element("div", "", dot, c.name + ": ", value, range + elsewhere);
      });
      for (const line of this.panel.lines) {
        if (!this.hidden.has("l:" + line.name)) rows.push(element("div", "paper", line.name));
      }
      tip.replaceChildren(element("div", "at", `${this.panel.x}: ${plain(best.p[0])}`), ...rows);
      for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, best.x);
      const inside = best.x >= LEFT && best.x <= this.width - RIGHT;
      this.cursor.setAttribute("visibility", inside ? "visible" : "hidden");
      const left = Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8);
      const top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8);
      tip.style.left = Math.max(left, 4) + "px";
      tip.style.top = Math.max(top, 4) + "px";
      tip.style.visibility = "visible";
    }
  }

  const hide = () => { tip.style.visibility = "hidden"; };

  const panels = new Map();
  const resized = new ResizeObserver(entries => {
    for (const {target} of entries) {
      const panel = panels.get(target);
      if (target.clientWidth && target.clientWidth !== panel.width) panel.draw();
    }
  });
  const build = figure => {
    const place = figure.querySelector(".panels");
    if (place.hasChildNodes()) return;
    for (const one of data[figure.dataset.chart].panels) {
      // One seed comes as [x, value]: its own mean, least and most.
      for (const curve of one.curves) {
        curve.points = curve.points.map(p => p.length > 2 ? p : [p[0], p[1], p[1], p[1], 1]);
      }
      const panel = new Panel(one);
      place.append(panel.node);
      panels.set(panel.svg, panel);
      panel.draw();
      resized.observe(panel.svg);
    }
  };
  // What is folded away is built when it is first seen.
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const fold = figure.closest("details");
    if (fold) fold.addEventListener("toggle", () => { if (fold.open) build(figure); });
    else build(figure);
  }

  const theme = document.getElementById("theme"), root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = name => {
    const other = name === "dark" ? "light" : "dark";
    root.dataset.theme = name;
    theme.textContent = other;
    theme.setAttribute("aria-label", `switch to ${other} colours`);
  };
  theme.addEventListener("click", () => paint(root.dataset.theme === "dark" ? "light" : "dark"));
  dark.addEventListener("change", () => paint(dark.matches ? "dark" : "light"));
  paint(dark.matches ? "dark" : "light");
})();
